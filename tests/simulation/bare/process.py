"""A process on the bare tree: joins, coordinates, claims, runs and settles, step by step.

Rules, effects, claims and what is owed are the house's own; around them only what the house does with tasks and
timeouts is done with steps (``running/job.py``, ``running/runner.py``, ``coordination/coordinator.py``).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, cast

from anyio import CancelScope
from anyio.abc import TaskGroup

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination import coordinator, membership
from aioelasticjob.coordination.commit import connected
from aioelasticjob.coordination.membership import Member, give_notice, leave
from aioelasticjob.coordination.rules import Situation, decide
from aioelasticjob.coordination.view import JobView
from aioelasticjob.error_handlers import Complaints
from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.events import Events, JobEvent, Misfired
from aioelasticjob.jobs.base import Job
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, instance_id
from aioelasticjob.running.blocking import Means
from aioelasticjob.running.executor import Flight
from aioelasticjob.running.rescues import Rescues
from aioelasticjob.running.runner import ASLEEP, Runner
from aioelasticjob.running.surroundings import Surroundings
from tests.simulation.bare.session import BareSession, Ready, step, until


class Around(Protocol):
    """What a process needs of the world around it."""

    layout: Layout
    config: JobConfig
    tick: int
    peaceful: bool

    def now(self) -> float:
        """Return the time."""

    def view(self, seen: int) -> JobView:
        """Return a view by its number."""

    def newest(self) -> int:
        """Return the number of the newest view."""

    def spawn(self, owner: object, body: Coroutine[Ready, None, object]) -> None:
        """Let a coroutine take its steps among the others."""

    def begin(self, process: Process, item: int, claim: Claim) -> None:
        """Note a handler's first step."""

    def end(self, process: Process, item: int, outcome: str) -> None:
        """Note that a handler is over."""

    def told(self, process: Process, event: JobEvent) -> None:
        """Note what a job tells about itself."""

    def say(self, text: str) -> None:
        """Add to the trace."""


class _Told(Events):
    """Hands events on at once."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def put(self, event: JobEvent) -> None:
        self._process.world.told(self._process, event)


@dataclass(eq=False, slots=True)
class Process:
    """One process with one instance of the job, over all its sessions."""

    world: Around
    number: int
    session: BareSession
    dice: Random
    paused: bool = False
    leaving: bool = False
    gone: bool = False
    """Whether it has left, or was killed."""
    hurried: bool = False
    """Whether the time for a graceful end is over."""
    since: float | None = None
    seen: int = 0
    life: Life | None = None

    def leave(self) -> None:
        """Leave gracefully; told twice, hurry."""
        self.hurried, self.leaving = self.leaving, True
        if self.life is not None:
            self.life.leave()

    @property
    def ip(self) -> str:
        """Its host's address."""
        return f"10.0.0.{self.number}"

    @property
    def id(self) -> str:
        """Its instance's name under the present session."""
        return instance_id(self.ip, 1, str(self.session.incarnation))

    async def main(self) -> None:
        """Live session after session until asked to leave."""
        while not self.leaving:
            await until(lambda: self.session.connected)
            incarnation = self.session.incarnation
            member = Member(self.session.as_session(), self.world.layout, self.id, self.ip, "", 1, incarnation)
            with suppress(RegistryError):
                await self._join(member)
                self.life = Life(self, member)
                await self.life.live()
                if self.life.dismissed:
                    break
        self.gone = True

    def look(self) -> JobView:
        """Return a view that is newer than the last or the same; not always the newest."""
        if self.session.connected:
            newest = self.world.newest()
            self.seen = newest if self.world.peaceful else self.dice.choice([newest, newest, newest, self.seen])
        view = self.world.view(self.seen)
        return view

    def has_news(self) -> bool:
        """Whether there is more to be seen."""
        return self.session.connected and self.world.newest() > self.seen

    async def _join(self, member: Member) -> None:
        """Do as ``membership.join``, which waits for news in a way that needs a loop."""
        while True:
            view = self.look()
            stored = membership._stored(view.tree, member.layout, None)
            holds = membership._agreed(stored, self.world.config)
            try:
                operations = membership._joining(member, view.tree, stored, holds, [])
                joined = (await member.session.commit(operations, incarnation=member.incarnation)).zxid
            except Conflict:
                await until(self.has_news)
                continue
            except OutcomeUnknown:
                mine = await member.session.exists(member.layout.instance(member.id))
                if mine is None:
                    continue
                joined = mine.czxid
            break
        while self.look().tree.zxid < joined and self.session.incarnation == member.incarnation:
            await until(lambda: self.has_news() or self.session.incarnation != member.incarnation)


@dataclass(eq=False, slots=True)
class Life:
    """One session's life of a process: a coordinator and a runner."""

    process: Process
    member: Member
    dismissed: bool = False
    """Whether an operator asked this instance to leave."""
    over: bool = False
    views: Latest[JobView] = field(init=False)
    runner: StepRunner = field(init=False)
    _members: tuple[object, ...] = ()
    _tick: int = 0

    def __post_init__(self) -> None:
        process, view = self.process, self.process.look()
        if process.since is None:
            mine = view.instances.get(self.member.id)
            process.since = process.world.now() if mine is None else mine.started
        self.views = Latest(view)
        self.runner = StepRunner(self, process.since)
        if process.leaving:
            self.runner.leave()

    @property
    def lost(self) -> bool:
        """Whether the session this life is about is over, as far as one can know here."""
        session = self.process.session
        return session.over or session.late or session.incarnation != self.member.incarnation

    def leave(self) -> None:
        """Claim nothing any more, and say so."""
        self.runner.leave()
        self.process.world.spawn(self.process, self._give_notice())

    async def _give_notice(self) -> None:
        with suppress(RegistryError):
            await give_notice(self.member)

    async def live(self) -> None:
        """Coordinate and run until asked to leave, or until the session is over."""
        self.process.world.spawn(self.process, self.coordinate())
        await self.runner.run()
        self.over = True
        if self.runner.left:
            with suppress(RegistryError):
                await leave(self.member)

    async def coordinate(self) -> None:
        """Keep the registry as the rules want it."""
        while self.process.session.incarnation == self.member.incarnation and not self.over:
            view = self.process.look()
            if view is not self.views.value:
                self.views.set(view)
            try:
                if await coordinator.dismissed(self.member, view):
                    self.dismissed = True
                    self.leave()
                    return
                if await self._conduct(view):
                    continue
            except Suspended:
                self._members = ()
                await connected(self.member.session, self.member.incarnation)
                continue
            except SessionEnded:
                break
            await until(lambda: self.over or self.process.has_news() or self._tick != self.process.world.tick)
        self.over = True

    async def _conduct(self, view: JobView) -> int:
        """Decide and write once; return what was written."""
        process, world, me = self.process, self.process.world, self.member.id
        tick, self._tick = self._tick != world.tick, world.tick
        quiet = world.peaceful or process.dice.random() < 0.8
        members = (frozenset(view.instances), view.config.sharding_total_count)
        mourns = view.leader == me and view.config.failover and (tick or members != self._members)
        self._members = members if view.leader == me and view.config.failover else ()
        runs = coordinator._Runs()
        cut_off = await coordinator._cut_off(self.member, view, runs) if mourns else {}
        if cut_off:
            self._members = ()
        effects = decide(Situation(view, me, quiet, tick, world.now(), {}, cut_off, runs.cut_off))
        for effect in effects:
            world.say(f"{process.number} wants {effect}")
        written = await coordinator._commit(self.member, view, effects)
        if not quiet:  # nothing but time makes it so
            self._tick -= 1
        return written


class StepRunner(Runner):
    """The house's runner; only its scopes and tasks are steps here."""

    def __init__(self, life: Life, up_since: float) -> None:
        process = life.process
        shared = Surroundings(process.world, _Told(process), Means(), cast(Complaints, None))
        job = Job(process.world.config, _never_called, blocking=False)
        super().__init__(job, life.member, life.views, shared, up_since)
        self._life, self._alarm = life, _Alarm()
        self._rescues = StepRescues(life, life.member, self._duty, self._accounts, self._claims, life.views)
        self._nap = cast(CancelScope, self._alarm)
        self._waiting.tasks = cast(TaskGroup, _Tasks(process))
        self._loop = cast(AbstractEventLoop, _WallTime(process.world))
        self.flying: JobView | None = None
        """The view that the present claim was decided on."""

    async def run(self) -> None:
        """Fly until asked to leave; return early when the session is over."""
        while not (self._leaving or self._life.over):
            try:
                view = self._views.value
                self._waiting.follow(await self._duty.look(view))
                if not (
                    await self._rescues.answer(view, self._fly)
                    or await self._requests.answer(view, self._fly)
                    or await self._fly_owed(view)
                    or await self._fly_ahead(view)
                ):
                    await self._rest(view)
            except (Suspended, OutcomeUnknown):
                if not await self._connected():
                    break
            except SessionEnded:
                break

    async def _fly(self, view: JobView, fire: Fire, items: frozenset[int]) -> bool:
        self.flying = view
        flight = await self._board(view, fire, items)
        if flight is None:
            return False
        flight.begun = await self._reach(view, fire)
        if flight.begun:
            await self._handlers(flight)
        if not await self._settle(flight):
            raise SessionEnded("the session was lost before its items were settled")
        if flight.begun:
            self._duty.collapse(self._views.value, rerun=self._config.misfire)
        return flight.begun

    async def _reach(self, view: JobView, fire: Fire) -> bool:
        def stale() -> bool:
            return self._leaving or self._life.lost or self._life.process.hurried or self._views.value is not view

        if self._duty.now() < fire.slot and fire.source is FireSource.CRON:
            await until(lambda: stale() or self._duty.now() >= fire.slot)
            if stale() or self._duty.now() - fire.slot > ASLEEP:
                return False
        if fire.source is FireSource.CRON:
            self._duty.reach(fire.slot)
        return True

    async def _handlers(self, flight: Flight) -> None:
        """Run the handlers side by side; whoever is cut off has no outcome."""
        process, claim = self._life.process, flight.claim
        world, dice = process.world, process.dice
        if self._life.lost:  # the deadline comes before a handler's first step
            return
        for item in claim.items:
            world.begin(process, item, claim)
        longest = dice.choice([4, 12, 60])
        left = {item: 0 if world.peaceful else dice.randrange(longest) for item in claim.items}
        while left:
            await step()
            if self._life.lost or process.hurried:
                break
            for item in [item for item in left if not left[item]]:
                del left[item]
                flight.outcomes[item] = Outcome.FAILED if dice.random() < 0.1 else Outcome.COMPLETED
                world.end(process, item, flight.outcomes[item].value)
            left = {item: steps - 1 for item, steps in left.items()}
        for item in left:
            world.end(process, item, "cut off")

    async def _rest(self, view: JobView) -> None:
        wake = self._duty.timetable.upcoming or 0
        if wake - self._duty.now() > self._lead:
            wake -= self._lead
        self._alarm.rung = self._leaving
        await until(
            lambda: self._alarm.rung or self._views.value is not view or self._life.over or self._duty.now() >= wake
        )

    async def _connected(self) -> bool:
        return self._leaving or await connected(self._member.session, self._member.incarnation)


class StepRescues(Rescues):
    """The house's rescues; only their wait is steps here."""

    def __init__(self, life: Life, *parts: Any) -> None:
        super().__init__(*parts)
        self._life = life

    async def _seen(self, condition: Callable[[JobView], bool]) -> None:
        life = self._life
        await until(lambda: condition(life.views.value) or life.lost or life.over or life.runner.left)


async def _never_called(_context: object) -> None: ...


@dataclass(slots=True)
class _Alarm:
    """Stands where a nap's scope stands."""

    rung: bool = False

    def cancel(self) -> None:
        self.rung = True


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Stands where a runner's task group stands."""

    process: Process

    def start_soon(self, work: Callable[..., Coroutine[Ready, None, object]], *arguments: object) -> None:
        self.process.world.spawn(self.process, work(*arguments))


class _WallTime:
    """A loop's clock that is the world's."""

    def __init__(self, world: Around) -> None:
        self.time = world.now


def describe(event: JobEvent) -> str:
    """Return an event as a line of a trace."""
    if isinstance(event, Misfired):
        return f"reports {event.moments} of {event.items} up to {event.slot}: {event.why}"
    return str(event)
