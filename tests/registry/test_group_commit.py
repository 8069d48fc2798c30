"""Transactions of one round share a request, and nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.registry.codec import MULTI, UNCERTAIN, Reply
from aioelasticjob.registry.group_commit import MAX_GROUP_OPERATIONS
from aioelasticjob.registry.session import Session, open_session
from aioelasticjob.registry.transaction import Check, Committed, Create, Op, Set
from tests.support.loops import run_async
from tests.support.simulated_registry import SimulatedRegistry, simulated


def with_session(use: Callable[[Session, SimulatedRegistry], Awaitable[None]]) -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(session_timeout=5)) as session:
            await use(session, world)

    run_async("virtual", main)


def requests(world: SimulatedRegistry) -> int:
    return world.servers[0].statistics.received


async def together(session: Session, *transactions: Sequence[Op]) -> list[object]:
    commits = (session.commit(ops, incarnation=session.incarnation) for ops in transactions)
    return list(await asyncio.gather(*commits, return_exceptions=True))


def test_transactions_of_one_round_are_one_request_and_each_gets_its_own_versions() -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        await session.commit([Create("/a"), Create("/b")], incarnation=session.incarnation)
        before = requests(world)
        first, second = await together(
            session, [Set("/a", b"1", 0), Check("/b", 0)], [Create("/c"), Set("/b", b"1", 0)]
        )
        assert requests(world) == before + 1
        assert isinstance(first, Committed)
        assert isinstance(second, Committed)
        assert (first.versions, second.versions) == ((1, -1), (0, 1))
        assert first.zxid == second.zxid == (await session.get("/c")).stat.czxid

    with_session(use)


def test_a_refused_transaction_takes_none_of_its_round_with_it() -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        await session.commit([Create("/a")], incarnation=session.incarnation)
        good, bad, better = await together(
            session, [Set("/a", b"1", 0)], [Create("/never"), Create("/a")], [Create("/c"), Set("/a", b"2", 1)]
        )
        assert isinstance(good, Committed)
        assert isinstance(better, Committed)
        assert isinstance(bad, Conflict)
        assert (bad.index, bad.path, bad.reason) == (1, "/a", "exists")
        assert await session.exists("/never") is None
        assert (await session.get("/a")).data == b"2"

    with_session(use)


def test_a_round_larger_than_a_group_becomes_several_and_a_large_transaction_stays_whole() -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        before = requests(world)
        singles = [[Create(f"/{n}")] for n in range(MAX_GROUP_OPERATIONS + 1)]
        large = [Create(f"/large-{n}") for n in range(2 * MAX_GROUP_OPERATIONS)]
        outcomes = await together(session, *singles, large)
        assert all(isinstance(one, Committed) for one in outcomes)
        assert requests(world) == before + 3
        assert len(await session.children("/")) == 3 * MAX_GROUP_OPERATIONS + 1

    with_session(use)


def test_a_caller_cancelled_before_the_round_ends_writes_nothing() -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        async def make(path: str) -> None:
            await session.commit([Create(path)], incarnation=session.incarnation)

        async with asyncio.TaskGroup() as tasks:
            lost = tasks.create_task(make("/lost"))
            tasks.create_task(make("/kept"))
            asyncio.get_running_loop().call_soon(lost.cancel)
        assert await session.children("/") == ("kept",)

    with_session(use)


def test_a_session_that_ends_while_the_round_lasts_refuses_all_of_it() -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        keeper = session._keeper

        def end() -> None:
            keeper.lease.end()

        asyncio.get_running_loop().call_soon(end)
        commits = asyncio.gather(
            *(session.commit([Create(f"/{n}")], incarnation=session.incarnation) for n in range(2)),
            return_exceptions=True,
        )
        assert [type(one) for one in await commits] == [SessionEnded, SessionEnded]

    with_session(use)


@pytest.mark.parametrize(("swallowed", "error"), [(True, OutcomeUnknown), (False, Suspended)])
def test_a_lost_connection_is_reported_to_each(swallowed: bool, error: type[Exception]) -> None:
    async def use(session: Session, world: SimulatedRegistry) -> None:
        incarnation = session.incarnation
        if swallowed:
            world.half_open()
        else:
            world.partition()
            world.reset()
            await session.status.changed()
        commits = (session.commit([Create(f"/{n}")], incarnation=incarnation) for n in range(2))
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(one) for one in outcomes] == [error, error]
        assert outcomes[0] is not outcomes[1]
        world.heal()

    with_session(use)


@pytest.mark.parametrize("code", [-1, -2, -3, -7, -122, -125, -127, -102, -999], ids=str)
def test_an_error_of_the_whole_request_says_that_nothing_was_written_or_that_nobody_knows(code: int) -> None:
    async def use(session: Session, _world: SimulatedRegistry) -> None:
        connection = session._keeper.connection
        assert connection is not None
        call = connection.call

        def failing(opcode: int, body: bytes = b"") -> asyncio.Future[Reply]:
            if opcode != MULTI:
                return call(opcode, body)
            answer = asyncio.get_running_loop().create_future()
            answer.set_result((code, 7, b""))
            return answer

        connection.call = failing  # type: ignore[method-assign]
        outcomes = await together(session, [Create("/a")], [Create("/b")])
        assert all(isinstance(one, RegistryError) for one in outcomes)
        assert [isinstance(one, OutcomeUnknown) for one in outcomes] == [code in UNCERTAIN] * 2
        assert all(f"({code})" in str(one) or "not permitted" in str(one) for one in outcomes)

    with_session(use)
