"""The registry refuses what a job writes, for a while: nothing stays locked, nothing runs twice, and it is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiozk import protocol
from aiozk.protocol.acl import ACL

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, OnceListener
from aioelasticjob.core.reasons import REFUSED
from aioelasticjob.errors import Conflict
from aioelasticjob.events import Misfired
from aioelasticjob.registry.codec import failure, render
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, listening, simulate

EVERY_TWO, EVERY_TEN = "0/2 * * * * ?", "0/10 * * * * ?"
US = "127.0.0.1"
READ_ONLY = ACL.make("world", "anyone", read=True, admin=True)
OPEN = protocol.UNRESTRICTED_ACCESS
Match = Callable[[Sequence[Op]], bool]


async def permit(here: SimulatedJobs, acl: ACL) -> None:
    """Set the access control list of the job's nodes, and of all below them."""
    connection = here.observer._keeper.connection
    assert connection is not None
    for path in await here.observer.subtree([LAYOUT.root]):
        absolute = here.observer._codec.absolute(path)
        await connection.call(7, render(protocol.SetACLRequest(path=absolute, acl=[acl], version=-1)))


@asynccontextmanager
async def refusing(session: Session, error: int | Conflict, which: Match) -> AsyncIterator[list[Sequence[Op]]]:
    """Refuse the transactions of a session that match, and yield those that were refused."""
    refused, commit = list[Sequence[Op]](), session.commit

    def picky(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
        if which(ops):
            refused.append(ops)
            raise error if isinstance(error, Conflict) else failure(error, ops[0].path)
        return commit(ops, **options)

    session.commit = picky  # type: ignore[method-assign]
    yield refused
    session.commit = commit  # type: ignore[method-assign]


def unlocks(ops: Sequence[Op]) -> bool:
    return any(isinstance(op, Delete) and op.path.endswith("/running") for op in ops)


def locks(ops: Sequence[Op], *, item: int | None = None) -> bool:
    paths = {op.path for op in ops if isinstance(op, Create) and op.ephemeral}
    return any(path.endswith("/running") for path in paths) if item is None else LAYOUT.item(item).running in paths


async def locked(here: SimulatedJobs) -> list[int]:
    items = [int(item) for item in await here.names(LAYOUT.execution)]
    nodes = await here.observer.get_many([LAYOUT.item(item).running for item in items])
    return sorted(item for item, node in zip(items, nodes, strict=True) if node is not None)


def slots(here: SimulatedJobs, item: int) -> list[float]:
    return [fired for _, _, fired in here.starts(item)]


def refused_now(app: ElasticJob) -> dict[str, str]:
    (job,) = app.health.jobs
    return {one.what: one.why for one in job.refused}


@pytest.mark.parametrize("failover", [True, False])
def test_write_permission_withdrawn_while_items_run_locks_nothing_for_good(
    failover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=0.5, cron=EVERY_TWO, sharding_total_count=3, failover=failover)
        async with app.running():
            await here.until(4.2)
            await permit(here, READ_ONLY)
            await here.until(5)
            assert "not permitted" in refused_now(app)["to settle items"]
            (shown,) = app.health.as_json()["jobs"]  # type: ignore[misc]
            assert [one["what"] for one in shown["refused"]] == ["to settle items"]  # type: ignore[call-overload, index]
            await here.until(5.4)
            await permit(here, OPEN)
            await here.until(19.9)
            assert refused_now(app) == {}
            for item in range(3):
                assert slots(here, item) == sorted(set(slots(here, item)))
                assert set(slots(here, item)) >= {2, 4, 8, 10, 12, 14, 16, 18}
            assert {source for _, _, source, _ in here.runs} <= {"SCHEDULE", "MISFIRE"}
        said = [text for text in caplog.messages if "to settle items" in text and " missed " not in text]
        assert [text.split()[3] for text in said] == ["refuses", "accepts"]

    simulate(scene)


@pytest.mark.parametrize(("which", "last"), [(locks, 12), (unlocks, 10)])  # 12 is run when the settlement is accepted
def test_moments_that_came_while_claims_or_settlements_were_refused_are_missed_for_that_reason(
    which: Match, last: int
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=0.5, cron=EVERY_TWO, sharding_total_count=3)
        async with listening(here, app), app.running() as session:
            await here.until(4.2)
            async with refusing(session, -125, which):
                await here.until(13)
            await here.until(20)
        missed = [event for event in here.events if isinstance(event, Misfired)]
        assert {event.slot % 60_000 for event in missed} >= {last * 1000}
        assert {event.why for event in missed} == {REFUSED}

    simulate(scene)


@pytest.mark.parametrize("code", [-125, -127, -102, -1, -112, -118, -119, -999], ids=str)
@pytest.mark.parametrize("failover", [True, False])
def test_a_settlement_is_tried_again_whatever_it_is_refused_for(code: int, failover: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=0.5, cron=EVERY_TWO, sharding_total_count=3, failover=failover)
        async with app.running() as session:
            await here.until(4.2)
            async with refusing(session, code, unlocks) as refused:
                await here.until(6.5)
                assert await locked(here) == [0, 1, 2]
                assert 2 <= len(refused) <= 5
                assert refused_now(app).keys() == {"to settle items"}
            await here.until(19.9)
            for item in range(3):
                assert slots(here, item) == sorted(set(slots(here, item)))
                assert set(slots(here, item)) >= {2, 4, 10, 12, 14, 16, 18}

    simulate(scene)


@pytest.mark.parametrize("code", [-125, -127, -102, -112])
def test_of_a_claim_in_parts_what_was_taken_is_run_and_settled_and_the_rest_stays_owed(code: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=400)
        async with app.running() as session:
            await here.until(9)
            async with refusing(session, code, lambda ops: locks(ops, item=399)) as refused:
                await here.until(12)
                if code != -112:  # which ends a session here: all is claimed anew
                    assert [at for at, _, _ in here.starts(0)] == [10]
                assert here.starts(399) == []
                assert refused
            await here.until(16)
            assert [fired for _, _, fired in here.starts(399)] == [10]
            assert await locked(here) == []
            await here.until(25)
            first = [10, 20] if code != -112 else [20]
            assert all([fired for _, _, fired in here.starts(item)][-len(first) :] == first for item in range(400))
            assert all(len(here.starts(item)) <= 2 for item in range(400))

    simulate(scene)


def test_a_claim_that_is_given_back_is_given_back_though_that_is_refused_at_first() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=3)
        async with app.running() as session:
            await here.until(9.95)  # the claim has been answered, and waits for its moment
            async with refusing(session, -125, unlocks) as refused:
                await here.write(Set(LAYOUT.sharding, b"", -1))
                await here.until(11)
                assert refused
                assert refused_now(app).keys() == {"to give items back"}
            await here.until(25)
            assert all(slots(here, item) == [10, 20] for item in range(3))
            assert await locked(here) == []

    simulate(scene)


@pytest.mark.parametrize("code", [-102, -125, -127])
def test_what_the_leader_may_not_write_keeps_nobody_from_running(code: int) -> None:
    def by_the_leader(ops: Sequence[Op]) -> bool:
        return any(op.path == LAYOUT.epoch for op in ops)

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=2)
        async with app.running() as session:
            await here.until(15)
            async with refusing(session, code, by_the_leader):
                await here.write(Create(LAYOUT.item(1).disabled))
                stored = (await here.observer.get(LAYOUT.config)).data
                more = stored.replace(b'"shardingTotalCount": 2', b'"shardingTotalCount": 4')
                assert more != stored
                await here.write(Set(LAYOUT.config, more, -1))
                await here.until(25)
                assert slots(here, 0) == [10, 20]
                assert list(refused_now(app)) == ["to coordinate the job (RequireAssignment)"]
            await here.until(35)
            assert [slots(here, item) for item in range(4)] == [[10, 20, 30], [10], [30], [30]]
            assert refused_now(app) == {}

    simulate(scene)


# Stopping while the registry is away.


async def stopping(here: SimulatedJobs, app: ElasticJob, at: float, away: float) -> tuple[float, float]:
    """Leave an application while the registry is away for some seconds; return when it left and when it was over."""
    async with app.running():
        await here.until(at)
        here.faults.partition([US], [REGISTRY])
        here.faults.reset(US, REGISTRY)
        await anyio.sleep(0.1)
        began = here.now()

        asyncio.get_running_loop().call_later(away, here.faults.heal)
    return began, here.now()


@pytest.mark.parametrize(
    "error", [-102, Conflict(0, "/job", "bad version")], ids=["not permitted", "conflicts that last"]
)
def test_an_instance_that_may_not_leave_says_so_and_leaves_when_it_may(error: int | Conflict) -> None:
    """An operator has asked it to leave, and its process goes on with another job."""

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN)
        app.add(nothing, name="other", cron=EVERY_TEN)
        async with app.running() as session:
            await here.until(5)
            (me,) = await here.names(LAYOUT.instances)

            def leaves(ops: Sequence[Op]) -> bool:
                return any(isinstance(op, Delete) and op.path == LAYOUT.instance(me) for op in ops)

            async with refusing(session, error, leaves):
                await here.write(Create(LAYOUT.shutdown(me)))
                await here.until(12)
                assert await here.names(LAYOUT.instances) == (me,)
                assert "to leave" in {one.what for job in app.health.jobs for one in job.refused}
            await here.until(60)
            assert await here.names(LAYOUT.instances) == ()

    simulate(scene)


async def nothing(_context: ItemContext) -> None: ...


def test_who_stops_while_the_registry_is_away_and_has_nothing_to_finish_is_gone_within_two_seconds() -> None:
    async def scene(here: SimulatedJobs) -> None:
        began, over = await stopping(here, here.app(cron=EVERY_TEN), 5, 60)
        assert over - began < 2.1

    simulate(scene)


@pytest.mark.parametrize("shutdown_timeout", [2.0, 30.0])
def test_who_stops_while_the_registry_is_away_waits_two_seconds_after_his_handlers_and_says_for_what(
    shutdown_timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=1.5, cron=EVERY_TEN, sharding_total_count=2, shutdown_timeout=shutdown_timeout)
        began, over = await stopping(here, app, 10.3, 60)
        assert began < 10.5
        assert 13.4 < over < 13.7
        why = "there is no connection to the registry"
        assert [text for text in caplog.messages if "stops" in text] == [
            f"job: this instance stops, and waits up to 2 s to settle items 0, 1: {why}",
            f"job: this instance stops, and waits no longer to settle items 0, 1: {why}",
        ]

    simulate(scene)


def test_of_many_jobs_that_stop_while_the_registry_is_away_one_is_named_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def nothing(_context: ItemContext) -> None: ...

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN)
        for number in range(60):
            app.add(nothing, name=f"job-{number}", cron=EVERY_TEN)
        began, over = await stopping(here, app, 5, 60)
        assert over - began < 2.1

    simulate(scene)
    lines = [text for text in caplog.messages if "this instance stops, and" in text]
    counts = [text for text in caplog.messages if "more lines were left out" in text]
    assert len(lines) == 1
    (count,) = counts
    assert count.startswith("60 more lines were left out, about 60 jobs: an instance stops")


def test_what_listeners_of_the_cluster_note_has_two_seconds_after_the_handlers_too() -> None:
    async def listen(_context: InstanceContext) -> None:
        await anyio.sleep(0)

    async def scene(here: SimulatedJobs) -> None:
        once = OnceListener(before=listen, after=listen)
        app = here.app(work=1.5, cron=EVERY_TEN, listeners=[once], shutdown_timeout=30.0)
        began, over = await stopping(here, app, 10.5, 60)
        assert began < 10.7
        assert over < 13.8

    simulate(scene)


def test_a_connection_that_comes_back_within_two_seconds_is_used_to_settle() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=1.5, cron=EVERY_TEN, sharding_total_count=2)
        began, over = await stopping(here, app, 10.3, 2.0)
        assert began < 10.5
        assert over < 13.7
        assert await locked(here) == []
        assert [(await here.record(item)).outcome for item in (0, 1)] == ["completed"] * 2
        assert await here.names(LAYOUT.instances) == ()

    simulate(scene)


def test_handlers_have_their_time_although_the_registry_is_away() -> None:
    async def scene(here: SimulatedJobs) -> None:
        ended = list[float]()

        async def handler(_context: object) -> None:
            await anyio.sleep(4)
            ended.append(here.now())

        app = here.app(handler, cron=EVERY_TEN)
        _, over = await stopping(here, app, 10.3, 60)
        assert ended == [pytest.approx(14, abs=0.1)]
        assert over < 16.2

    simulate(scene)
