"""One lane of a dataflow: it is fetched, processed, counted and saved."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import ItemContext, Outcome
from aioelasticjob.errors import Fenced
from aioelasticjob.jobs.dataflow import RecordFailed, TooManyFailures
from aioelasticjob.testing import run
from tests.engine.dataflow_runs import SIZES, DataflowRun, SavedOffsets, Source, dataflow, ignore, run_dataflow


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
    """Whenever it is cut off: the run that goes on from the offset gets every record that was not processed."""
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
            await execution.run()
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
            await execution.run()
            return ended[-1] - began

        return run(main)

    assert took(says=False, prefetch=None) == pytest.approx(10)  # five times one second each, one after another
    assert took(says=True, prefetch=None) == pytest.approx(6)
    assert took(says=False, prefetch=True) == pytest.approx(6)
    assert took(says=True, prefetch=False) == pytest.approx(10)


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
    assert [str(error) for error in done.errors] == ["three"]
    assert done.parts == [("a record", True)]
    (rate,) = done.events.rates["flow"]
    assert (rate.succeeded, rate.failed, rate.dead) == (3, 2, 2)


def test_complaints_are_one_for_each_batch_however_many_fail() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> None:
        raise ValueError(record)

    source = Source([50, 50, 50])
    done = run_dataflow(DataflowRun(dataflow(streaming=True), source.batch, process))
    assert (done.counted, len(done.errors)) == ((0, 150), 3)


def test_a_dead_that_fails_is_complained_of_once_for_each_batch_too() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> bool:
        return False

    async def dead(context: ItemContext, record: tuple[int, int], error: Exception) -> None:
        raise OSError(record)

    source = Source([50, 50, 50])
    done = run_dataflow(DataflowRun(dataflow(streaming=True), source.batch, process, dead))
    assert (done.counted, [type(one) for one in done.errors]) == ((0, 150), [OSError] * 3)
    assert done.parts == [("the call of `dead` for a record", True)] * 3


def test_a_failed_list_is_called_a_list_and_the_run_does_not_go_on_beyond_max_failures() -> None:
    async def process(context: ItemContext, records: list[tuple[int, int]]) -> None:
        raise ValueError(len(records))

    source = Source([5] * 9)
    settings = {"streaming": True, "max_failures": 5, "batch_size": 5}
    done = run_dataflow(DataflowRun(dataflow(**settings), source.batch, process))
    assert [str(error) for error in done.errors[:2]] == ["5", "5"]
    assert isinstance(done.errors[2], TooManyFailures)
    assert done.parts == [("a list of 5 records", True), ("a list of 5 records", False)]


def test_too_many_failures_end_the_fetching_and_fail_the_run() -> None:
    async def process(context: ItemContext, record: tuple[int, int]) -> bool:
        return record[1] % 2 == 0

    source = Source([10] * 9)
    done = run_dataflow(DataflowRun(dataflow(streaming=True, max_failures=7), source.batch, process))
    assert source.handed[0] == 2
    assert done.counted == (10, 10)
    assert done.outcomes == {0: Outcome.FAILED}
    (error,) = done.errors
    assert isinstance(error, TooManyFailures)
    assert (error.failed, error.allowed) == (10, 7)
    source = Source([10] * 9)
    assert run_dataflow(DataflowRun(dataflow(streaming=True, max_failures=45), source.batch, process)).counted == (
        45,
        45,
    )


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
    assert [str(error) for error in done.errors] == ["the source is gone"]


def test_an_offset_that_can_no_longer_be_saved_fails_the_run() -> None:
    async def fetch(context: ItemContext) -> list[int]:
        await context.save_offset("1")
        return [1]

    done = run_dataflow(DataflowRun(dataflow(), fetch, ignore, saved=SavedOffsets(failure=Fenced(0))))
    assert done.outcomes == {0: Outcome.FAILED}
    assert isinstance(done.errors[0], Fenced)


def test_an_offset_that_makes_no_sense_is_refused_where_it_is_said() -> None:
    async def fetch(context: ItemContext) -> list[int]:
        await context.save_offset(7)  # type: ignore[arg-type]
        return [1]

    done = run_dataflow(DataflowRun(dataflow(), fetch, ignore))
    assert "must be text" in str(done.errors[0])


def test_a_fetch_that_outlives_its_run_can_save_nothing() -> None:
    contexts: list[ItemContext] = []

    async def fetch(context: ItemContext) -> list[int]:
        contexts.append(context)
        return []

    execution = DataflowRun(dataflow(), fetch, ignore)

    async def main() -> None:
        await execution.run()
        execution.saved.failure = Fenced(0)
        with pytest.raises(Fenced):
            await contexts[0].save_offset("late")

    run(main)
