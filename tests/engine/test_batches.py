"""Records on their way through process: nothing is lost, and nothing exceeds its bounds."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import ItemContext, Outcome
from aioelasticjob.ground.rates import Flowed, Rate
from tests.engine.dataflow_runs import SIZES, DataflowRun, Source, dataflow, ignore, run_dataflow


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


def test_a_record_that_is_with_dead_counts_as_failed_only_afterwards() -> None:
    async def fetch(context: ItemContext) -> list[str]:
        return ["good", "bad"]

    async def process(context: ItemContext, record: str) -> bool:
        return record != "bad"

    async def dead(context: ItemContext, record: str, error: Exception) -> None:
        await anyio.sleep(5)

    execution = DataflowRun(dataflow(concurrency=1), fetch, process, dead)
    with execution.events.listen() as listener:
        run_dataflow(execution)
        rates = [event.rates[0] for event in listener.take(1000) if isinstance(event, Flowed)]
    counts = [(rate.succeeded, rate.failed) for rate in rates]
    assert set(counts) == {(1, 0), (1, 1)}
    assert counts == sorted(counts)


def test_rates_tell_what_flows_while_it_flows() -> None:
    source = Source([30] * 4, work=0.5, fetching=0)
    execution = DataflowRun(dataflow(streaming=True, concurrency=10, prefetch=True), source.batch, source.process)
    rates: list[tuple[Rate, int]] = []

    async def watch() -> None:
        for _ in range(10):
            await anyio.sleep(0.73)
            (rate,) = execution.events.rates["flow"]
            rates.append((rate, len(source.ended)))

    with execution.events.listen() as listener:
        run_dataflow(execution, watch)
        events = [event for event in listener.take(1000) if isinstance(event, Flowed)]
    assert any(rate.waiting > 30 for rate, _ in rates)
    for rate, _ in rates:
        assert rate.in_flight == 10 or rate.waiting == 0
        assert rate.lag > 0
    assert rates[-1][0].per_second == pytest.approx(10, rel=0.2)
    assert [event.rates[0].succeeded for event in events] == sorted(event.rates[0].succeeded for event in events)
    assert events[-1].rates[0].succeeded == 120
    (after,) = execution.events.rates["flow"]
    assert (after.in_flight, after.waiting, after.lag, after.per_second) == (0, 0, 0, 0)
