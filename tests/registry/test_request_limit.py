"""How large a request may be is found out from the connections that servers have closed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.errors import NodeTooLarge, OutcomeUnknown
from aioelasticjob.registry.codec import MULTI, MULTI_READ, WATCH, Codec
from aioelasticjob.registry.request_limit import ALWAYS_TAKEN, RESOLUTION, SUSPICIOUS_ENDS, RequestLimit
from aioelasticjob.registry.session import Session, open_session
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock, run
from aioelasticjob.zookeeper.connection import Connection as ServerConnection
from aioelasticjob.zookeeper.settings import Settings
from tests.support import real_zookeeper
from tests.support.real_zookeeper import Changes
from tests.support.simulated_registry import fresh, simulated

MOST = 1_000_000
SMALL = 4096


def suspicious(most: int = MOST, size: int = 10_000) -> RequestLimit:
    """Return a limit of which connections have ended while a request of ``size`` was unanswered."""
    limit = RequestLimit(most)
    for _ in range(SUSPICIOUS_ENDS):
        assert limit.size_to_try == 0
        limit.connection_ended(100, size, "a request")
    return limit


def tried(limit: RequestLimit, real: int) -> list[int]:
    """Try sizes on a server that takes requests of up to ``real`` bytes, and return them."""
    sizes = list[int]()
    while size := limit.size_to_try:
        sizes.append(size)
        limit.tried(size, is_taken=size <= real)
    return sizes


@given(st.integers(ALWAYS_TAKEN, MOST - 1), st.data())
def test_the_limit_of_a_server_is_found_in_few_requests_and_is_never_above_it(real: int, data: st.DataObject) -> None:
    limit = suspicious(size=data.draw(st.integers(real + 1, MOST)))
    assert len(tried(limit, real)) < 50
    assert real - real / RESOLUTION - 1 <= limit.bytes <= real
    assert limit.is_found


@given(st.integers(ALWAYS_TAKEN + 1, MOST))
def test_a_size_that_is_answered_after_all_is_not_limited(size: int) -> None:
    limit = suspicious(size=size)
    assert tried(limit, MOST) == [size]
    assert (limit.bytes, limit.is_found) == (MOST, False)


def test_one_end_of_a_connection_proves_nothing() -> None:
    limit = suspicious(size=10_000)
    limit.tried(10_000, is_taken=False)
    limit.tried(5_512, is_taken=False)  # the server has stopped for another reason
    assert limit.size_to_try == 5_512
    limit.tried(5_512, is_taken=True)
    assert (limit.size_to_try, limit.bytes) == (0, MOST)  # if there is a limit, the next ends of connections show it


@pytest.mark.parametrize(
    "ends", [[(100, 5_000), (100, 900), (100, 5_000)], [(6_000, 5_000)] * 3, [(100, 0)] * 3, [(100, ALWAYS_TAKEN)] * 3]
)
def test_ends_with_small_requests_or_after_larger_ones_are_not_suspicious(ends: list[tuple[int, int]]) -> None:
    limit = RequestLimit(MOST)
    for answered, unanswered in ends:
        limit.connection_ended(answered, unanswered, "a request")
    assert limit.size_to_try == 0


def test_the_limit_is_tried_again_after_each_lost_connection() -> None:
    limit = suspicious()
    tried(limit, SMALL)
    found = limit.bytes
    limit.connection_ended(found, 0, "")
    (refused,) = tried(limit, SMALL)
    assert found < refused <= found + found // RESOLUTION + 1
    assert limit.bytes == found
    limit.connection_ended(found, 0, "")
    assert tried(limit, MOST) == [refused]
    assert (limit.bytes, limit.is_found) == (MOST, False)


def test_another_server_with_a_smaller_limit_is_found_out_too() -> None:
    limit = suspicious(size=100_000)
    tried(limit, 65_000)
    for _ in range(SUSPICIOUS_ENDS):
        tried(limit, 2_000)
        limit.connection_ended(100, 30_000, "a request")
    tried(limit, 2_000)
    assert 1_800 < limit.bytes <= 2_000


@given(st.sampled_from(["", "ns", "a/b"]), st.integers(40, 5_000))
def test_a_long_question_has_the_size_that_is_asked_for(namespace: str, size: int) -> None:
    assert len(Codec(namespace, private=False).long_question(size)) == size


OPS: list[Op] = [
    Create("/a", b"xyz"),
    Set("/b/c", b"\0" * 20, 3),
    Delete("/d"),
    Check("/ö", 2),
    Create("/e", b"", True),
]


@pytest.mark.parametrize("private", [False, True])
def test_the_paths_of_a_request_are_read_for_people(private: bool) -> None:
    codec = Codec("ns", private=private)
    assert codec.paths(MULTI, codec.multi(OPS)) == [op.path for op in OPS]
    reads = [(8, "/a"), (4, "/b/c"), (8, "/ö")]
    assert codec.paths(MULTI_READ, codec.multi_read(reads)) == [path for _, path in reads]
    for shallow in (True, False):
        (watches,) = codec.watch({"/a": shallow, "/b": shallow}, 5)
        assert codec.paths(WATCH, watches) == ["/a"]
    assert codec.paths(3, codec.watching("/a/b")) == ["/a/b"]


async def written(session: Session, *ops: Op) -> None:
    """Write a transaction, again and again while its outcome is unknown."""
    while True:
        try:
            await session.connected()
            await session.commit(ops, incarnation=session.incarnation)
            return
        except OutcomeUnknown:
            continue


async def see_a_limit(session: Session) -> None:
    """Look how a session gets on with a server that takes small requests only."""
    incarnation = session.incarnation
    with pytest.raises(NodeTooLarge, match=r"/large is 5.* bytes, and the servers close the connection on more than"):
        await written(session, Create("/large", b"x" * 5_000))
    assert SMALL - SMALL / RESOLUTION - 9 <= session.max_request <= SMALL - 8
    assert session.incarnation == incarnation
    connection = session._keeper.connection
    paths = [f"/many-{number:050}" for number in range(200)]
    for path in paths:
        await written(session, Create(path))
    commits = [session.commit([Set(path, b"x", 0)], incarnation=incarnation) for path in paths]
    assert {(await commit).versions for commit in commits} == {(1,)}  # none of the groups was too large
    assert [node is not None for node in await session.get_many(paths)] == [True] * 200
    assert len(await session.list_many(paths)) == 200
    assert session._keeper.connection is connection


def test_a_session_finds_the_limit_of_its_server_and_keeps_its_requests_below() -> None:
    async def main() -> None:
        async with (
            simulated(settings=Settings(tick_time=500, max_frame=SMALL)) as world,
            open_session(world.settings(), clock=VirtualClock()) as session,
        ):
            await see_a_limit(session)

    run(main)


def test_a_limit_that_was_raised_is_noticed_with_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with (
            simulated(settings=Settings(tick_time=500, max_frame=SMALL)) as world,
            open_session(world.settings(), clock=VirtualClock()) as session,
        ):
            with pytest.raises(NodeTooLarge):
                await written(session, Create("/large", b"x" * 5_000))
            feed = ServerConnection.feed

            def without_limit(connection: ServerConnection, data: bytes) -> None:
                connection.max_frame = MOST
                feed(connection, data)

            monkeypatch.setattr(ServerConnection, "feed", without_limit)
            lost = session._keeper.connection
            world.reset()
            await session.status.until(lambda status: session._keeper.connection not in (None, lost))
            await written(session, Create("/large", b"x" * 5_000))
            assert session.max_request == MOST

    run(main)


def test_a_network_that_breaks_while_large_requests_are_under_way_limits_nothing() -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock()) as session:
            for number in range(2 * SUSPICIOUS_ENDS):
                commit = session.commit([Create(f"/{number}", b"x" * 5_000)], incarnation=session.incarnation)
                await asyncio.sleep(0)
                world.reset()
                with pytest.raises(OutcomeUnknown):
                    await commit
                await session.connected()
            await written(session, Set("/", b"x" * 10_000, -1))
            assert session.max_request == MOST

    run(main)


@pytest.mark.zookeeper
def test_the_limit_of_a_real_zookeeper_is_found(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        async with open_session(fresh(address)) as session:
            await see_a_limit(session)

    changes = Changes(properties={"jute.maxbuffer": SMALL})
    with real_zookeeper.standalone(tmp_path, changes=changes) as server:
        asyncio.run(asyncio.wait_for(main(server.address), 60))
