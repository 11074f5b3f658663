"""The command: what it prints, how it ends, and that it tells what could not be stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from chromafuse.domain.treecodec import TREE_ID
from tests.support.backends import TargetBackend
from tests.support.chroma_server import free_port
from tests.support.commands import finish, run_command, start_ingest
from tests.support.sites import all_records, foreign_chunks, read_site, tree_record, write_site

SITE = {"index.mdx": b"# Index\n", "guide/a.md": b"a\n" * 50, "guide/b.txt": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_site(tmp_path / "site", SITE)


def test_a_site_is_stored_and_the_summary_counts_it(chroma: TargetBackend, root: Path) -> None:
    done = finish(start_ingest(root, chroma.target, chroma.name))
    assert done.returncode == 0
    assert "3 pages, 3 chunks, 108 bytes" in done.stdout
    assert "written 3 pages (3 chunks), unchanged 0, removed 0" in done.stdout
    again = finish(start_ingest(root, chroma.target, chroma.name))
    assert again.returncode == 0
    assert "written 0 pages (0 chunks), unchanged 3, removed 0" in again.stdout
    assert "(as before)" in again.stdout
    assert read_site(chroma.open(create=False)) == SITE


def test_progress_off_a_terminal_is_plain_lines_on_standard_error(
    server: TargetBackend, root: Path
) -> None:
    done = finish(start_ingest(root, server.target, server.name))
    assert "storing pages (3)" in done.stderr.split("\n")
    assert "\x1b" not in done.stderr + done.stdout
    assert "\r" not in done.stderr + done.stdout


def test_what_could_not_be_stored_is_named_and_the_exit_code_is_3(
    chroma: TargetBackend, root: Path
) -> None:
    (root / "guide" / "latin1.md").write_bytes(b"caf\xe9")
    (root / "dangling.md").symlink_to("nowhere")
    (root / "outside.md").symlink_to("/etc/passwd")
    done = finish(start_ingest(root, chroma.target, chroma.name))
    assert done.returncode == 3
    assert "could not be stored: 3" in done.stdout
    for name in ("guide/latin1.md: not UTF-8", "dangling.md: ", "outside.md: "):
        assert f"  {name}" in done.stdout
    assert "Traceback" not in done.stderr
    assert read_site(chroma.open(create=False)) == SITE


def test_every_lost_file_is_named_however_many(server: TargetBackend, root: Path) -> None:
    for n in range(60):
        (root / f"bad{n:02}.md").write_bytes(b"\xff")
    done = finish(start_ingest(root, server.target, server.name))
    assert done.returncode == 3
    assert all(f"bad{n:02}.md: not UTF-8" in done.stdout for n in range(60))


def test_a_site_of_another_tool_is_refused_with_10_and_left_alone(
    server: TargetBackend, root: Path
) -> None:
    store = server.open()
    store.add([tree_record('{"a": {"isPublic": true, "groups": []}}'), *foreign_chunks("a", "x")])
    before = all_records(store)
    done = finish(start_ingest(root, server.target, server.name))
    assert done.returncode == 10
    assert done.stderr.rstrip().split("\n")[-1].startswith("chromafuse: ")
    assert "another tool wrote" in done.stderr
    assert all_records(store) == before


def test_a_source_that_is_not_there_makes_no_collection(tmp_path: Path) -> None:
    done = run_command(
        "ingest", str(tmp_path / "none"), "-c", "docs", "--chroma", str(tmp_path / "db"),
        home=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"chromafuse: {tmp_path / 'none'} does not exist")
    assert not (tmp_path / "db").exists()


def test_a_server_that_is_not_there_is_one_line_and_6(root: Path) -> None:
    done = finish(start_ingest(root, f"http://user:pw@127.0.0.1:{free_port()}", "docs"))
    assert done.returncode == 6
    assert done.stderr.count("\n") == 1
    assert "pw" not in done.stderr.replace("http://", "")


def test_a_tree_of_a_later_program_is_refused_with_7_and_left_alone(
    server: TargetBackend, root: Path
) -> None:
    store = server.open()
    store.add([tree_record("{}", {"format": 99, "tree_version": "x", "parts": 1})])
    before = all_records(store)
    done = finish(start_ingest(root, server.target, server.name))
    assert done.returncode == 7
    assert "update chromafuse" in done.stderr
    assert all_records(store) == before


def test_the_default_target_is_a_database_in_the_data_directory(root: Path) -> None:
    done = run_command("ingest", str(root), "--collection", "docs", home=root.parent)
    assert done.returncode == 0
    assert (root.parent / ".local/share/chromafuse/chroma/chroma.sqlite3").is_file()


def test_a_chunk_size_given_on_the_command_line_is_used(server: TargetBackend, root: Path) -> None:
    done = finish(start_ingest(root, server.target, server.name, "--chunk-size", "10"))
    assert done.returncode == 0
    store = server.open()
    texts = [r.document or "" for r in store.scan(documents=True) if r.id != TREE_ID]
    assert max(map(len, texts)) <= 10
    assert read_site(store) == SITE
