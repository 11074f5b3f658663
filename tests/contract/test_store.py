"""What every store promises, whichever vendor or way is behind it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chromafuse.domain.errors import StoreError, StoreMissing, StoreUnavailable
from chromafuse.domain.page import Metadata, Record
from chromafuse.domain.pattern import Fold, Literal, to_chroma
from chromafuse.domain.pattern.fold import prepare
from chromafuse.ports import ChunkWriter, NewRecord, Where
from chromafuse.stores import chroma as chroma_module
from chromafuse.stores.chroma import LOCAL_LIMITS, ChromaCollection, Limits
from chromafuse.stores.chroma_http import HttpTransport
from tests.support.backends import Backend, TargetBackend

PROJECT = Path(__file__).resolve().parents[2]
SMALL = Limits(read_records=3, write_records=4, document_bytes=100)

ODD_TEXTS = {
    "empty": "",
    "newline": "\n",
    "nul": "before\0after\0",
    "only nul": "\0",
    "crlf": "one\r\ntwo\r\n",
    "cr": "one\rtwo",
    "bom": "\ufeffbom",
    "separators": "a\v\f\x1c\x85\u2028\u2029b",
    "spaces": "  \t trailing \u00a0 ",
    "combining": "e\u0301 é",
    "wide": "漢字 \U0001f600 \U0010ffff",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f",
    "json": '{"a": "\\u0000\\"", \'',
    "sql": "'; DROP TABLE embeddings; -- %_*?[]",
    "noncharacters": "\ufffe\uffff\ufdd0",
    "long": "x" * 15_999 + "\n",
    "very long": "line\n" * 200_000,
}


def record(record_id: str, document: str = "text", **metadata: str | float | bool) -> NewRecord:
    return NewRecord(record_id, document, metadata or {"page": record_id}, (0.0,))


def ids(records: list[Record]) -> list[str]:
    return sorted(found.id for found in records)


def fill(store: ChunkWriter, count: int) -> list[str]:
    records = [record(f"id{n:03}", f"text {n}", n=n, even=n % 2 == 0) for n in range(count)]
    store.add(records)
    return [one.id for one in records]


# -- reading and writing


def test_what_is_added_is_found_by_id_with_text_and_metadata(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a", "text a", page="x", n=1), record("b", "text b", page="y", n=2)])
    [found] = store.get(["a"])
    assert (found.id, found.document, dict(found.metadata)) == (
        "a",
        "text a",
        {"page": "x", "n": 1},
    )
    assert ids(store.get(["b", "a"])) == ["a", "b"]


def test_another_store_on_the_collection_sees_a_write_at_once(backend: Backend) -> None:
    one, other = backend.open(), backend.open(create=False)
    for n in range(5):
        one.add([record(f"id{n}")])
        assert ids(other.get([f"id{n}"])) == [f"id{n}"]
        one.delete([f"id{n}"])
        assert other.get([f"id{n}"]) == []


def test_unknown_ids_are_left_out(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a")])
    assert ids(store.get(["x", "a", "y"])) == ["a"]
    assert store.get(["x"]) == []
    assert store.metadata("x") is None


def test_no_ids_are_no_records_and_never_all_of_them(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a")])
    assert store.get([]) == []
    store.delete([])
    assert ids(store.get(["a"])) == ["a"]
    store.add([])


def test_an_empty_collection_holds_nothing(backend: Backend) -> None:
    store = backend.open()
    assert store.get(["a"]) == []
    assert store.find({"page": "a"}) == []
    assert list(store.scan(documents=True)) == []
    assert list(store.scan_ids()) == []


def test_metadata_keep_their_types(backend: Backend) -> None:
    store = backend.open()
    metadata: dict[str, str | float | bool] = {
        "text": "1", "int": 1, "float": 1.5, "yes": True, "no": False, "big": 1 << 40,
        "negative": -3, "empty": "", "unicode": "日本\u2028"
    }  # fmt: skip
    store.add([NewRecord("a", "text", metadata, (0.0,))])
    for found in (store.metadata("a"), store.get(["a"])[0].metadata):
        assert found is not None
        assert dict(found) == metadata
        assert {key: type(value) for key, value in found.items()} == {
            key: type(value) for key, value in metadata.items()
        }


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_texts_come_back_identical(backend: Backend, name: str) -> None:
    store, text = backend.open(), ODD_TEXTS[name]
    store.add([record("a", text)])
    assert store.get(["a"])[0].document == text
    assert [found.document for found in store.scan(documents=True)] == [text]


@pytest.mark.parametrize("slug", ["a/b c", "日本", "::@*", "'\"%_", "a\0b", "x" * 2_000, "\u2028"])
def test_odd_slugs_are_stored_and_found(backend: Backend, slug: str) -> None:
    store = backend.open()
    store.add([record("a", page=slug), record("b", page="other")])
    assert ids(store.find({"page": slug})) == ["a"]
    assert ids(store.find({"page": {"$in": [slug]}})) == ["a"]
    assert store.get(["a"])[0].metadata["page"] == slug


def test_upsert_writes_new_records_and_replaces_old_ones(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a", "old", page="x", n=1)])
    store.upsert([record("a", "new", page="y", n=2), record("b", "text b")])
    [found] = store.get(["a"])
    assert (found.document, found.metadata["page"], found.metadata["n"]) == ("new", "y", 2)
    assert sorted(store.scan_ids()) == ["a", "b"]


def test_a_reader_never_sees_an_upsert_half_done(backend: Backend) -> None:
    writer, reader = backend.open(), backend.open(create=False)
    wanted = [f"id{n}" for n in range(40)]
    writer.add([record(one, "0") for one in wanted])
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            texts = {found.document for found in reader.get(wanted)}
            if len(texts) != 1:
                torn.append(texts)

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(1, 30):
        writer.upsert([record(one, str(n)) for one in wanted])
    stop.set()
    thread.join()
    assert torn == []


def test_deleted_records_are_gone_and_absent_ones_do_not_matter(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a"), record("b"), record("c")])
    store.delete(["a", "never-there"])
    store.delete(["a"])
    assert sorted(store.scan_ids()) == ["b", "c"]
    assert store.get(["a"]) == []


def test_a_deleted_id_can_be_written_again(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a", "one", page="x", n=1)])
    store.delete(["a"])
    store.add([record("a", "two", page="y")])
    [found] = store.get(["a"])
    assert (found.document, dict(found.metadata)) == ("two", {"page": "y"})


# -- filters


def test_a_filter_selects_by_equality_and_type(backend: Backend) -> None:
    store = backend.open()
    store.add(
        [
            record("int", v=1), record("text", v="1"), record("true", v=True),
            record("other", v=2), record("lacks", w=1),
        ]
    )  # fmt: skip
    assert ids(store.find({"v": 1})) == ["int"]
    assert ids(store.find({"v": "1"})) == ["text"]
    assert ids(store.find({"v": True})) == ["true"]
    assert store.find({"v": 3}) == []
    assert store.find({"absent": 1}) == []


def test_in_selects_any_of_several_and_nothing_else(backend: Backend) -> None:
    store = backend.open()
    store.add([record(f"id{n}", page=f"p{n}") for n in range(6)])
    assert ids(store.find({"page": {"$in": ["p1", "p4", "absent"]}})) == ["id1", "id4"]


def test_conditions_joined_by_and_hold_together(backend: Backend) -> None:
    store = backend.open()
    fill(store, 8)
    assert ids(store.find({"$and": [{"even": True}, {"n": {"$in": [1, 2, 4]}}]})) == [
        "id002", "id004"
    ]  # fmt: skip


def test_get_with_a_filter_returns_what_has_the_id_and_matches(backend: Backend) -> None:
    store = backend.open()
    fill(store, 6)
    assert ids(store.get(["id000", "id001", "id002"], {"even": True})) == ["id000", "id002"]
    assert store.get(["id001"], {"even": True}) == []
    assert store.get([], {"even": True}) == []


def test_a_search_without_a_condition_is_refused(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a")])
    with pytest.raises(StoreError, match="without a condition"):
        store.find({})


# -- paging


def matching(store: ChunkWriter, document: Where, where: Where | None = None) -> list[str]:
    return ids(store.matching(document, where, 100))


def test_matching_finds_records_by_their_text_as_it_is(backend: Backend) -> None:
    store = backend.open()
    texts = {
        "plain": "a needle in it\n",
        "case": "a Needle in it\n",
        "odd": "100% _under_ *star* [x] (y) 'q' \"d\" \\ back",
        "letters": "stra\u00dfe caf\u00e9 cafe\u0301 \u65e5\u672c\u8a9e \U0001f600\r\n",
        "empty": "",
    }
    store.add([record(name, text) for name, text in texts.items()])
    assert matching(store, {"$contains": "needle"}) == ["plain"]
    assert matching(store, {"$contains": "needle in"}) == ["plain"]
    assert matching(store, {"$contains": "e"}) == ["case", "letters", "odd", "plain"]
    assert matching(store, {"$contains": "zz"}) == []
    for name in ("odd", "letters"):
        text = texts[name]
        for start in range(len(text)):
            for length in (1, 2, 3, 5):
                assert name in matching(store, {"$contains": text[start : start + length]})
    for other in ("%", "_", "*", "'", '"', "\\"):
        assert matching(store, {"$contains": other}) == ["odd"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("needle|quetzal", ["a", "c"]),
        ("[nN][eE]edle", ["a", "b"]),
        ("\\[x\\]", ["c"]),
        ("[s\u017f]tream|[k\u212a]elvin", ["d", "e"]),
        ("a\\.b", []),
        ("l\\. q", ["c"]),
    ],
)
def test_matching_takes_literals_as_an_expression(
    backend: Backend, pattern: str, found: list[str]
) -> None:
    store = backend.open()
    texts = {
        "a": "needle",
        "b": "Needle",
        "c": "[x] l. quetzal",
        "d": "\u017ftream",
        "e": "\u212aelvin",
    }
    store.add([record(name, text) for name, text in texts.items()])
    assert matching(store, {"$regex": pattern}) == found


ODD_LITERALS = [
    *("".join(map(chr, range(start, start + 8))) for start in range(32, 127, 8)),
    *(chr(code) for code in (*range(1, 10), 11, 12, 13, *range(32, 128))),
    *("(?i)x", "a{2}", "[a-z]", "^x$", "x|y", "\\d+", "&&", "--", "~~", "a-b", "\\Qx\\E", "# x"),
    *("\u00e9", "e\u0301", "\u017f", "\u65e5\u672c", "\U0001f600", "\u2028", "\ufeff", "\ud7a3"),
]


def test_what_is_asked_for_is_found_whatever_its_characters(backend: Backend) -> None:
    """As a search asks: with one expression, which also finds the tree."""
    store = backend.open()
    names = [f"id{n:03}" for n in range(len(ODD_LITERALS))]
    store.add(
        [record(name, f"<{text}>\n") for name, text in zip(names, ODD_LITERALS, strict=True)]
        + [record("tree", "H4sIAAAA"), record("other", "nothing of it")]
    )
    for name, text in zip(names, ODD_LITERALS, strict=True):
        for also in ("H4sI", None):
            condition = to_chroma(Literal(f"<{text}>"), also=also)
            assert condition is not None
            has = [n for n, t in zip(names, ODD_LITERALS, strict=True) if f"<{text}>" in f"<{t}>"]
            assert name in has
            assert matching(store, condition) == ([*has, "tree"] if also else has), condition
        for fold in (Fold.ASCII, Fold.UNICODE):
            folded = prepare(f"<{text}>", fold)
            if "\n" not in folded:
                condition = to_chroma(Literal(folded, fold), also="H4sI")
                assert condition is not None
                assert {name, "tree"} <= set(matching(store, condition)), condition


def test_matching_has_metadata_and_no_text_and_as_many_as_asked_for(backend: Backend) -> None:
    store = backend.open()
    fill(store, 20)
    found = store.matching({"$contains": "text 7"}, None, 100)
    assert [(one.id, one.document, one.metadata) for one in found] == [
        ("id007", None, {"n": 7, "even": False})
    ]
    for most in (1, 5, 19, 20):
        assert len(store.matching({"$contains": "text"}, None, most)) == most
    assert len(store.matching({"$contains": "text"}, None, 21)) == 20


def test_matching_is_restricted_to_what_the_metadata_allow(backend: Backend) -> None:
    store = backend.open()
    for n, access in enumerate(("public", "g:staff", "g:other")):
        store.add([record(f"id{n}", "needle", access=access), record(f"no{n}", "x", access=access)])
    store.add([record("none", "needle", page="x")])
    needle = {"$contains": "needle"}
    assert matching(store, needle, {"access": {"$in": ["public"]}}) == ["id0"]
    assert matching(store, needle, {"access": {"$in": ["public", "g:other"]}}) == ["id0", "id2"]
    assert matching(store, needle, {"access": {"$in": ["g:nobody"]}}) == []
    assert matching(store, needle) == ["id0", "id1", "id2", "none"]
    for condition in ({"access": {"$in": ["public"]}}, None):
        with pytest.raises(StoreError):
            store.matching({}, condition, 100)


def test_matching_takes_alternatives_of_text_and_of_metadata(backend: Backend) -> None:
    store = backend.open()
    store.add(
        [
            record("open", "needle", access="public"),
            record("secret", "needle H4sI", access="g:staff"),
            record("other", "thread", access="public"),
            record("head", "H4sIAAAA", tree_version="abc"),
            record("old", "H4sIAAAA", tree_version="xyz"),
            record("odd", "H4sI too", access="public"),
        ]
    )
    where = {"$or": [{"access": {"$in": ["public"]}}, {"tree_version": "abc"}]}
    for condition in ({"$contains": "needle"}, {"$regex": "[nN]eedle|quetzal"}):
        document = {"$or": [condition, {"$contains": "H4sI"}]}
        assert matching(store, document, where) == ["head", "odd", "open"]


def test_matching_sees_writes_at_once(backend: Backend) -> None:
    store, other = backend.open(), backend.open()
    needle = {"$contains": "needle"}
    store.add([record("a", "needle")])
    assert matching(other, needle) == ["a"]
    store.upsert([record("a", "thread"), record("b", "a needle")])
    assert matching(other, needle) == ["b"]
    store.delete(["b"])
    assert matching(other, needle) == []


def test_matching_does_not_look_behind_a_nul(backend: Backend) -> None:
    """Pages that have one are marked, and always candidates."""
    store = backend.open()
    store.add([record("nul", "before\0behind"), record("plain", "before behind")])
    assert matching(store, {"$contains": "before"}) == ["nul", "plain"]
    assert matching(store, {"$contains": "behind"}) == ["plain"]


@pytest.mark.parametrize("count", [2, 3, 4, 6, 7, 11, 12])
def test_reads_and_writes_larger_than_one_call_are_whole(backend: Backend, count: int) -> None:
    store = backend.open(limits=SMALL)
    wanted = fill(store, count)
    assert ids(store.get(wanted)) == wanted
    assert ids(store.get([*wanted, "absent"])) == wanted
    assert sorted(store.scan_ids()) == wanted
    scanned = list(store.scan(documents=True))
    assert sorted((r.id, r.document, r.metadata["n"]) for r in scanned) == [
        (f"id{n:03}", f"text {n}", n) for n in range(count)
    ]
    assert ids(store.find({"n": {"$in": list(range(count))}})) == wanted
    assert ids(store.find({"even": True})) == wanted[::2]
    store.delete(wanted[:-1])
    assert list(store.scan_ids()) == wanted[-1:]


def test_more_ids_than_chroma_takes_at_once_are_read_and_deleted(backend: Backend) -> None:
    store = backend.open()
    kept = fill(store, 20)
    absent = [f"absent{n}" for n in range(12_000)]
    assert ids(store.get(absent[:6_000] + kept + absent[6_000:])) == kept
    store.delete(absent)
    assert sorted(store.scan_ids()) == kept


def test_an_upsert_that_could_not_be_one_step_is_refused_whole(backend: Backend) -> None:
    store = backend.open(limits=SMALL)
    with pytest.raises(StoreError, match="do not fit into one write"):
        store.upsert([record(f"id{n}") for n in range(5)])
    assert list(store.scan_ids()) == []
    assert store.write_batch == 4


def test_a_scan_without_documents_has_ids_and_metadata_only(backend: Backend) -> None:
    store = backend.open(limits=SMALL)
    fill(store, 7)
    found = list(store.scan(documents=False))
    assert [r.document for r in found] == [None] * 7
    assert sorted(r.metadata["n"] for r in found) == list(range(7))


def test_a_store_tells_what_a_record_holds_and_where_it_is(backend: Backend) -> None:
    store = backend.open(limits=SMALL)
    assert store.record_bytes == 100
    assert f"collection {backend.name} in " in store.description


# -- collections that come and go


def test_a_missing_collection_is_told_in_one_line_with_a_remedy(backend: Backend) -> None:
    backend.open()
    with pytest.raises(StoreMissing) as caught:
        backend.open(create=False, name="never-made")
    assert "never-made" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 7


def test_opening_again_keeps_what_is_there(backend: Backend) -> None:
    backend.open().add([record("a")])
    assert list(backend.open(create=True).scan_ids()) == ["a"]


def test_a_collection_deleted_under_the_store_is_missing(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a")])
    backend.drop()
    for call in (
        lambda: store.get(["a"]),
        lambda: store.find({"page": "a"}),
        lambda: store.metadata("a"),
        lambda: list(store.scan_ids()),
        lambda: store.add([record("b")]),
        lambda: store.upsert([record("b")]),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(StoreMissing, match=backend.name):
            call()


def test_a_collection_made_anew_under_the_store_is_found_again(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a", "old")])
    backend.drop()
    with pytest.raises(StoreMissing):
        store.get(["a"])
    backend.open().add([record("a", "new"), record("b", "new")])
    assert {found.document for found in store.get(["a", "b"])} == {"new"}
    store.add([record("c")])
    assert sorted(store.scan_ids()) == ["a", "b", "c"]


def test_collections_do_not_see_each_other(backend: Backend) -> None:
    one, other = backend.open(), backend.open(name=f"{backend.name}-other")
    one.add([record("a", "one")])
    other.add([record("a", "other")])
    assert [found.document for found in one.get(["a"])] == ["one"]
    one.delete(["a"])
    assert list(other.scan_ids()) == ["a"]


def test_a_closed_store_fails(backend: Backend) -> None:
    store = backend.open()
    store.add([record("a")])
    store.close()
    with pytest.raises((StoreError, RuntimeError)):
        store.get(["a"])


def test_several_threads_read_and_write_one_store(backend: Backend) -> None:
    store = backend.open()
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for n in range(8):
                mine = f"{number}-{n}"
                store.add([record(mine, mine)])
                found = store.get([mine])
                if [r.document for r in found] != [mine]:
                    wrong.append(found)
        except StoreError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(list(store.scan_ids())) == 48


def test_records_that_another_tool_wrote_without_metadata_are_read(chroma: TargetBackend) -> None:
    chroma.open()
    chroma.add_raw("bare", "text", None)
    chroma.add_raw("no text", None, {"page": "x"})
    store = chroma.open(create=False)
    found = {record.id: record for record in store.scan(documents=True)}
    assert (found["bare"].document, dict(found["bare"].metadata)) == ("text", {})
    assert found["no text"].document is None
    assert store.metadata("bare") == {}
    assert store.metadata("absent") is None


def test_metadata_that_are_lists_do_not_harm(chroma: TargetBackend) -> None:
    chroma.open()
    chroma.add_raw("a", "text", {"tags": ["b"], "page": "p"})
    [found] = chroma.open(create=False).find({"page": "p"})
    assert found.metadata["page"] == "p"


# -- the lock


def test_two_threads_are_never_inside_together(backend: Backend) -> None:
    stores = [backend.open(), backend.open()]
    inside, most, entries = 0, 0, 0

    def work(store: ChunkWriter) -> None:
        nonlocal inside, most, entries
        for _ in range(5):
            with store.exclusive():
                inside += 1
                most = max(most, inside)
                entries += 1
                time.sleep(0.01)
                inside -= 1

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entries) == (1, 10)


def test_the_lock_is_released_when_its_holder_fails(backend: Backend) -> None:
    store, other = backend.open(), backend.open()
    with pytest.raises(ZeroDivisionError), store.exclusive():
        raise ZeroDivisionError
    with other.exclusive():
        pass


def test_the_lock_leaves_no_record_and_does_not_stop_readers(backend: Backend) -> None:
    store, other = backend.open(), backend.open()
    store.add([record("a")])
    with store.exclusive():
        assert ids(other.get(["a"])) == ["a"]
        assert list(other.scan_ids()) == ["a"]
    assert list(store.scan_ids()) == ["a"]


def test_the_lock_of_one_collection_is_not_that_of_another(backend: Backend) -> None:
    if not hasattr(backend, "target"):
        return
    one, other = backend.open(), backend.open(name=f"{backend.name}-other")
    started = time.monotonic()
    with one.exclusive(), other.exclusive():
        assert time.monotonic() - started < 10


@contextmanager
def held_by_a_process(chroma: TargetBackend) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock; killed at the end if it still lives."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.lock_holder", chroma.target, chroma.name],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_lock_kept_too_long_is_told_with_its_holder(
    chroma: TargetBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = chroma.open()
    monkeypatch.setattr(chroma_module, "LOCK_WAIT", 0.3)
    with (
        held_by_a_process(chroma) as holder,
        pytest.raises(StoreUnavailable, match=f"process {holder.pid}"),
        store.exclusive(),
    ):
        pytest.fail("two held the lock")


@pytest.mark.parametrize("reaped", [True, False])
def test_the_lock_of_a_killed_process_is_taken_over(chroma: TargetBackend, reaped: bool) -> None:
    store = chroma.open()
    with held_by_a_process(chroma) as holder:
        holder.send_signal(signal.SIGKILL)
        if reaped:
            holder.wait()
        started = time.monotonic()
        with store.exclusive():
            assert time.monotonic() - started < 10


class SlowToLook(HttpTransport):
    """Takes its time once, behind its first look at who holds the lock."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 60.0, LOCAL_LIMITS)
        self.looked, self.go_on = threading.Event(), threading.Event()

    def read_marker(self, name: str) -> Metadata | None:
        found = super().read_marker(name)
        self.looked.set()
        assert self.go_on.wait(60)
        return found


def test_of_two_that_find_a_dead_holder_only_one_is_inside(server_backend: TargetBackend) -> None:
    quick = server_backend.open()
    with held_by_a_process(server_backend) as holder:
        holder.kill()
    transport = SlowToLook(server_backend.target)
    transport.open_collection(server_backend.name, create=False)
    slow = ChromaCollection(transport, server_backend.name)
    inside = threading.Event()

    def enter() -> None:
        with slow.exclusive():
            inside.set()

    thread = threading.Thread(target=enter)
    thread.start()
    try:
        assert transport.looked.wait(60)
        with quick.exclusive():
            # What the other one has seen is no longer so.
            transport.go_on.set()
            assert not inside.wait(1.0)
    finally:
        transport.go_on.set()
        thread.join()
        slow.close()
        server_backend.close()
    assert inside.is_set()


def test_a_process_waits_for_the_lock_until_it_is_free(chroma: TargetBackend) -> None:
    store = chroma.open()
    order: list[str] = []
    with store.exclusive():
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lock_holder", chroma.target, chroma.name],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        reader = threading.Thread(
            target=lambda out: order.append(out.readline()), args=(process.stdout,)
        )
        reader.start()
        time.sleep(1.5)
        order.append("released\n")
    reader.join(60)
    process.kill()
    process.communicate()
    assert order == ["released\n", "held\n"]
