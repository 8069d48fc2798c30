"""Dataflows of plain functions in threads and processes, and what is provided to a dataflow's functions."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import anyio
import pytest

from aioelasticjob import Depends, ElasticJob, InvalidSetting, ItemContext
from aioelasticjob.engine.executors import Processes
from aioelasticjob.events import Ended
from aioelasticjob.jobs.dependencies import ProviderFailed
from aioelasticjob.model import Outcome
from aioelasticjob.testing import VirtualCluster, simulated
from tests.engine import declared_dataflow
from tests.engine.dataflow_runs import DataflowRun, dataflow, run_dataflow
from tests.support.loops import LoopKind, run_async

seen: list[object] = []


def five(context: ItemContext) -> list[int]:
    seen.append(threading.get_ident())
    return list(range(5))


def test_plain_functions_run_in_threads_side_by_side_up_to_the_concurrency(real_loop_kind: LoopKind) -> None:
    meeting, threads = threading.Barrier(5, timeout=90), set[int]()
    seen.clear()

    def process(context: ItemContext, record: int) -> bool:
        threads.add(threading.get_ident())
        meeting.wait()
        return record != 3

    def dead(context: ItemContext, record: int, error: Exception) -> None:
        seen.append(record)

    execution = DataflowRun(dataflow(concurrency=5), five, process, dead)
    run_async(real_loop_kind, execution.run)
    assert len(threads) == 5
    assert threading.get_ident() not in {*threads, *seen}
    assert seen[1:] == [3]
    assert execution.counted == (4, 1)


def pid(context: ItemContext, record: int) -> bool:
    assert context.item == 0
    return os.getpid() != record


def see(context: ItemContext, record: int) -> None:
    seen.append(record)


async def own_pid(context: ItemContext) -> list[int]:
    return [os.getpid(), 0]


@pytest.mark.process
def test_plain_functions_run_in_processes_if_the_job_wants_it() -> None:
    execution = DataflowRun(dataflow(executor="process"), own_pid, pid)

    async def main() -> None:
        async with execution.executors.processes.open():
            await execution.run()

    run_async("asyncio", main)
    assert (execution.counted, execution.errors) == ((2, 0), [])


def test_in_simulated_time_no_process_is_started_for_a_record_with_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = ElasticJob("zk://registry:2181/shop")
    monkeypatch.delattr(Processes, "_child")
    monkeypatch.setattr(f"{__name__}.seen", [])

    @app.dataflow(cron="@daily", executor="process", record_timeout=1)
    async def flow(context: ItemContext) -> AsyncIterator[list[int]]:
        yield [1, 2]

    flow.process(see)

    async def main(cluster: VirtualCluster) -> None:
        await cluster.start(app)
        await cluster.next_fire()

    simulated(main)(VirtualCluster())
    assert seen == [1, 2]


@pytest.mark.process
def test_a_fetch_runs_in_a_process_though_its_name_means_the_dataflow_since_it_was_decorated() -> None:
    async def main() -> Ended:
        async with declared_dataflow.app.running():
            with declared_dataflow.app.events() as events, anyio.fail_after(90):
                async for event in events:
                    if isinstance(event, Ended):
                        return event
        raise AssertionError("the events ended")

    assert run_async("asyncio", main).outcome is Outcome.COMPLETED
    (rate,) = declared_dataflow.app.rates["pids"]
    assert (rate.succeeded, rate.failed) == (2, 0)  # one process, not ours, has done all of it: it was kept


@pytest.mark.parametrize("declared", [True, False])
def test_what_cannot_be_sent_to_a_process_is_refused_before_anything_runs(
    declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ElasticJob("embedded://")
    flow = app.dataflow("flow", executor="process" if declared else "thread")(own_pid)
    flow.process(lambda context, record: None)
    if not declared:
        monkeypatch.setenv("AIOELASTICJOB_JOBS__FLOW__EXECUTOR", "process")
        app.configure()

    async def main() -> None:
        async with app.running():
            raise AssertionError("it runs")

    with pytest.raises(InvalidSetting, match="cannot be pickled"):
        run_async("asyncio", main)


@asynccontextmanager
async def opened() -> AsyncIterator[list[str]]:
    """What a database would be: open while the run goes on."""
    calls = ["open"]
    seen.append(calls)
    yield calls
    calls.append("closed")


Store = Annotated[list[str], Depends(opened)]


async def fetch(context: ItemContext, store: Store) -> list[int]:
    store.append("fetch")
    return [1, 2]


async def process(context: ItemContext, record: int, store: Store) -> bool:
    await anyio.sleep(record)
    store.append(f"process {record}")
    return record == 1


async def dead(context: ItemContext, record: int, error: Exception, store: Store) -> None:
    store.append(f"dead {record}")


def test_all_functions_of_an_items_run_share_what_is_provided() -> None:
    seen.clear()
    run_dataflow(DataflowRun(dataflow(sharding_total_count=2), fetch, process, dead, items=(0, 1)))
    assert seen == [["open", "fetch", "process 1", "process 2", "dead 2", "closed"]] * 2


def broken() -> Any:
    raise OSError("no database")


def test_a_provider_that_fails_fails_the_run() -> None:
    async def fetching(context: ItemContext, store: Annotated[Any, Depends(broken)]) -> list[int]:
        return [1]

    done = run_dataflow(DataflowRun(dataflow(), fetching, lambda context, record: None))
    assert done.outcomes == {0: Outcome.FAILED}
    (error,) = done.errors
    assert isinstance(error, ProviderFailed)
    assert "no database" in str(error)


def test_a_process_that_does_not_heed_its_end_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn(context: ItemContext, record: int) -> None:
        end = anyio.current_time() + 5
        while anyio.current_time() < end:
            with suppress(BaseException):
                await anyio.sleep(0.1)

    async def one(context: ItemContext) -> list[int]:
        return [1]

    with caplog.at_level(logging.WARNING):
        done = run_dataflow(DataflowRun(dataflow(timeout=1), one, stubborn))
    assert done.outcomes == {0: Outcome.TIMED_OUT}
    assert "goes on 1 s after it was cancelled" in caplog.text
    assert "in stubborn" in caplog.text
