"""Where a daemon's control socket lies. Imports next to nothing, for ``cgrep``."""

import os


def socket_directories(uid: int) -> list[str]:
    """Return where the sockets of user ``uid`` may lie, the likeliest first."""
    places = []
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and uid == os.geteuid():
        places.append(os.path.join(given, "chromafuse"))
    user = f"/run/user/{uid}"
    if os.path.isdir(user):
        places.append(f"{user}/chromafuse")
    if uid == 0:
        places.append("/run/chromafuse")
    return [*places, f"/tmp/chromafuse-{uid}"]  # noqa: S108 - made 0700, owner checked


def socket_name(mount_point: bytes) -> str:
    """Return the name of the socket of what is mounted at a path (absolute, resolved)."""
    try:
        # The module behind hashlib, which takes milliseconds to load OpenSSL.
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    return blake2b(mount_point, digest_size=10).hexdigest() + ".sock"
