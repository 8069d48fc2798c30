"""The engine of dataflow jobs: its bounds, its counts, its offsets and its ends, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import anyio
import pytest
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import InstanceContext, InvalidSetting, ItemContext, Outcome, Retry
from aioelasticjob.errors import Fenced
from aioelasticjob.jobs.dataflow import RecordFailed, TooManyFailures
from aioelasticjob.rates import Flowed, Rate
from aioelasticjob.testing import run
from tests.running.dataflow_runs import DataflowRun, SavedOffsets, dataflow, run_dataflow

SIZES = st.lists(st.integers(1, 12), max_size=8)


class Source:
    """Hands out batches of ``(item, number)``, and sees who is at work with what."""

    def __init__(self, sizes: list[int], *, work: float = 0.1, fetching: float = 0.05) -> None:
        self.sizes, self.work, self.fetching = sizes, work, fetching
        self.handed: Counter[int] = Counter()
        self.fetched: Counter[int] = Counter()
        self.begun: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.busy: Counter[int] = Counter()
        self.most_busy: Counter[int] = Counter()
        self.together = 0
        self.ahead: list[int] = []
        """Batches not through, of the item that was fetched for, whenever a fetch began."""

    def records(self, item: int) -> list[tuple[int, int]]:
        return [(item, number) for number in range(sum(self.sizes))]

    async def batch(self, context: ItemContext) -> list[tuple[int, int]] | None:
        item, n = context.item, self.handed[context.item]
        self.ahead.append(self._open(item))
        await anyio.sleep(self.fetching)
        if n == len(self.sizes):
            return None
        self.handed[item] += 1
        start = self.fetched[item]
        self.fetched[item] += self.sizes[n]
        return [(item, number) for number in range(start, start + self.sizes[n])]

    async def batches(self, context: ItemContext) -> AsyncIterator[list[tuple[int, int]]]:
        while (found := await self.batch(context)) is not None:
            yield found

    def _open(self, item: int) -> int:
        through, open_ = sum(one == item for one, _ in self.ended), 0
        for size in self.sizes[: self.handed[item]]:
            open_ += through < size
            through -= min(size, through)
        return open_

    async def process(self, context: ItemContext, record: tuple[int, int]) -> None:
        self.begun.append(record)
        self.busy[context.item] += 1
        self.most_busy |= self.busy
        self.together = max(self.together, self.busy.total())
        await anyio.sleep(self.work * (1 + record[1] % 3))
        self.busy[context.item] -= 1
        self.ended.append(record)


@settings(max_examples=60, deadline=None)
@given(
    sizes=SIZES,
    concurrency=st.integers(1, 9),
    items=st.integers(1, 3),
    prefetch=st.booleans(),
    generator=st.booleans(),
    fetching=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_nothing_is_lost_and_nothing_exceeds_its_bounds(
    sizes: list[int], concurrency: int, items: int, prefetch: bool, generator: bool, fetching: float
) -> None:
    source = Source(sizes, fetching=fetching)
    config = dataflow(streaming=True, concurrency=concurrency, prefetch=prefetch, sharding_total_count=items)
    fetch = source.batches if generator else source.batch
    done = run_dataflow(DataflowRun(config, fetch, source.process, items=range(items)))
    expected = [record for item in range(items) for record in source.records(item)]
    assert sorted(source.begun) == sorted(source.ended) == expected
    assert source.together <= concurrency
    assert max(source.ahead) <= prefetch
    assert done.counted == (len(expected), 0)
    assert done.outcomes == dict.fromkeys(range(items), Outcome.COMPLETED)


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, items=st.integers(1, 4), prefetch=st.booleans())
def test_ordered_keeps_the_order_of_each_item_and_runs_items_side_by_side(
    sizes: list[int], items: int, prefetch: bool
) -> None:
    source = Source(sizes)
    config = dataflow(ordered=True, concurrency=1, streaming=True, prefetch=prefetch, sharding_total_count=items)
    run_dataflow(DataflowRun(config, source.batch, source.process, items=range(items)))
    for item in range(items):
        mine = [record for record in source.ended if record[0] == item]
        assert mine == source.records(item)
        assert source.most_busy[item] <= 1
    assert source.together == (items if sizes else 0)


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, concurrency=st.integers(1, 4), size=st.integers(1, 7))
def test_batches_hold_at_most_so_many_records_in_their_order(sizes: list[int], concurrency: int, size: int) -> None:
    source, seen, busy, most = Source(sizes), list[tuple[int, int]](), 0, 0

    async def process(context: ItemContext, records: list[tuple[int, int]]) -> bool:
        nonlocal busy, most
        assert 1 <= len(records) <= size
        assert all(a[1] + 1 == b[1] for a, b in pairwise(records))
        busy += 1
        most = max(most, busy)
        await anyio.sleep(0.1)
        busy -= 1
        seen.extend(records)
        return records[0][1] % 2 == 0

    config = dataflow(batch_size=size, streaming=True, concurrency=concurrency, prefetch=True)
    done = run_dataflow(DataflowRun(config, source.batch, process))
    assert sorted(seen) == source.records(0)
    assert most <= concurrency
    assert sum(done.counted) == sum(sizes)
    assert done.counted[1] == done.events.rates["flow"][0].failed


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, stop=st.floats(0, 4), prefetch=st.booleans(), ordered=st.booleans())
def test_a_stream_that_is_to_end_has_process_see_all_that_was_fetched_and_fetches_no_more(
    sizes: list[int], stop: float, prefetch: bool, ordered: bool
) -> None:
    source = Source(sizes)
    config = dataflow(streaming=True, concurrency=2, prefetch=prefetch, ordered=ordered)
    execution = DataflowRun(config, source.batch, source.process)
    handed: list[int] = []

    async def end() -> None:
        await anyio.sleep(stop)
        execution.stream_control.end.set()
        handed.append(source.handed[0])

    run_dataflow(execution, end)
    assert sorted(source.ended) == source.records(0)[: source.fetched[0]]
    assert source.handed[0] - handed[0] <= 1 if handed else source.handed[0] == len(sizes)
    assert execution.outcomes == {0: Outcome.COMPLETED}


@settings(max_examples=60, deadline=None)
@given(
    sizes=SIZES,
    prefetch=st.sampled_from([None, True, False]),
    before=st.booleans(),
    bad=st.sets(st.integers(0, 40)),
    crash=st.floats(0, 6),
)
def test_an_offset_is_saved_only_when_all_before_it_has_been_seen(
    sizes: list[int], prefetch: bool | None, before: bool, bad: set[int], crash: float
) -> None:
    """Whenever it is cut off: whoever goes on from the offset meets every record that process had not ended."""
    source, saved = Source(sizes), SavedOffsets()

    class Watched(SavedOffsets):
        async def save(self, item: int, value: str) -> None:
            await super().save(item, value)
            assert {number for _, number in source.ended} >= set(range(int(value)))

    saved = Watched()

    async def fetch(context: ItemContext) -> AsyncIterator[list[tuple[int, int]]]:
        while (found := await source.batch(context)) is not None:
            offset = str(found[-1][1] + 1)
            if before:
                await context.save_offset(offset)
                assert context.offset == offset
            yield found
            if not before:
                await context.save_offset(offset)

    async def process(context: ItemContext, record: tuple[int, int]) -> bool:
        await source.process(context, record)
        return record[1] not in bad

    execution = DataflowRun(dataflow(streaming=True, concurrency=3, prefetch=prefetch), fetch, process, saved=saved)

    async def main() -> None:
        with anyio.move_on_after(crash):
            await execution.fly()
        assert {number for _, number in source.ended} >= set(range(int(saved.offsets.get(0, "0"))))

    run(main)
    if execution.outcomes:
        assert saved.offsets == ({0: str(sum(sizes))} if sizes else {})
        assert execution.counted[1] == sum(number < sum(sizes) for number in bad)


def test_fetching_overlaps_processing_once_fetch_says_offsets_and_not_before() -> None:
    def took(*, says: bool, prefetch: bool | None) -> float:
        source, ended = Source([4] * 5, work=0.25, fetching=1.0), list[float]()

        async def fetch(context: ItemContext) -> list[tuple[int, int]] | None:
            found = await source.batch(context)
            if found and says:
                await context.save_offset(str(found[-1][1]))
            return found

        async def process(context: ItemContext, record: tuple[int, int]) -> None:
            await anyio.sleep(1.0)
            ended.append(anyio.current_time())

        config = dataflow(streaming=True, concurrency=4, prefetch=prefetch)
        execution = DataflowRun(config, fetch, process)

        async def main() -> float:
            began = anyio.current_time()
            await execution.fly()
            return ended[-1] - began

        return run(main)

    assert took(says=False, prefetch=None) == pytest.approx(10)  # five times one second each, one after another
    assert took(says=True, prefetch=None) == pytest.approx(6)
    assert took(says=False, prefetch=True) == pytest.approx(6)
    assert took(says=True, prefetch=False) == pytest.approx(10)


async def three(context: ItemContext) -> list[int]:
    return [1, 2, 3]


async def forever(context: ItemContext) -> AsyncIterator[list[int]]:
    while True:
        yield [1, 2, 3]


async def ignore(context: Any, record: Any) -> None:
    return None


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
    assert (done.counted, done.complaints) == ((1, 0), [])


def test_a_failing_record_stops_no_other_and_is_shown_to_dead() -> None:
    dead: list[tuple[int, str]] = []

    async def process(context: ItemContext, record: int) -> bool | None:
        if record == 3:
            raise ValueError("three")
        return {1: False, 2: None}.get(record, True)

    async def bury(context: ItemContext, record: int, error: Exception) -> None:
        dead.append((record, repr(error)))

    async def fetch(context: ItemContext) -> list[int]:
        return [0, 1, 2, 3, 4]

    done = run_dataflow(DataflowRun(dataflow(concurrency=1), fetch, process, bury))
    assert dead == [(1, repr(RecordFailed())), (3, "ValueError('three')")]
    assert done.counted == (3, 2)
    assert done.outcomes == {0: Outcome.COMPLETED}
    assert [str(error) for error in done.complaints] == ["three"]
    (rate,) = done.events.rates["flow"]
    assert (rate.succeeded, rate.failed, rate.dead) == (3, 2, 2)


@pytest.mark.parametrize("raised", [SystemExit(1), asyncio.CancelledError(), KeyError("x")])
def test_whatever_a_handler_raises_is_its_own(raised: BaseException) -> None:
    async def process(context: ItemContext, record: int) -> None:
        raise raised

    async def bury(context: ItemContext, record: int, error: Exception) -> None:
        raise raised

    assert run_dataflow(DataflowRun(dataflow(), three, process, bury)).counted == (0, 3)

    async def fetch(context: ItemContext) -> list[int]:
        raise raised

    done = run_dataflow(DataflowRun(dataflow(), fetch, process))
    assert (done.outcomes, len(done.complaints)) == ({0: Outcome.FAILED}, 1)


def test_complaints_are_one_for_each_batch_however_many_fail() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> None:
        raise ValueError(record)

    source = Source([50, 50, 50])
    done = run_dataflow(DataflowRun(dataflow(streaming=True), source.batch, process))
    assert (done.counted, len(done.complaints)) == ((0, 150), 3)


def test_a_dead_that_fails_is_complained_of_once_for_each_batch_too() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> bool:
        return False

    async def dead(context: ItemContext, record: tuple[int, int], error: Exception) -> None:
        raise OSError(record)

    source = Source([50, 50, 50])
    done = run_dataflow(DataflowRun(dataflow(streaming=True), source.batch, process, dead))
    assert (done.counted, [type(one) for one in done.complaints]) == ((0, 150), [OSError] * 3)


def test_too_many_failures_end_the_fetching_and_fail_the_run() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> bool:
        return record[1] % 2 == 0

    source = Source([10] * 9)
    done = run_dataflow(DataflowRun(dataflow(streaming=True, max_failures=7), source.batch, process))
    assert source.handed[0] == 2
    assert done.counted == (10, 10)
    assert done.outcomes == {0: Outcome.FAILED}
    (error,) = done.complaints
    assert isinstance(error, TooManyFailures)
    assert (error.failed, error.allowed) == (10, 7)
    source = Source([10] * 9)
    assert run_dataflow(DataflowRun(dataflow(streaming=True, max_failures=45), source.batch, process)).counted == (
        45,
        45,
    )


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
        ({"on": "OSError"}, "retry.on = 'OSError': must be an exception class"),
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
    assert isinstance(done.complaints[0], TimeoutError)


def test_a_run_that_takes_too_long_is_cut_off_and_keeps_the_offset_behind_what_is_through() -> None:
    source, saved = Source([4] * 9, work=1, fetching=0), SavedOffsets()

    async def fetch(context: ItemContext) -> list[tuple[int, int]] | None:
        found = await source.batch(context)
        await context.save_offset(str(found[-1][1] + 1) if found else "end")
        return found

    done = run_dataflow(
        DataflowRun(dataflow(streaming=True, concurrency=4, timeout=8), fetch, source.process, saved=saved)
    )
    assert done.outcomes == {0: Outcome.TIMED_OUT}
    assert "longer than 8 s" in str(done.complaints[0])
    assert 0 < int(saved.offsets[0]) <= len(source.ended) == done.counted[0]


@pytest.mark.parametrize("found", [(1, 2), "text", b"bytes", 7, {"a": 1}, {1}, iter([1])])
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
        assert "must hand out lists of records" in str(done.complaints[0])


def test_a_generator_that_raises_midway_has_what_it_yielded_processed_and_saved() -> None:
    saved = SavedOffsets()

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        await context.save_offset("3")
        yield [1, 2, 3]
        await context.save_offset("never")
        raise OSError("the source is gone")

    done = run_dataflow(DataflowRun(dataflow(), fetch, ignore, saved=saved))
    assert (done.counted, saved.saves) == ((3, 0), [(0, "3")])
    assert done.outcomes == {0: Outcome.FAILED}
    assert [str(error) for error in done.complaints] == ["the source is gone"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_generator_is_closed_when_its_records_are_through_and_in_its_own_task(streaming: bool) -> None:
    told: list[str] = []

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        async with anyio.create_task_group():  # complains if it is left in another task, or out of order
            try:
                while True:
                    yield [1, 2]
            finally:
                told.append("closed")

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(1)
        told.append("processed")
        execution.stream_control.end.set()
        if told.count("processed") > 7:
            raise ValueError

    execution = DataflowRun(dataflow(streaming=streaming, max_failures=0), fetch, process)
    run_dataflow(execution)
    assert told[-1] == "closed"
    assert told.count("closed") == 1


def test_a_fetch_that_waits_for_ever_is_cut_off_some_seconds_after_the_run_is_to_end() -> None:
    told: list[str] = []

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        yield [1, 2]
        try:
            await anyio.sleep_forever()
        finally:
            told.append("closed")

    execution = DataflowRun(dataflow(streaming=True), fetch, ignore)

    async def end() -> None:
        await anyio.sleep(10)
        execution.stream_control.end.set()
        await anyio.sleep(4.9)
        assert told == []

    run_dataflow(execution, end)
    assert told == ["closed"]
    assert execution.outcomes == {0: Outcome.COMPLETED}


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
    assert "goes on 1 s after it was cancelled" in warning
    assert ("generated" if generates else "listed") in warning


def test_one_slow_record_does_not_keep_a_stream_from_ending_nor_is_it_cut_off() -> None:
    ended: list[int] = []

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(60)
        ended.append(record)

    execution = DataflowRun(dataflow(streaming=True, prefetch=True), forever, process)

    async def end() -> None:
        await anyio.sleep(1)
        execution.stream_control.end.set()

    run_dataflow(execution, end)
    assert sorted(ended) == [1, 1, 2, 2, 3, 3]  # one batch in process, one ahead


def test_one_call_for_all_items_of_an_instance() -> None:
    saved = SavedOffsets()

    async def fetch(context: InstanceContext) -> list[tuple[int, int]]:
        for item in context.items:
            await context.save_offset(item, f"of {item}")
        return [(item, n) for item in context.items for n in range(3)]

    seen: list[tuple[int, int]] = []

    async def process(context: InstanceContext, record: tuple[int, int]) -> None:
        seen.append(record)

    config = dataflow(per="instance", sharding_total_count=3)
    done = run_dataflow(DataflowRun(config, fetch, process, items=range(3), saved=saved))
    assert seen == [(item, n) for item in range(3) for n in range(3)]
    assert done.outcomes == dict.fromkeys(range(3), Outcome.COMPLETED)
    assert saved.offsets == {item: f"of {item}" for item in range(3)}
    (rate,) = done.events.rates["flow"]
    assert (rate.item, rate.succeeded) == (None, 9)


def test_an_offset_that_can_no_longer_be_saved_fails_the_run() -> None:
    async def fetch(context: ItemContext) -> list[int]:
        await context.save_offset("1")
        return [1]

    done = run_dataflow(DataflowRun(dataflow(), fetch, ignore, saved=SavedOffsets(failure=Fenced(0))))
    assert done.outcomes == {0: Outcome.FAILED}
    assert isinstance(done.complaints[0], Fenced)


def test_an_offset_that_makes_no_sense_is_refused_where_it_is_said() -> None:
    async def fetch(context: ItemContext) -> list[int]:
        await context.save_offset(7)  # type: ignore[arg-type]
        return [1]

    done = run_dataflow(DataflowRun(dataflow(), fetch, ignore))
    assert "must be text" in str(done.complaints[0])


def test_a_fetch_that_outlives_its_run_can_save_nothing() -> None:
    contexts: list[ItemContext] = []

    async def fetch(context: ItemContext) -> list[int]:
        contexts.append(context)
        return []

    execution = DataflowRun(dataflow(), fetch, ignore)

    async def main() -> None:
        await execution.fly()
        execution.saved.failure = Fenced(0)
        with pytest.raises(Fenced):
            await contexts[0].save_offset("late")

    run(main)


def test_others_run_while_process_never_waits() -> None:
    ticks: list[int] = []

    async def fetch(context: ItemContext) -> list[int]:
        return list(range(200_000))

    async def tick() -> None:
        while True:
            ticks.append(1)
            await anyio.sleep(0)

    run_dataflow(DataflowRun(dataflow(), fetch, ignore), tick)
    assert len(ticks) > 5


def test_rates_tell_what_flows_while_it_flows() -> None:
    source = Source([30] * 4, work=0.5, fetching=0)
    execution = DataflowRun(dataflow(streaming=True, concurrency=10, prefetch=True), source.batch, source.process)
    told: list[tuple[Rate, int]] = []

    async def watch() -> None:
        for _ in range(10):
            await anyio.sleep(0.73)
            (rate,) = execution.events.rates["flow"]
            told.append((rate, len(source.ended)))

    with execution.events.listen() as listener:
        run_dataflow(execution, watch)
        events = [event for event in listener.take(1000) if isinstance(event, Flowed)]
    assert any(rate.waiting > 30 for rate, _ in told)
    for rate, _ in told:
        assert rate.in_flight == 10 or rate.waiting == 0
        assert rate.lag > 0
    assert told[-1][0].per_second == pytest.approx(10, rel=0.2)
    assert [event.rates[0].succeeded for event in events] == sorted(event.rates[0].succeeded for event in events)
    assert events[-1].rates[0].succeeded == 120
    (after,) = execution.events.rates["flow"]
    assert (after.in_flight, after.waiting, after.lag, after.per_second) == (0, 0, 0, 0)
