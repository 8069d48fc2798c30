"""The engine of dataflow jobs: its bounds, its counts, its offsets and its ends, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import Depends, InstanceContext, ItemContext, Outcome
from aioelasticjob.errors import Fenced
from aioelasticjob.testing import run
from tests.engine.dataflow_runs import SIZES, DataflowRun, SavedOffsets, Source, dataflow, ignore, run_dataflow, three


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


async def forever(context: ItemContext) -> AsyncIterator[list[int]]:
    while True:
        yield [1, 2, 3]


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
    assert (done.outcomes, len(done.errors)) == ({0: Outcome.FAILED}, 1)


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
    assert "longer than 8 s" in str(done.errors[0])
    assert 0 < int(saved.offsets[0]) <= len(source.ended) == done.counted[0]


def test_a_fetch_that_waits_for_ever_is_cut_off_some_seconds_after_the_run_is_to_end() -> None:
    calls: list[str] = []

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        yield [1, 2]
        try:
            await anyio.sleep_forever()
        finally:
            calls.append("closed")

    execution = DataflowRun(dataflow(streaming=True), fetch, ignore)

    async def end() -> None:
        await anyio.sleep(10)
        execution.stream_control.end.set()
        await anyio.sleep(4.9)
        assert calls == []

    run_dataflow(execution, end)
    assert calls == ["closed"]
    assert execution.outcomes == {0: Outcome.COMPLETED}


@pytest.mark.parametrize("opening", [1, 7], ids=["fetches when asked to end", "fetches later"])
def test_the_first_fetch_of_a_run_that_is_to_end_is_cut_off_too(opening: float) -> None:
    ended: list[float] = []

    async def connection() -> AsyncIterator[int]:
        await anyio.sleep(opening)
        yield 1
        ended.append(anyio.current_time())

    async def fetch(context: ItemContext, db: int = Depends(connection)) -> list[int]:
        await anyio.sleep(3600)
        return []

    execution = DataflowRun(dataflow(streaming=True), fetch, ignore)

    async def end() -> None:
        await anyio.sleep(0.5)
        execution.stream_control.end.set()
        ended.append(anyio.current_time())

    run_dataflow(execution, end)
    assert ended[1] - ended[0] <= 10
    assert execution.outcomes == {0: Outcome.COMPLETED}


async def fails_when_cancelled(context: ItemContext) -> list[int]:
    try:
        await anyio.sleep_forever()
    finally:
        raise ConnectionError("the query was cancelled")


def cut_off(execution: DataflowRun, after: float) -> DataflowRun:
    """Let a dataflow run, and cancel it after so many seconds, as the end of the session does."""

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execution.run)
            await anyio.sleep(after)
            tasks.cancel_scope.cancel()

    run(main)
    return execution


def test_a_run_that_is_cut_off_has_not_failed_whatever_error_fetch_makes_of_that() -> None:
    done = cut_off(DataflowRun(dataflow(), fails_when_cancelled, ignore), after=3)
    assert (done.outcomes, done.errors) == ({}, [])


def test_a_run_that_takes_too_long_is_timed_out_whatever_error_fetch_makes_of_that() -> None:
    done = run_dataflow(DataflowRun(dataflow(timeout=3), fails_when_cancelled, ignore))
    assert done.outcomes == {0: Outcome.TIMED_OUT}
    assert [str(error) for error in done.errors] == ["the run took longer than 3 s"]


def test_a_stream_whose_fetch_is_cut_off_at_its_end_is_left_open_whatever_error_fetch_makes_of_that() -> None:
    execution = DataflowRun(dataflow(streaming=True), fails_when_cancelled, ignore)

    async def end() -> None:
        await anyio.sleep(1)
        execution.stream_control.end.set()

    run_dataflow(execution, end)
    assert (execution.outcomes, execution.errors) == ({0: Outcome.COMPLETED}, [])
    assert execution.execution.unfinished == {0}


def test_records_of_a_run_that_is_cut_off_have_not_failed_whatever_error_process_makes_of_that() -> None:
    """Otherwise ``dead`` would be shown records that another instance processes again."""
    begun, shown = list[int](), list[int]()

    async def process(context: ItemContext, record: int) -> None:
        begun.append(record)
        await fails_when_cancelled(context)

    async def dead(context: ItemContext, record: int, error: Exception) -> None:
        shown.append(record)

    done = cut_off(DataflowRun(dataflow(concurrency=1), three, process, dead), after=3)
    assert begun == [1]
    assert (done.outcomes, done.errors, done.counted, shown) == ({}, [], (0, 0), [])


def test_records_whose_dead_is_cut_off_have_not_failed_whatever_error_dead_makes_of_that() -> None:
    async def process(context: ItemContext, record: int) -> bool:
        return False

    async def dead(context: ItemContext, record: int, error: Exception) -> None:
        await fails_when_cancelled(context)

    done = cut_off(DataflowRun(dataflow(concurrency=1), three, process, dead), after=3)
    assert (done.outcomes, done.errors, done.counted) == ({}, [], (0, 0))


def test_an_offset_that_a_task_saves_after_the_run_is_refused() -> None:
    contexts: list[ItemContext] = []

    async def fetch(context: ItemContext) -> list[int]:
        contexts.append(context)
        return []

    execution = DataflowRun(dataflow(), fetch, ignore)

    async def late() -> None:
        with pytest.raises(Fenced):
            await contexts[0].save_offset("5")

    run_dataflow(execution)
    anyio.run(late)
    assert execution.saved.offsets == {}


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


@pytest.mark.parametrize(("at_once", "together"), [(None, 3), (2, 2), (1, 1)])
def test_so_many_items_are_fetched_and_processed_side_by_side(at_once: int | None, together: int) -> None:
    fetching, most = set[int](), 0

    async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
        nonlocal most
        fetching.add(context.item)
        most = max(most, len(fetching))
        yield [1, 2]
        yield [3]
        fetching.discard(context.item)

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(0.1)

    config = dataflow(sharding_total_count=3, items_at_once=at_once)
    done = run_dataflow(DataflowRun(config, fetch, process, items=range(3)))
    assert most == together
    assert done.outcomes == dict.fromkeys(range(3), Outcome.COMPLETED)
    assert done.counted == (9, 0)


def test_items_whose_turn_has_not_come_are_cut_off_with_the_others() -> None:
    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep_forever()

    config = dataflow(sharding_total_count=3, items_at_once=1, timeout=5)
    done = run_dataflow(DataflowRun(config, three, process, items=range(3)))
    assert done.outcomes == dict.fromkeys(range(3), Outcome.TIMED_OUT)
