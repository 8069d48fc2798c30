"""Executions of handlers in threads, which need a real loop, and of runs that somebody has cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from aioelasticjob import InstanceContext, JobListener, Retry
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.requests import encode_cancellation
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.cancellation import MAX_REPEATED_CANCELS
from aioelasticjob.engine.execution import BEGUN_AT_ONCE, Execution, execute
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.listeners import with_listeners
from aioelasticjob.errors import Fenced
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.testing import run
from tests.support.item_turns import turns_of
from tests.support.loops import LoopKind, run_async
from tests.support.own_executors import added
from tests.support.retry_waits import PlainWaits
from tests.support.stats import stat

LAYOUT = Layout("job")
REQUEST: ContextVar[str] = ContextVar("REQUEST")


class NoCheckpoints:
    def get(self, item: int) -> str | None:
        return None

    async def save(self, item: int, value: str) -> None:
        raise NotImplementedError


def execution_of(config: JobConfig, handler: Callable[[Any], object], *items: int) -> Execution:
    seen = dict.fromkeys(items, VersionedRecord(Record(), 0, 1))
    claim = Claim(Fire(0, FireSource.SCHEDULE), "me", 1, seen, {})
    return Execution(
        Job.declare(config, handler),
        config,
        claim,
        NoCheckpoints(),
        Executors(anyio.CapacityLimiter(5)),
        lambda *_: None,
        PlainWaits(),
        turns=turns_of(config),
    )


def test_plain_functions_run_side_by_side_in_threads(real_loop_kind: LoopKind) -> None:
    meeting, threads = threading.Barrier(3, timeout=90), set[int]()

    def handler(context: ItemContext) -> None:
        threads.add(threading.get_ident())
        assert REQUEST.get() == "seen"
        meeting.wait()

    async def main() -> dict[int, Outcome]:
        REQUEST.set("seen")
        config = JobConfig.build(job_name="job", sharding_total_count=3)
        execution = execution_of(config, handler, 0, 1, 2)
        await execute(execution)
        return execution.outcomes

    assert run_async(real_loop_kind, main) == dict.fromkeys(range(3), Outcome.COMPLETED)
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_thousands_of_items_begin_in_portions_so_that_the_event_loop_goes_on(loop_kind: LoopKind) -> None:
    begun, portions = list[int](), list[int]()

    async def handler(context: ItemContext) -> None:
        begun.append(context.item)

    async def main() -> Execution:
        config = JobConfig.build(job_name="job", sharding_total_count=3000)
        execution = execution_of(config, handler, *range(3000))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            while len(begun) < 3000:
                before = len(begun)
                await checkpoint()
                portions.append(len(begun) - before)
        return execution

    assert run_async(loop_kind, main).outcomes == dict.fromkeys(range(3000), Outcome.COMPLETED)
    assert max(portions) <= 2 * BEGUN_AT_ONCE
    assert begun == list(range(3000))


def test_no_further_portion_of_items_begins_once_the_run_is_cancelled(loop_kind: LoopKind) -> None:
    begun = list[int]()

    async def handler(context: ItemContext) -> None:
        begun.append(context.item)
        await anyio.sleep_forever()

    async def main() -> tuple[int, Execution]:
        config = JobConfig.build(job_name="job", sharding_total_count=3000)
        execution = execution_of(config, handler, *range(3000))
        scope = execution.scope_of_all()

        async def cancellable() -> None:
            with scope:
                await execute(execution)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancellable)
            while not begun:
                await checkpoint()
            before = len(begun)
            scope.cancel()
        return before, execution

    before, execution = run_async(loop_kind, main)
    assert len(begun) == before < 3000
    assert execution.outcomes == {}


def test_a_thread_that_outlives_its_timeout_keeps_its_item_until_it_ends(real_loop_kind: LoopKind) -> None:
    finish, ended = threading.Event(), list[str]()

    def handler(context: ItemContext) -> None:
        finish.wait(90)
        ended.append("thread")

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", timeout=0.01), handler, 0)
        async with anyio.create_task_group() as tasks:

            async def let_it_end() -> None:
                await anyio.sleep(0.05)  # well past the timeout of a thread that nothing can interrupt
                assert ended == []
                finish.set()

            tasks.start_soon(let_it_end)
            await execute(execution)
            ended.append("execution_of")
        return execution.outcomes

    assert run_async(real_loop_kind, main) == {0: Outcome.TIMED_OUT}
    assert ended == ["thread", "execution_of"]


@pytest.mark.parametrize(("limit", "what"), [("timeout", "the run"), ("attempt_timeout", "attempt 1")])
@pytest.mark.parametrize("executor", ["thread", "one-thread"])
def test_the_error_says_that_a_run_timed_out_before_its_thread_was_free(executor: str, limit: str, what: str) -> None:
    finish, begun, errors = threading.Event(), list[int](), dict[int, str]()

    def handler(context: ItemContext) -> None:
        begun.append(context.item)
        finish.wait(90)

    def report(context: ItemContext, error: Exception) -> None:
        errors[context.item] = str(error)
        if len(errors) == 2:  # those that wait: a thread that is free earlier could begin with one of them
            finish.set()

    async def main() -> None:
        config = JobConfig.build(job_name="job", sharding_total_count=3, executor=executor, **{limit: 0.05})
        execution = execution_of(config, handler, 0, 1, 2)
        executors = Executors(anyio.CapacityLimiter(1))
        async with executors.open():
            await execute(replace(execution, executors=executors, report_error=report))

    with added(**{"one-thread": lambda job: ThreadPoolExecutor(1)}):
        anyio.run(main)
    text = f"{what} took longer than 0.05 s"
    waited = f"{text}: it waited for a free thread or process, and its function never began"
    assert errors == {item: text if item in begun else waited for item in range(3)}
    assert len(begun) == 1


async def _fails_when_cancelled(context: ItemContext) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise ConnectionError("the query was cancelled")


def test_a_run_that_is_cancelled_is_stopped_whatever_error_its_handler_makes_of_that() -> None:
    reported: list[Exception] = []

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job"), _fails_when_cancelled, 0)
        execution.report_error = lambda context, error: reported.append(error)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            await anyio.wait_all_tasks_blocked()
            execution.stop({0})
        return execution.outcomes

    assert run(main) == {0: Outcome.STOPPED}
    assert reported == []


def test_a_run_that_is_cut_off_has_not_failed_whatever_error_its_handler_makes_of_that() -> None:
    reported: list[Exception] = []

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", failover=True), _fails_when_cancelled, 0)
        execution.report_error = lambda context, error: reported.append(error)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return execution.outcomes

    assert run(main) == {}
    assert reported == []


def test_a_run_that_takes_too_long_is_timed_out_whatever_error_its_handler_makes_of_that() -> None:
    reported: list[Exception] = []

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", timeout=3), _fails_when_cancelled, 0)
        execution.report_error = lambda context, error: reported.append(error)
        await execute(execution)
        return execution.outcomes

    assert run(main) == {0: Outcome.TIMED_OUT}
    (error,) = reported
    assert str(error) == "the run took longer than 3 s"
    assert str(error.__cause__) == "the query was cancelled"


def test_an_attempt_that_takes_too_long_is_timed_out_whatever_error_its_handler_makes_of_that() -> None:
    reported: list[Exception] = []

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", attempt_timeout=3, retry=Retry(2, on=TimeoutError))
        execution = execution_of(config, _fails_when_cancelled, 0)
        execution.report_error = lambda context, error: reported.append(error)
        await execute(execution)
        return execution.outcomes

    assert run(main) == {0: Outcome.TIMED_OUT}
    (error,) = reported
    assert str(error) == "attempt 2 took longer than 3 s"
    assert str(error.__cause__) == "the query was cancelled"


@pytest.mark.parametrize("on", [Exception, ValueError], ids=["tried again", "not tried again"])
def test_an_attempt_whose_run_is_cancelled_is_not_reported_as_failed(on: type[Exception]) -> None:
    reported: list[object] = []

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", retry=Retry(2, on=on)), _fails_when_cancelled, 0)
        execution.report_attempt = lambda execution, failed: reported.append(failed)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            await anyio.wait_all_tasks_blocked()
            execution.stop({0})
        return execution.outcomes

    assert run(main) == {0: Outcome.STOPPED}
    assert reported == []


class LookedUp(dict[int, VersionedRecord]):
    """The records of a claim that are only looked up, because there may be ten thousand."""

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError

    items = values = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize(("is_recorded", "stopped"), [(True, {0}), (False, set())])
def test_a_wish_to_stop_runs_stops_those_with_its_fences_and_looks_at_no_others(
    is_recorded: bool, stopped: set[int]
) -> None:
    execution = execution_of(JobConfig.build(job_name="job"), _fails_when_cancelled, 0)
    seen = LookedUp({item: VersionedRecord(Record(), 0, fence) for item, fence in enumerate((7, 8, 9))})
    execution.claim = replace(execution.claim, items=seen, is_recorded=is_recorded)
    wish = Node.of(encode_cancellation({0: 7, 1: 9, 5: 7}, 0, "anna"), stat())
    execution.stop_cancelled(JobView(LAYOUT, Tree({LAYOUT.request("wish"): wish}), execution.config))
    assert execution.to_stop == stopped


@pytest.mark.parametrize("early", [True, False])
def test_a_thread_whose_run_is_cancelled_keeps_its_item_until_it_ends(real_loop_kind: LoopKind, early: bool) -> None:
    begun, finish, ended = threading.Event(), threading.Event(), list[str]()

    def handler(context: ItemContext) -> None:
        begun.set()
        finish.wait(90)
        ended.append("thread")

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", sharding_total_count=2), handler, 0, 1)
        if early:
            execution.stop({0, 1})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            if not early:
                await anyio.to_thread.run_sync(begun.wait, 90)
                execution.stop({0, 1})
                await anyio.sleep(0)
                assert (ended, execution.outcomes) == ([], {})
                finish.set()
        return execution.outcomes

    assert run_async(real_loop_kind, main) == {0: Outcome.STOPPED, 1: Outcome.STOPPED}
    assert ended == ([] if early else ["thread"] * 2)


@pytest.mark.parametrize("per", ["item", "instance"])
@pytest.mark.parametrize("first", ["the run", "the execution"])
def test_a_run_that_was_cancelled_is_stopped_also_if_its_instance_leaves_meanwhile(per: str, first: str) -> None:
    async def handler(context: Any) -> None:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", sharding_total_count=3, per=per), handler, 0, 1)

        acts = {"the run": partial(execution.stop, {0, 1, 2})}

        async def run_it() -> None:
            with execution.cancellable() as scope:
                acts["the execution"] = partial(scope.cancel, "it leaves")
                await execute(execution)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_it)
            for what in sorted(["the run", "the execution"], key=first.__ne__):
                await anyio.sleep(0.5)
                acts[what]()
        return execution.outcomes

    assert run(main) == {0: Outcome.STOPPED, 1: Outcome.STOPPED}


@pytest.mark.parametrize("at_once", [None, 1])
def test_no_further_item_begins_if_the_machine_sleeps_through_the_lease_while_one_begins(at_once: int | None) -> None:
    begun, is_over = list[int](), False

    async def handler(context: ItemContext) -> None:
        nonlocal is_over
        begun.append(context.item)
        is_over = True  # a machine that sleeps now goes on with the tasks that were ready

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", sharding_total_count=3, items_at_once=at_once)
        execution = execution_of(config, handler, 0, 1, 2)
        with execution.scope_of_all() as lease:

            def is_proven() -> bool:
                if is_over:
                    lease.cancel()  # as the lease does when it is asked
                return not is_over

            execution.is_proven = is_proven
            await execute(execution)
        return execution.outcomes

    assert run(main) == {0: Outcome.COMPLETED}
    assert begun == [0]


async def swallow_cancellations() -> None:
    """Swallow so many cancellations that no more come in each turn of the loop."""
    for _ in range(MAX_REPEATED_CANCELS + 10):
        with suppress(asyncio.CancelledError):
            await anyio.sleep(0)


def test_no_handler_begins_after_the_lease_though_a_listener_has_swallowed_its_end() -> None:
    begun = list[int]()

    async def handler(context: ItemContext) -> None:
        begun.append(context.item)

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", sharding_total_count=1)
        execution = execution_of(config, handler, 0)

        async def swallow(_context: InstanceContext) -> None:
            lease.cancel()
            await swallow_cancellations()
            execution.is_proven = lambda: False

        execution.job = Job.declare(config, handler, [JobListener(before=swallow)])
        with execution.cancellable() as lease:
            await with_listeners(execution, cast(Any, None), cast(Any, None), set())
        return execution.outcomes

    assert run(main) == {}
    assert begun == []


async def end_by_it() -> None:
    await anyio.sleep(100)


async def go_on() -> None:
    with suppress(asyncio.CancelledError):
        await anyio.sleep(100)


async def make_an_error_of_it() -> None:
    try:
        await anyio.sleep(100)
    except asyncio.CancelledError as cancellation:
        raise OSError("the connection is closed") from cancellation


async def fail_in_cleanup() -> None:
    with suppress(asyncio.CancelledError):
        await anyio.sleep(100)
    raise OSError("the disk is full")


async def make_our_error_of_it() -> None:
    try:
        await anyio.sleep(100)
    except asyncio.CancelledError:
        raise Fenced("0") from None


async def end_with_another_error() -> None:
    try:
        await anyio.sleep(100)
    except asyncio.CancelledError as cancellation:
        raise BaseExceptionGroup("both", [cancellation, OSError("the disk is full")]) from None


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (end_by_it, None),
        (make_an_error_of_it, None),
        (make_our_error_of_it, None),
        (go_on, Outcome.COMPLETED),
        (fail_in_cleanup, Outcome.FAILED),
        (end_with_another_error, Outcome.FAILED),
    ],
)
def test_an_execution_that_is_cut_off_ends_alike_whether_it_is_one_call_or_several(
    work: Callable[[], Awaitable[None]], outcome: Outcome | None, items: int
) -> None:
    async def handler(_context: ItemContext) -> None:
        await work()

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", sharding_total_count=items, timeout=10)
        execution = execution_of(config, handler, *range(items))
        loop = asyncio.get_running_loop()
        began = loop.time()
        with execution.cancellable() as scope:
            loop.call_later(5, scope.cancel)
            await execute(execution)
        await checkpoint_if_cancelled()
        assert loop.time() - began == pytest.approx(5)
        return execution.outcomes

    assert run(main) == ({} if outcome is None else dict.fromkeys(range(items), outcome))


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("cut_off_after", [5, 15])
def test_a_run_that_goes_on_beyond_its_time_limit_has_timed_out_though_it_was_cut_off(
    cut_off_after: float, items: int
) -> None:
    async def handler(_context: ItemContext) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", sharding_total_count=items, timeout=10)
        execution = execution_of(config, handler, *range(items))
        with execution.cancellable() as scope:
            asyncio.get_running_loop().call_later(cut_off_after, scope.cancel)
            await execute(execution)
        return execution.outcomes

    assert run(main) == dict.fromkeys(range(items), Outcome.TIMED_OUT)


def test_no_item_begins_that_waits_for_its_turn_when_the_execution_is_cut_off() -> None:
    begun = list[int]()

    async def handler(context: ItemContext) -> None:
        begun.append(context.item)
        await anyio.sleep_forever()

    async def main() -> Execution:
        config = JobConfig.build(job_name="job", sharding_total_count=2, items_at_once=1)
        execution = execution_of(config, handler, 0, 1)
        with execution.cancellable() as scope:
            asyncio.get_running_loop().call_later(1, scope.cancel)
            await execute(execution)
        return execution

    execution = run(main)
    assert (execution.outcomes, execution.begun) == ({}, {0})
    assert begun == [0]


def test_a_function_that_waits_for_a_thread_until_the_execution_is_cut_off_has_not_begun() -> None:
    finish, begun = threading.Event(), set[int]()

    async def main() -> Execution:
        config = JobConfig.build(job_name="job", sharding_total_count=3)

        def handler(context: ItemContext) -> None:
            begun.add(context.item)
            loop.call_soon_threadsafe(cut_off)
            finish.wait(90)

        def cut_off() -> None:
            scope.cancel()
            loop.call_later(0.05, finish.set)

        loop = asyncio.get_running_loop()
        execution = replace(execution_of(config, handler, 0, 1, 2), executors=Executors(anyio.CapacityLimiter(1)))
        with execution.cancellable() as scope:
            await execute(execution)
        return execution

    execution = anyio.run(main)
    assert len(begun) == 1
    assert execution.begun == begun


def test_a_handler_that_begins_in_an_execution_that_was_cut_off_is_cancelled() -> None:
    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job"), lambda _context: anyio.sleep_forever(), 0)
        execution.cancel()
        await execute(execution)
        return execution.outcomes

    assert run(main) == {}


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("what", ["the run", "the execution"])
def test_no_further_attempt_begins_after_a_cancellation_that_the_handler_has_swallowed(what: str, items: int) -> None:
    attempts = list[int]()

    async def handler(context: ItemContext) -> None:
        attempts.append(context.attempt)
        await go_on()
        await swallow_cancellations()
        raise OSError("the disk is full")

    async def main() -> dict[int, Outcome]:
        config = JobConfig.build(job_name="job", sharding_total_count=items, retry=Retry(attempts=2, backoff=0.1))
        execution = execution_of(config, handler, *range(items))
        with execution.cancellable() as scope:
            acts = {"the run": partial(execution.stop, set(range(items))), "the execution": scope.cancel}
            asyncio.get_running_loop().call_later(1, acts[what])
            await execute(execution)
        return execution.outcomes

    assert run(main) == (dict.fromkeys(range(items), Outcome.STOPPED) if what == "the run" else {})
    assert attempts == [1] * items


def test_no_further_attempt_begins_after_the_lease_though_the_handler_has_swallowed_its_end() -> None:
    attempts = list[int]()

    async def main() -> dict[int, Outcome]:
        async def handler(context: ItemContext) -> None:
            attempts.append(context.attempt)
            lease.cancel()
            await swallow_cancellations()
            execution.is_proven = lambda: False
            raise OSError("the lease is over")

        config = JobConfig.build(job_name="job", sharding_total_count=1, retry=Retry(3, 0))
        execution = execution_of(config, handler, 0)
        with execution.scope_of_all() as lease:
            await execute(execution)
        return execution.outcomes

    assert run(main) == {}
    assert attempts == [1]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError(), BaseExceptionGroup("x", [SystemExit()])])
def test_what_a_thread_raises_is_the_outcome_of_its_item(real_loop_kind: LoopKind, raised: BaseException) -> None:
    def handler(context: ItemContext) -> None:
        if context.item == 0:
            raise raised

    async def main() -> dict[int, Outcome]:
        execution = execution_of(JobConfig.build(job_name="job", sharding_total_count=2), handler, 0, 1)
        await execute(execution)
        return execution.outcomes

    assert run_async(real_loop_kind, main) == {0: Outcome.FAILED, 1: Outcome.COMPLETED}
