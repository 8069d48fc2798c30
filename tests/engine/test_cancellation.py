"""Handlers that will not end: named once, asked again in moderation, and not allowed to burn a processor."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio import from_thread

from aioelasticjob import ElasticJob, ItemContext, Retry
from aioelasticjob.config.job import JobConfig
from aioelasticjob.engine.cancellation import MAX_REPEATED_CANCELS, UNHEEDED_AFTER, HandlerScope, stack, warn_unheeded
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.executors import Executors
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.jobs.base import Job
from aioelasticjob.model import Outcome
from aioelasticjob.testing import run
from tests.engine.dataflow_runs import SavedOffsets
from tests.engine.test_executors import contexts_of
from tests.engine.test_stats import claim
from tests.support.clocks import block_loop, skip_time
from tests.support.item_turns import turns_of
from tests.support.loops import LoopKind, run_async
from tests.support.retry_waits import PlainWaits
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate


async def dig_in(seconds: float, asked: list[float]) -> None:
    """Swallow every cancellation for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            asked.append(loop.time())


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "after it was cancelled" in one.getMessage()]


def test_a_task_that_does_not_end_is_reported_once_and_cancelled_once_a_second() -> None:
    async def main() -> None:
        asked, unheeded = list[float](), list[float]()
        loop = asyncio.get_running_loop()
        with HandlerScope(lambda: unheeded.append(loop.time())) as scope:
            scope.cancel()
            scope.cancel()
            await dig_in(10.5, asked)
        assert scope.cancel_called
        assert unheeded == [UNHEEDED_AFTER]
        late = [at for at in asked if at >= UNHEEDED_AFTER]
        assert late == [float(second) for second in range(1, 11)]
        assert 1 <= len(asked) - len(late) <= MAX_REPEATED_CANCELS + 1
        assert loop.time() == 10.5

    run(main)


def test_what_heeds_ends_at_once_and_nothing_is_left_behind() -> None:
    async def main() -> None:
        unheeded = list[str]()
        with HandlerScope(lambda: unheeded.append("unheeded"), after=3) as scope:
            await anyio.sleep(10)
        assert scope.cancel_called
        assert anyio.current_time() == 3
        with HandlerScope(lambda: unheeded.append("unheeded"), after=3) as scope:
            await anyio.sleep(1)
        scope.cancel()
        assert not scope.cancel_called
        await anyio.sleep(10)
        assert unheeded == []
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main)


def test_what_could_not_heed_because_the_loop_was_blocked_is_not_reported() -> None:
    async def main() -> None:
        unheeded = list[str]()
        with HandlerScope(lambda: unheeded.append("unheeded")) as scope:
            scope.cancel()
            block_loop(3 * UNHEEDED_AFTER)
            try:
                await anyio.sleep(60)
            finally:
                with anyio.CancelScope(shield=True):  # some cleanup, without a wait
                    for _ in range(MAX_REPEATED_CANCELS // 2):
                        await anyio.lowlevel.checkpoint()
        assert unheeded == []
        assert asyncio.get_running_loop().time() == 3 * UNHEEDED_AFTER

    run(main)


def test_one_that_gives_in_later_is_cancelled_then() -> None:
    async def main() -> None:
        asked = list[float]()
        with HandlerScope(lambda: None) as scope:
            scope.cancel()
            await dig_in(4.5, asked)
            await anyio.sleep(60)
        assert anyio.current_time() == 5.0

    run(main)


@pytest.mark.parametrize("seconds", [0.3, 1.3])
@pytest.mark.parametrize("waits", ["in the group", "in a child"])
def test_a_task_group_with_a_long_shielded_cleanup_does_not_swallow_the_cancellation(
    waits: str, seconds: float, real_loop_kind: LoopKind
) -> None:
    async def shielded() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                until = anyio.current_time() + seconds
                while anyio.current_time() < until:
                    await anyio.sleep(0.001)  # many turns of the loop

    async def main() -> tuple[bool, bool]:
        went_on, unheeded = False, False

        def name_it() -> None:
            nonlocal unheeded
            unheeded = True

        with HandlerScope(name_it, after=0.01) as scope:
            async with anyio.create_task_group() as tasks:
                if waits == "in a child":
                    tasks.start_soon(shielded)
                    await anyio.sleep_forever()
                await shielded()
            went_on = True
        assert scope.cancel_called
        return went_on, unheeded

    assert run_async(real_loop_kind, main) == (False, seconds > UNHEEDED_AFTER)


def test_what_waits_after_its_shielded_cleanup_is_cancelled_there() -> None:
    async def main() -> None:
        with HandlerScope(lambda: None, after=1) as scope:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(7.25)
                await anyio.sleep(60)
        assert scope.cancel_called
        assert anyio.current_time() == pytest.approx(8.25)

    run(main)


def test_a_stack_goes_down_to_where_the_task_waits() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dig_in, 5, [])
            await anyio.sleep(1)
            (task,) = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            assert "in dig_in" in stack(task)
            assert "in sleep" in stack(task).rpartition("File")[2]
            assert stack(task, asyncio.sleep.__code__).count("File") == 1

    run(main)


def test_it_costs_no_processor_time(real_loop_kind: LoopKind) -> None:
    async def main() -> float:
        with HandlerScope(lambda: None) as scope:
            scope.cancel()
            with suppress(asyncio.CancelledError):
                await dig_in(UNHEEDED_AFTER + 0.1, [])
            before = time.process_time()
            await dig_in(1.0, [])
            return time.process_time() - before

    assert run_async(real_loop_kind, main) < 0.5  # a loop that turns all the time takes all of it


@pytest.mark.parametrize("items", [1, 3])
@pytest.mark.parametrize("how", ["timeout", "deadline", "shutdown", "block"])
def test_a_handler_that_swallows_its_cancellation_is_named_with_its_stack(
    how: str, items: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scene(here: SimulatedJobs) -> None:
        asked, outcomes = list[float](), list[str]()

        async def stubborn(context: ItemContext) -> None:
            if context.item == 0 and not asked:
                await dig_in(12, asked)
            else:
                await anyio.sleep(12)

        settings: dict[str, Any] = {"timeout": 3} if how == "timeout" else {}
        if how == "shutdown":
            settings["shutdown_timeout"] = 1
        app = here.app(stubborn, cron="0 * * * * ?", sharding_total_count=items, **settings)
        with anyio.CancelScope() as block:
            await live(app, how, block, here)
            outcomes.append("over")
        assert outcomes == ([] if how == "block" else ["over"])
        assert 0 < len([at for at in asked if at > min(asked) + UNHEEDED_AFTER]) <= 12

    async def live(app: ElasticJob, how: str, block: anyio.CancelScope, here: SimulatedJobs) -> None:
        async with app.running():
            await here.until(61)
            if how == "block":
                block.cancel()
            elif how == "deadline":
                here.faults.partition(["127.0.0.1"], [REGISTRY])
            elif how == "shutdown":
                (me,) = await here.names(LAYOUT.instances)
                await here.flag(LAYOUT.shutdown(me))
            await here.until(100)
            here.faults.heal()

    simulate(scene)
    (message,) = named(caplog)
    assert "stubborn of item 0 goes on 1 s after it was cancelled" in message
    assert "in dig_in" in message
    assert caplog.records[[one.getMessage() for one in caplog.records].index(message)].__dict__["job"] == "job"


@pytest.mark.parametrize(("items", "whose"), [((0,), "item 0"), ((0, 1), "items 0, 1")])
def test_a_handler_that_goes_on_is_named_with_its_items(
    items: tuple[int, ...], whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        context, task = contexts_of(*items), asyncio.current_task()
        assert task is not None
        warn_unheeded(dig_in, context, task, LimitedLog())

    asyncio.run(main())
    assert f"dig_in of {whose} goes on 1 s after" in caplog.text
    assert vars(caplog.records[0])["items"] == items


@pytest.mark.parametrize("settings", [{}, {"items_at_once": 2}], ids=["at once", "one after another"])
def test_a_job_that_leaves_cuts_off_what_waits_for_a_thread_then_or_later_and_not_what_has_begun(
    settings: dict[str, Any],
) -> None:
    begun, go = list[int](), threading.Event()

    def work(context: ItemContext) -> None:
        begun.append(context.item)
        assert go.wait(60)
        from_thread.check_cancelled()

    async def scene() -> None:
        config, one_thread = JobConfig(job_name="job", failover=True, **settings), Executors(anyio.CapacityLimiter(1))
        job, waits = Job.declare(config, work), PlainWaits(config)
        given = job, config, claim(0, 1, 2), SavedOffsets(), one_thread
        execution = Execution(*given, lambda *_: None, waits, turns=turns_of(config))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            while not (begun and one_thread.calls["thread"].tasks_waiting):
                await anyio.sleep(0.01)
            waits.leave()
            execution.leave()
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert execution.outcomes == dict.fromkeys(begun, Outcome.COMPLETED)
        assert execution.begun == set(begun)

    asyncio.run(scene())
    assert len(begun) == 1


@pytest.mark.parametrize("failover", [True, False])
def test_a_job_that_leaves_hands_over_the_items_that_wait_for_their_turn_if_it_has_failover(failover: bool) -> None:
    begun = list[int]()

    async def work(context: ItemContext) -> None:
        begun.append(context.item)
        waits.leave()
        execution.leave()

    config = JobConfig(job_name="job", failover=failover, items_at_once=1)
    job, waits = Job.declare(config, work), PlainWaits(config)
    given = job, config, claim(0, 1, 2), SavedOffsets(), Executors()
    execution = Execution(*given, lambda *_: None, waits, turns=turns_of(config))
    asyncio.run(execute(execution))
    assert begun == ([0] if failover else [0, 1, 2])
    assert execution.outcomes == dict.fromkeys(begun, Outcome.COMPLETED)
    assert execution.begun == set(begun)
    assert execution.reason == ("the job leaves" if failover else None)


def test_a_run_that_has_waited_for_a_thread_in_vain_waits_no_more_between_its_attempts() -> None:
    async def scene() -> None:
        config = JobConfig(job_name="job", failover=True, retry=Retry(2, backoff=600), attempt_timeout=600)
        one_thread, failed = Executors(anyio.CapacityLimiter(1)), anyio.Event()
        job, waits = Job.declare(config, lambda _: None), PlainWaits(config)
        execution = Execution(job, config, claim(0), SavedOffsets(), one_thread, lambda *_: None, waits)
        execution.report_attempt = lambda *_: failed.set()
        async with anyio.create_task_group() as tasks:
            async with one_thread.threads:
                tasks.start_soon(execute, execution)
                while not one_thread.calls["thread"].tasks_waiting:
                    await anyio.sleep(0)
                skip_time(600)
                await failed.wait()
            waits.leave()
            execution.leave()
        assert execution.outcomes == {0: Outcome.COMPLETED}

    asyncio.run(scene())


def test_a_function_whose_thread_goes_on_after_its_time_limit_is_named_and_its_cancellation_is_not_hidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended, seen = threading.Event(), list[bool]()

    def stubborn(context: ItemContext) -> None:
        ended.wait(60)
        try:
            from_thread.check_cancelled()
        except BaseException as error:
            seen.append(type(error) is asyncio.CancelledError)
            raise

    async def scene() -> None:
        config = JobConfig(job_name="job", timeout=0.01)
        job = Job.declare(config, stubborn)
        execution = Execution(job, config, claim(0), SavedOffsets(), Executors(), lambda *_: None, PlainWaits())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            while not named(caplog):
                await anyio.sleep(0.05)
            ended.set()
        assert execution.outcomes == {0: Outcome.TIMED_OUT}

    asyncio.run(scene())
    (message,) = named(caplog)
    assert message.startswith("job: the handler ")
    assert message.endswith(
        "stubborn of item 0 goes on 1 s after it was cancelled:"
        " a thread is interrupted only if it calls anyio.from_thread.check_cancelled()"
    )
    assert seen == [True]
