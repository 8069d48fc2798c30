"""Joining when the answer is lost: who has joined waits until he sees himself, or would take himself for removed.
Giving notice: an instance that leaves says so, and resigns if it is the leader.  Why it has to leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.instances import instance, left_at
from aioelasticjob.core.layout import COMMON, SWITCHES, Layout, server_switch
from aioelasticjob.core.view import read
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import announce_leaving, dismissed, join, leave
from aioelasticjob.errors import OutcomeUnknown, Suspended
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.session import Session, open_session
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Stat, Tree
from aioelasticjob.testing import VirtualClock, run
from tests.support.simulated_registry import simulated

LAYOUT, ME = Layout("job"), "10.0.0.1@-@1"
CONFIG = JobConfig.build(job_name="job", cron="0 * * * * ?")


@dataclass
class Arrival:
    """Somebody who joins, and a mirror that shows what it is told to."""

    session: Session
    trees: Latest[Tree]
    config: JobConfig = CONFIG
    common: Tree = field(default_factory=Tree)
    joined_at: float | None = None

    async def join(self) -> None:
        member = Member(self.session, LAYOUT, ME, "10.0.0.1", "host", 1, self.session.incarnation)
        assert await join(member, self.config, self.trees, common=self.common) == self.config
        self.joined_at = anyio.current_time()

    async def seen(self) -> Tree:
        """Return what is there, as a mirror would show it."""
        tree = await self.session.subtree(LAYOUT.mirrored)
        return tree.replace({}, self.session.zxid)


@asynccontextmanager
async def arrival(
    lose: Callable[[Session], None], config: JobConfig = CONFIG, flag: str | None = None
) -> AsyncIterator[Arrival]:
    """Let somebody join; a flag may switch its server off in all jobs."""
    async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
        if flag is not None:
            operations = map(Create, (SWITCHES, server_switch("10.0.0.1"), flag))
            await session.commit(list(operations), incarnation=session.incarnation)
        lose(session)
        arriving = Arrival(session, Latest(Tree()), config, await session.subtree(COMMON))
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


@pytest.mark.parametrize(
    ("settings", "flag", "leads"),
    [
        ({}, None, True),
        ({"disabled": True}, None, False),
        ({"requires": ["x"]}, None, False),
        ({}, server_switch("10.0.0.1", "paused"), True),
        ({}, server_switch("10.0.0.1", "disabled"), False),
    ],
)
def test_whoever_joins_a_job_without_a_leader_leads_it_at_once_if_it_may(
    settings: dict[str, Any], flag: str | None, leads: bool
) -> None:
    async def main() -> None:
        async with arrival(nothing, CONFIG.changed(**settings), flag) as arriving:
            tree = await arriving.seen()
            seat, mine = tree.get(LAYOUT.host), tree.get(LAYOUT.instance(ME))
            assert mine is not None
            assert (seat and (seat.data.decode(), seat.stat.czxid)) == ((ME, mine.stat.czxid) if leads else None)
            assert (LAYOUT.epoch in tree) is (LAYOUT.necessary in tree) is leads

    run(main)


def test_whoever_makes_a_job_notes_its_schedule_in_the_same_transaction() -> None:
    async def main() -> None:
        async with arrival(nothing) as arriving:
            made = (await arriving.seen()).get(LAYOUT.config)
            assert made is not None
            await anyio.sleep(100)
            other = Set(LAYOUT.config, CONFIG.changed(description="new").to_json(), -1)
            await arriving.session.commit([other], incarnation=arriving.session.incarnation)
            tree = await arriving.seen()
            note, view = tree.get(LAYOUT.schedule), read(tree, LAYOUT, CONFIG)
            assert note is not None
            assert note.stat.czxid == made.stat.czxid
            assert (view.schedules.is_noted, view.schedules.since) == (True, round(made.stat.mtime * 1000))

    run(main)


def test_a_note_that_is_there_already_is_left_to_the_leader() -> None:
    async def main() -> None:
        async with arrival(nothing) as arriving:
            member = Member(arriving.session, LAYOUT, ME, "10.0.0.1", "host", 1, arriving.session.incarnation)
            await arriving.session.commit([Delete(LAYOUT.config)], incarnation=arriving.session.incarnation)
            arriving.trees.set(await arriving.seen())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(join, member, CONFIG.changed(cron="1 * * * * ?"), arriving.trees)
                await anyio.sleep(1)
                tree = await arriving.seen()
                tasks.cancel_scope.cancel()
            view = read(tree, LAYOUT, CONFIG)
            assert view.config.cron == "1 * * * * ?"
            assert not view.schedules.is_noted
            assert [one["cron"] for one in view.schedules.noted] == [CONFIG.cron]

    run(main)


@asynccontextmanager
async def leader() -> AsyncIterator[tuple[Member, Session]]:
    """Yield a member that leads, and somebody else's session."""
    async with (
        simulated() as world,
        open_session(world.settings(), clock=VirtualClock(), seed=1) as session,
        open_session(world.settings(), clock=VirtualClock(), seed=2) as other,
    ):
        member = Member(session, LAYOUT, ME, "10.0.0.1", "host", 1, session.incarnation)
        made = [*map(Create, LAYOUT.skeleton), Create(LAYOUT.epoch)]
        made.append(Create(LAYOUT.instance(ME), member.describe(1.0), ephemeral=True))
        await session.commit([*made, Create(LAYOUT.host, ME.encode(), ephemeral=True)], incarnation=member.incarnation)
        yield member, other


async def takes_the_seat(other: Session) -> None:
    seat = [Delete(LAYOUT.host), Create(LAYOUT.host, b"other", ephemeral=True), Set(LAYOUT.epoch, b"", -1)]
    await other.commit(seat, incarnation=other.incarnation)


async def said(other: Session) -> tuple[bool, bytes | None]:
    """Return whether the member is said to leave, and who leads."""
    mine, seat = await other.get_many([LAYOUT.instance(ME), LAYOUT.host])
    assert mine is not None
    return instance(ME, mine).leaving, None if seat is None else seat.data


def test_who_leads_and_leaves_says_so_once_and_gives_up_the_seat() -> None:
    async def main() -> None:
        async with leader() as (member, other):
            await announce_leaving(member)
            assert await said(other) == (True, None)
            mine = instance(ME, await other.get(LAYOUT.instance(ME)))
            assert (mine.ip, mine.host, mine.pid, mine.up_since) == ("10.0.0.1", "host", 1, 1.0)
            written = other.zxid
            await announce_leaving(member)
            await other.sync()
            assert other.zxid == written

    run(main)


def test_an_instance_that_leaves_gracefully_leaves_a_note_once() -> None:
    async def main() -> None:
        async with leader() as (member, other):
            assert left_at(await other.get(LAYOUT.instances)) is None
            await leave(member)
            await other.sync()
            parent = await other.get(LAYOUT.instances)
            assert parent is not None
            assert left_at(parent) == parent.stat.mtime
            written = other.zxid
            await leave(member)  # it has left already
            await other.sync()
            assert other.zxid == written

    run(main)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"left": 7}', b"nonsense"])
def test_a_note_of_a_departure_that_somebody_has_edited_is_none(data: bytes) -> None:
    assert left_at(Node.of(data, Stat.of((1, 1), (1.0, 1.0), 0))) is None


def test_a_seat_taken_meanwhile_stays_and_so_does_a_node_that_is_not_ones_own() -> None:
    async def main() -> None:
        async with leader() as (member, other):
            read_many = member.session.get_many

            async def then_it_is_taken(paths: Sequence[str]) -> Any:
                member.session.get_many = read_many  # type: ignore[method-assign]
                found = await read_many(paths)
                await takes_the_seat(other)
                return found

            member.session.get_many = then_it_is_taken  # type: ignore[method-assign]
            await announce_leaving(member)
            assert await said(other) == (True, b"other")
            by_hand = [Delete(LAYOUT.instance(ME)), Create(LAYOUT.instance(ME), b"{}", ephemeral=True)]
            await other.commit(by_hand, incarnation=other.incarnation)
            await announce_leaving(member)
            assert await said(other) == (False, b"other")

    run(main)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"ip": "1.2.3.4", "leaving": "so they say"}'])
def test_nonsense_in_the_node_keeps_nobody_from_saying_that_he_leaves(data: bytes) -> None:
    async def main() -> None:
        async with leader() as (member, other):
            await other.commit([Set(LAYOUT.instance(ME), data, -1)], incarnation=other.incarnation)
            await announce_leaving(member)
            assert await said(other) == (True, None)

    run(main)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("error", [OutcomeUnknown, Suspended])
def test_a_notice_whose_answer_was_lost_is_given_again(error: type[Exception], arrives: bool) -> None:
    async def main() -> None:
        async with leader() as (member, other):
            commit = member.session.commit

            async def lossy(ops: Sequence[Op], **options: Any) -> Committed:
                member.session.commit = commit  # type: ignore[method-assign]
                if arrives and error is OutcomeUnknown:
                    await commit(ops, **options)
                raise error("the connection broke")

            member.session.commit = lossy  # type: ignore[method-assign]
            await announce_leaving(member)
            assert await said(other) == (True, None)

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
            assert bool(await dismissed(member, stale)) is removed

    run(main)


def test_who_has_removed_a_job_is_looked_up_only_since_the_job_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()

    async def main() -> None:
        async with arrival(nothing) as arriving:
            arriving.trees.set(await arriving.seen())
            member = Member(arriving.session, LAYOUT, ME, "10.0.0.1", "host", 1, arriving.session.incarnation)
            gone = arriving.trees.value.replace({LAYOUT.instance(ME): None, LAYOUT.config: None}, 0)
            await arriving.session.commit([Delete(LAYOUT.instance(ME))], incarnation=member.incarnation)
            read_node = arriving.session.get

            async def get(path: str) -> Node | None:
                looked.append(path)
                return await read_node(path)

            monkeypatch.setattr(arriving.session, "get", get)
            for seen in (None, 0):
                why = await dismissed(member, read(gone, LAYOUT, CONFIG), seen)
                assert why == "the job was removed from the registry"
                assert looked == ([] if seen is None else [SWITCHES])

    run(main)
