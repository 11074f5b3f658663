"""A mounted corpus cannot be told from its source, whichever way it is read.

The first tests read pages at random offsets, so that they meet pages nobody has read yet.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.odd_tree import OddTree, Reason
from tests.mount.harness import (
    DT_DIR,
    DT_REG,
    Finished,
    MountedCorpus,
    listing,
    plain_environment,
    run,
)

pytestmark = pytest.mark.timeout(900)

RANGES = 200
Stats = dict[bytes, os.stat_result]


def walk(root: Path) -> tuple[Stats, Stats]:
    """What is below ``root``, by relative path: directories (the root is ``.``), and files."""
    directories: Stats = {}
    files: Stats = {}
    top = os.fsencode(root)
    for folder, _, names in os.walk(top, onerror=_give_up):
        directories[os.path.relpath(folder, top)] = os.stat(folder)
        for name in names:
            path = os.path.join(folder, name)
            files[os.path.relpath(path, top)] = os.lstat(path)
    return directories, files


def _give_up(error: OSError) -> None:
    raise error


def read(root: Path, relative: bytes) -> bytes:
    with open(os.path.join(os.fsencode(root), relative), "rb") as stream:
        return stream.read()


def some_pages(corpus: MountedCorpus) -> list[bytes]:
    """The largest pages, the smallest that have a byte, and some more; always the same ones."""
    files = walk(corpus.expected)[1]
    by_size = sorted((p for p in files if files[p].st_size), key=lambda p: files[p].st_size)
    assert by_size, f"{corpus.expected} has no pages"
    others = random.Random(corpus.name).sample(by_size, min(6, len(by_size)))
    chosen = by_size[-4:] + by_size[:2] + others
    return sorted(set(chosen))


def ranges(page: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Offsets and lengths inside a page of ``size`` bytes, its last byte and all of it at last."""
    dice = random.Random(page)
    for _ in range(RANGES):
        offset = dice.randrange(size)
        longest = min(size - offset, dice.choice((1, 16, 4_096, 70_000, size)))
        yield offset, dice.randint(1, longest)
    yield size - 1, 1
    yield 0, size


def open_uncached(corpus: MountedCorpus, page: bytes) -> int:
    """A descriptor of a mounted page whose bytes the kernel has forgotten, without read-ahead."""
    descriptor = os.open(os.path.join(os.fsencode(corpus.mount), page), os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def tool(tmp_path: Path, *command: str | bytes | Path) -> Finished:
    words = [os.fspath(word) for word in command]
    return run(words, env=plain_environment(tmp_path), cwd=tmp_path)


# Ranges


def test_reads_at_random_offsets_equal_slices(corpus: MountedCorpus) -> None:
    for page in some_pages(corpus):
        expected = read(corpus.expected, page)
        descriptor = open_uncached(corpus, page)
        try:
            for offset, length in ranges(page, len(expected)):
                found = os.pread(descriptor, length, offset)
                assert found == expected[offset : offset + length], (page, offset, length)
            assert os.pread(descriptor, 10, len(expected)) == b""
        finally:
            os.close(descriptor)


def test_memory_maps_at_random_offsets_equal_slices(corpus: MountedCorpus) -> None:
    for page in some_pages(corpus):
        expected = read(corpus.expected, page)
        descriptor = open_uncached(corpus, page)
        try:
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as memory:
                assert len(memory) == len(expected)
                for offset, length in ranges(page, len(expected)):
                    found = memory[offset : offset + length]
                    assert found == expected[offset : offset + length], (page, offset, length)
        finally:
            os.close(descriptor)


def test_sendfile_sends_the_same_bytes(corpus: MountedCorpus, tmp_path: Path) -> None:
    for page in some_pages(corpus):
        expected = read(corpus.expected, page)
        source = open_uncached(corpus, page)
        try:
            with (tmp_path / "sent").open("wb+") as target:
                offset = 0
                while sent := os.sendfile(target.fileno(), source, offset, 1 << 20):
                    offset += sent
                target.seek(0)
                assert target.read() == expected, page
        finally:
            os.close(source)


def test_copy_file_range_copies_the_same_bytes_or_is_refused_as_between_any_file_systems(
    corpus: MountedCorpus, tmp_path: Path
) -> None:
    for page in some_pages(corpus):
        source = open_uncached(corpus, page)
        try:
            with (tmp_path / "copied").open("wb+") as target:
                if copied_by_range(source, target.fileno()):
                    target.seek(0)
                    assert target.read() == read(corpus.expected, page), page
        finally:
            os.close(source)


def copied_by_range(source: int, target: int) -> bool:
    """Whether the kernel copied all; False if it does not do so between these file systems."""
    try:
        while os.copy_file_range(source, target, 1 << 20):
            pass
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def test_tail_prints_the_same_last_bytes(corpus: MountedCorpus, tmp_path: Path) -> None:
    for page in some_pages(corpus):
        expected = read(corpus.expected, page)
        path = os.path.join(os.fsencode(corpus.mount), page)
        for count in (1, 333, 5_000):
            done = tool(tmp_path, "tail", "-c", str(count), path).expect(0)
            assert done.out == expected[-count:], (page, count)


def test_dd_copies_the_same_middle(corpus: MountedCorpus, tmp_path: Path) -> None:
    for page in some_pages(corpus):
        content = read(corpus.expected, page)
        path = os.path.join(os.fsencode(corpus.mount), page)
        for block, skip, count in ((1, len(content) // 2, 50), (4_096, 1, 2), (511, 3, 7)):
            operands = (f"bs={block}", f"skip={skip}", f"count={count}", "status=none")
            done = tool(tmp_path, "dd", b"if=" + path, *operands)
            middle = content[block * skip : block * (skip + count)]
            assert (done.out, done.err, done.code) == (middle, b"", 0), (page, done)


# Whole trees


def test_diff_finds_nothing(corpus: MountedCorpus, tmp_path: Path) -> None:
    done = tool(tmp_path, "diff", "-r", corpus.expected, corpus.mount)
    assert (done.out, done.err, done.code) == (b"", b"", 0), done


def test_git_diff_finds_nothing(corpus: MountedCorpus, tmp_path: Path) -> None:
    done = tool(tmp_path, "git", "diff", "--no-index", corpus.expected, corpus.mount)
    assert (done.out, done.err, done.code) == (b"", b"", 0), done


def test_checksums_are_equal(corpus: MountedCorpus) -> None:
    for page in walk(corpus.expected)[1]:
        expected = hashlib.sha256(read(corpus.expected, page)).hexdigest()
        assert hashlib.sha256(read(corpus.mount, page)).hexdigest() == expected, page


def test_rsync_finds_nothing_to_do_in_either_direction(
    corpus: MountedCorpus, tmp_path: Path
) -> None:
    """Contents and times agree; permissions are the mount's own, directories have no times."""
    same = ("--no-perms", "--no-owner", "--no-group", "--omit-dir-times")
    look = ("--checksum", "--delete", "--dry-run", "--itemize-changes")
    here, there = f"{corpus.expected}/", f"{corpus.mount}/"
    for source, target in ((here, there), (there, here)):
        done = tool(tmp_path, "rsync", "-a", *same, *look, source, target)
        assert (done.out, done.err, done.code) == (b"", b"", 0), done


def test_cp_copies_bytes_times_and_modes(corpus: MountedCorpus, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    done = tool(tmp_path, "cp", "-a", corpus.mount, copy)
    assert (done.out, done.err, done.code) == (b"", b"", 0), done
    tool(tmp_path, "diff", "-r", corpus.expected, copy).expect(0)
    expected, found = walk(corpus.expected)[1], walk(copy)[1]
    assert times(found) == times(expected)
    assert {stat.S_IMODE(info.st_mode) for info in found.values()} == {0o444}
    shutil.rmtree(copy)


# Attributes


def times(files: Stats) -> dict[bytes, int]:
    return {path: info.st_mtime_ns for path, info in files.items()}


def test_every_path_is_there_and_no_other(corpus: MountedCorpus) -> None:
    expected, found = walk(corpus.expected), walk(corpus.mount)
    assert [set(part) for part in found] == [set(part) for part in expected]


def test_sizes_are_equal(corpus: MountedCorpus) -> None:
    expected, found = walk(corpus.expected)[1], walk(corpus.mount)[1]
    assert {p: i.st_size for p, i in found.items()} == {p: i.st_size for p, i in expected.items()}


def test_times_are_equal_to_the_nanosecond(corpus: MountedCorpus) -> None:
    assert times(walk(corpus.mount)[1]) == times(walk(corpus.expected)[1])


def test_what_no_source_tells_follows_from_what_it_does(corpus: MountedCorpus) -> None:
    directories, files = walk(corpus.mount)
    for info in files.values():
        assert info.st_atime_ns == info.st_ctime_ns == info.st_mtime_ns
        assert info.st_blocks == -(-info.st_size // 512)
    assert {info.st_size for info in directories.values()} == {0}
    for directory in directories:
        below = directory.rstrip(b"/") + b"/" if directory not in (b"", b".") else b""
        newest = max(info.st_mtime_ns for path, info in files.items() if path.startswith(below))
        assert directories[directory].st_mtime_ns == newest, directory


def test_directories_list_in_byte_order_of_names(corpus: MountedCorpus) -> None:
    for directory in walk(corpus.mount)[0]:
        names = os.listdir(os.path.join(os.fsencode(corpus.mount), directory))
        assert names == sorted(names), directory


def test_directories_list_themselves_and_their_parents(corpus: MountedCorpus) -> None:
    for directory in walk(corpus.mount)[0]:
        entries = listing(os.path.join(os.fsencode(corpus.mount), directory))
        dots = sorted(entry.name for entry in entries if entry.name in (b".", b".."))
        assert dots == [b".", b".."], directory


def test_listings_tell_type_and_inode_as_stat_does(corpus: MountedCorpus) -> None:
    directories, files = walk(corpus.mount)
    for directory in directories:
        for entry in listing(os.path.join(os.fsencode(corpus.mount), directory)):
            if entry.name in (b".", b".."):
                continue
            path = os.path.normpath(os.path.join(directory, entry.name))
            info, kind = (files[path], DT_REG) if path in files else (directories[path], DT_DIR)
            assert (entry.type, entry.inode) == (kind, info.st_ino), path


def test_scandir_tells_directories_from_files(corpus: MountedCorpus) -> None:
    directories, files = walk(corpus.expected)
    for directory in directories:
        with os.scandir(os.path.join(os.fsencode(corpus.mount), directory)) as entries:
            for entry in entries:
                path = os.path.normpath(os.path.join(directory, entry.name))
                kinds = (entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                assert kinds == (path in directories, path in files), path
                assert not entry.is_symlink(), path


def test_inodes_are_unique_and_stay(corpus: MountedCorpus) -> None:
    (directories, files), (again_directories, again_files) = walk(corpus.mount), walk(corpus.mount)
    inodes = {path: info.st_ino for path, info in (directories | files).items()}
    assert len(set(inodes.values())) == len(inodes)
    assert {p: i.st_ino for p, i in (again_directories | again_files).items()} == inodes


def test_files_and_directories_may_be_read_by_all_and_written_by_none(
    corpus: MountedCorpus,
) -> None:
    directories, files = walk(corpus.mount)
    assert {info.st_mode for info in files.values()} == {stat.S_IFREG | 0o444}
    assert {info.st_mode for info in directories.values()} == {stat.S_IFDIR | 0o555}


def test_everything_belongs_to_who_mounted_it(corpus: MountedCorpus) -> None:
    directories, files = walk(corpus.mount)
    owners = {(info.st_uid, info.st_gid) for info in (directories | files).values()}
    assert owners == {(os.getuid(), os.getgid())}


def test_link_counts_are_true(corpus: MountedCorpus) -> None:
    directories, files = walk(corpus.mount)
    assert {info.st_nlink for info in files.values()} == {1}
    for directory, info in directories.items():
        inside = [d for d in directories if d != b"." and (os.path.dirname(d) or b".") == directory]
        assert info.st_nlink in (1, 2 + len(inside)), directory


def test_find_selects_the_same_files_by_time(corpus: MountedCorpus, tmp_path: Path) -> None:
    moments = sorted(set(times(walk(corpus.expected)[1]).values()))
    chosen = {moments[0], moments[len(moments) // 2], moments[-1], moments[-1] + 1, moments[0] - 1}
    for moment in sorted(chosen):
        since = f"@{moment // 10**9}.{moment % 10**9:09}"
        found, expected = (
            tool(
                tmp_path, "find", root, "-type", "f", "-newermt", since, "-printf", "%P\\0"
            ).expect(0)
            for root in (corpus.mount, corpus.expected)
        )
        assert sorted(found.out.split(b"\0")) == sorted(expected.out.split(b"\0")), since


def test_du_tells_the_same_sizes_of_files(corpus: MountedCorpus, tmp_path: Path) -> None:
    """Those of directories belong to the file system, so they are left out on both sides."""
    files = walk(corpus.expected)[1]
    found, expected = (sizes_told_by_du(tmp_path, root) for root in (corpus.mount, corpus.expected))
    assert {p: found.get(p) for p in files} == {p: expected[p] for p in files}


def sizes_told_by_du(tmp_path: Path, root: Path) -> dict[bytes, bytes]:
    done = tool(tmp_path, "du", "-ab", "--apparent-size", "--null", root).expect(0)
    lines = (line.split(b"\t", 1) for line in done.out.split(b"\0") if line)
    return {os.path.relpath(path, os.fsencode(root)): size for size, path in lines}


# Extended attributes


ATTRIBUTES = ["user.chromafuse.chunks", "user.chromafuse.slug", "user.chromafuse.version"]


def attribute(root: Path, page: bytes, name: str) -> bytes:
    return os.getxattr(os.path.join(os.fsencode(root), page), name)


def test_getfattr_shows_slug_version_and_number_of_chunks(
    corpus: MountedCorpus, tmp_path: Path
) -> None:
    for page in some_pages(corpus):
        path = os.path.join(os.fsencode(corpus.mount), page)
        done = tool(tmp_path, "getfattr", "-d", "--absolute-names", b"--", path).expect(0)
        told = [line.split(b"=")[0].decode() for line in done.out.splitlines() if b"=" in line]
        assert [name for name in told if name.startswith("user.")] == ATTRIBUTES, done


def test_every_page_has_a_slug_of_its_own(corpus: MountedCorpus) -> None:
    pages = walk(corpus.mount)[1]
    slugs = {attribute(corpus.mount, page, "user.chromafuse.slug"): page for page in pages}
    assert len(slugs) == len(pages)
    wrong = {
        slug: page
        for slug, page in slugs.items()
        if page.endswith(b".mdx") and page != slug + b".mdx"
    }
    assert wrong == {}


def test_every_page_has_a_version_and_chunks_if_it_has_bytes(corpus: MountedCorpus) -> None:
    for page, info in walk(corpus.mount)[1].items():
        assert attribute(corpus.mount, page, "user.chromafuse.version") != b"", page
        chunks = int(attribute(corpus.mount, page, "user.chromafuse.chunks"))
        assert chunks * 16_000 >= info.st_size, page
        assert chunks <= max(1, info.st_size), page


# What the ingest said of the odd tree


odd_tree_only = pytest.mark.xdist_group("mount-odd")


@odd_tree_only
def test_ingest_names_every_file_it_could_not_store(odd: MountedCorpus) -> None:
    said = what_ingest_said(odd)
    assert odd.odd is not None
    unnamed = [path for path in odd.odd.lost if not is_named(path, odd.odd, said)]
    assert unnamed == []


@odd_tree_only
def test_ingest_names_every_page_it_hid(odd: MountedCorpus) -> None:
    said = what_ingest_said(odd)
    assert odd.odd is not None
    assert [path for path in odd.odd.hidden if path.decode() not in said] == []


@odd_tree_only
def test_what_is_lost_or_hidden_is_not_there(odd: MountedCorpus) -> None:
    assert odd.odd is not None
    for path in (*odd.odd.lost, *odd.odd.hidden):
        assert not os.path.lexists(os.path.join(os.fsencode(odd.mount), path)), path


def what_ingest_said(corpus: MountedCorpus) -> str:
    assert corpus.site.ingested is not None
    return (corpus.site.ingested.out + corpus.site.ingested.err).decode()


def is_named(path: bytes, tree: OddTree, said: str) -> bool:
    """Whether the report names the path; below a directory whose name is no text, that does."""
    if printable(path) in said:
        return True
    folder = os.path.dirname(path)
    return (
        tree.lost[path] is Reason.NAME_NOT_UTF8 and b"\xff" in folder and printable(folder) in said
    )


def printable(path: bytes) -> str:
    r"""The path as the report has it: what is not UTF-8 as ``\xNN``."""
    return path.decode(errors="backslashreplace")
