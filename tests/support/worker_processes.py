"""Real worker processes of one job, what they wrote, and what was done to them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import anyio

from aioelasticjob.core.view import JobView
from tests.support.local_applications import EVERY_SECOND, TIMEOUT, RegistryObserver
from tests.support.processes import ChildProcess, Workers
from tests.support.run_journal import Line, WorkerEvents, check, read

SESSION_TIMEOUT = 3.0
LOOK_EVERY = 0.05
"""Seconds between two looks at a file or a process, which tell nobody when they change."""


@dataclass
class WorkerProcesses:
    """Worker processes that append to one journal."""

    workers: Workers
    address: str
    journal: Path
    session_timeout: float = SESSION_TIMEOUT
    job: dict[str, Any] = field(default_factory=dict)
    """Settings of the job, which fires every second."""
    fates: WorkerEvents = field(default_factory=WorkerEvents)

    def start(
        self,
        *,
        work: float = 0.1,
        thread: bool = False,
        connection_timeout: float = 15,
        environment: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start one more worker, whose handler works for ``work`` seconds."""
        given = {
            "address": self.address,
            "connection": {
                "session_timeout": self.session_timeout,
                "connection_timeout": connection_timeout,
                "base_sleep_time": 0.2,
                "max_sleep_time": 0.5,
            },
            "journal": str(self.journal),
            "work": work,
            "thread": thread,
            "job": {"cron": EVERY_SECOND, **self.job},
        }
        return self.workers.start("-m", "tests.support.journal_worker", json.dumps(given), environment=environment)

    @property
    def alive(self) -> list[ChildProcess]:
        return [child for child in self.workers.children if child.exit_code is None]

    def lines(self) -> list[Line]:
        return read(self.journal)

    async def until(self, holds: Callable[[list[Line]], bool]) -> list[Line]:
        """Wait for a journal that satisfies ``holds``."""
        with anyio.fail_after(TIMEOUT):
            while not holds(lines := self.lines()):
                await anyio.sleep(LOOK_EVERY)
        return lines

    async def every_item_ends(self, times: int, items: int) -> list[Line]:
        """Wait until every item has ended so many more runs."""
        past = len(self.lines())

        def enough(lines: list[Line]) -> bool:
            ended = [line.item for line in lines[past:] if line.what == "end"]
            return all(ended.count(item) >= times for item in range(items))

        return (await self.until(enough))[past:]

    def kill(self, child: ChildProcess) -> float:
        """Kill a process as ``kill -9`` does and return when that was."""
        child.kill()
        self.fates.killed[child.pid] = time.monotonic()
        return self.fates.killed[child.pid]

    @asynccontextmanager
    async def stopped(self, child: ChildProcess) -> AsyncIterator[float]:
        """Stop a process in its tracks while the block is open; yield when that was."""
        child.pause()
        began = time.monotonic()
        self.fates.stopped[child.pid] = began, inf
        yield began
        self.fates.stopped[child.pid] = began, time.monotonic()
        child.resume()

    async def in_the_midst(self, instance: str) -> None:
        """Wait until an instance has just begun a run."""
        past = len(self.lines())
        await self.until(lambda lines: any((one.what, one.instance) == ("begin", instance) for one in lines[past:]))

    async def end(self) -> list[Line]:
        """Ask all that are left to leave, see to it that they do so in order, and check the journal."""
        left = self.alive
        for child in left:
            os.kill(child.pid, signal.SIGTERM)
        for child in left:
            assert await ended(child) == 0, child.output
        lines = self.lines()
        check(lines, self.fates)
        return lines


async def ended(child: ChildProcess, patience: float = 90) -> int:
    """Wait for a process to end by itself and return its exit code."""
    with anyio.fail_after(patience):
        while (code := child.exit_code) is None:
            await anyio.sleep(LOOK_EVERY)
    return code


def of(view: JobView, child: ChildProcess) -> str:
    """Return the id of the instance that a process has in the registry."""
    (name,) = (one.id for one in view.instances.values() if one.pid == child.pid)
    return name


def leading(registry: RegistryObserver, start_processes: WorkerProcesses) -> ChildProcess:
    """Return the process that leads the job."""
    view = registry.view
    assert view.leader is not None
    return next(child for child in start_processes.alive if child.pid == view.instances[view.leader].pid)


async def listens_to_signals(child: ChildProcess) -> None:
    """Wait until a process catches SIGTERM."""
    status = Path(f"/proc/{child.pid}/status")
    with anyio.fail_after(TIMEOUT):
        while True:
            (caught,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
            if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
                return
            await anyio.sleep(LOOK_EVERY)
