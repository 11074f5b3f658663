"""``cgrep``: grep itself, under a name that a search through a mount can be asked for.

Executes the real grep with the arguments as they are. Standard library only, and little of it:
most calls name one file, and what start-up costs is all that a user notices.
"""

import os
import sys

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"


def main() -> None:
    """Become grep. Exits with 2, as grep does for trouble, if there is none."""
    import signal

    # Python ignores these two, and what is ignored stays so in the program executed.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    environment = _environment()
    for directory in (os.environ.get("PATH") or SEARCH_PATH).split(":"):
        program = os.path.join(directory, "grep")
        try:
            os.execve(program, ["grep", *sys.argv[1:]], environment)  # noqa: S606
        except OSError:
            continue
    sys.stderr.write("cgrep: there is no grep in PATH\n")
    sys.exit(2)


def _environment() -> dict[bytes, bytes]:
    """Return the environment as it was given: Python itself may have added LC_CTYPE."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if item)
        return {name: value for name, _, value in pairs}
