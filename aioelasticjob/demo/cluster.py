"""The cluster of a demonstration: what is known of it between two looks, and what can be done to it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from operator import itemgetter
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
        waiting = list[str]()
        for item in last.items:
            if item.done < item.total:
                waiting.append(f"item {item.item} at {item.done:,} of {item.total:,}, {_whereabouts(item)}")
        where = "; ".join(waiting) or "every file is done"
        super().__init__(f"nothing new for {STALL_TIMEOUT:.0f} s: {where} (logs: {logs})")
        self.logs = logs
        self.last = last


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
        files_per_run = ceil(files / self.items / RUNS_PER_ITEM) or 1
        return {
            "AIOELASTICJOB_REGISTRY": registry,
            "INDEX_DIRECTORY": self.directory,
            "INDEX_EXCLUDE": ":".join(self.excluded),
            "INDEX_DATABASE": self.database,
            "INDEX_ITEMS": str(self.items),
            "INDEX_FILES_PER_RUN": str(files_per_run),
        }


class DemoCluster:
    """The processes of a demonstration, their progress, and the log of what has happened."""

    def __init__(self, plan: DemoOptions, screen: Screen, clock: Clock | None = None) -> None:
        self.plan = plan
        self.progress = FileProgress(plan.directory, plan.excluded, plan.database, plan.items)
        self.workers: list[DemoProcess] = []
        self.status: JobStatus | None = None
        self._screen = screen
        self._clock = clock or SystemClock()
        self.began = self._clock.now()
        """When it began, by the wall clock."""
        self._begun = time.monotonic()
        self._moved = self._begun
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
        while True:
            snapshot = await self.look(session)
            if holds(snapshot):
                return snapshot
            if time.monotonic() - max(self._moved, self.progress.newest) > STALL_TIMEOUT:
                raise Stalled(self.plan.logs, snapshot)
            await anyio.sleep(POLL_INTERVAL)

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
        progress = self.progress
        plan = self.plan
        title = f"{counted(progress.total, 'file')} below {shortened(plan.directory, 50)}"
        if plan.excluded:
            title += f", without {' and '.join(plan.excluded)}"
        return Snapshot(
            title=title,
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
        leads = any(one.leads for one in mine)
        return Worker(child.name, child.pid, child.state, joined=bool(mine), leads=leads)

    def _item(self, item: int) -> Item:
        done = self.progress.done.get(item, 0)
        total = self.progress.totals.get(item, 0)
        holder = None
        runner = None
        seconds = 0.0
        for one in () if self.status is None else self.status.items:
            if one.item == item:
                holder = self._name(one.holder)
                if one.run is not None:
                    runner = self._name(one.run.instance)
                    seconds = max(0.0, self._clock.now() - one.run.since.timestamp())
        return Item(item, holder, runner, seconds, done, total)

    def _name(self, instance: str | None) -> str | None:
        if instance is None:
            return None
        return self._names.get(instance, instance)

    def _notice(self, status: JobStatus) -> None:
        """Log which workers have joined and which items have moved."""
        by_pid = {child.pid: child.name for child in self.workers}
        for one in status.instances:
            if one.id not in self._names:
                self._names[one.id] = by_pid.get(one.pid, one.id)
                self.tell(f"{self._names[one.id]} joined")
        holders = dict[int, str]()
        for item in status.items:
            if item.holder:
                holders[item.item] = self._names.get(item.holder, item.holder)
        if not status.settled or holders == self._holders:
            return
        moves: dict[tuple[str | None, str], list[int]] = defaultdict(list)
        for number, now in holders.items():
            before = self._holders.get(number)
            if before != now:
                moves[before, now].append(number)
        for (before, now), items in sorted(moves.items(), key=itemgetter(1)):
            move = f"{before} → {now}" if before else now
            self.tell(f"{plural(items)}: {move}")
        self._holders = holders

    def kill(self, victim: DemoProcess, snapshot: Snapshot) -> None:
        """End a worker as ``kill -9`` does."""
        victim.kill()
        text = f"{victim.name} killed (kill -9)"
        cut = snapshot.run_by(victim.name)
        if cut:
            text += f" while it ran {plural(cut)}"
        self.tell(text)

    def victim(self, snapshot: Snapshot) -> DemoProcess | None:
        """Return the worker whose death shows most: one that runs an item, preferably the leader."""
        alive = {child.name: child for child in self.workers if child.state is ProcessState.STARTED}
        joined = [worker for worker in snapshot.workers if worker.name in alive and worker.joined]
        if not joined:
            return None

        def rank(worker: Worker) -> tuple[bool, bool, int]:
            runs = bool(snapshot.run_by(worker.name))
            return runs, worker.leads, len(snapshot.held_by(worker.name))

        best = sorted(joined, key=rank)[-1]
        return alive[best.name]


def _whereabouts(item: Item) -> str:
    runs = "not running" if item.runner is None else f"running on {item.runner} for {item.seconds:.0f} s"
    return f"held by {item.holder or 'nobody'}, {runs}"
