"""A cluster in simulated time: our code on several hosts, the embedded server on another, and a witness of it all.

Nothing in it is a double.  The hosts run ``ElasticJob`` as any process would; the registry is ``serve``, whose tree is
handed on when its process is restarted, as a disk would; the witness reads what the tree was told to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from anyio import Event, create_task_group, move_on_after, sleep

from aioelasticjob.app import ElasticJob
from aioelasticjob.errors import AuthenticationFailed, Fenced, RegistryError, unwrapped
from aioelasticjob.events import Listener
from aioelasticjob.jobs.context import InstanceContext, ItemContext
from aioelasticjob.layout import Layout
from aioelasticjob.registry.codec import CLOSE, attach, attached
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.testing.facts import REGISTRY
from aioelasticjob.testing.faults import Farewell, Faults
from aioelasticjob.testing.history import Begun, Change, Fault, Held, History, Saved, Started, Told, Written
from aioelasticjob.testing.loop import VirtualClock
from aioelasticjob.testing.process import Process
from aioelasticjob.zookeeper.codes import ErrorCode, EventType
from aioelasticjob.zookeeper.datatree import Applied, Author, DataTree
from aioelasticjob.zookeeper.messages import Write
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.sessions import Sessions

PORT, NAMESPACE = 2181, "sim"
PATIENCE = 600.0
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


class Witness(DataTree):
    """The registry's tree, with a history of what was written to it."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history

    def apply_all(self, writes: Sequence[Write], author: Author) -> Sequence[Applied | ErrorCode]:
        """Carry out a transaction and note what it changed."""
        heard = len(self.events)
        results = super().apply_all(writes, author)
        self._witness(heard, author.session, author.zxid, ending=False)
        return results

    def end_session(self, session: int, zxid: int) -> None:
        """Remove what a session owned and note it."""
        heard = len(self.events)
        super().end_session(session, zxid)
        self._witness(heard, session, zxid, ending=True)

    def _witness(self, heard: int, session: int, zxid: int, *, ending: bool) -> None:
        changes: dict[str, Change] = {}
        for event in self.events[heard:]:
            if event.kind is EventType.CHILDREN_CHANGED:
                continue
            path, node = event.path.removeprefix(f"/{NAMESPACE}"), self.nodes.get(event.path)
            if node is None:
                changes[path] = Change(path, None)
            else:
                changes[path] = Change(path, node.data or b"", event.kind is EventType.CREATED, node.owner)
        if changes or ending:
            self.history.note(Written(self.history.now(), zxid, session, tuple(changes.values()), ending))


class Registry:
    """The server on its host; what it has acknowledged outlives its processes."""

    def __init__(self, faults: Faults, history: History, tick: float) -> None:
        self._faults, self._tick = faults, int(tick * 1000)
        self.tree = Witness(history)
        self.process: Process | None = None
        self._timeouts: dict[int, int] = {}
        self._server: Server | None = None

    def start(self) -> None:
        """Start a process of the server on what the last one left."""
        self.process = self._faults.start("registry", REGISTRY, self._main)

    def crash(self, farewell: Farewell) -> None:
        """Kill the process."""
        if self.process is not None and self.process.alive:
            self._faults.crash(self.process, farewell)

    async def _main(self) -> None:
        async with serve("0.0.0.0", PORT, tick_time=self._tick, clock=VirtualClock().now) as server:
            processor = server.processor
            sessions = Sessions(tick=self._tick, secret=b"kept on disk", started=processor.wall())
            for session, timeout in self._timeouts.items():  # the dictionary is the old one's, up to its last write
                sessions.restore(session, timeout, server.now())
            self.tree.events.clear()
            processor.tree, processor.sessions, self._timeouts = self.tree, sessions, sessions.timeouts
            processor.issued_zxid = self.tree.zxid
            await Event().wait()


@dataclass
class Host:
    """A machine and the one process of ours that runs on it at a time."""

    cluster: Cluster
    address: str
    skew: float
    process: Process | None = None
    session: Session | None = None
    dismissed: bool = False
    """Whether an operator has asked one of its jobs to leave."""
    _lives: int = 0
    _leaving: Event = field(default_factory=Event)

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
        self.process = self.cluster.faults.start(self.name, self.address, self._main, skew=self.skew)

    def crash(self, farewell: Farewell) -> None:
        """Kill the process."""
        if self.process is not None and self.up:
            self.cluster.history.crash(self.name, self.address)
            self.cluster.faults.crash(self.process, farewell)

    def leave(self) -> None:
        """Ask the process to end gracefully."""
        self._leaving.set()

    def hold(self, paused: bool) -> None:
        """Pause the process or let it go on."""
        if self.process is not None and self.up and self.process.paused is not paused:
            self.cluster.history.note(Held(self.cluster.history.now(), self.name, paused))
            (self.cluster.faults.pause if paused else self.cluster.faults.resume)(self.process)

    def turn_clock(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self.skew += seconds
        if self.process is not None:
            self.process.skew = self.skew

    async def _main(self) -> None:
        name, history = self.name, self.cluster.history
        try:
            app = self.cluster.application(self)
            with unwrapped(), app.events() as listener:
                async with create_task_group() as tasks:
                    tasks.start_soon(self._listen, name, listener)
                    async with app.running() as session:
                        self.session = session
                        await self._leaving.wait()
                    tasks.cancel_scope.cancel()
        except RegistryError as error:  # only at its start: who starts a process starts it again
            history.stop(name, self.address, f"gave up: {type(error).__name__}: {error}")
        except Exception as error:
            history.stop(name, self.address, f"{type(error).__name__}: {error}")
        else:
            history.stop(name, self.address, "left")

    async def _listen(self, name: str, listener: Listener) -> None:
        history = self.cluster.history
        async for event in listener:
            history.note(Told(history.now(), name, self.address, event))


class Cluster:
    """The hosts, the registry and an operator."""

    def __init__(self, plan: Plan) -> None:
        self.faults = Faults()
        loop = self.faults.loop
        self.plan, self.history = plan, History(lambda: loop.start + loop.time())
        self.peaceful = True
        """Handlers are quick in peace: nothing but faults may make a moment collapse."""
        self.registry = Registry(self.faults, self.history, tick=min(1.0, plan.session_timeout / 5))
        self.hosts = [Host(self, f"10.0.1.{n}", skew) for n, skew in enumerate(plan.skews, 1)]
        self.layouts = {job.name: Layout(job.name) for job in plan.jobs}

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
            connection_timeout=PATIENCE,
            base_sleep_time=0.5,
            max_sleep_time=1.0,
            clock=VirtualClock(),
        )
        for job in self.plan.jobs:
            settings: dict[str, Any] = dict(job.settings)
            handler = self._handler(host, host.name, job)
            app.add(handler, name=job.name, cron=job.cron, sharding_total_count=job.items, **settings)
        return app

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
        if host.session is None or not host.session.incarnation:
            return False
        loop = asyncio.get_running_loop()
        connection = Connection(Lease(), lambda _frame: None, lambda _lost: None)
        done, password = False, host.session._keeper._password
        with move_on_after(3), suppress(OSError, AuthenticationFailed):
            await loop.create_connection(lambda: connection, REGISTRY, PORT)
            answer = await connection.greet(attach(host.session.incarnation, password, 10, 0))
            if done := attached(answer)[0] != 0:
                await connection.call(CLOSE, b"")
        connection.abort("done")
        return done

    def _handler(
        self, host: Host, process: str, job: JobPlan
    ) -> Callable[[ItemContext | InstanceContext], Coroutine[object, object, None]]:
        async def handle(context: ItemContext | InstanceContext) -> None:
            items = context.items if isinstance(context, InstanceContext) else (context.item,)
            slot = context.fire.slot
            fences = context.fences if isinstance(context, InstanceContext) else {context.item: context.fence}
            offsets = context.offsets if isinstance(context, InstanceContext) else {context.item: context.offset}
            runs = [
                self.history.begin(
                    lambda at, run, item=item: Begun(  # type: ignore[misc]
                        at,
                        run,
                        process,
                        host.address,
                        context.instance,
                        job.name,
                        item,
                        slot,
                        context.source,
                        fences[item],
                        host.skew,
                        offsets[item],
                    )
                )
                for item in items
            ]
            save = partial(self._save, context, dict(zip(items, runs, strict=True)), fences)
            how = "cut off"
            try:
                await self._work(job, items[0], slot, save)
                how = "completed"
            except RuntimeError:
                how = "failed"
                raise
            finally:
                for run in runs:
                    self.history.finish(run, how)

        return handle

    async def _save(
        self, context: ItemContext | InstanceContext, runs: Mapping[int, int], fences: Mapping[int, int], step: str
    ) -> None:
        """Save checkpoints; who is told that he may not goes on, as code does that does not care."""
        for item, run in runs.items():
            value = f"{fences[item]:x}.{step}"
            with suppress(Fenced):
                if isinstance(context, InstanceContext):
                    await context.save_offset(item, value)
                else:
                    await context.save_offset(value)
                path = f"/{context.job_name}/offset/{item}"
                self.history.note(Saved(self.history.now(), run, path, value))

    async def _work(self, job: JobPlan, item: int, slot: int, save: Callable[[str], Awaitable[None]]) -> None:
        """Take as long as this moment of this item takes, whoever runs it, and fail if it is one that fails."""
        dice = Random(f"{self.plan.seed} {job.name} {item} {slot}")
        seconds = dice.uniform(0.02, 0.4)  # in peace it is over before any schedule's next moment
        if not self.peaceful:
            seconds = min(12.0, job.period * dice.uniform(0.02, job.longest))
            if dice.random() < job.dragging:
                seconds = self.plan.session_timeout * dice.uniform(1, 3)
        saves = job.saving > 0 and Random(f"saving {self.plan.seed} {job.name} {item} {slot}").random() < job.saving
        if saves:
            await sleep(seconds / 2)
            await save("half")
        await sleep(seconds / 2 if saves else seconds)
        if saves:
            await save("done")
        if dice.random() < job.failing:
            raise RuntimeError("this run was meant to fail")
