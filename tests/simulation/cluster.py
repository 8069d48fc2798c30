"""A cluster in simulated time: our code on several hosts, the embedded server on another, and a witness of it all.

Nothing in it is a double.  The hosts run ``ElasticJob`` as any process would; the registry is ``serve``, whose tree is
handed on when its process is restarted, as a disk would; the witness reads what the tree was told to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anyio import Event, create_task_group, move_on_after, sleep
from anyio.abc import TaskGroup

from aioelasticjob.app import ElasticJob
from aioelasticjob.core.account import MAX_FUTURE
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import AuthenticationFailed, InvalidSetting, InvalidState, RegistryError, unwrapped
from aioelasticjob.events import EventReader
from aioelasticjob.registry.codec import CLOSE, attach, attached
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.testing.faults import Farewell, Faults
from aioelasticjob.testing.loop import VirtualClock
from aioelasticjob.testing.process import Process
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.sessions import Sessions
from tests.simulation.creations import Creations, is_created
from tests.simulation.facts import REGISTRY
from tests.simulation.streaming import StreamCode
from tests.simulation.users import Code
from tests.simulation.witness import NAMESPACE, Hearing, Witness
from tests.support.history import (
    ClockSet,
    Fault,
    Held,
    History,
    Reported,
    Started,
)

PORT = 2181
WITNESS_TIMEOUT = 600.0
"""Seconds a process waits for the registry at its start."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job of a simulated cluster.  Its handlers take random times of up to ``longest`` periods."""

    name: str
    cron: str
    period: float
    items: int
    settings: tuple[tuple[str, object], ...] = ()
    longest: float = 0.5
    failing: float = 0.0
    """The share of runs that fail."""
    dragging: float = 0.0
    """The share of runs that take longer than a session may be silent."""
    saving: float = 0.0
    """The share of runs that save checkpoints, half-way and at their end."""
    listened: bool = False
    """Whether it has listeners, of its own and once per cluster."""
    provided: bool = False
    """Whether its handler asks a provider for something."""
    attempts: int = 0
    """How many attempts a run may have; 0 if it has one, and the job no ``retry``."""
    is_streaming: bool = False
    """Whether it is a streaming dataflow, whose runs are all asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided about a simulated cluster before it runs; times in seconds."""

    seed: int
    skews: tuple[float, ...]
    """The clocks of the hosts, one host for each."""
    jobs: tuple[JobPlan, ...]
    session_timeout: float
    chaos: float = 60.0
    calm: float = 12.0
    transaction: int = 1000
    """Operations that one transaction may carry: with few of them, assignments are written in several parts."""
    kinds: tuple[str, ...] = ()
    """The only kinds of faults wanted; all of them if empty."""
    wild: bool = False
    """Whether operators also change settings of every kind, and write nonsense."""
    hostile: bool = False
    """Whether the surroundings do what nobody expects of them: the kinds of faults in ``hostile``."""
    requests: bool = False
    """Whether programs ask for runs, and cancel what runs or was asked for."""
    streams: bool = False
    """Whether all jobs are streaming ones."""
    schedules: bool = False
    """Whether jobs have schedules of every kind, and operators replace one kind by another, and edit a calendar."""
    at_run_time: bool = False
    """Whether programs leave jobs, and add them again, while they run."""
    chains: bool = False
    """Whether jobs follow each other."""
    created: bool = False
    """Whether operators create jobs for a handler, change and remove them, besides everything else that happens."""


class Registry:
    """The server on its host; what it has acknowledged outlives its processes."""

    def __init__(self, faults: Faults, history: History, tick: float) -> None:
        self._faults, self._tick = faults, int(tick * 1000)
        self._history = history
        self.tree = Witness(history)
        self.process: Process | None = None
        self.skew, self.caught_up = 0.0, 0.0
        """How far its clock is ahead, and when the true time will have come to what it has shown and is believed."""
        self._timeouts: dict[int, int] = {}
        self._server: Server | None = None

    def start(self) -> None:
        """Start a process of the server on what the last one left."""
        self.process = self._faults.start("registry", REGISTRY, self._main, skew=self.skew)

    def crash(self, farewell: Farewell) -> None:
        """Kill the process."""
        if self.process is not None and self.process.alive:
            self._faults.crash(self.process, farewell)

    def turn_clock(self, seconds: float) -> None:
        """Set the registry's clock forward or back."""
        if seconds < 0 and self.skew * 1000 < MAX_FUTURE:
            self.caught_up = max(self.caught_up, self._history.now() + self.skew)
        self.skew += seconds
        self._history.note(ClockSet(self._history.now(), REGISTRY, self.skew))
        if self.process is not None:
            self.process.skew = self.skew

    async def _main(self) -> None:
        async with serve("0.0.0.0", PORT, tick_time=self._tick, clock=VirtualClock().now) as server:
            sessions = Sessions(tick=self._tick, secret=b"kept on disk")
            for session, timeout in self._timeouts.items():  # the dictionary is the old one's, up to its last write
                sessions.restore(session, timeout, server.now())
            self.tree.events.clear()
            self._timeouts = sessions.timeouts
            self.tree.processor = server.processor = Hearing(server.processor, sessions, self.tree)
            await Event().wait()


@dataclass
class Host:
    """A machine and the one process of ours that runs on it at a time."""

    cluster: Cluster
    address: str
    skew: float
    process: Process | None = None
    session: Session | None = None
    app: ElasticJob | None = None
    """What its process runs."""
    dismissed: bool = False
    """Whether an operator has asked one of its jobs to leave."""
    _lives: int = 0
    _leaving: Event = field(default_factory=Event)
    _tasks: TaskGroup | None = None
    """What the program of its process does beside running jobs."""

    @property
    def up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.ended

    @property
    def name(self) -> str:
        """The name of its present or last process."""
        return f"{self.address}#{self._lives}"

    def start(self) -> None:
        """Start a new process, if there is none."""
        if self.up:
            return
        self._lives += 1
        self._leaving, self.session, self.dismissed = Event(), None, False
        self.cluster.history.note(Started(self.cluster.history.now(), self.name, self.address))
        if self.skew:
            self.cluster.history.note(ClockSet(self.cluster.history.now(), self.address, self.skew))
        self.process = self.cluster.faults.start(self.name, self.address, self._main, skew=self.skew)
        self.process.exited = self._exit

    def _exit(self, error: SystemExit) -> None:
        """End as a process does whose code has ended the interpreter."""
        self.cluster.history.stop(self.name, self.address, f"SystemExit: {error}")
        self.crash("fin")

    def crash(self, farewell: Farewell) -> None:
        """Kill the process."""
        if self.process is not None and self.up:
            self.cluster.history.crash(self.name, self.address)
            self.cluster.faults.crash(self.process, farewell)

    def leave(self) -> None:
        """Ask the process to end gracefully."""
        self._leaving.set()

    def delay(self, paused: bool) -> None:
        """Pause the process or let it go on."""
        if self.process is not None and self.up and not self.suspended and self.process.paused is not paused:
            self.cluster.history.note(Held(self.cluster.history.now(), self.name, paused))
            (self.cluster.faults.pause if paused else self.cluster.faults.resume)(self.process)

    @property
    def suspended(self) -> bool:
        """Whether the machine sleeps."""
        return self.process is not None and self.process.suspended_at is not None

    def suspend(self) -> None:
        """Suspend the machine; nothing happens if its process is stopped already."""
        if self.process is not None and self.up and not self.process.paused:
            self.cluster.history.note(Held(self.cluster.history.now(), self.name, True, suspended=True))
            self.cluster.faults.suspend(self.process)

    def wake(self) -> None:
        """Let a suspended machine go on."""
        if self.process is not None and self.suspended:
            self.cluster.history.note(Held(self.cluster.history.now(), self.name, False, suspended=True))
            self.cluster.faults.wake(self.process)

    def turn_clock(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self.skew += seconds
        self.cluster.history.note(ClockSet(self.cluster.history.now(), self.address, self.skew))
        if self.process is not None:
            self.process.skew = self.skew

    async def _main(self) -> None:
        name, history = self.name, self.cluster.history
        try:
            app = self.app = self.cluster.application(self)
            with unwrapped(), app.events() as listener:
                async with create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(self._listen, name, listener)
                    async with app.running() as session:
                        self.session = session
                        await self._leaving.wait()
                    tasks.cancel_scope.cancel()
        except RegistryError as error:  # only at its start: who starts a process starts it again
            history.stop(name, self.address, f"gave up: {type(error).__name__}: {error}")
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException as error:  # what users' code raises need not be an Exception
            history.stop(name, self.address, f"{type(error).__name__}: {error}")
        else:
            history.stop(name, self.address, "left")

    def instance(self, job: str) -> str:
        """Return the id of its process's instance of a job; empty if there is none at present."""
        health = () if self.app is None else self.app.health.jobs
        return next((one.instance or "" for one in health if one.name == job), "")

    def take_out(self, job: JobPlan, seconds: float) -> None:
        """Let the program of its process leave a job, and add it again after so many seconds."""
        if self.process is not None and self.up and self.app is not None and self._tasks is not None:
            context = self.process.context.copy()
            context.run(self._tasks.start_soon, self._take_out, self.app, job, seconds)

    async def _take_out(self, app: ElasticJob, job: JobPlan, seconds: float) -> None:
        with suppress(InvalidSetting, InvalidState):  # it is out already, or the process stops
            await app.leave(job.name)
            await sleep(seconds)
            self.cluster.declare(app, self, job)

    async def _listen(self, name: str, listener: EventReader) -> None:
        history = self.cluster.history
        async for event in listener:
            if is_created(f"/{event.job}"):
                continue
            history.note(Reported(history.now(), name, self.address, event))


class Cluster:
    """The hosts, the registry and an operator."""

    def __init__(self, plan: Plan) -> None:
        self.faults = Faults()
        loop = self.faults.loop
        self.plan, self.history = plan, History(lambda: loop.start + loop.boot_time())
        self.peaceful = True
        """Handlers are quick in peace: nothing but faults may make a moment collapse."""
        self.registry = Registry(self.faults, self.history, tick=min(1.0, plan.session_timeout / 5))
        self.hosts = [Host(self, f"10.0.1.{n}", skew) for n, skew in enumerate(plan.skews, 1)]
        self.layouts = {job.name: Layout(job.name) for job in plan.jobs}
        self.creations = Creations(self)
        self.processed: set[tuple[str, int, str, int]] = set()
        """The records of streaming jobs that were processed: job, item, run and number."""
        self.garbled: dict[str, bytes | None] = {}
        """What was at a path before an operator wrote nonsense there; None for nodes that were not there."""
        self.unruly: dict[tuple[str, str], str] = {}
        """What the users' code of a job raises at the moment, by job and place: a name in ``users.ERRORS``."""

    def break_(self, kind: str, *hosts: str, detail: str = "") -> None:
        """Note the beginning of a fault."""
        self.history.note(Fault(self.history.now(), kind, hosts, detail=detail))

    def mend(self, kind: str, *hosts: str) -> None:
        """Note the end of a fault."""
        self.history.note(Fault(self.history.now(), kind, hosts, over=True))

    def application(self, host: Host) -> ElasticJob:
        """Return the program that every host runs."""
        app = ElasticJob(
            f"zk://{REGISTRY}:{PORT}/{NAMESPACE}",
            session_timeout=self.plan.session_timeout,
            connection_timeout=WITNESS_TIMEOUT,
            base_sleep_time=0.5,
            max_sleep_time=1.0,
            clock=VirtualClock(),
        )
        for job in self.plan.jobs:
            self.declare(app, host, job)
        if self.plan.created:
            self.creations.register(app, host)
        return app

    def declare(self, app: ElasticJob, host: Host, job: JobPlan) -> None:
        """Add a job to the program of a host."""
        settings: dict[str, Any] = {"cron": job.cron, **dict(job.settings)}
        settings |= {"name": job.name, "sharding_total_count": job.items}
        if job.is_streaming:
            StreamCode(self, host, job).declare(app, settings)
            return
        code = Code(self, host, job)
        app.add(code.handler(), listeners=code.listeners(), **settings)
        if job.attempts:
            app._events.attach(code)

    async def operate(self, act: Callable[[Session], Coroutine[object, object, object]]) -> bool:
        """Do what an operator would, from a machine of her own; say whether the registry took it."""
        settings = ConnectionSettings.parse(f"zk://{REGISTRY}:{PORT}/{NAMESPACE}", session_timeout=4)
        done = False
        with move_on_after(5), suppress(RegistryError):
            async with open_session(settings, clock=VirtualClock()) as session:
                await act(session)
                done = True
        return done

    async def expire(self, host: Host) -> bool:
        """End a host's session from elsewhere, with its own id and password."""
        if host.session is None or not (incarnation := host.session.incarnation):
            return False
        loop = asyncio.get_running_loop()
        connection = Connection(Lease(), lambda _frame: None, lambda _lost: None)
        done, password = False, host.session._keeper._password
        with move_on_after(3), suppress(OSError, AuthenticationFailed):
            await loop.create_connection(lambda: connection, REGISTRY, PORT)
            answer = await connection.greet(attach(incarnation, password, 10, 0))
            if done := attached(answer)[0] != 0:
                await connection.call(CLOSE, b"")
        connection.abort("done")
        return done
