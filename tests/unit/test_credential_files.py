"""A secret that systemd hands over as a credential: root's file with an access list for us."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.unprivileged import UID

USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 1, 2, 4, 16, 32
NONE = 0xFFFF_FFFF
READ = 4

_CHECK = f"""
import os, sys
from pathlib import Path
from chromafuse.domain.errors import ConfigError
from chromafuse.tokens.files import check_secret, read_file
os.setgroups([])
os.setgid({UID})
os.setuid({UID})
path = Path(sys.argv[1])
found = read_file(path, "--jwt-key", 100)
try:
    check_secret(found.info, path, "--jwt-key")
except ConfigError as error:
    print(error)
else:
    print("accepted", found.data.decode())
"""


@pytest.fixture
def secret() -> Iterator[Path]:
    """A secret of root's in a directory that anybody may enter."""
    assert os.geteuid() == 0, "only root can own it"
    directory = Path(tempfile.mkdtemp(prefix="cf-credential-"))
    directory.chmod(0o755)
    path = directory / "jwt-key"
    path.write_text("secret")
    path.chmod(0o400)
    yield path
    shutil.rmtree(directory)


def give(path: Path, *, others: int = 0) -> None:
    entries = [(USER_OBJ, READ, NONE), (USER, READ, UID), (GROUP_OBJ, 0, NONE)]
    entries += [(MASK, READ, NONE), (OTHER, others, NONE)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", packed)


def checked(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, path], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_an_access_list_of_root_for_this_user_is_no_sharing(secret: Path) -> None:
    give(secret)
    assert secret.stat().st_mode & 0o777 == 0o440
    assert checked(secret) == "accepted secret"


def test_one_that_anybody_may_read_is(secret: Path) -> None:
    give(secret, others=READ)
    assert "can be read by others" in checked(secret)


def test_a_group_that_is_not_ours_is(secret: Path) -> None:
    os.chown(secret, UID, 12)
    secret.chmod(0o440)
    assert "can be read by others" in checked(secret)
