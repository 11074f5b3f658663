"""``doctor`` names each fault, how bad it is and what mends it; here each is really produced.

Every examination runs in a mount namespace without the mounts of others, so that what is found is
what the test made, and the host never sees the faults.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chromafuse.stores.chroma import open_collection
from tests.mount.harness import COMMANDS, Finished, Site, run
from tests.support.chroma_server import ChromaServer, free_port, running_chroma
from tests.support.redis_server import running_redis
from tests.support.s3_server import CREDENTIALS, running_s3
from tests.support.sites import all_records
from tests.support.tokens import claims, pair, sign, write
from tests.support.unprivileged import UID, as_nobody

pytestmark = pytest.mark.xdist_group("mount-doctor")

FINDINGS = 13
CHECKS = {
    "settings", "fuse", "fusermount3", "user_allow_other", "namespaces", "apparmor", "libfuse",
    "packages", "updatedb", "runtime directory", "log", "cache", "tokens", "redis", "objects",
    "chroma",
}  # fmt: skip

APART = """\
set -e
grep -F ' - fuse' /proc/self/mountinfo | cut -d ' ' -f 5 | grep -v "^$OWN" |
  xargs -r -d '\\n' umount --lazy || true
cp -a /etc "$COPY/etc"
mount --bind "$COPY/etc" /etc
"""


@pytest.fixture
def stored(site: Site, tmp_path: Path) -> Site:
    """A site of two pages, ingested but not mounted."""
    source = tmp_path / "source"
    (source / "guide").mkdir(parents=True)
    (source / "index.mdx").write_text("# Home\n")
    (source / "guide" / "start.mdx").write_text("# Start\n\nhello\n")
    site.ingest(source)
    return site


def examine(
    site: Site,
    *options: str,
    fault: str = "",
    env: dict[str, str] | None = None,
    nobody: bool = False,
    target: bool = True,
) -> Finished:
    """Run ``doctor --json`` after the shell script ``fault`` in a mount namespace of its own."""
    copy = site.base / "copy-of-etc"
    copy.mkdir(exist_ok=True)
    where = ["--collection", site.collection, "--chroma", site.chroma] if target else []
    words = [str(COMMANDS / "chromafuse"), "doctor", "--json", *where, *options]
    words = ["env", *(f"{name}={value}" for name, value in (env or {}).items()), *words]
    if nobody:
        scratch = site.base / "scratch"
        scratch.mkdir(exist_ok=True)
        # In the copy of /etc, as the tests' own directories are closed to others.
        fault = f"install -d -o {UID} /etc/nobody; {fault}"
        kinds = ("CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR")
        mine = ["HOME=/etc/nobody", *(f"XDG_{kind}=/etc/nobody/{kind}" for kind in kinds)]
        words = as_nobody(["env", *mine, *words], scratch)
    script = f'{APART}{fault}\nexec "$@"'
    given = site.env | {"OWN": str(site.base), "COPY": str(copy)}
    shell = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
    try:
        done = run(shell, env=given, cwd=site.base)
    finally:
        run(["rm", "-rf", str(copy)], env=site.env, cwd=site.base)
    assert b"Traceback" not in done.err, done
    return done


def told(done: Finished) -> dict[str, Any]:
    found = json.loads(done.out)
    assert isinstance(found, dict)
    assert (done.code == FINDINGS) == bool(found["findings"]), done
    return found


def only(done: Finished) -> dict[str, str]:
    """The one finding of an examination."""
    assert done.code == FINDINGS, done
    (finding,) = told(done)["findings"]
    assert finding["mend"], finding
    return dict(finding)


def digest(root: Path) -> str:
    """What lies below ``root``: names, modes, times and contents."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        found.update(f"{path} {path.lstat().st_mode}\n".encode())
        if path.is_file():
            found.update(f"{path.lstat().st_mtime_ns}\n".encode() + path.read_bytes())
    return found.hexdigest()


def test_a_machine_in_order_has_no_findings_and_nothing_is_changed(stored: Site) -> None:
    """Of the database, the records: Chroma writes its working files whoever opens it."""
    places = [stored.base / "home", Path(stored.env["XDG_RUNTIME_DIR"])]

    def state() -> object:
        store = open_collection(stored.chroma, stored.collection, create=False, timeout=10)
        try:
            records = all_records(store)
        finally:
            store.close()
        return records, [digest(place) for place in places]

    before = state()
    done = examine(stored, "--deep").expect(0)
    assert state() == before
    assert {check["check"] for check in told(done)["checks"]} == CHECKS | {"tree", "pages"}
    assert b"2 of 2 pages" in done.err


def test_without_json_it_is_read_by_people(stored: Site) -> None:
    done = stored.command(
        "doctor", "--collection", "absent", "--chroma", stored.chroma, "--log-file", "/x/y"
    ).expect(FINDINGS)
    assert b"error   chroma: there is no collection absent" in done.out
    assert b"\n        -> " in done.out
    assert b"to mend\n" in done.out


def test_without_a_collection_the_machine_is_examined(stored: Site) -> None:
    checks = {check["check"]: check for check in told(examine(stored, target=False))["checks"]}
    assert checks["chroma"]["severity"] == "note"
    assert "--collection" in checks["chroma"]["mend"]


def test_wrong_settings_are_a_finding(stored: Site) -> None:
    finding = only(examine(stored, env={"CHROMAFUSE_DEADLNE": "3"}))
    assert finding["check"] == "settings"
    assert "CHROMAFUSE_DEADLNE" in finding["text"]


DEVICES = "mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3; mknod /dev/urandom c 1 9; "


@pytest.mark.parametrize(
    ("fault", "nobody", "text"),
    [
        (DEVICES, False, "there is no /dev/fuse"),
        (DEVICES + "mknod /dev/fuse c 10 254", False, "/dev/fuse"),
        (DEVICES + "mknod -m 666 /dev/fuse c 1 3", False, "another device"),
    ],
)
def test_the_device(stored: Site, fault: str, nobody: bool, text: str) -> None:
    finding = only(examine(stored, fault=fault, nobody=nobody))
    assert finding["check"] == "fuse"
    assert text in finding["text"]


def findings(done: Finished) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in told(done)["findings"]}


def test_a_device_that_this_user_may_not_open(stored: Site) -> None:
    """As a user without rights in a namespace whose device is root's alone."""
    code = (
        "import os\n"
        "from chromafuse.doctor import machine\n"  # as root: the checkout may be closed to others
        f"os.setuid({UID})\n"
        "print([finding.text for finding in machine.device()])\n"
    )
    script = f'{DEVICES} mknod -m 600 /dev/fuse c 10 229; exec "$@"'
    shell = ["unshare", "--mount", "sh", "-c", script, "sh", str(COMMANDS / "python"), "-c", code]
    done = run(shell, env=stored.env, cwd=stored.base).expect(0)
    assert b"/dev/fuse cannot be opened: Permission denied" in done.out


def test_no_fusermount3(stored: Site) -> None:
    """Root is warned; a user cannot mount."""
    nowhere = {"PATH": str(COMMANDS)}
    as_root = findings(examine(stored, env=nowhere))
    assert as_root["fusermount3"]["severity"] == "warning"
    as_user = findings(examine(stored, env=nowhere, nobody=True, target=False))
    assert as_user["fusermount3"]["severity"] == "error"
    assert as_user["fusermount3"]["mend"] == "apt install fuse3"


def test_a_fusermount3_without_rights(stored: Site) -> None:
    fault = (
        f"mkdir -m 755 /etc/bin; cp {shutil.which('fusermount3')} /etc/bin/; chmod 755 /etc/bin/*"
    )
    found = findings(
        examine(
            stored,
            fault=fault,
            env={"PATH": f"/etc/bin:{os.environ['PATH']}"},
            nobody=True,
            target=False,
        )
    )
    assert "chmod u+s /etc/bin/fusermount3" in found["fusermount3"]["mend"]


def test_allow_other_for_users(stored: Site) -> None:
    def of(line: str, *options: str) -> dict[str, dict[str, str]]:
        fault = f"echo '{line}' > /etc/fuse.conf"
        return findings(examine(stored, *options, fault=fault, nobody=True, target=False))

    assert "user_allow_other" not in of("#user_allow_other")
    assert "user_allow_other" not in of("user_allow_other", "--allow-other")
    found = of("#user_allow_other", "--allow-other")["user_allow_other"]
    assert found["severity"] == "error"
    assert found["mend"] == "as root: echo user_allow_other >> /etc/fuse.conf"


def test_namespaces_that_are_forbidden(stored: Site) -> None:
    """In a user namespace whose own limit forbids further ones, as in test_rights of run."""
    fault = "echo 0 > /proc/sys/user/max_mnt_namespaces"
    line = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{fault}; exec "$@"',
        "sh",
    ]
    words = [str(COMMANDS / "chromafuse"), "doctor", "--json"]
    done = run([*line, *words], env=stored.env, cwd=stored.base)
    found = findings(done)["namespaces"]
    assert found["severity"] == "warning"
    assert "sysctl user.max_mnt_namespaces=10000" in found["mend"]


def test_apparmor_that_limits_users(stored: Site) -> None:
    fault = (
        "mount -t tmpfs tmpfs /sys/module; mkdir -p /sys/module/apparmor/parameters;"
        " echo Y > /sys/module/apparmor/parameters/enabled;"
        " mkdir -p /etc/apparmor.d; touch /etc/apparmor.d/fusermount3"
    )

    def of(fault: str) -> dict[str, str]:
        done = examine(stored, fault=fault, nobody=True, target=False)
        (found,) = [check for check in told(done)["checks"] if check["check"] == "apparmor"]
        return dict(found)

    assert of(fault)["severity"] == "note"
    assert "aa-complain" in of(fault)["mend"]
    disabled = "; mkdir /etc/apparmor.d/disable; ln -s x /etc/apparmor.d/disable/fusermount3"
    assert of(fault + disabled)["severity"] == "ok"


def test_a_libfuse_that_cannot_be_loaded(stored: Site) -> None:
    fault = (
        "ldconfig -p | sed -n 's/.*libfuse3.so.3 .*=> //p' |"
        " while read -r path; do mount --bind /dev/null $(realpath $path); done"
    )
    finding = only(examine(stored, fault=fault))
    assert finding["check"] == "libfuse"
    assert finding["mend"] == "apt install libfuse3-3"


def test_a_python_package_of_another_version(stored: Site) -> None:
    info = stored.base / "old" / "httpx-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: httpx\nVersion: 0.1\n")
    finding = only(examine(stored, env={"PYTHONPATH": str(info.parent)}))
    assert finding["check"] == "packages"
    assert finding["text"].startswith("httpx 0.1 does not fit")
    assert finding["mend"] == "pip install 'httpx<1,>=0.28'"


def test_a_python_package_that_is_missing(stored: Site) -> None:
    fault = (
        f"find {shlex.quote(str(COMMANDS.parent / 'lib'))} -name 'tenacity-*.dist-info' |"
        " while read -r path; do mount -t tmpfs -o mode=000 tmpfs $path; umount $path;"
        " mkdir /etc/empty; mount --bind /etc/empty $path; done"
    )
    finding = only(examine(stored, fault=fault))
    assert finding["text"] == "the Python package tenacity is missing"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ('PRUNEFS="NFS fuse.sshfs"', "warning"),
        ("PRUNEPATHS=/tmp", "warning"),
        ('PRUNEFS = "nfs fuse.chromafuse"', "ok"),
        ('#PRUNEFS="fuse.chromafuse"', "warning"),
    ],
)
def test_updatedb(stored: Site, line: str, severity: str) -> None:
    """What is said to mend it mends it."""
    fault = f"echo {shlex.quote(line)} > /etc/updatedb.conf"
    done = examine(stored, fault=fault)
    if severity == "ok":
        done.expect(0)
        return
    finding = only(done)
    assert (finding["check"], finding["severity"]) == ("updatedb", severity)
    mend = finding["mend"].removeprefix("as root: ")
    examine(stored, fault=f"{fault}; {mend}").expect(0)


def test_a_dead_mount(stored: Site) -> None:
    stored.mount()
    stored.kill()
    finding = only(examine(stored))
    assert finding["check"] == f"mount {stored.mountpoint}"
    assert finding["mend"] == f"chromafuse umount {stored.mountpoint}"
    run(shlex.split(finding["mend"]), env=stored.env, cwd=stored.base).expect(0)
    examine(stored).expect(0)


def test_mounts_that_live(stored: Site) -> None:
    stored.hub()
    checks = told(examine(stored).expect(0))["checks"]
    assert f"mount {stored.mountpoint}" in {check["check"] for check in checks}


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_mount_that_hangs(stored: Site) -> None:
    stored.mount()
    with stopped(stored.daemons()[0]):
        finding = only(examine(stored))
    assert finding["check"] == f"mount {stored.mountpoint}"
    assert finding["text"] == "no answer within 3 s"
    assert "chromafuse umount --lazy" in finding["mend"]


def test_a_runtime_directory_that_is_open_to_others(stored: Site) -> None:
    directory = Path(stored.env["XDG_RUNTIME_DIR"]) / "chromafuse"
    directory.mkdir(mode=0o755, exist_ok=True)
    directory.chmod(0o755)
    finding = only(examine(stored))
    assert finding["check"] == "runtime directory"
    directory.chmod(0o700)
    examine(stored).expect(0)


def test_a_log_that_cannot_be_written(stored: Site) -> None:
    file = stored.base / "file"
    file.touch()
    finding = only(examine(stored, "--log-file", str(file / "deep" / "log")))
    assert finding["check"] == "log"
    assert "is not a directory" in finding["text"]
    read_only = stored.base / "read-only"
    read_only.mkdir()
    fault = f"mount -t tmpfs -o ro tmpfs {read_only}"
    finding = only(examine(stored, "--log-file", str(read_only / "log"), fault=fault))
    assert "cannot be written" in finding["text"]


def test_a_cache_that_cannot_be_written(stored: Site) -> None:
    file = stored.base / "file"
    file.touch()
    finding = only(examine(stored, env={"XDG_CACHE_HOME": str(file)}))
    assert (finding["check"], finding["severity"]) == ("cache", "warning")


def test_tokens(stored: Site) -> None:
    key = write(stored.base / "key.pem", pair("EdDSA").pem)
    use = ("--jwt-key", str(key))
    examine(stored, *use).expect(0)
    finding = only(examine(stored, "--tokens-file", str(stored.base / "absent")))
    assert finding["check"] == "tokens"
    past = sign(pair("EdDSA").private, "EdDSA", claims(exp=time.time() - 9))
    finding = only(examine(stored, *use, env={"CHROMAFUSE_TOKEN": past}))
    assert "expired" in finding["text"]
    assert past not in json.dumps(finding)


def test_redis(stored: Site) -> None:
    with running_redis("secret") as server:
        examine(stored, "--redis", server.url).expect(0)
        finding = only(examine(stored, "--redis", server.url.replace("secret", "wrong")))
        assert "refuses the password" in finding["text"]
        assert "wrong" not in json.dumps(finding)
        server.freeze()
        finding = only(examine(stored, "--redis", server.url))
        server.thaw()
        assert "TimeoutError" in finding["text"]
        server.stop()
        finding = only(examine(stored, "--redis", server.url))
    assert (finding["check"], finding["severity"]) == ("redis", "warning")
    assert "secret" not in json.dumps(finding)


def test_places_of_files_outside_chroma(stored: Site, tmp_path: Path) -> None:
    place = tmp_path / "specs"
    place.mkdir()
    allowed = ("--pointers-allowed", f"file://{place}")
    examine(stored, *allowed).expect(0)
    (place / "x.json").write_text("{}")
    examine(stored, *allowed).expect(0)
    finding = only(examine(stored, "--pointers-allowed", f"file://{tmp_path}/absent"))
    assert (finding["check"], finding["severity"]) == ("objects", "error")
    assert str(tmp_path / "absent") in finding["text"]
    with running_s3(tmp_path / "s3") as server:
        server.put("bucket", "api/x.json", b"{}")
        stored.env.update(CREDENTIALS)
        endpoint = ("--s3-endpoint", server.direct)
        examine(stored, "--pointers-allowed", "s3://bucket/api", *endpoint).expect(0)
        finding = only(examine(stored, "--pointers-allowed", "s3://other", *endpoint))
        assert "s3://other" in finding["text"]
        stored.env.update({**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": "another"})
        finding = only(examine(stored, "--pointers-allowed", "s3://bucket/api", *endpoint))
        assert (finding["check"], finding["severity"]) == ("objects", "error")
        assert "credentials" in finding["text"]
        assert "access key" in finding["mend"]
        assert "another-secret" not in json.dumps(finding)
        stored.env.update(CREDENTIALS)
    finding = only(
        examine(stored, "--pointers-allowed", "s3://bucket", *endpoint, "--deadline", "1")
    )
    assert finding["check"] == "objects"
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in json.dumps(finding)


def test_a_chroma_that_is_not_there(stored: Site) -> None:
    finding = only(
        examine(
            stored,
            "--chroma",
            str(stored.base / "absent"),
            target=False,
            env={"CHROMAFUSE_COLLECTION": "site"},
        )
    )
    assert finding["check"] == "chroma"
    assert "there is no Chroma database" in finding["text"]
    assert not (stored.base / "absent").exists()
    finding = only(examine(stored, "--collection", "absent"))
    assert "there is no collection absent" in finding["text"]
    finding = only(examine(stored, "--chroma", f"http://127.0.0.1:{free_port()}"))
    assert "cannot be reached" in finding["text"] or "refused" in finding["text"]


def test_a_server_that_hangs(site: Site, tmp_path: Path) -> None:
    with running_chroma(tmp_path / "data") as server, stopped(server.pid):
        finding = only(examine(site, "--chroma", server.url, "--deadline", "0.5"))
    assert finding["check"] == "chroma"


def test_a_server_with_a_site_and_without_a_tree(
    tmp_path: Path, chroma_server: ChromaServer
) -> None:
    import httpx

    site = Site(tmp_path, chroma=chroma_server.url, collection="doctor-server")
    try:
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "index.md").write_text("# Home\n")
        site.ingest(tmp_path / "source")
        examine(site, "--deep").expect(0)
        base = f"{chroma_server.url}/api/v2/tenants/default_tenant/databases/default_database"
        name = "doctor-empty"
        httpx.post(f"{base}/collections", json={"name": name}).raise_for_status()
        finding = only(examine(site, "--collection", name))
        assert "there is no path tree" in finding["text"]
        assert "chromafuse ingest" in finding["mend"]
    finally:
        site.close()


def test_a_page_that_lacks_a_chunk_is_found_by_deep(stored: Site) -> None:
    store = open_collection(stored.chroma, stored.collection, create=True, timeout=10)
    records = store.find({"page": "guide/start"})
    store.delete([record.id for record in records])
    store.close()
    assert records
    examine(stored).expect(0)
    finding = only(examine(stored, "--deep"))
    assert finding["check"] == "pages"
    assert finding["text"].startswith("page guide/start cannot be read: no chunk is there")


def test_a_database_that_a_writer_holds_does_not_hang_it(stored: Site) -> None:
    holder = sqlite3.connect(Path(stored.chroma) / "chroma.sqlite3")
    try:
        holder.execute("PRAGMA journal_mode=DELETE")
        holder.execute("BEGIN EXCLUSIVE")
        done = examine(stored, "--deadline", "0.5")
    finally:
        holder.close()
    assert "chroma" in findings(done)
