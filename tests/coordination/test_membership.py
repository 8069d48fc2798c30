"""Joining when the answer is lost: who has joined waits until he sees himself, or would take himself for removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.coordinator import _dismissed
from aioelasticjob.coordination.membership import Member, join
from aioelasticjob.coordination.view import read
from aioelasticjob.errors import OutcomeUnknown
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.registry.session import Session, open_session
from aioelasticjob.registry.tree import Tree
from aioelasticjob.registry.txn import Committed, Delete, Op
from aioelasticjob.testing import VirtualClock, run
from tests.registry.world import simulated

LAYOUT, ME = Layout("job"), "10.0.0.1@-@1"
CONFIG = JobConfig.build(job_name="job", cron="0 * * * * ?")


@dataclass
class Arrival:
    """Somebody who joins, and a mirror that shows what it is told to."""

    session: Session
    trees: Latest[Tree]
    joined_at: float | None = None

    async def join(self) -> None:
        member = Member(self.session, LAYOUT, ME, "10.0.0.1", "host", 1, self.session.incarnation)
        assert await join(member, CONFIG, self.trees) == CONFIG
        self.joined_at = anyio.current_time()

    async def seen(self) -> Tree:
        """Return what is there, as a mirror would show it."""
        tree = await self.session.subtree(LAYOUT.mirrored)
        return tree.replace({}, self.session.zxid)


@asynccontextmanager
async def arrival(lose: Callable[[Session], None]) -> AsyncIterator[Arrival]:
    async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
        lose(session)
        arriving = Arrival(session, Latest(Tree()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(arriving.join)
            await anyio.sleep(1)
            yield arriving
            tasks.cancel_scope.cancel()


def the_answer(session: Session) -> None:
    """Lose the answer to the first transaction, which has arrived."""
    _lose(session, arrives=True)


def the_request(session: Session) -> None:
    """Lose the first transaction on its way."""
    _lose(session, arrives=False)


def nothing(session: Session) -> None:
    """All is well."""


def _lose(session: Session, *, arrives: bool) -> None:
    commit = session.commit

    async def lossy(ops: Sequence[Op], **options: Any) -> Committed:
        session.commit = commit  # type: ignore[method-assign]
        if arrives:
            await commit(ops, **options)
        raise OutcomeUnknown("the connection broke")

    session.commit = lossy  # type: ignore[method-assign]


@pytest.mark.parametrize("lose", [nothing, the_answer, the_request])
def test_whoever_joins_waits_until_the_mirror_shows_him(lose: Callable[[Session], None]) -> None:
    async def main() -> None:
        async with arrival(lose) as arriving:
            mine = await arriving.session.exists(LAYOUT.instance(ME))
            assert mine is not None
            assert mine.ephemeral_owner == arriving.session.incarnation
            assert arriving.joined_at is None
            arriving.trees.set(Tree({}, mine.czxid - 1))  # something newer, but not yet that
            await anyio.sleep(1)
            assert arriving.joined_at is None
            arriving.trees.set(await arriving.seen())
            await anyio.sleep(0.1)
            assert arriving.joined_at is not None

    run(main)


@pytest.mark.parametrize("lose", [nothing, the_answer])
def test_a_mirror_that_shows_nothing_holds_nobody_up_for_ever(lose: Callable[[Session], None]) -> None:
    async def main() -> None:
        async with arrival(lose) as arriving:
            await anyio.sleep(5)
            assert arriving.joined_at == pytest.approx(5, abs=0.5)

    run(main)


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "there"])
def test_whoever_does_not_see_himself_looks_before_he_leaves(removed: bool) -> None:
    async def main() -> None:
        async with arrival(nothing) as arriving:
            arriving.trees.set(await arriving.seen())
            member = Member(arriving.session, LAYOUT, ME, "10.0.0.1", "host", 1, arriving.session.incarnation)
            stale = read(arriving.trees.value.replace({LAYOUT.instance(ME): None}, 0), LAYOUT, CONFIG)
            assert ME not in stale.instances
            if removed:
                await arriving.session.commit([Delete(LAYOUT.instance(ME))], incarnation=member.incarnation)
            assert await _dismissed(member, stale) is removed

    run(main)
