"""Following jobs as they change.  A reader gets the newest state; all changes while it is busy count as one.

Nothing is polled.  One persistent recursive watch on the namespace tells which jobs have changed, and only those are
read again.  Only the next fire and the counts of the last interval change without a write: they are computed again
when their time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from anyio import move_on_after

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.core.layout import ALERTS, COMMON, HANDLERS, PROCESSES, Layout
from aioelasticjob.errors import Suspended
from aioelasticjob.ground.latest import Latest
from aioelasticjob.operations.following import with_upstreams
from aioelasticjob.operations.queries import can_be_a_job, forest, handlers, names, no_such, shown
from aioelasticjob.operations.status import JobStatus, status_of
from aioelasticjob.registry.session import Session, beside
from aioelasticjob.registry.tree import Tree

T = TypeVar("T")

MIN_GATHERING: Final = 0.05
"""Changes are gathered for at least so many seconds before they are read: one run of an item makes five changes."""
GATHERING_PER_LOOK: Final = 2
"""They are also gathered for so many times as long as the last read took, so that reads use a third of the time."""
MAX_GATHERING: Final = 1.0
"""They are gathered for at most so many seconds: the last read may have taken long because the registry was away."""
MAX_WAIT: Final = 60.0
"""After so many seconds the clock is read again, since it may have been set."""
UNSHOWN: Final = frozenset(("systemTime", "guarantee", "followed"))
"""Children of a job that no status shows."""


class StatusStream(Generic[T]):
    """An async iterator of states: the present one, then newer ones; a slow reader skips some.  Ends with the job."""

    def __init__(self, states: Latest[T | None]) -> None:
        self._states = states
        self._last: object = self  # a marker that is no state

    def __aiter__(self) -> StatusStream[T]:
        return self

    async def __anext__(self) -> T:
        state = await self._states.until(lambda newer: newer is not self._last)
        if state is None:
            raise StopAsyncIteration
        self._last = state
        return state


@asynccontextmanager
async def watch(session: Session, job: str, *, clock: Clock | None = None) -> AsyncIterator[StatusStream[JobStatus]]:
    """Follow one job, its offsets included; the iterator ends when the job is removed.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry may not be read, or the session is closed.
    """
    if not can_be_a_job(job):
        raise await no_such(session, job)
    states: Latest[JobStatus | None] = Latest(None)

    def show(found: dict[str, JobStatus]) -> None:
        states.set(found.get(job))

    follower = _StatusReader(session, clock, show, job)
    with session.watching((Layout(job).root, *COMMON, HANDLERS), follower):
        await follower.catch_up()
        if states.value is None:
            raise await no_such(session, job)
        async with beside(follower.follow):
            yield StatusStream(states)


@asynccontextmanager
async def watch_all(
    session: Session, *, clock: Clock | None = None
) -> AsyncIterator[StatusStream[tuple[JobStatus, ...]]]:
    """Follow all jobs of the namespace, in the order of their names, without their offsets.

    Raises:
        RegistryError: the registry may not be read, or the session is closed.
    """
    states: Latest[tuple[JobStatus, ...] | None] = Latest(None)

    def show(found: dict[str, JobStatus]) -> None:
        now = (clock or SystemClock()).now()
        states.set(tuple(with_upstreams(found[name], found, now) for name in sorted(found)))

    follower = _StatusReader(session, clock, show)
    with session.watching(("/",), follower):
        await follower.catch_up()
        async with beside(follower.follow):
            yield StatusStream(states)


class _StatusReader:
    """Keeps the tree and the status of each job; notes which nodes have changed, and reads them again."""

    def __init__(
        self,
        session: Session,
        clock: Clock | None,
        show: Callable[[dict[str, JobStatus]], None],
        only: str | None = None,
    ) -> None:
        self._session, self._clock, self._show, self._only = session, clock or SystemClock(), show, only
        self._hidden = UNSHOWN if only else UNSHOWN | {"offset"}
        self._trees: dict[str, tuple[Layout, Tree]] = {}
        self._common = Tree()
        self._handlers: tuple[str, ...] = ()
        """The handlers that at least one process has."""
        self._found: dict[str, JobStatus] = {}
        self._due: dict[str, float] = {}  # when each job changes without a write, seconds since the epoch
        self._dirty: dict[str, None] = {}
        self._handlers_changed = False
        """Whether a process with a handler has come or gone."""
        self._stale = True  # all of it
        self._shown = False
        self._news = asyncio.Event()

    def changed(self, kind: int, path: str) -> None:
        """Note that ``path`` has to be read again."""
        parts = path.split("/", 3)
        if f"/{parts[1]}" in (ALERTS, PROCESSES):  # no status of a job shows these
            return
        if f"/{parts[1]}" == HANDLERS:
            self._handlers_changed = self._handlers_changed or parts[-1].startswith("processes/")
            if self._handlers_changed:
                self._news.set()
            return
        if f"/{parts[1]}" in COMMON or (len(parts) > 2 and parts[2] not in self._hidden):
            self._dirty[path] = None
            self._news.set()

    def reset(self) -> None:
        """Note that everything has to be read again: a new connection does not replay what was missed."""
        self._stale = True
        self._news.set()

    async def follow(self) -> None:
        """Read changes as they come, until cancelled."""
        loop, took = asyncio.get_running_loop(), 0.0
        while True:
            with move_on_after(self._until_due()):
                await self._news.wait()
            if self._news.is_set():
                await asyncio.sleep(min(MAX_GATHERING, max(MIN_GATHERING, GATHERING_PER_LOOK * took)))
            begun = loop.time()
            await self.catch_up()
            took = loop.time() - begun

    async def catch_up(self) -> None:
        """Read the nodes that have changed, and show the new state if it differs from the last one."""
        changed = await self._read()
        now, before = self._clock.now(), dict(self._found)
        for job in changed:
            self._judge(job, now)
        for job in [job for job, at in self._due.items() if at <= now]:
            status = self._found[job]
            self._note(status.at(now))
        if self._found != before or not self._shown:
            self._shown = True
            self._show(self._found)

    def _judge(self, job: str, now: float) -> None:
        layout, tree = self._trees[job]
        if (status := status_of(tree, layout, now, self._common)) is not None:
            self._note(status.knowing(self._handlers))
            return
        self._found.pop(job, None)
        self._due.pop(job, None)
        if not len(tree):
            del self._trees[job]

    def _note(self, status: JobStatus) -> None:
        self._found[status.name] = status
        self._due.pop(status.name, None)
        if (at := status.changes_at) is not None:
            self._due[status.name] = at

    async def _read(self) -> list[str]:
        """Read the changed jobs, again and again while the connection fails; return the jobs that were read."""
        while True:
            self._news.clear()
            try:
                return await (self._read_all() if self._stale else self._read_dirty())
            except Suspended:
                self._stale = True
                await self._session.connected()

    async def _read_all(self) -> list[str]:
        self._stale, self._dirty = False, {}
        before = list(self._trees)
        await self._session.sync()
        await self._read_handlers()
        self._common = await self._session.subtree(COMMON)
        jobs = await names(self._session) if self._only is None else (self._only,)
        await self._read_jobs(list(dict.fromkeys((*before, *jobs))))
        return list(self._trees)

    async def _read_handlers(self) -> list[str]:
        """Read which handlers processes have; return the jobs that were created for one that has come or gone."""
        self._handlers_changed = False
        before = self._handlers
        self._handlers = await handlers(self._session)
        changed = set(before) ^ set(self._handlers)
        return [name for name, status in self._found.items() if status.config.handler in changed]

    async def _read_jobs(self, jobs: list[str]) -> None:
        layouts = [Layout(job) for job in jobs]
        if self._only is None:
            trees = await forest(self._session, layouts)
        else:
            trees = [await self._session.subtree((*shown(layout), layout.offsets)) for layout in layouts]
        self._trees |= {layout.job: (layout, tree) for layout, tree in zip(layouts, trees, strict=True)}

    async def _read_dirty(self) -> list[str]:
        """Read the changed nodes of jobs that are known, and other jobs as a whole.

        If a server was switched off or on in all jobs, all jobs are returned.
        """
        dirty, self._dirty = self._dirty, {}
        touched = await self._read_handlers() if self._handlers_changed else []
        if not dirty:  # no node of a job has changed: a job was due, or a process with a handler has come or gone
            return touched
        everywhere = [path for path in dirty if f"/{path.split('/', 2)[1]}" in COMMON]
        if everywhere:
            self._common = await self._session.subtree(COMMON)
            dirty = {path: None for path in dirty if path not in everywhere}
        by_job: dict[str, list[str]] = {}
        for path in dirty:
            by_job.setdefault(path.split("/", 2)[1], []).append(path)
        unknown = [job for job in by_job if job not in self._trees and can_be_a_job(job)]
        known = [job for job in by_job if job in self._trees]
        paths = [path for job in known for path in by_job[job]]
        nodes = dict(zip(paths, await self._session.get_many(paths), strict=True))
        for job in known:
            layout, tree = self._trees[job]
            self._trees[job] = layout, tree.replace({path: nodes[path] for path in by_job[job]}, self._session.zxid)
        if unknown:
            await self._read_jobs(unknown)
        return list(self._trees) if everywhere else list(dict.fromkeys((*known, *unknown, *touched)))

    def _until_due(self) -> float:
        """Return the seconds until the first job changes without a write, plus a little, since clocks round."""
        first = min(self._due.values(), default=float("inf"))
        return min(MAX_WAIT, max(0.0, first - self._clock.now()) + 0.001)
