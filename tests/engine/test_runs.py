"""The runs of a job's items: their handlers have a task, and their settlement needs none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, Retry
from aioelasticjob.core.commands import ClaimItems
from aioelasticjob.core.reasons import NOT_RECORDED
from aioelasticjob.engine.claims import Claims
from aioelasticjob.engine.executors import DEFAULT_THREADS
from aioelasticjob.errors import Conflict, NotPermitted, RegistryError, Suspended
from aioelasticjob.events import Ended, Misfired
from aioelasticjob.model import Claim, FireSource, Outcome
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock
from aioelasticjob.testing.stand_ins import real_world_replaced
from tests.engine.test_refused_writes import refusing
from tests.engine.test_settings_changes import EVERY_TEN
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, end_life, listening, simulate


def settles(ops: Sequence[Op]) -> bool:
    return any(isinstance(op, Delete) and op.path.endswith("/running") for op in ops)


def test_a_job_shows_which_items_run_from_their_moment_to_their_end() -> None:
    shown = list[tuple[int, ...]]()

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=2, cron="0/10 * * * * ?")
        async with app.running():
            for moment in (9, 11, 13):
                await here.until(moment)
                shown.append(app.health.jobs[0].running)

    simulate(scene)
    assert shown == [(), (0,), ()]


@pytest.mark.parametrize("monitored", [True, False])
def test_a_run_sees_nothing_that_the_run_before_it_has_left_in_context_variables(monitored: bool) -> None:
    left, seen = ContextVar[int]("left", default=0), list[int]()

    async def handler(_context: ItemContext) -> None:
        seen.append(left.get())
        left.set(left.get() + 1)
        await anyio.sleep(6)  # so the next run follows at once

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(handler, cron="0/5 * * * * ?", monitor_execution=monitored).running():
            await here.until(30)

    simulate(scene)
    assert seen == [0] * 5


@pytest.mark.parametrize(
    "error", [NotPermitted("/job"), Suspended("no connection"), Conflict(0, "/job", "bad version")], ids=repr
)
def test_a_job_that_leaves_while_its_claim_is_refused_leaves_at_once(error: RegistryError) -> None:
    left = list[float]()

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/20 * * * * ?").running() as session:
            commit, held = session.commit, list[asyncio.Future[Committed]]()

            def hold(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
                if not any(isinstance(op, Create) and op.path.endswith("/running") for op in ops):
                    return commit(ops, **options)
                held.append(asyncio.get_running_loop().create_future())
                return held[-1]

            session.commit = hold  # type: ignore[method-assign]
            await here.until(20.2)
            asyncio.get_running_loop().call_later(0.2, lambda: held[0].set_exception(error))
        left.append(here.now() - 20.4)

    simulate(scene)
    assert left[0] < 0.1


@pytest.mark.parametrize("until", [24, 26, 28])
def test_two_releases_of_an_item_do_not_end_its_rescue(until: float) -> None:
    """A job that joins again removes the locks of its earlier life, and waits for the items whose runs they are of."""

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=3, cron="0/20 * * * * ?", failover=True)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with app.running() as session:
            await here.until(20.5)
            async with refusing(session, -127, settles):
                end_life(app, AssertionError("a defect"))
                await here.until(until)
            await here.until(35)

    assert [source for _, source, _ in simulate(scene).starts()].count("FAILOVER") == 1


@pytest.mark.parametrize("refused", [False, True])
def test_while_a_settlement_is_under_way_no_task_waits_for_it(refused: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running() as session:
            commit, held = session.commit, list[asyncio.Future[Committed]]()

            def hold(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
                if not settles(ops) or held:
                    return commit(ops, **options)
                held.append(asyncio.get_running_loop().create_future())
                held[0].ops = ops, options  # type: ignore[attr-defined]
                return held[0]

            await here.until(2)
            before = len(asyncio.all_tasks())
            session.commit = hold  # type: ignore[method-assign]
            await here.until(7)
            assert len(here.runs) == len(held) == 1
            assert await here.names(LAYOUT.item(0).execution) == ("running",)
            assert len(asyncio.all_tasks()) == before
            if refused:
                held[0].set_exception(Conflict(0, LAYOUT.item(0).execution, "bad version"))
            else:
                ops, options = held[0].ops  # type: ignore[attr-defined]
                held[0].set_result(await commit(ops, **options))
            await here.until(8)
            assert await here.names(LAYOUT.item(0).execution) == ()
            assert (await here.record(0)).outcome == "completed"
            await here.until(12)
        assert [at for at, _, _ in here.starts()] == [5.0, 10.0]

    simulate(scene)


def hold_claim(session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Hold back the answer to the first claim for so many seconds."""
    commit, held = session.commit, asyncio.get_running_loop().create_future()

    def hold(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
        if held.done() or not any(isinstance(op, Create) and op.path.endswith("/running") for op in ops):
            return commit(ops, **options)
        commit(ops, incarnation=options["incarnation"]).add_done_callback(
            lambda answer: asyncio.get_running_loop().call_later(seconds, held.set_result, answer.result())
        )
        return held

    monkeypatch.setattr(session, "commit", hold)


@pytest.mark.parametrize("triggered", [True, False])
def test_a_stream_whose_claim_is_answered_while_the_job_leaves_ends_after_one_batch_or_does_not_begin(
    triggered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = list[float]()

    async def scene(here: SimulatedJobs) -> None:
        app = ElasticJob(here.address, clock=VirtualClock())
        cron = "0 0 * * * ?" if triggered else "0/20 * * * * ?"
        flow = app.dataflow("job", cron=cron, streaming=True, sharding_quiet=0)

        async def fetch(_context: ItemContext) -> list[int]:
            fetched.append(here.now())
            await anyio.sleep(0.1)
            return [1]

        async def process(_context: ItemContext, _record: int) -> None: ...

        flow(fetch).process(process)
        async with app.running() as session:
            hold_claim(session, monkeypatch, 0.5)
            await here.until(20)
            if triggered:
                await here.trigger()
            await here.until(20.2)
        assert here.now() < 22

    simulate(scene)
    assert len(fetched) == triggered


async def idle(_context: ItemContext) -> None: ...


@pytest.mark.parametrize("triggered", [True, False])
def test_a_handler_whose_claim_is_answered_after_the_shutdown_timeout_does_not_begin(
    triggered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has asked the instance to leave, and its process goes on with other jobs."""

    async def scene(here: SimulatedJobs) -> None:
        cron = "0 0 * * * ?" if triggered else "0/20 * * * * ?"
        app = here.app(work=100, cron=cron, shutdown_timeout=1.0)
        app.add(idle, name="other", cron="0 0 * * * ?")
        async with app.running() as session, listening(here, app):
            hold_claim(session, monkeypatch, 3.0)
            await here.until(20)
            (me,) = await here.names(LAYOUT.instances)
            if triggered:
                await here.trigger()
            await here.until(20.2)
            await here.write(Create(LAYOUT.shutdown(me)))
            await here.until(22)
            assert await here.names(LAYOUT.item(0).execution) == ("running",)
            await here.until(24)
            assert await here.names(LAYOUT.item(0).execution) == ()
            assert await here.names(LAYOUT.instances) == ()
        assert here.starts() == []
        ended = [(event.item, event.outcome) for event in here.events if isinstance(event, Ended)]
        assert ended == ([(0, Outcome.CANCELLED)] if triggered else []), here.events

    simulate(scene)


@pytest.mark.parametrize(
    ("declared", "failover", "begins"), [(True, True, 21), (False, False, 25), (True, False, 25), (False, True, 21)]
)
@pytest.mark.parametrize("settings", [{}, {"retry": Retry(2)}, {"per": "instance"}])
def test_a_function_that_waits_for_a_thread_when_its_job_leaves_is_run_elsewhere_if_the_job_has_failover(
    settings: dict[str, Any], declared: bool, failover: bool, begins: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without failover nobody else would run it, so it may wait on, for at most ``shutdown_timeout``."""
    began = list[tuple[int, bool]]()

    async def scene(here: SimulatedJobs) -> None:
        def work(context: Any) -> None:
            began.append((round(here.now()), context.instance == me))

        both = [
            here.app(work, cron="0/20 * * * * ?", sharding_total_count=2, failover=declared, **settings) for _ in "ab"
        ]
        async with both[0].running():
            async with both[1].running():
                (me,) = [job.instance for job in both[1].health.jobs]
                await here.until(5)
                executors = both[1]._here.executors
                assert executors is not None
                for other in range(DEFAULT_THREADS):
                    executors.threads.acquire_on_behalf_of_nowait(other)
                asyncio.get_running_loop().call_later(20, executors.threads.release_on_behalf_of, 0)
                await here.until(20.5)
                config = json.loads((await here.observer.get(LAYOUT.config)).data)
                await here.write(Set(LAYOUT.config, json.dumps({**config, "failover": failover}).encode(), -1))
                await here.until(21)
                assert began == [(20, False)]
            assert round(here.now()) == begins
            await here.until(30)

    with real_world_replaced():
        simulate(scene)
    assert began[1:] == [(begins, not failover)]
    assert ("was cancelled before the handler began: the job leaves" in caplog.text) == failover


def test_items_that_wait_for_their_turn_when_their_job_leaves_are_run_elsewhere() -> None:
    began = list[tuple[int, int, FireSource]]()

    async def scene(here: SimulatedJobs) -> None:
        async def work(context: ItemContext) -> None:
            began.append((round(here.now()), context.item, context.source))
            await anyio.sleep(3)

        settings: dict[str, Any] = {"sharding_total_count": 6, "items_at_once": 1, "failover": True}
        both = [here.app(work, cron="0 0/1 * * * ?", **settings) for _ in "ab"]
        async with both[0].running():
            async with both[1].running():
                await here.until(61)
            assert round(here.now()) == 63
            await here.until(90)

    simulate(scene)
    assert sorted(second for second, *_ in began) == [60, 60, 63, 66, 69, 72]
    assert sorted(item for _, item, _ in began) == list(range(6))
    assert [source for second, _, source in began if second > 66] == [FireSource.FAILOVER] * 2


def test_a_run_without_records_whose_session_ends_before_its_handler_begins_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/20 * * * * ?", monitor_execution=False)
        async with app.running(), listening(here, app):
            await here.until(18)
            monkeypatch.setattr(Claims, "unmonitored", claimed_in_an_earlier_session)
            await here.until(22)
        missed = [event for event in here.events if isinstance(event, Misfired)]
        assert here.starts() == []
        assert [(event.slot / 1000 - here.start, event.why) for event in missed] == [(20, NOT_RECORDED)]

    def claimed_in_an_earlier_session(claims: Claims, command: ClaimItems) -> Claim:
        return replace(unmonitored(claims, command), incarnation=1)

    unmonitored = Claims.unmonitored
    simulate(scene)


@pytest.mark.parametrize("kind", ["simple", "dataflow"])
def test_handlers_of_another_release_than_the_registry_knows_are_given_the_context_that_they_take(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[tuple[int, ...]]()

    async def old(_context: ItemContext) -> None: ...

    async def new(context: InstanceContext) -> None:
        seen.append(context.items)

    async def fetch(_context: object) -> list[int]:
        return [1]

    async def process(context: InstanceContext, _record: int) -> None:
        seen.append(context.items)

    async def scene(here: SimulatedJobs) -> None:
        first, second = (ElasticJob(here.address, clock=VirtualClock()) for _ in range(2))
        settings: dict[str, Any] = {"cron": EVERY_TEN, "sharding_total_count": 2}
        if kind == "simple":
            first.add(old, name="job", **settings)
            second.add(new, name="job", per="instance", **settings)
        else:
            first.dataflow("job", **settings)(fetch).process(ignore)
            second.dataflow("job", per="instance", **settings)(fetch).process(process)
        async with first.running():
            await here.until(5)
        async with second.running():
            await here.until(21)

    simulate(scene)
    assert seen == [(0, 1), (0, 1)]
    line = "job: per = 'instance' is used, because the handlers here cannot take what the registry's per gives"
    assert line in [one.getMessage() for one in caplog.records]


async def ignore(_context: ItemContext, _record: int) -> None: ...


def test_an_executor_that_the_handlers_cannot_have_is_not_used_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        first, second = (ElasticJob(here.address, clock=VirtualClock()) for _ in range(2))
        first.add(plain, name="job", cron=EVERY_TEN, executor="process")
        second.add(coroutine, name="job", cron=EVERY_TEN)
        async with first.running():
            await here.until(5)
        async with second.running():
            await here.until(21)

    simulate(scene)
    line = (
        "job: executor = 'thread' is used, because the handlers here are async, "
        "or cannot be sent to the processes that the registry's executor wants"
    )
    assert [one.getMessage() for one in caplog.records].count(line) == 1


def plain(_context: ItemContext) -> None: ...
async def coroutine(_context: ItemContext) -> None: ...
