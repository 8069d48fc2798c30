"""A worker that sleeps while its children, threads or handlers go on: still no two runners of its item."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from tests.support.loops import run_async
from tests.support.processes import ROOT, TIMEOUT, ChildProcess, Workers

pytestmark = pytest.mark.process

FREEZERS = (
    (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
)
"""Where a control group can be made that freezes its processes: of version 1, and of version 2."""
OVERLAP_SEEN = 50
"""Beats of the second worker, a second or more, in which the first one would be seen to go on."""


@dataclass(frozen=True)
class ControlGroup:
    """A control group that can be frozen."""

    place: Path
    state: Path
    frozen: str
    thawed: str

    def freeze(self) -> None:
        self.state.write_text(self.frozen)

    def thaw(self) -> None:
        self.state.write_text(self.thawed)

    def processes(self) -> list[int]:
        return [int(process) for process in (self.place / "cgroup.procs").read_text().split()]


@contextmanager
def control_group() -> Iterator[ControlGroup | None]:
    """Make a control group; yield None if this machine lets us make none."""
    for place, file, frozen, thawed in FREEZERS:
        group = ControlGroup(place / f"aioelasticjob-test-{os.getpid()}", Path(file), frozen, thawed)
        with suppress(OSError):
            group.place.mkdir()
            if (group.place / file).exists():
                break
            group.place.rmdir()
    else:
        yield None
        return
    group = replace(group, state=group.place / file)
    try:
        yield group
    finally:
        group.thaw()
        while processes := group.processes():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        group.place.rmdir()


def beats(journal: Path) -> list[tuple[int, float]]:
    """Return the beats so far: the worker, and the time."""
    if not journal.exists():
        return []
    lines = journal.read_text().splitlines()
    return [(int(worker), float(when)) for worker, when in (line.split() for line in lines if line.count(" ") == 1)]


def start(workers: Workers, address: str, journal: Path, kind: str, *, exits: bool = False) -> ChildProcess:
    return workers.start("-m", "tests.support.lease_worker", address, str(journal), kind, "exits" if exits else "stays")


async def beats_of(worker: ChildProcess, journal: Path, count: int = 1) -> None:
    """Wait until the item has beaten so often on a worker."""
    with anyio.fail_after(TIMEOUT):
        while sum(one == worker.pid for one, _ in beats(journal)) < count:
            assert worker.exit_code is None, worker.output
            await anyio.sleep(0.02)


def overlap(journal: Path, first: ChildProcess, second: ChildProcess) -> float:
    """Return for how many seconds the first worker's item went on after that of the second had begun."""
    last = max(when for worker, when in beats(journal) if worker == first.pid)
    begun = min(when for worker, when in beats(journal) if worker == second.pid)
    return last - begun


@pytest.mark.parametrize("sleeps", ["stopped", "blocked"])
@pytest.mark.parametrize(
    ("kind", "exits", "registry_server"),
    [
        ("script", False, "embedded"),
        pytest.param("process", False, "zookeeper", marks=pytest.mark.zookeeper),
        ("loop", True, "embedded"),
        pytest.param("thread", True, "zookeeper", marks=pytest.mark.zookeeper),
    ],
    indirect=["registry_server"],  # one for each kind: no process sleeps differently for its server
)
def test_nothing_of_a_worker_that_sleeps_goes_on_beside_its_successor(
    worker_processes: Workers, registry_address: str, tmp_path: Path, kind: str, exits: bool, sleeps: str
) -> None:
    if (kind, sleeps) == ("loop", "blocked"):
        sleeps = "blocked by its own handler"

    async def main() -> None:
        journal = tmp_path / "journal"
        first = start(worker_processes, registry_address, journal, kind, exits=exits)
        await beats_of(first, journal)
        second = start(worker_processes, registry_address, journal, kind, exits=exits)
        await anyio.to_thread.run_sync(second.wait_for_output, "running 1 job")
        if sleeps == "stopped":
            os.kill(first.pid, signal.SIGSTOP)
        elif sleeps == "blocked":
            os.kill(first.pid, signal.SIGUSR1)
        await beats_of(second, journal, OVERLAP_SEEN)
        if exits:
            assert await anyio.to_thread.run_sync(first.wait) == -signal.SIGKILL
        if sleeps == "stopped" and not exits:
            os.kill(first.pid, signal.SIGCONT)
        second.kill()  # so that all beats are there
        assert overlap(journal, first, second) < 0

    run_async("asyncio", main)


@pytest.mark.parametrize("registry_server", ["embedded"], indirect=True)
def test_after_a_container_was_frozen_its_children_are_killed(
    worker_processes: Workers, registry_address: str, tmp_path: Path
) -> None:
    """All processes of the container stand still, the guard among them; it ends what is over when they go on."""

    async def main(group: ControlGroup) -> None:
        journal = tmp_path / "journal"
        arguments = ["-m", "tests.support.lease_worker", registry_address, str(journal), "script", "stays"]
        inside = f"import os, sys; open('{group.place}/cgroup.procs', 'w').write(str(os.getpid())); "
        inside += f"os.execv(sys.executable, [sys.executable, '-u', *{arguments!r}])"
        first = worker_processes.start("-c", inside, environment={"PYTHONPATH": str(ROOT)})
        await beats_of(first, journal)
        second = start(worker_processes, registry_address, journal, "script")
        await anyio.to_thread.run_sync(second.wait_for_output, "running 1 job")
        group.freeze()
        await beats_of(second, journal)
        group.thaw()
        await anyio.to_thread.run_sync(first.wait_for_output, "the session may end soon, or has ended")

    with control_group() as found:
        if found is None:
            return  # only some machines let us make a control group
        run_async("asyncio", lambda: main(found))
