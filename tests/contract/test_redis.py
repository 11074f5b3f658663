"""Redis as a page cache: fast when it works, and never in the way whatever it does."""

from __future__ import annotations

import logging
import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from chromafuse.domain.errors import ConfigError
from chromafuse.domain.page import Slug
from chromafuse.ports import PageKey
from chromafuse.reader.loading import load
from chromafuse.stores import redis as redis_module
from chromafuse.stores.redis import NAMESPACE, TIMEOUT, Packer, RedisCache
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.redis_server import RedisServer, running_redis
from tests.support.sites import store_page

PACKER = Packer()
TEXT = "".join(f"line {n} of the page, as documentation has them\n" for n in range(200)).encode()
TTL = 600
SECRET = "hunter2-top-secret"  # noqa: S105 - nobody's
GENEROUS = 10.0
"""Seconds within which something has to happen that usually takes a hundredth of them."""

FAILS = r"Redis at \S+ fails \(\w+\): pages come from Chroma"


def key_of(n: int, *, version: str = "v1", collection: str = "docs") -> PageKey:
    return PageKey(collection, Slug(f"guides/p{n}"), version)


def pages_of(count: int) -> dict[PageKey, bytes]:
    return {key_of(n): b"%d\n" % n + TEXT for n in range(count)}


def sizes_of(pages: Mapping[PageKey, bytes]) -> dict[PageKey, int]:
    return {key: len(data) for key, data in pages.items()}


@pytest.fixture(scope="module")
def _server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def server(_server: RedisServer) -> RedisServer:
    """A server on a unix socket that every test finds empty."""
    _server.client.flushall()
    _server.forget_calls()
    return _server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server for one test to stop, freeze and fill."""
    with running_redis() as server:
        yield server


@contextmanager
def opened(url: str, ttl: int = TTL) -> Iterator[RedisCache]:
    cache = RedisCache(url, ttl)
    try:
        yield cache
    finally:
        cache.close()


@pytest.fixture
def cache(server: RedisServer) -> Iterator[RedisCache]:
    with opened(server.url) as cache:
        yield cache


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is tried again at every call, so that no test has to wait for it."""
    monkeypatch.setattr(redis_module, "REST_SECONDS", 0.0)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What our code logged so far, level INFO included."""
    caplog.set_level(logging.INFO, "chromafuse")
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("chromafuse")]


def count(lines: list[str], text: str) -> int:
    return sum(text in line for line in lines)


# -- what is kept


def test_what_was_put_is_got_again_with_all_its_bytes(cache: RedisCache) -> None:
    pages = pages_of(50) | {key_of(50): b"", key_of(51): bytes(range(256)) * 300}
    cache.put_many(list(pages.items()))
    assert cache.get_many(sizes_of(pages)) == pages
    assert cache.status()["ok"] is True
    assert (cache.hits, cache.misses, cache.errors) == (52, 0, 0)


def test_what_was_not_put_is_not_got_and_the_rest_is(cache: RedisCache) -> None:
    pages = pages_of(20)
    cache.put_many([(key, data) for key, data in pages.items() if key.slug.endswith("3")])
    found = cache.get_many(sizes_of(pages))
    assert found == {key_of(3): pages[key_of(3)], key_of(13): pages[key_of(13)]}
    assert (cache.hits, cache.misses) == (2, 18)


def test_a_bulk_get_is_one_mget(server: RedisServer, cache: RedisCache) -> None:
    pages = pages_of(200)
    cache.put_many(list(pages.items()))
    server.forget_calls()
    assert len(cache.get_many(sizes_of(pages))) == 200
    assert server.calls("mget") == 1
    assert server.calls("get") == 0


def test_a_bulk_put_is_pipelined(server: RedisServer, cache: RedisCache) -> None:
    pages = {key_of(n): b"%d" % n for n in range(200)}
    cache.get_many({key_of(0): 1})
    server.forget_calls()
    cache.put_many(list(pages.items()))
    # A server that answered command by command would have read 200 times.
    assert int(server.client.info("stats")["total_reads_processed"]) <= 20
    assert server.calls("set") == 200
    assert server.calls("multi") == 0


def test_nothing_is_asked_for_no_pages(server: RedisServer, cache: RedisCache) -> None:
    assert cache.get_many({}) == {}
    cache.put_many([])
    assert server.calls("mget") == server.calls("set") == 0


def test_every_entry_has_the_time_to_live(server: RedisServer) -> None:
    with opened(server.url, ttl=1234) as cache:
        cache.put_many(list(pages_of(5).items()))
    assert len(server.names()) == 5
    assert all(1200 < server.client.ttl(name) <= 1234 for name in server.names())


def test_an_entry_is_gone_behind_its_time(server: RedisServer) -> None:
    pages = pages_of(3)
    with opened(server.url, ttl=1) as cache:
        cache.put_many(list(pages.items()))
        end = time.monotonic() + GENEROUS
        while cache.get_many(sizes_of(pages)) and time.monotonic() < end:
            time.sleep(0.05)
        assert cache.get_many(sizes_of(pages)) == {}


def test_text_takes_less_room_than_it_has_bytes(server: RedisServer, cache: RedisCache) -> None:
    cache.put_many([(key_of(1), TEXT)])
    [name] = server.names()
    assert server.client.strlen(name) < len(TEXT) / 3


def test_what_does_not_compress_takes_hardly_more(server: RedisServer, cache: RedisCache) -> None:
    data = random.Random(1).randbytes(50_000)
    cache.put_many([(key_of(1), data)])
    [name] = server.names()
    assert server.client.strlen(name) < len(data) + 200


# -- under which names


def test_daemons_with_the_same_page_share_its_entry(server: RedisServer, cache: RedisCache) -> None:
    cache.put_many([(key_of(1), TEXT)])
    with opened(server.url) as other:
        assert other.get_many({key_of(1): len(TEXT)}) == {key_of(1): TEXT}
        other.put_many([(key_of(1), TEXT)])
    assert len(server.names()) == 1


def test_every_name_is_in_our_namespace_and_printable(
    server: RedisServer, cache: RedisCache
) -> None:
    slugs = ["a", "", "é", "\udcff", "a\0b", "x" * 5_000, "new\nline", "with space"]
    cache.put_many([(PageKey("docs", Slug(slug), "v"), TEXT) for slug in slugs])
    names = server.names()
    assert len(names) == len(slugs)
    for name in names:
        assert name.startswith(NAMESPACE.encode())
        assert name.decode("ascii").isprintable()
        assert len(name) < 80


NEARLY_EQUAL = [
    PageKey("docs", Slug("a"), "v1"),
    PageKey("docs", Slug("a"), "v2"),
    PageKey("docs", Slug("b"), "v1"),
    PageKey("other", Slug("a"), "v1"),
    PageKey("docs", Slug("av"), "1"),
    PageKey("docsa", Slug(""), "v1"),
    PageKey("v1", Slug("a"), "docs"),
]


def test_another_collection_slug_or_version_is_another_entry(
    server: RedisServer, cache: RedisCache
) -> None:
    pages = {key: b"%d" % n for n, key in enumerate(NEARLY_EQUAL)}
    cache.put_many(list(pages.items()))
    assert len(server.names()) == len(NEARLY_EQUAL)
    assert cache.get_many(sizes_of(pages)) == pages


# -- what is believed


def test_an_entry_under_the_name_of_another_is_none(server: RedisServer, cache: RedisCache) -> None:
    pages = {key_of(1): b"one", key_of(2): b"two"}
    cache.put_many(list(pages.items()))
    first, second = server.names()
    entries = [server.client.dump(name) or b"" for name in (first, second)]
    server.client.restore(second, 0, entries[0], replace=True)
    assert len(cache.get_many(sizes_of(pages))) == 1
    server.client.restore(first, 0, entries[1], replace=True)
    assert cache.get_many(sizes_of(pages)) == {}


@given(st.binary(max_size=5_000))
@example(b"")
@example(b"\0" * 100_000)
def test_any_bytes_come_back_from_their_entry(data: bytes) -> None:
    assert PACKER.decode(PACKER.encode(data), len(data)) == data


# Of nothing, a part is the whole.
@given(st.binary(min_size=1, max_size=300), st.data())
def test_an_entry_that_is_cut_is_not_believed(data: bytes, draw: st.DataObject) -> None:
    entry = PACKER.encode(data)
    assert PACKER.decode(entry[: draw.draw(st.integers(0, len(entry) - 1))], len(data)) is None


@given(st.binary(max_size=300), st.data())
def test_a_flipped_bit_never_makes_other_bytes(data: bytes, draw: st.DataObject) -> None:
    entry = bytearray(PACKER.encode(data))
    bit = draw.draw(st.integers(0, 8 * len(entry) - 1))
    entry[bit // 8] ^= 1 << bit % 8
    # Some bits of a frame mean nothing.
    assert PACKER.decode(bytes(entry), len(data)) in (None, data)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_garbage_is_not_believed(entry: bytes, size: int) -> None:
    assert PACKER.decode(entry, size) is None


@pytest.mark.parametrize("more", [b"x", PACKER.encode(b"")])
def test_an_entry_with_something_behind_it_is_not_believed(more: bytes) -> None:
    assert PACKER.decode(PACKER.encode(TEXT) + more, len(TEXT)) is None


def test_an_entry_without_a_checksum_is_not_believed() -> None:
    entry = zstandard.ZstdCompressor().compress(TEXT)
    assert PACKER.decode(entry, len(TEXT)) is None


@given(st.binary(max_size=300), st.integers(0, 400))
def test_an_entry_of_another_size_is_not_believed(data: bytes, size: int) -> None:
    assert PACKER.decode(PACKER.encode(data), size) == (data if size == len(data) else None)


@pytest.mark.parametrize("tells_size", [True, False])
def test_an_entry_that_unpacks_to_far_more_is_not_unpacked(tells_size: bool) -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=tells_size)
    bomb = packer.compress(b"\0" * (50 << 20))
    tracemalloc.start()
    try:
        assert PACKER.decode(bomb, 100) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _cut(server: RedisServer, name: bytes) -> None:
    server.client.set(name, server.client.getrange(name, 0, server.client.strlen(name) - 2))


def _flip(server: RedisServer, name: bytes) -> None:
    stored = server.client.get(name)
    assert isinstance(stored, bytes)
    entry = bytearray(stored)
    entry[len(entry) // 2] ^= 0x10
    server.client.set(name, bytes(entry))


def _other_size(server: RedisServer, name: bytes) -> None:
    server.client.set(name, PACKER.encode(TEXT + b"more"))


def _garbage(server: RedisServer, name: bytes) -> None:
    server.client.set(name, random.Random(2).randbytes(500))


def _empty(server: RedisServer, name: bytes) -> None:
    server.client.set(name, b"")


def _number(server: RedisServer, name: bytes) -> None:
    server.client.set(name, 7)


def _list(server: RedisServer, name: bytes) -> None:
    server.client.delete(name)
    server.client.rpush(name, b"one", b"two")


def _hash(server: RedisServer, name: bytes) -> None:
    server.client.delete(name)
    server.client.hset(name, "field", "value")


@pytest.mark.parametrize(
    "spoil", [_cut, _flip, _other_size, _garbage, _empty, _number, _list, _hash]
)
def test_a_spoiled_entry_is_not_cached_and_its_page_comes_from_the_source(
    server: RedisServer, cache: RedisCache, spoil: Callable[[RedisServer, bytes], None]
) -> None:
    store = MemoryStore(MemoryDatabase())
    pages = [store_page(store, f"p{n}", f"page {n}\n" * 20) for n in range(4)]
    work = [(PageKey("docs", page.slug, page.version or ""), page) for page in pages]
    texts = [f"page {n}\n".encode() * 20 for n in range(4)]
    cache.put_many([(work[0][0], texts[0])])
    [name] = server.names()
    spoil(server, name)
    cache.put_many([(key, text) for (key, _), text in zip(work[1:], texts[1:], strict=True)])
    sizes = {key: page.size for key, page in work}
    found = cache.get_many(sizes)
    assert found == {key: text for (key, _), text in zip(work[1:], texts[1:], strict=True)}
    # What is put now mends it.
    cache.put_many(load(store, [one for one in work if one[0] not in found]).fresh)
    assert list(cache.get_many(sizes).values()) == texts


# -- whatever it does, nobody notices


def use(cache: RedisCache, pages: Mapping[PageKey, bytes]) -> int:
    """Use the cache as a reader does; return how many pages it had."""
    found = cache.get_many(sizes_of(pages))
    assert found.items() <= pages.items()
    cache.put_many([(key, data) for key, data in pages.items() if key not in found])
    return len(found)


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_a_stopped_server_is_one_line_and_a_started_one_another(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    pages = pages_of(10)
    with opened(own_server.url) as cache:
        use(cache, pages)
        assert use(cache, pages) == 10
        own_server.stop()
        for _ in range(20):
            assert use(cache, pages) == 0
        assert cache.status()["ok"] is False
        assert count(lines(), "fails") == 1
        own_server.start()
        assert use(cache, pages) == 0  # it came back empty
        assert use(cache, pages) == 10
        assert cache.status()["ok"] is True
    assert count(lines(), "fails") == 1
    assert count(lines(), "works again") == 1


@pytest.mark.usefixtures("no_rest")
def test_a_server_restarted_between_two_reads_is_no_failure(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    pages = pages_of(3)
    with opened(own_server.url) as cache:
        use(cache, pages)
        own_server.stop()
        own_server.start()
        use(cache, pages)
        assert use(cache, pages) == 3
        assert cache.errors == 0
    assert lines() == []


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_a_server_that_was_never_there_is_one_line(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    own_server.stop()
    with opened(own_server.url) as cache:
        for _ in range(20):
            assert use(cache, pages_of(3)) == 0
        assert len(lines()) == 1
        own_server.start()
        use(cache, pages_of(3))
        assert use(cache, pages_of(3)) == 3


@pytest.mark.expects_log(FAILS)
def test_a_frozen_server_costs_one_timeout_and_then_nothing_while_it_rests(
    own_server: RedisServer, lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_module, "FIRST_REST_SECONDS", 3600.0)
    monkeypatch.setattr(redis_module, "REST_SECONDS", 3600.0)
    pages = pages_of(5)
    with opened(own_server.url) as cache:
        use(cache, pages)
        own_server.freeze()
        started = time.monotonic()
        assert use(cache, pages) == 0
        took = time.monotonic() - started
        assert TIMEOUT * 0.9 < took < TIMEOUT + 2
        started = time.monotonic()
        for _ in range(100):
            assert use(cache, pages) == 0
        assert time.monotonic() - started < TIMEOUT
        assert cache.errors == 1
        own_server.thaw()
    assert count(lines(), "fails (TimeoutError)") == len(lines()) == 1


@pytest.mark.expects_log(FAILS)
def test_it_rests_for_its_time_and_is_used_again_when_that_is_over(
    own_server: RedisServer, lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pages = pages_of(5)
    with opened(own_server.url) as cache:
        use(cache, pages)
        own_server.stop()
        assert use(cache, pages) == 0
        own_server.start()
        own_server.forget_calls()
        now += redis_module.FIRST_REST_SECONDS - 0.1
        assert use(cache, pages) == 0
        assert own_server.calls("mget") == own_server.calls("set") == 0
        assert count(lines(), "works again") == 0
        now += 0.2
        assert use(cache, pages) == 0
        assert own_server.calls("set") == 5
        assert use(cache, pages) == 5
    assert count(lines(), "works again") == 1


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_a_wrong_password_is_one_line_and_the_right_one_is_used(
    lines: Callable[[], list[str]],
) -> None:
    pages = pages_of(5)
    with running_redis(password=SECRET) as server:
        with opened(server.url.replace(SECRET, "wrong-" + SECRET)) as cache:
            for _ in range(10):
                assert use(cache, pages) == 0
            assert SECRET not in str(cache.status())
        with opened(server.url) as cache:
            use(cache, pages)
            assert use(cache, pages) == 5
            assert SECRET not in str(cache.status())
            # From now on it is wrong for connections that are made anew.
            server.client.config_set("requirepass", "changed")
            server.client.client_kill_filter(_type="normal", skipme=True)
            for _ in range(10):
                use(cache, pages)
    assert count(lines(), "fails") == len(lines()) == 2
    assert SECRET not in "\n".join(lines())
    assert f"127.0.0.1:{server.port}" in lines()[0]


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_a_full_server_is_one_line_however_often_it_is_tried(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    kept, later = pages_of(5), {key_of(n): b"%d" % n for n in range(5, 10)}
    with opened(own_server.url) as cache:
        use(cache, kept)
        own_server.client.config_set("maxmemory-policy", "noeviction")
        own_server.client.config_set("maxmemory", "1")
        for _ in range(20):
            assert use(cache, later) == 0
            # What it has, it still gives.
            assert use(cache, kept) == 5
        assert count(lines(), "fails") == len(lines()) == 1
        assert cache.status()["ok"] is False
        own_server.client.config_set("maxmemory", "0")
        use(cache, later)
        assert use(cache, later) == 5
        assert cache.status()["ok"] is True
    assert count(lines(), "fails") == 1
    assert count(lines(), "works again") == 1


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_each_incident_has_its_own_line(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    pages = pages_of(2)
    with opened(own_server.url) as cache:
        for _ in range(3):
            use(cache, pages)
            own_server.stop()
            use(cache, pages)
            use(cache, pages)
            own_server.start()
            use(cache, pages)
    assert ["fails" in line for line in lines()] == [True, False] * 3


@pytest.mark.expects_log(FAILS)
@pytest.mark.usefixtures("no_rest")
def test_many_threads_at_once_use_it_and_log_one_line_when_it_goes(
    own_server: RedisServer, lines: Callable[[], list[str]]
) -> None:
    pages = pages_of(20)
    problems: list[BaseException] = []
    halfway, gone = threading.Barrier(9), threading.Barrier(9)

    def work(cache: RedisCache) -> None:
        try:
            for _ in range(10):
                use(cache, pages)
            halfway.wait(GENEROUS)
            gone.wait(GENEROUS)
            for _ in range(10):
                assert use(cache, pages) == 0
        except BaseException as problem:  # noqa: BLE001 - a thread's failure is the test's
            problems.append(problem)

    with opened(own_server.url) as cache:
        threads = [threading.Thread(target=work, args=(cache,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        halfway.wait(GENEROUS)
        own_server.stop()
        gone.wait(GENEROUS)
        for thread in threads:
            thread.join()
        assert problems == []
    assert count(lines(), "fails") == len(lines()) == 1


# -- what it is told


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:6379",
        f":{SECRET}@127.0.0.1:6379",
        f"user:{SECRET}@127.0.0.1:6379",
        f"http://:{SECRET}@127.0.0.1:6379/0",
        f"redis:/:{SECRET}@127.0.0.1:6379",
        f"redis://:{SECRET}@127.0.0.1:port/0",
        f"redis://:{SECRET}/x@127.0.0.1:6379/0",
        f"redis://:{SECRET}#x@127.0.0.1:6379/0",
        f"redis://:{SECRET}?x@127.0.0.1:6379/0",
        f"redis://user:{SECRET}/x@127.0.0.1:6379/0",
        f"redis://[:{SECRET}@127.0.0.1",
        f"redis://127.0.0.1:99999/0?password={SECRET}",
        f"redis://127.0.0.1/0?password={SECRET}&no_such_option=1",
        f"redis://127.0.0.1/0?socket_timeout={SECRET}",
        f"redis://127.0.0.1/0?protocol=9&password={SECRET}",
        f"redis://127.0.0.1/0?decode_responses=1&password={SECRET}",
    ],
)
def test_a_wrong_url_is_an_error_of_the_configuration_that_tells_no_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^--redis ") as caught:
        RedisCache(url, TTL)
    text = str(caught.value)
    assert "\n" not in text
    assert "hunter2" not in text
    assert "hunter2" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@localhost:1/0",
        f"redis://user:{SECRET}@localhost:1/0",
        f"rediss://:{SECRET}@localhost:1/0",
        f"redis://localhost:1/0?password={SECRET}",
        f"redis://:12/{SECRET}@localhost:1",
        f"redis://:a%40{SECRET}@localhost:1",
        f"unix://:{SECRET}@/nowhere/redis.sock",
        f"unix:///nowhere/redis.sock?password={SECRET}",
    ],
)
@pytest.mark.expects_log(FAILS)
def test_no_part_of_a_password_is_ever_shown(url: str, lines: Callable[[], list[str]]) -> None:
    with opened(url) as cache:
        assert use(cache, pages_of(1)) == 0
        assert "hunter2" not in str(cache.status()) + cache.description
    assert len(lines()) == 1
    assert "hunter2" not in lines()[0]
