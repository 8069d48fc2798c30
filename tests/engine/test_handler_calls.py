"""How the handlers of a dataflow are called: again, not for too long, and what fetch may hand out."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from itertools import pairwise
from typing import Any

import anyio
import pytest
import tenacity

from aioelasticjob import InvalidSetting, ItemContext, Outcome, Retry
from aioelasticjob.engine.executors import LONG_WAIT, NEVER_BEGAN, Executors, Processes
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.jobs.context import run_limited_log
from tests.engine import process_functions
from tests.engine.dataflow_runs import DataflowRun, Source, dataflow, ignore, run_dataflow, three
from tests.engine.test_cancellation import MAX_REPEATED_CANCELS, dig_in
from tests.support.own_executors import added


def test_one_shot_calls_a_coroutine_once_and_asks_a_generator_until_its_end() -> None:
    assert run_dataflow(DataflowRun(dataflow(), three, ignore)).counted == (3, 0)
    source = Source([2, 3, 4])
    assert run_dataflow(DataflowRun(dataflow(), source.batches, ignore)).counted == (9, 0)


@pytest.mark.parametrize("last", [None, [], ()])
def test_an_empty_batch_ends_the_run(last: object) -> None:
    async def fetch(context: ItemContext) -> AsyncIterator[Any]:
        yield [1]
        yield last
        raise AssertionError("asked again")

    done = run_dataflow(DataflowRun(dataflow(streaming=True), fetch, ignore))
    assert (done.counted, done.errors) == ((1, 0), [])


@pytest.mark.parametrize(
    "retry",
    [
        Retry(3, 1.0, on=OSError),
        tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(3), retry=tenacity.retry_if_exception_type(OSError), reraise=True
        ),
    ],
)
def test_a_record_is_tried_again_for_what_may_pass(retry: Any) -> None:
    tries: Counter[int] = Counter()
    dead: list[int] = []

    async def process(context: ItemContext, record: int) -> None:
        tries[record] += 1
        await anyio.sleep(0.1)
        if record == 3:
            raise ValueError("for good")
        if tries[record] < record + 1:
            raise OSError("for now")

    async def bury(context: ItemContext, record: int, error: Exception) -> None:
        dead.append(record)

    async def fetch(context: ItemContext) -> list[int]:
        return [0, 1, 2, 3, 9]

    done = run_dataflow(DataflowRun(dataflow(), fetch, process, bury, retry=retry))
    assert tries == {0: 1, 1: 2, 2: 3, 3: 1, 9: 3}
    assert sorted(dead) == [3, 9]
    assert done.counted == (3, 2)


def test_a_retry_of_the_configuration_takes_the_place_of_the_codes() -> None:
    tries: Counter[int] = Counter()

    async def process(context: ItemContext, record: int) -> None:
        tries[record] += 1
        raise OSError

    config = dataflow(retry=Retry(2, 0.0))
    run_dataflow(DataflowRun(config, three, process, retry=Retry(5, 0.0)))
    assert tries == {1: 2, 2: 2, 3: 2}


def test_pauses_between_attempts_double_up_to_the_longest() -> None:
    at: list[float] = []

    async def process(context: ItemContext, record: int) -> None:
        at.append(anyio.current_time())
        raise OSError

    async def fetch(context: ItemContext) -> list[int]:
        return [0]

    run_dataflow(DataflowRun(dataflow(), fetch, process, retry=Retry(6, 1.0, longest=5.0)))
    pauses = [after - before for before, after in pairwise(at)]
    assert [longest / 2 <= pause <= longest for pause, longest in zip(pauses, [1, 2, 4, 5, 5], strict=True)] == [
        True
    ] * 5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"attempts": 0}, "retry.attempts = 0: must be a whole number"),
        ({"backoff": -1}, "retry.backoff = -1: must be seconds"),
        ({"longest": float("inf")}, "retry.longest = inf"),
        (
            {"on": "OSErrror"},
            "retry.on = 'OSErrror': must name an exception of Python's, or another one as module:Class",
        ),
        ({"on": 3}, "retry.on = 3: must be an exception class"),
        ({"on": (OSError, BaseException)}, "retry.on"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Retry(**wrong)
    assert says in str(refused.value)


def test_a_record_that_takes_too_long_has_failed_and_may_be_tried_again() -> None:
    tries: Counter[int] = Counter()

    async def process(context: ItemContext, record: int) -> None:
        tries[record] += 1
        await anyio.sleep(10 if record == 2 else 0.5)

    done = run_dataflow(DataflowRun(dataflow(record_timeout=1), three, process, retry=Retry(2, 0.0)))
    assert (done.counted, tries) == ((2, 1), {1: 1, 2: 2, 3: 1})
    (error,) = done.errors
    assert (type(error), str(error)) == (TimeoutError, "`process` took longer than record_timeout = 1 s")


def test_a_record_has_failed_if_its_function_takes_too_long_and_then_returns() -> None:
    async def process(context: ItemContext, record: int) -> None:
        with suppress(asyncio.CancelledError):
            await anyio.sleep(10)

    done = run_dataflow(DataflowRun(dataflow(record_timeout=1), three, process))
    assert (done.counted, str(done.errors[0])) == ((0, 3), "`process` took longer than record_timeout = 1 s")


class InTheLoop(Executors):
    """Calls functions in the event loop, because virtual time does not wait for threads; a call takes seven seconds."""

    async def call_now(self, _executor: str, function: Callable[..., object], *arguments: Any, **named: Any) -> Any:
        await anyio.sleep(7)
        return function(*arguments, **named)


@pytest.mark.parametrize(("busy", "lines"), [(LONG_WAIT - 5, 0), (LONG_WAIT + 5, 1)])
def test_the_time_of_a_record_begins_when_a_thread_is_free_and_a_long_wait_is_logged(
    busy: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    threads, begun = anyio.CapacityLimiter(3), list[int]()

    def process(context: ItemContext, record: int) -> None:
        begun.append(record)

    async def others() -> None:
        for other in range(3):
            threads.acquire_on_behalf_of_nowait(other)
        await anyio.sleep(busy)
        for other in range(3):
            threads.release_on_behalf_of(other)

    before = run_limited_log.set(LimitedLog())
    done = run_dataflow(DataflowRun(dataflow(record_timeout=8), three, process, executors=InTheLoop(threads)), others)
    run_limited_log.reset(before)
    assert (done.counted, done.errors, sorted(begun)) == ((3, 0), [], [1, 2, 3])
    said = "flow: a call for item 0 has waited for 10 s for a free thread, and goes on waiting: "
    assert [text.startswith(said) for text in caplog.messages] == [True] * lines


class SlowToStart(Processes):
    """Processes that take a minute to start, and a second to call a function, which is called in the event loop."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.called = list[float]()

    async def prepare(self, function: Callable[..., object]) -> None:
        await anyio.sleep(60)

    async def call(self, function: Callable[..., object], *arguments: Any, **named: Any) -> Any:
        await anyio.sleep(1)
        self.called.append(asyncio.get_running_loop().time())
        return function(*arguments, **named)


def test_the_time_of_a_record_begins_when_its_process_is_ready() -> None:
    slow, settings = SlowToStart(3), dataflow(record_timeout=2, executor="process")
    done = run_dataflow(DataflowRun(settings, three, process_functions.pid, executors=Executors(processes=slow)))
    assert (done.counted, done.errors, slow.called) == ((3, 0), [], [61, 61, 61])


class Full(Executor):
    """An executor that never comes to its calls."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


def test_the_error_of_a_record_says_that_the_executor_of_a_package_never_began_with_it() -> None:
    def process(context: ItemContext, record: int) -> None:
        raise AssertionError("called")

    with added(full=lambda job: Full()):
        done = run_dataflow(DataflowRun(dataflow(record_timeout=1, executor="full"), three, process))
    (error,) = done.errors
    assert str(error) == f"`process` took longer than record_timeout = 1 s: {NEVER_BEGAN}"


def test_a_process_that_goes_on_after_its_time_limit_is_named_and_cancelled_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = list[float]()

    async def stubborn(context: ItemContext, record: int) -> None:
        await dig_in(10, asked)

    run_dataflow(DataflowRun(dataflow(record_timeout=2), three, stubborn))
    assert len(asked) <= 3 * (MAX_REPEATED_CANCELS + 10)
    (first, *_) = caplog.messages
    assert "stubborn of item 0 goes on 1 s after it was cancelled" in first


class Table:
    """Compares cell by cell, as tables of numbers do."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of a table is ambiguous")


@pytest.mark.parametrize("found", [(1, 2), "text", b"bytes", 7, {"a": 1}, {1}, iter([1]), Table()])
def test_what_is_no_batch_fails_the_run_and_says_what_would_be_one(found: Any) -> None:
    async def fetch(context: ItemContext) -> Any:
        return found

    async def generate(context: ItemContext) -> AsyncIterator[Any]:
        yield [1]
        yield found

    for one, counted in ((fetch, 0), (generate, 1)):
        done = run_dataflow(DataflowRun(dataflow(), one, ignore))
        assert done.outcomes == {0: Outcome.FAILED}
        assert done.counted == (counted, 0)
        assert "must hand out lists of records" in str(done.errors[0])


@pytest.mark.parametrize("streaming", [False, True])
def test_a_generator_is_closed_when_its_records_are_through_and_in_its_own_task(streaming: bool) -> None:
    calls: list[str] = []

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        async with anyio.create_task_group():  # complains if it is left in another task, or out of order
            try:
                while True:
                    yield [1, 2]
            finally:
                calls.append("closed")

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(1)
        calls.append("processed")
        execution.stream_control.end.set()
        if calls.count("processed") > 7:
            raise ValueError

    execution = DataflowRun(dataflow(streaming=streaming, max_failures=0), fetch, process)
    run_dataflow(execution)
    assert calls[-1] == "closed"
    assert calls.count("closed") == 1


@pytest.mark.parametrize("generates", [False, True])
def test_a_fetch_that_swallows_its_cut_is_named_and_asked_once_a_second(
    generates: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    asked, seen = list[float](), list[int]()

    async def stubborn() -> None:
        while anyio.current_time() < 30 and len(asked) < 200:
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                asked.append(anyio.current_time())

    async def listed(context: ItemContext) -> list[int]:
        await stubborn()
        return [1, 2]

    async def generated(context: ItemContext) -> AsyncIterator[list[int]]:
        await stubborn()
        yield [1, 2]

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(5)
        seen.append(record)

    execution = DataflowRun(dataflow(streaming=True), generated if generates else listed, process)

    async def end() -> None:
        await anyio.sleep(10)
        execution.stream_control.end.set()

    run_dataflow(execution, end)
    assert 1 < len(asked) < 200
    assert [at for at in asked if at > 15] == pytest.approx(range(16, 31))
    assert sorted(seen) == [1, 2]  # what it handed out all the same
    assert execution.outcomes == {0: Outcome.COMPLETED}
    (warning,) = (one.getMessage() for one in caplog.records)
    assert "goes on 1 s after it was cancelled: let CancelledError pass.  It is at:" in warning
    assert ("generated" if generates else "listed") in warning
