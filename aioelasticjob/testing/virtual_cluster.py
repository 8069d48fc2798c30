"""Your own application in simulated time: any number of instances, each on a host of its own, which you may kill."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeGuard, TypeVar

import anyio
from anyio import Event, create_task_group, move_on_after, sleep

from aioelasticjob import operations
from aioelasticjob.app import ElasticJob
from aioelasticjob.errors import InvalidSetting, unwrapped
from aioelasticjob.events import Ended, JobEvent
from aioelasticjob.events import EventReader as EventListener
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs.dependencies import Provider
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.asking import milliseconds
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.testing.errors import NotSeen, see_what_is_wanted
from aioelasticjob.testing.faults import Farewell, Faults, simulated_loop
from aioelasticjob.testing.loop import START, VirtualClock, run
from aioelasticjob.testing.process import Process
from aioelasticjob.testing.stand_ins import real_world_replaced, stand_in, started_app
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings

E = TypeVar("E")

REGISTRY = "10.0.0.1"
PORT = 2181
OBSERVER = "10.0.0.2"
OBSERVER_SESSION_TIMEOUT = 600.0
"""Session timeout of the observer, in seconds; a short one would make most work of heartbeats."""
DEFAULT_TIMEOUT = 3600.0
"""Simulated seconds that a test waits for something to happen, unless it says otherwise."""


class Instance:
    """One process of the application, on a host of its own; ``VirtualCluster.start`` makes it."""

    def __init__(self, cluster: VirtualCluster, started: ElasticJob, app: ElasticJob, host: str) -> None:
        self.app = app
        """What this process runs: the same jobs, but events, counts and overrides of its own."""
        self.host = host
        """Its IP address."""
        self.failure: Exception | None = None
        self._started = started
        self._cluster = cluster
        self._ready = Event()
        self._leaving = Event()
        self._gone = Event()
        self._session: Session | None = None
        self._process: Process = cluster.faults.start(host, host, self._main)

    @property
    def session(self) -> Session:
        """Its connection to the registry."""
        if self._session is None:
            raise RuntimeError(f"the instance on {self.host} has never come to run")
        return self._session

    @property
    def alive(self) -> bool:
        """Whether it has neither been killed nor left."""
        return self._process.alive and not self._gone.is_set()

    def kill(self, farewell: Farewell = "fin") -> None:
        """End it as ``kill -9`` does; ``silent``: as a power cut of its host."""
        self._cluster.faults.crash(self._process, farewell)

    def pause(self) -> None:
        """Stop it in its tracks, as SIGSTOP does."""
        self._cluster.faults.pause(self._process)

    def resume(self) -> None:
        """Let it go on, as SIGCONT does."""
        self._cluster.faults.resume(self._process)

    async def stop(self) -> None:
        """Let it leave gracefully, as SIGTERM does, and wait until it has.

        Raises: what its application raised.
        """
        self._leaving.set()
        if self._process.alive:
            await self._gone.wait()
        self.raise_failure()

    async def joined(self) -> None:
        """Wait until it runs.

        Raises: what kept it from that.
        """
        await self._ready.wait()
        self.raise_failure()

    async def holds(self, job: str | None = None) -> tuple[int, ...]:
        """Return the items of a job that are assigned to it."""
        status = await self._cluster.status(job)
        ours = [one for one in status.instances if one.ip == self.host]
        return tuple(item for one in ours for item in one.holds)

    def raise_failure(self) -> None:
        """Raise the error that has ended it, once."""
        failure = self.failure
        self.failure = None
        if failure is not None:
            raise failure

    async def _main(self) -> None:
        started_app.set((self._started, self.app))
        try:
            with unwrapped(), self.app.events() as events:
                async with create_task_group() as tasks:
                    tasks.start_soon(self._listen, events)
                    async with self.app.running() as session:
                        self._session = session
                        self._ready.set()
                        await self._leaving.wait()
        except Exception as error:
            self.failure = error
        finally:
            self._gone.set()
            self._ready.set()

    async def _listen(self, events: EventListener) -> None:
        async for event in events:
            self._cluster.note(event)


class VirtualCluster:
    """A registry and instances of one application, all in simulated time.  For coroutines run by ``simulated``."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        """All that were ever started."""
        self.events: list[JobEvent] = []
        """The events of all of them."""
        self._news = Latest(0)
        self._read = 0  # events that the test has waited for, or that came before one it has waited for
        self._faults: Faults | None = None
        self._observer: Session | None = None

    @property
    def faults(self) -> Faults:
        """Breaks hosts and networks; the registry is on ``REGISTRY``."""
        if self._faults is None:
            self._faults = Faults()
            self._faults.start("registry", REGISTRY, _registry)
        return self._faults

    @property
    def now(self) -> datetime:
        """The simulated moment, in UTC."""
        return moment(simulated_loop().wall())

    async def start(
        self,
        app: ElasticJob,
        *,
        jobs: Iterable[str] | None = None,
        overrides: Mapping[Provider, Provider] | None = None,
    ) -> Instance:
        """Start an instance of ``app`` and wait until it runs; whatever its address says, the registry is ours.

        It runs the ``jobs`` with these names, or all if none are given.  ``overrides`` go beside the application's
        ``dependency_overrides``.

        Raises: InvalidSetting when ``app`` is none, or has no job of such a name, or when time is not simulated, as in
        an async fixture; what ``app.running()`` raises.
        """
        if not isinstance(app, ElasticJob):
            raise InvalidSetting("app", app, "must be an ElasticJob")
        settings = replace(app.settings, hosts=((REGISTRY, PORT),))
        host = f"10.0.1.{len(self.instances) + 1}"
        instance = Instance(self, app, stand_in(app, settings, overrides or {}, jobs), host)
        self.instances.append(instance)
        await instance.joined()
        if self._observer is None:
            await self._look(settings)
        return instance

    async def next_fire(self, job: str | None = None, *, within: float = DEFAULT_TIMEOUT) -> tuple[Ended, ...]:
        """Let time pass to the job's next scheduled moment, and until all its items have run; return how each ended.

        The job need not be named if there is only one.  ``within``: simulated seconds from that moment.

        Raises: NotSeen, at once when no instance of the job is alive; InvalidSetting when it has no schedule, or there
        is no such job.
        """
        status = await self.status(job)
        schedule = status.schedule
        due = None
        if schedule is not None:
            due = schedule.next_to_come(self.now)
        if due is None:
            raise InvalidSetting("job", status.name, "has no next fire: use trigger()")
        await self._living_hosts(status.name)
        await self.until(due)
        slot = round(due.timestamp() * 1000)
        news = self._events_after(self._read)
        what = f"fire of {status.name} at {due}"
        return await self._all_end(status, what, within, news, lambda end: end.slot == slot)

    async def trigger(
        self,
        job: str | None = None,
        *,
        parameter: str | Mapping[str, object] | None = None,
        within: float = DEFAULT_TIMEOUT,
    ) -> tuple[Ended, ...]:
        """Run the job now, as an operator would, and return how each of its items ended.

        A ``parameter`` that is a mapping is passed on as JSON.  An item whose run was cut off ends with its rescue.

        Raises: as ``settled`` does, and as ``operations.ask`` does.
        """
        status = await self.settled(job)
        news = self._events_after(len(self.events))
        asked = await operations.ask(self._session, status.name, parameter=parameter)
        of_request = f"{status.name}@{asked.request}"

        def counts(end: Ended) -> bool:
            request, _, _ = end.run_id.rpartition("-")  # the run's moment follows, and has no dash
            return request == of_request

        return await self._all_end(status, f"run of {status.name}", within, news, counts)

    async def event(self, kind: type[E], *, within: float = DEFAULT_TIMEOUT, **fields: object) -> E:
        """Wait for the next event of that kind whose attributes are those given, as ``event(Ended, item=2)``.

        What came before the event that was waited for last is past, also if ``next_fire`` or ``trigger`` waited for it;
        ``events`` has it.

        Raises: NotSeen; InvalidSetting when there is no such kind of event, or it has no such attribute.
        """
        see_what_is_wanted(kind, fields)

        def is_wanted(event: JobEvent) -> TypeGuard[E]:
            if not isinstance(event, kind):
                return False
            return all(getattr(event, name) == value for name, value in fields.items())

        with move_on_after(within):
            async for event in self._events_after(self._read):
                if is_wanted(event):
                    return event
        wanted = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        what = f"{kind.__name__}({wanted})"
        if any(is_wanted(event) for event in self.events):
            what += " after what was waited for last (`events` has earlier ones)"
        raise NotSeen(what, within, self.events[-5:])

    async def settled(self, job: str | None = None, *, within: float = DEFAULT_TIMEOUT) -> JobStatus:
        """Wait until every living instance has joined the job and all its items are assigned; return its status.

        Raises: NotSeen, at once when no instance of the job is alive; InvalidSetting when there is no such job.
        """
        name = self._named(job)
        alive = await self._living_hosts(name)
        with move_on_after(within):
            async with operations.watch(self._session, name, clock=VirtualClock()) as statuses:
                async for status in statuses:
                    if status.settled and {one.ip for one in status.instances} == alive:
                        return status
        raise NotSeen(f"settled assignment of {name} to {sorted(alive)}", within, self.events[-5:])

    async def status(self, job: str | None = None) -> JobStatus:
        """Return what an operator would see of the job now.

        Raises: InvalidSetting when there is no such job.
        """
        return await operations.job(self._session, self._named(job), now=VirtualClock().now())

    async def until(self, when: datetime) -> None:
        """Let time pass to a moment.

        Raises: InvalidSetting when it is no datetime with a time zone.
        """
        milliseconds("when", when)
        left = when - self.now
        await sleep(max(0.0, left.total_seconds()))

    async def close(self) -> None:
        """Let all instances that are left leave gracefully.

        Raises: what one of them raised.
        """
        for instance in self.instances:
            if instance.alive:
                instance.resume()
                await instance.stop()
            instance.raise_failure()

    def note(self, event: JobEvent) -> None:
        """Keep an event of an instance."""
        self.events.append(event)
        self._news.set(len(self.events))

    async def _events_after(self, past: int) -> AsyncIterator[JobEvent]:
        """Yield the events after the first ``past`` ones.  Each reader gets all: several may wait at the same time."""
        for count in itertools.count(past + 1):
            await self._news.until(functools.partial(operator.le, count))
            self._read = max(self._read, count)
            yield self.events[count - 1]

    async def _living_hosts(self, job: str) -> set[str]:
        """Return the hosts of the living instances that run the job.

        Raises: NotSeen when there is none; InvalidSetting when there is no such job.
        """
        alive = self._living(job)
        if not alive:
            status = await self.status(job)
            alive = self._living(job, status.config.handler)
        if not alive:
            raise NotSeen(f"instance of {job} is alive", None, self.events[-5:])
        return alive

    def _living(self, job: str, handler: str | None = None) -> set[str]:
        """Return the hosts of the living instances that declare a job, or that have the handler it was created for."""
        found = set[str]()
        for one in self.instances:
            names = [config.job_name for config in one.app.jobs]
            has_handler = handler in one.app.handlers
            if one.alive and (job in names or has_handler):
                found.add(one.host)
        return found

    async def _all_end(
        self,
        status: JobStatus,
        what: str,
        within: float,
        news: AsyncIterator[JobEvent],
        counts: Callable[[Ended], bool],
    ) -> tuple[Ended, ...]:
        """Wait for the end of all items that are not disabled."""
        disabled = {one.item for one in status.items if one.disabled}
        missing = set(range(status.config.sharding_total_count)) - disabled
        ends: dict[int, Ended] = {}
        with move_on_after(within):
            while missing:
                event = await anext(news)
                if isinstance(event, Ended) and event.job == status.name and counts(event):
                    ends[event.item] = event
                    missing.discard(event.item)
            return tuple(ends[item] for item in sorted(ends))
        # not at once when the last one dies: the test may start another
        nobody = "" if self._living(status.name, status.config.handler) else ", of which no instance is alive,"
        raise NotSeen(f"end of items {sorted(missing)} in the {what}{nobody}", within, self.events[-5:])

    def _named(self, job: str | None) -> str:
        if job is not None:
            return job
        names = sorted({config.job_name for one in self.instances for config in one.app.jobs})
        if not names:
            raise InvalidSetting("job", None, "start an instance first")
        if len(names) > 1:
            raise InvalidSetting("job", None, f"name one of {', '.join(names)}")
        return names[0]

    @property
    def _session(self) -> Session:
        if self._observer is None:
            raise RuntimeError("nobody runs yet: start an instance first")
        return self._observer

    async def _look(self, settings: ConnectionSettings) -> None:
        """Open the observer's session, from a host of its own."""
        ready = Event()

        async def main() -> None:
            patient = replace(settings, session_timeout=OBSERVER_SESSION_TIMEOUT)
            async with open_session(patient, clock=VirtualClock()) as self._observer:
                ready.set()
                await anyio.sleep_forever()

        self.faults.start("observer", OBSERVER, main)
        await ready.wait()


def simulated(
    test: Callable[..., Awaitable[object]], *, seed: int = 0, start: float | datetime = START
) -> Callable[..., None]:
    """Return a plain function that runs the coroutine function ``test`` in simulated time.

    Clusters among its arguments are closed at its end.  Plain handlers, which would run in threads or processes, are
    called in the loop: no simulated time passes in them.
    """
    seconds = start.timestamp() if isinstance(start, datetime) else start

    @functools.wraps(test)
    def run_it(*args: Any, **named: Any) -> None:
        async def main() -> None:
            await test(*args, **named)
            for cluster in (*args, *named.values()):
                if isinstance(cluster, VirtualCluster):
                    await cluster.close()

        with real_world_replaced():
            run(main, seed=seed, start=seconds)

    return run_it


async def _registry() -> None:
    settings = Settings(max_session_timeout=int(OBSERVER_SESSION_TIMEOUT * 1000))
    async with serve("0.0.0.0", PORT, settings=settings, clock=VirtualClock().now):
        await anyio.sleep_forever()
