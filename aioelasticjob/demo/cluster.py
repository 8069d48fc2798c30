"""The cluster of a demonstration: what is known of it between two looks, and what can be done to it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import anyio
from anyio import to_thread

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.demo.processes import DemoProcess, ProcessGroup, ProcessState
from aioelasticjob.demo.screen import Screen
from aioelasticjob.demo.snapshot import FileProgress, Item, LogEntry, Snapshot, Worker, plural, shortened
from aioelasticjob.errors import ElasticJobError, InvalidSetting, RegistryError
from aioelasticjob.ground.plural import counted
from aioelasticjob.operations import JobStatus, job
from aioelasticjob.registry.session import Session

JOB = "index_files"
RUNS_PER_ITEM = 6
"""An item's files are spread over so many runs, so that a viewer can follow the progress."""
POLL_INTERVAL = 0.15
"""Seconds between two looks."""
STALL_TIMEOUT = 60.0
"""Seconds without anything new after which the demonstration has failed."""


class Stalled(ElasticJobError):
    """The demonstration makes no progress any more, although not every file is done."""

    def __init__(self, logs: Path, last: Snapshot) -> None:
        waiting = "; ".join(
            f"item {item.item} at {item.done:,} of {item.total:,}, {_whereabouts(item)}"
            for item in last.items
            if item.done < item.total
        )
        super().__init__(f"nothing new for {STALL_TIMEOUT:.0f} s: {waiting or 'every file is done'} (logs: {logs})")
        self.logs, self.last = logs, last


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of a demonstration."""

    directory: str
    database: str
    logs: Path
    excluded: tuple[str, ...] = ()
    workers: int = 3
    items: int = 6
    kill: bool = False

    def environment(self, registry: str, files: int) -> Mapping[str, str]:
        """Return the settings of the job, as its processes read them."""
        return {
            "AIOELASTICJOB_REGISTRY": registry,
            "INDEX_DIRECTORY": self.directory,
            "INDEX_EXCLUDE": ":".join(self.excluded),
            "INDEX_DATABASE": self.database,
            "INDEX_ITEMS": str(self.items),
            "INDEX_FILES_PER_RUN": str(ceil(files / self.items / RUNS_PER_ITEM) or 1),
        }


class DemoCluster:
    """The processes of a demonstration, their progress, and the log of what has happened."""

    def __init__(self, plan: DemoOptions, screen: Screen, clock: Clock | None = None) -> None:
        self.plan = plan
        self.progress = FileProgress(plan.directory, plan.excluded, plan.database, plan.items)
        self.workers: list[DemoProcess] = []
        self.status: JobStatus | None = None
        self._screen, self._clock = screen, clock or SystemClock()
        self.began = self._clock.now()
        """When it began, by the wall clock."""
        self._begun = self._moved = time.monotonic()
        self._news: list[LogEntry] = []
        self._names: dict[str, str] = {}
        self._holders: dict[int, str] = {}

    def tell(self, text: str) -> None:
        """Add a line to the log."""
        self._moved = time.monotonic()
        self._news.append(LogEntry(self._moved - self._begun, text))

    async def start_worker(self, members: ProcessGroup, registry: str) -> DemoProcess:
        """Start one more worker process."""
        name = f"worker {len(self.workers) + 1}"
        environment = self.plan.environment(registry, self.progress.total)
        arguments = ("aioelasticjob", "run", "aioelasticjob.demo.index_files:app")
        child = await members.start(name, *arguments, environment=environment)
        self.workers.append(child)
        self.tell(f"{name} started, process {child.pid}")
        return child

    async def until(self, session: Session, holds: Callable[[Snapshot], object]) -> Snapshot:
        """Look at the cluster again and again until ``holds`` returns True.

        Raises:
            Stalled: nothing happens any more.
            ProcessEnded: a process has ended by itself.
        """
        while not holds(snapshot := await self.look(session)):
            if time.monotonic() - max(self._moved, self.progress.newest) > STALL_TIMEOUT:
                raise Stalled(self.plan.logs, snapshot)
            await anyio.sleep(POLL_INTERVAL)
        return snapshot

    async def look(self, session: Session) -> Snapshot:
        """Read the present state, and show it."""
        for child in self.workers:
            child.look()
        await to_thread.run_sync(self.progress.measure, abandon_on_cancel=True)
        try:
            self.status = await job(session, JOB, now=self._clock.now())
        except (RegistryError, InvalidSetting):  # no worker has joined yet, or the server is busy: look again
            pass
        else:
            self._notice(self.status)
        snapshot = self.snapshot()
        self._screen.show(snapshot)
        return snapshot

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the present state."""
        progress, plan = self.progress, self.plan
        without = f", without {' and '.join(plan.excluded)}" if plan.excluded else ""
        return Snapshot(
            title=f"{counted(progress.total, 'file')} below {shortened(plan.directory, 50)}{without}",
            seconds=time.monotonic() - self._begun,
            done=sum(progress.done.values()),
            total=progress.total,
            workers=tuple(self._worker(child) for child in self.workers),
            items=tuple(self._item(item) for item in range(plan.items)),
            log_entries=tuple(self._news),
        )

    def _worker(self, child: DemoProcess) -> Worker:
        instances = () if self.status is None else self.status.instances
        mine = [one for one in instances if one.pid == child.pid]
        return Worker(child.name, child.pid, child.state, bool(mine), any(one.leads for one in mine))

    def _item(self, item: int) -> Item:
        done, total = self.progress.done.get(item, 0), self.progress.totals.get(item, 0)
        found = () if self.status is None else [one for one in self.status.items if one.item == item]
        if not found:
            return Item(item, None, None, 0, done, total)
        run = found[0].run
        seconds = 0.0 if run is None else max(0.0, self._clock.now() - run.since.timestamp())
        return Item(
            item, self._name(found[0].holder), self._name(None if run is None else run.instance), seconds, done, total
        )

    def _name(self, instance: str | None) -> str | None:
        return None if instance is None else self._names.get(instance, instance)

    def _notice(self, status: JobStatus) -> None:
        """Log which workers have joined and which items have moved."""
        by_pid = {child.pid: child.name for child in self.workers}
        for one in status.instances:
            if one.id not in self._names:
                self._names[one.id] = by_pid.get(one.pid, one.id)
                self.tell(f"{self._names[one.id]} joined")
        holders = {item.item: self._names.get(item.holder, item.holder) for item in status.items if item.holder}
        if not status.settled or holders == self._holders:
            return
        moves: dict[tuple[str | None, str], list[int]] = defaultdict(list)
        for item, holder in holders.items():
            if self._holders.get(item) != holder:
                moves[self._holders.get(item), holder].append(item)
        for (before, now), items in sorted(moves.items(), key=lambda move: move[1]):
            self.tell(f"{plural(items)}: {f'{before} → {now}' if before else now}")
        self._holders = holders

    def kill(self, victim: DemoProcess, snapshot: Snapshot) -> None:
        """End a worker as ``kill -9`` does."""
        victim.kill()
        cut = snapshot.run_by(victim.name)
        self.tell(f"{victim.name} killed (kill -9)" + (f" while it ran {plural(cut)}" if cut else ""))

    def victim(self, snapshot: Snapshot) -> DemoProcess | None:
        """Return the worker whose death shows most: one that runs an item, preferably the leader."""
        alive = {child.name: child for child in self.workers if child.state is ProcessState.STARTED}
        ranked = sorted(
            (worker for worker in snapshot.workers if worker.name in alive and worker.joined),
            key=lambda worker: (bool(snapshot.run_by(worker.name)), worker.leads, len(snapshot.held_by(worker.name))),
        )
        return alive[ranked[-1].name] if ranked else None


def _whereabouts(item: Item) -> str:
    runs = "not running" if item.runner is None else f"running on {item.runner} for {item.seconds:.0f} s"
    return f"held by {item.holder or 'nobody'}, {runs}"
