"""Whole processes: they share the work, and leave as they are asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import decode
from aioelasticjob.host.process import REPEATED_WITHIN
from aioelasticjob.model import Outcome, Record
from tests.support.local_applications import RegistryObserver, registry_observer
from tests.support.loops import run_async
from tests.support.processes import Workers
from tests.support.run_journal import Line
from tests.support.worker_processes import WorkerProcesses, ended, listens_to_signals, of

pytestmark = pytest.mark.process
LAYOUT = Layout("job")


def children_of(pid: int) -> list[str]:
    return [name for task in Path(f"/proc/{pid}/task").iterdir() for name in (task / "children").read_text().split()]


def runs_of(start_processes: WorkerProcesses) -> list[Line]:
    return [line for line in start_processes.lines() if line.what != "misfire"]


async def record(registry: RegistryObserver) -> Record:
    found = decode((await registry.session.get(LAYOUT.item(0).execution)).data)
    assert found is not None
    return found


async def begun(start_processes: WorkerProcesses) -> Line:
    lines = await start_processes.until(lambda lines: any(line.what == "begin" for line in lines))
    return next(line for line in lines if line.what == "begin")


def test_processes_share_the_items_and_hand_them_over_when_one_leaves(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        start_processes.job = {"sharding_total_count": 6}
        first, second, _ = (start_processes.start() for _ in range(3))
        async with registry_observer(start_processes.address) as registry:
            view = await registry.spread_over(3)
            assert {one.pid for one in view.instances.values()} == {child.pid for child in start_processes.alive}
            await start_processes.every_item_ends(2, 6)
            os.kill(first.pid, signal.SIGTERM)
            assert await ended(first) == 0
            await registry.spread_over(2)
            await start_processes.every_item_ends(1, 6)
            os.kill(second.pid, signal.SIGINT)
            assert await ended(second) == 0
            view = await registry.spread_over(1)
            lines = await start_processes.every_item_ends(1, 6)
            assert lines[-1].instance in view.instances
            await start_processes.end()
            await registry.until(lambda view: not view.instances and view.leader is None)

    run_async("asyncio", main)


def test_a_signal_lets_the_running_item_finish(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        child = start_processes.start(work=1.5)
        async with registry_observer(start_processes.address) as registry:
            await begun(start_processes)
            asked = time.monotonic()
            os.kill(child.pid, signal.SIGTERM)
            assert await ended(child) == 0
            began, finished = runs_of(start_processes)
            assert (began.what, finished.what) == ("begin", "end")
            assert finished.at > asked
            stored = await record(registry)
            assert stored.completed
            assert stored.outcome == Outcome.COMPLETED
            await registry.until(lambda view: not view.instances)

    run_async("asyncio", main)


def test_after_the_shutdown_timeout_the_item_is_cut_and_handed_over(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        start_processes.job = {"shutdown_timeout": 0.5}
        child = start_processes.start(work=600)
        async with registry_observer(start_processes.address) as registry:
            await begun(start_processes)
            os.kill(child.pid, signal.SIGTERM)
            assert await ended(child) == 0
            assert runs_of(start_processes)[-1].what == "cut"
            stored = await record(registry)
            assert (stored.completed, stored.outcome) == (False, Outcome.CANCELLED)
            assert LAYOUT.item(0).running not in await registry.session.subtree([LAYOUT.execution])

    run_async("asyncio", main)


def test_a_second_signal_stops_at_once_and_still_gives_the_item_back(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        start_processes.job = {"shutdown_timeout": 600}
        child = start_processes.start(work=600)
        async with registry_observer(start_processes.address) as registry:
            await begun(start_processes)
            os.kill(child.pid, signal.SIGTERM)
            await asyncio.to_thread(child.wait_for_output, "stopping")
            with pytest.raises(TimeoutError):
                await ended(child, 2 * REPEATED_WITHIN)
            os.kill(child.pid, signal.SIGINT)
            assert await ended(child) == 0  # long before it would end without the second one
            assert "second signal" in child.output
            assert "Traceback" not in child.output
            assert (await record(registry)).outcome == Outcome.CANCELLED
            await registry.until(lambda view: not view.instances)

    run_async("asyncio", main)


def test_a_plain_handler_in_a_thread_finishes_before_the_process_ends(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        child = start_processes.start(work=1.5, thread=True)
        async with registry_observer(start_processes.address) as registry:
            await begun(start_processes)
            os.kill(child.pid, signal.SIGTERM)
            assert await ended(child) == 0
            assert runs_of(start_processes)[-1].what == "end"
            assert (await record(registry)).completed

    run_async("asyncio", main)


def test_a_second_signal_waits_no_longer_than_a_moment_for_a_thread_that_never_ends(
    start_processes: WorkerProcesses,
) -> None:
    async def main() -> None:
        start_processes.job = {"shutdown_timeout": 0.5}
        child = start_processes.start(work=600, thread=True)
        await begun(start_processes)
        os.kill(child.pid, signal.SIGTERM)
        await asyncio.to_thread(child.wait_for_output, "stopping")
        with pytest.raises(TimeoutError):
            await ended(child, 2 * REPEATED_WITHIN)
        os.kill(child.pid, signal.SIGTERM)
        assert await ended(child) == 1
        assert "still runs 5 s after it should have stopped: job (item" in child.output

    run_async("asyncio", main)


def test_a_process_runs_on_uvloop_and_starts_no_other_process(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        child = start_processes.start()
        async with registry_observer(start_processes.address) as registry:
            view = await registry.spread_over(1)
            assert of(view, child) == view.leader
            await start_processes.every_item_ends(1, 1)
            mapped = Path(f"/proc/{child.pid}/maps").read_text()
            assert "uvloop" in mapped
            assert children_of(child.pid) == []
            await start_processes.end()

    run_async("asyncio", main)


@pytest.fixture
def lonely(worker_processes: Workers, tmp_path: Path) -> WorkerProcesses:
    """Workers whose registry is down."""
    return WorkerProcesses(worker_processes, "zk://127.0.0.1:1/nobody", tmp_path / "journal")


def test_a_registry_that_is_down_ends_the_process_with_one_line(lonely: WorkerProcesses) -> None:
    child = lonely.start(connection_timeout=0.5)
    assert child.wait() == 1
    lines = [line for line in child.output.splitlines() if "the event loop" not in line]  # on a busy machine
    assert len(lines) == 1
    assert lines[0].startswith("RegistryUnreachable: no registry at 127.0.0.1:1 within 0.5 s (")


def test_a_signal_while_there_is_no_registry_yet_ends_the_process_at_once(lonely: WorkerProcesses) -> None:
    async def main() -> None:
        child = lonely.start(connection_timeout=600)
        await listens_to_signals(child)
        os.kill(child.pid, signal.SIGTERM)
        assert await ended(child) == 0  # long before it would give up

    run_async("asyncio", main)
