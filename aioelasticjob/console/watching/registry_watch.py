"""The registries under watch: each is read once, however many pages are open."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from aioelasticjob import operations
from aioelasticjob.clock import Clock
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.console.watching.instance_log import InstanceLog
from aioelasticjob.console.watching.palette import Palette
from aioelasticjob.console.watching.shared_stores import scope_of, sharing
from aioelasticjob.errors import ElasticJobError, Suspended, error_text, unwrapped
from aioelasticjob.ground.latest import Latest
from aioelasticjob.logging import logger
from aioelasticjob.observers.missed import MissedMoments
from aioelasticjob.operations import JobStatus, ProcessStatus
from aioelasticjob.operations.alerts.nodes import watch_alerts
from aioelasticjob.operations.alerts.state import AlertState
from aioelasticjob.operations.observed_runs import ObservedRun, new_missed, new_runs
from aioelasticjob.registry.addresses import open_registry
from aioelasticjob.registry.session import Session, SessionState, beside

if TYPE_CHECKING:
    from aioelasticjob.console.watching.store_watch import StoreWatch

RECONNECT_DELAY: Final = 2.0
"""Seconds until a registry that could not be reached is tried again."""
CONNECT_TIMEOUT: Final = 10.0
"""Seconds a connection may take before the page says why there is none."""
STORE_TIMEOUT: Final = 5.0
"""Seconds that the event store has to answer a query: the live page of a job waits for several, one after another."""
RECALL_TIMEOUT: Final = 5.0
"""Seconds that the event store has to return the newest runs; then the pages begin without them."""
RUNS_KEPT: Final = 120
"""Runs of a job that are kept in memory for its sparkline, and for its timeline where there is no event store."""
REPORTS_KEPT: Final = 1000
"""Reports of missed moments of a job that are kept in memory, for registries without an event store."""

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """A registry at one moment."""

    version: int = 0
    jobs: Mapping[str, JobStatus] = field(default_factory=lambda: MappingProxyType({}))
    changed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By job, the version since which it has looked as it does."""
    read: bool = False
    """Whether the jobs have been read at all."""
    lost: str | None = None
    """Why the registry is not there; None while it is."""
    since: float = 0.0
    """When it was lost, or found.  While it is lost, ``jobs`` are as of then."""
    processes: tuple[ProcessStatus, ...] = ()
    """The processes that cannot do something at present, as they say themselves."""
    alerts: tuple[AlertState, ...] = ()
    """The alerts that fire, and those of the last day, as the commands ``aioelasticjob alert`` have written them."""


class RegistryWatch:
    """One registry under watch."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self.snapshot = Latest(RegistrySnapshot(lost="connecting", since=clock.now()))
        self.runs: dict[str, deque[ObservedRun]] = {}
        self.missed: dict[str, deque[MissedMoments]] = {}
        """By job, the moments that the console has seen reported as missed."""
        self.palettes: dict[str, Palette] = {}
        self.instances = InstanceLog()
        self.epoch = token_hex(4)
        """Stands for this start of the console: versions that an earlier one gave out are not compared."""
        self.store: StoreWatch | None = None
        """The history of its runs; None without an event store."""
        self._shares_store = True
        self.store_problem: str | None = None
        """Why the event store that the settings name cannot be used at all."""
        self._statuses: tuple[JobStatus, ...] | None = None
        """The newest list of jobs that the present session has read."""
        self._connected = False
        self._told: type[ElasticJobError] | None = None
        """What the log has said about this loss; None while the registry is there."""
        self._session: Session | None = None

    def share_store(self, shared: bool) -> None:
        """Note whether another registry has the same event store."""
        self._shares_store = shared
        if self.store is not None:
            self.store.store.scope = scope_of(self.settings, shared=shared)

    @property
    def session(self) -> Session:
        """The session to act with.

        Raises:
            Suspended: the registry is not there.
        """
        if self._session is None or self.snapshot.value.lost is not None:
            raise Suspended(f"the registry {self.settings.name} is not there at the moment; nothing was written")
        return self._session

    async def watch(self) -> None:
        """Watch until cancelled; connect again whenever the registry is lost."""
        async with AsyncExitStack() as stack:
            if self.settings.event_store is not None:
                from aioelasticjob.console.watching.store_watch import StoreWatch
                from aioelasticjob.observers.sql import EventStoreSettings, open_store  # SQLAlchemy, where it is needed

                settings = EventStoreSettings(self.settings.event_store, write_timeout=STORE_TIMEOUT)
                store = open_store(settings, clock=self._clock)
                try:
                    opened = await stack.enter_async_context(store)
                except ElasticJobError as error:  # such as a directory that was there yesterday
                    self.store_problem = str(error)
                    self._log_problem("no event store", error)
                else:
                    opened.scope = scope_of(self.settings, shared=self._shares_store)
                    self.store = StoreWatch(opened, self._clock, self.settings.name, self.touch)
                    await stack.enter_async_context(beside(self.store.watch))
            await self._watch()

    async def _watch(self) -> None:
        while True:
            try:
                address = self.settings.parsed_address(CONNECT_TIMEOUT)
                async with open_registry(address, clock=self._clock, tells_of_waiting=False) as session:
                    self._session = session
                    await self._follow_jobs(session)
            except ElasticJobError as error:
                self._mark_lost(str(error))
                if self._told is not type(error):  # each attempt fails, and a registry may be away for days
                    self._log_problem("registry lost", error)
                self._told = type(error)
            except Exception as error:  # a bug that one registry shows must not end the watch of the others
                self._mark_lost(error_text(error))
                log.exception("cannot watch", extra={"registry": self.settings.name})
            finally:
                self._session = None
            await anyio.sleep(RECONNECT_DELAY)

    async def _follow_jobs(self, session: Session) -> None:
        """Publish the jobs while the session is connected.

        The list of jobs is also renewed when a next fire has passed, which needs no registry.  Such a list is not
        published without a connection: it would make the pages look as if the registry were back.
        """
        self._statuses = None
        self._connected = False
        async with (
            beside(partial(self._follow_session_state, session)),
            beside(partial(self._follow_processes, session)),
            beside(partial(self._follow_alerts, session)),
            operations.watch_all(session, clock=self._clock) as lists,
        ):
            async for statuses in lists:
                if not self.snapshot.value.read:
                    await self._load_recent_runs([one.name for one in statuses if one.config.monitor_execution])
                self._statuses = statuses
                if self._connected:
                    self._publish(statuses)

    async def _follow_session_state(self, session: Session) -> None:
        async for status in session.status:
            self._connected = status.state is SessionState.CONNECTED
            if not self._connected:
                self._mark_lost(f"the connection to {session.settings.servers} is {status.state.value}")
            elif self._statuses is not None:
                self._publish(self._statuses)

    async def _follow_processes(self, session: Session) -> None:
        async with operations.watch_processes(session) as states:
            async for processes in states:
                self.snapshot.set(replace(self.snapshot.value, processes=processes))

    async def _follow_alerts(self, session: Session) -> None:
        async with watch_alerts(session) as states:
            async for alerts in states:
                self.snapshot.set(replace(self.snapshot.value, alerts=alerts))

    async def _load_recent_runs(self, jobs: Sequence[str]) -> None:
        """Read the newest runs of monitored jobs from the event store, so that sparklines are not empty after a start.

        Those of other jobs would be shown as the newest ones for ever: nothing tells when further runs end.
        """
        if self.store is None or not jobs:
            return
        try:
            with anyio.fail_after(RECALL_TIMEOUT):
                sparklines = await self.store.store.sparklines(jobs, last=30)
        except (ElasticJobError, TimeoutError) as error:
            self._log_problem("event store does not answer", error)
            return
        for name, strokes in sparklines.items():
            seen = deque[ObservedRun](maxlen=RUNS_KEPT)
            for stroke in strokes:
                if stroke.seconds is not None:
                    seen.append(_stored_run(stroke.item, stroke.began, stroke.seconds, stroke.outcome))
            self.runs[name] = seen

    def _kept_runs(self, job: str, items: int) -> deque[ObservedRun]:
        """Return the runs of a job that are kept in memory: of one with many items several fires."""
        kept = self.runs.get(job)
        size = max(RUNS_KEPT, 3 * items)
        if kept is None or (kept.maxlen or 0) < size:
            kept = self.runs[job] = deque(kept or (), maxlen=size)
        return kept

    def _publish(self, statuses: tuple[JobStatus, ...]) -> None:
        old = self.snapshot.value
        jobs = {status.name: status for status in statuses}
        version = old.version + 1
        changed = {}
        for name, status in jobs.items():
            before = old.jobs.get(name)
            is_same = before is status or before == status
            changed[name] = old.changed[name] if is_same else version
        self._record_runs(old.jobs, jobs, changed, version)
        self.instances.update(statuses, self._clock.now())
        self._told = None
        since = old.since if old.lost is None else self._clock.now()
        snapshot = RegistrySnapshot(
            version=version,
            jobs=MappingProxyType(jobs),
            changed=MappingProxyType(changed),
            read=True,
            lost=None,
            since=since,
            processes=old.processes,
            alerts=old.alerts,
        )
        self.snapshot.set(snapshot)

    def _record_runs(
        self, old: Mapping[str, JobStatus], new: Mapping[str, JobStatus], changed: Mapping[str, int], version: int
    ) -> None:
        for name in self.runs.keys() - new.keys():
            del self.runs[name]
            self.missed.pop(name, None)
            self.palettes.pop(name, None)
        for name, status in new.items():
            if changed[name] != version:
                continue
            palette = self.palettes.setdefault(name, Palette())
            palette.update(one.id for one in status.instances)
            before = {item.item: item for item in old[name].items} if name in old else {}
            fresh = new_runs(before, status.items)
            runs = self._kept_runs(name, len(status.items))
            if not old:  # the first list: some of these runs have been read from the event store before
                known = {_identity(seen) for seen in runs}
                fresh = [seen for seen in fresh if _identity(seen) not in known]
            runs.extend(sorted(fresh, key=lambda seen: seen.ended))
            if reported := new_missed(before, status.items):
                self.missed.setdefault(name, deque(maxlen=REPORTS_KEPT)).extend(reported)

    def touch(self, jobs: Iterable[str]) -> None:
        """Let the pages render some jobs again, because something has changed that the registry does not hold."""
        old = self.snapshot.value
        version = old.version + 1
        touched = {name: version for name in jobs if name in old.jobs}
        self.snapshot.set(replace(old, version=version, changed={**old.changed, **touched}))

    def _log_problem(self, message: str, error: Exception) -> None:
        log.warning(message, extra={"registry": self.settings.name, "reason": str(error)})

    def _mark_lost(self, reason: str) -> None:
        old = self.snapshot.value
        since = self._clock.now() if old.lost is None else old.since
        self.snapshot.set(replace(old, version=old.version + 1, lost=reason, since=since))


def _identity(run: ObservedRun) -> tuple[int, int]:
    """Return what tells a run of a job from its other runs: its item, and the second in which it began."""
    return run.item, run.begun // 1000


def _stored_run(item: int, began: datetime, seconds: float, outcome: str) -> ObservedRun:
    begun = int(began.timestamp() * 1000)
    return ObservedRun(item, begun, begun + int(seconds * 1000), "", outcome, "")


class Registries:
    """The registries under watch, by name; they come and go while the console runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[str, tuple[RegistryWatch, anyio.CancelScope]] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def watching(self, settings: Iterable[RegistrySettings]) -> AsyncIterator[None]:
        """Watch these, and those added later, while the block runs."""
        with unwrapped():
            async with anyio.create_task_group() as self._tasks:
                for one in settings:
                    self.add(one)
                yield
                self._tasks.cancel_scope.cancel()
        self._watched.clear()

    def add(self, settings: RegistrySettings) -> None:
        """Watch one more."""
        assert self._tasks is not None, "registries are watched inside watching()"
        scope = anyio.CancelScope()
        watched = RegistryWatch(settings, self._clock)
        self._watched[settings.name] = watched, scope
        self._see_sharing()

        async def watch() -> None:
            with scope:
                await watched.watch()

        self._tasks.start_soon(watch)

    def remove(self, name: str) -> None:
        """Watch one no more."""
        with suppress(KeyError):
            self._watched.pop(name)[1].cancel()
            self._see_sharing()

    def _see_sharing(self) -> None:
        shared = sharing([watched.settings for watched in self])
        for watched in self:
            watched.share_store(watched.settings.name in shared)

    def get(self, name: str) -> RegistryWatch | None:
        """Return a registry by name."""
        found = self._watched.get(name)
        return None if found is None else found[0]

    def __iter__(self) -> Iterator[RegistryWatch]:
        return iter([watched for watched, _ in self._watched.values()])
