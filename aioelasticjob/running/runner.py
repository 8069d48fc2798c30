"""A job's fires here, one flight at a time: what is owed, claim it, run it, settle it.

What is owed follows from state, not from wake-ups: an item held here whose record lies before the newest due moment.
So a moment survives a re-sharding, whoever held the item when it came.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from anyio import (
    CancelScope,
    CapacityLimiter,
    Event,
    Lock,
    create_task_group,
    current_time,
    get_cancelled_exc_class,
    move_on_after,
)
from anyio.abc import TaskGroup

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.claims import Ledger
from aioelasticjob.coordination.membership import Member, connected
from aioelasticjob.coordination.progress import Offsets, Tally
from aioelasticjob.coordination.view import JobView
from aioelasticjob.error_handlers import Complaints, Failure
from aioelasticjob.errors import ClockSkew, Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.events import Began, Ended, Events, Misfired, Refused
from aioelasticjob.jobs.base import Context, Job, instance_context
from aioelasticjob.latest import Latest
from aioelasticjob.model import Claim, Fire, FireSource, Outcome
from aioelasticjob.registry.txn import Delete, Hold
from aioelasticjob.running.around import after, before
from aioelasticjob.running.executor import Flight, execute
from aioelasticjob.running.schedule import Timetable

LONGEST_NAP = 60.0
"""Seconds after which the wall clock is looked at again: it may have been set, or the machine may have slept."""
AHEAD = 1.0
"""Seconds by which this host's clock may run ahead of the registry's before the registry's is followed."""
LEADS = (100, 140, 180, 220, 260, 300, 340, 380)
"""Milliseconds before a moment at which its claim is made ready: the jobs of a process share them out."""
LAST_WORD = 3.0
"""Seconds that settling may take when everything is being cancelled."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all jobs of a process share."""

    clock: Clock
    events: Events
    threads: CapacityLimiter
    complaints: Complaints
    runners: dict[Runner, None] = field(default_factory=dict)  # a set that keeps its order, so simulations repeat
    comparing: Lock = field(default_factory=Lock)


class Runner:
    """The single flight of one job in one session."""

    def __init__(self, job: Job, member: Member, views: Latest[JobView], shared: Surroundings, up_since: float) -> None:
        self._job, self._member, self._views, self._shared = job, member, views, shared
        self._ledger, self._offsets = Ledger(member), Offsets(member)
        self.tally = Tally()
        """Runs that ended here; the coordinator publishes them."""
        self._view = views.value
        self._looked_at: JobView | None = None
        self._up_since = up_since
        self._since = self._floor = int(self._view.scheduled_since * 1000)
        self._floors: dict[int, int] = {}
        self._held: frozenset[int] = frozenset()
        self._given: dict[int, int] = {}
        """When each item was given to us, as a zxid: it may have gone away and come back between two looks."""
        self._elsewhere: set[int] = set()
        self._missed = 0
        self._lead = LEADS[crc32(job.config.job_name.encode()) % len(LEADS)]
        self._leaving = False
        self.done = Event()
        """Set when the job has left or its session is over."""
        self._nap = self._flight = CancelScope()
        self._tasks: TaskGroup
        self._timetable = Timetable(self._config.schedule, self._now())

    def leave(self) -> None:
        """Claim nothing any more; ``run`` returns once the flight is over."""
        self._leaving = True
        self._nap.cancel()

    def cut(self) -> None:
        """Cancel the flight; its items are settled as cancelled."""
        self._flight.cancel()

    async def run(self) -> None:
        """Fly until asked to leave; return early when the session is over."""
        async with create_task_group() as self._tasks:
            while not self._leaving:
                try:
                    view = await self._look()
                    if not (
                        await self._rescue(view)
                        or await self._answer_trigger(view)
                        or await self._fly_owed(view)
                        or await self._fly_ahead(view)
                    ):
                        await self._rest(view)
                except (Suspended, OutcomeUnknown):
                    if not await self._connected():
                        break
                except SessionEnded:
                    break
            self._tasks.cancel_scope.cancel()

    async def _connected(self) -> bool:
        """Wait for the connection, if not asked to leave, which needs none; False when the session is over."""
        with CancelScope() as self._nap:
            return self._leaving or await connected(self._member.session, self._member.incarnation)
        return True

    @property
    def left(self) -> bool:
        """Whether this instance leaves because it was asked to."""
        return self._leaving

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that running items may take to finish when the job leaves."""
        return self._config.shutdown_timeout

    @property
    def _config(self) -> JobConfig:
        return self._view.config

    def _now(self) -> int:
        """Return the time in milliseconds; a clock that runs ahead is held back to the registry's."""
        ahead = self._member.session.clock_skew or 0.0
        return int((self._shared.clock.now() - (ahead if ahead > AHEAD else 0.0)) * 1000)

    async def _look(self) -> JobView:
        """Take in the newest view: schedule, items gained and lost, what is switched off."""
        view, before = self._views.value, self._view
        if view is not self._looked_at:
            if _schedule(view.config) != _schedule(before.config):
                self._timetable = Timetable(view.config.schedule, self._now())
                self._since = int(view.scheduled_since * 1000)  # not now: a flight may have kept us from looking
                self._floor = max(self._floor, self._since)
            self._view = view
            await self._hold(view, renew=view.config.monitor_execution != before.config.monitor_execution)
            self._looked_at = view
        self._advance()
        if self._member.id not in view.eligible:
            self._floor = max(self._floor, self._timetable.newest)
        for item in self._held & view.disabled_items:
            self._floors[item] = self._timetable.newest
        return view

    async def _hold(self, view: JobView, *, renew: bool) -> None:
        given = {
            item: view.tree.get(view.layout.item(item).instance).stat.mzxid  # type: ignore[union-attr]  # it is assigned
            for item, holder in view.assignment.items()
            if holder == self._member.id
        }
        held = frozenset(given)
        kept = {item for item in held if self._given.get(item) == given[item]}
        self._ledger.forget(self._ledger.known() if renew else self._ledger.known() - kept)
        self._held &= self._ledger.known()
        gained = held - self._ledger.known()
        if view.config.monitor_execution:
            await self._learn(view, gained)
        elif gained:  # nothing tells whether its last holder has run the newest moment
            self._ledger.assume(gained, self._timetable.newest)
        if gained:
            await self._offsets.learn(gained)
        since = min(view.up_since, self._up_since)
        if view.config.catch_up:
            since = min(since, self._now() / 1000 - view.config.catch_up)
        for item in gained:
            node = view.tree.get(view.layout.item(item).sharding)
            born = 0.0 if node is None else node.stat.ctime
            self._floors[item] = int(max(born, since) * 1000)
        self._held, self._given = held, given
        self._report_gaps(gained)

    async def _learn(self, view: JobView, gained: frozenset[int]) -> None:
        """Read the records of items gained, and again of those that were cut off: their rescuer has written them."""
        unsure = {item for item in self._held - view.orphans - view.rescues.keys() if self._is_cut_off(item)}
        running = await self._ledger.learn(gained | unsure) if gained or unsure else frozenset()
        if view.config.failover:
            return
        for item in filter(self._is_cut_off, gained - running):
            why = "its run was cut off, and failover is off"
            self._report_misfire([item], 1, why, self._ledger.record(item).slot)

    def _is_cut_off(self, item: int) -> bool:
        record = self._ledger.record(item)
        return record.begun > 0 and not record.completed

    def _report_gaps(self, gained: frozenset[int]) -> None:
        """Tell of moments that came while nobody could run an item: only its next holder can."""
        for item in gained:
            last = max(self._since, self._floors.get(item, 0), self._ledger.record(item).slot)
            dropped = last < self._timetable.newest <= self._floor
            if moments := self._timetable.between(last) + dropped:
                self._report_misfire([item], moments, "nobody could run it when they came")

    def _advance(self) -> None:
        waiting, before = self._owed(), self._timetable.newest
        passed = self._timetable.advance(self._now()) - 1 + bool(waiting)
        if passed > 0 and self._held and self._timetable.newest != before:
            why = "the assignment was not settled" if waiting else "this process was held up"
            self._report_misfire(waiting or self._held, passed, why)

    def _owed(self, moment: int | None = None) -> frozenset[int]:
        """Return the items whose newest moment (or the one given) has not been claimed and is ours to claim."""
        newest = moment or self._timetable.newest
        if newest <= self._floor:
            return frozenset()
        record, floors = self._ledger.record, self._floors
        owed = frozenset(item for item in self._held if record(item).slot < newest and floors.get(item, 0) < newest)
        return owed - self._taken_off() if owed else owed

    def _taken_off(self) -> frozenset[int]:
        """Return the items that others run, rescue or have yet to rescue."""
        view = self._view
        if not view.config.failover:
            return frozenset(self._elsewhere)
        return frozenset(self._elsewhere).union(view.orphans, view.rescues, filter(self._is_cut_off, self._held))

    async def _rescue(self, view: JobView) -> bool:
        """Take one orphan, beginning at a place of our own so that rescuers spread; True if there was one to take."""
        count, me = view.config.sharding_total_count, self._member.id
        if not (view.orphans and view.config.failover and me in view.eligible):
            return False
        waiting = sorted(item for item in view.orphans - view.disabled_items if item < count)
        if not waiting:
            return False
        item = waiting[crc32(me.encode()) % len(waiting)]
        await self._ledger.learn([item])
        record = self._ledger.record(item)
        if record.completed:
            await self._ledger.dismiss(item)
            await self._rest(view)
        elif not await self._fly(view, Fire(record.slot, FireSource.FAILOVER), frozenset({item})):
            await self._rest(view)
        if item not in self._held:
            self._ledger.forget([item])
        return True

    async def _answer_trigger(self, view: JobView) -> bool:
        layout = self._member.layout
        path = layout.trigger(self._member.id)
        asked = view.tree.get(path)
        if asked is None or not view.settled:
            return False
        try:
            await self._member.session.commit([Delete(path)], incarnation=self._member.incarnation)
        except Conflict:  # taken already; the mirror has not heard of it yet
            await self._rest(view)
            return True
        items = self._held - view.disabled_items - self._taken_off()
        if items and self._member.id in view.eligible:
            await self._fly(view, Fire(self._now(), FireSource.TRIGGER, _parameter(asked.data)), items)
        return True

    async def _fly_owed(self, view: JobView) -> bool:
        owed = self._owed() if view.settled else frozenset()
        if not owed:
            return False
        if skew := self._intolerable_skew():
            self._floor = self._timetable.newest
            self._shared.events.put(Refused(view.layout.job, self._member.id, str(skew)))
            log.error("not run: %s", skew, extra={"job": view.layout.job})
            return True
        newest = self._timetable.newest
        late = newest == self._missed or newest < min(view.up_since, self._up_since) * 1000
        source = FireSource.MISFIRE if late else FireSource.CRON
        await self._fly(view, Fire(newest, source), owed)
        return True

    def _is_near(self, view: JobView) -> bool:
        """Whether the claim of the next moment may be made ready now."""
        upcoming, config = self._timetable.upcoming, view.config
        near = upcoming is not None and 0 < upcoming - self._now() <= self._lead
        return near and view.settled and config.monitor_execution and self._member.id in view.eligible

    async def _fly_ahead(self, view: JobView) -> bool:
        """Fly at the next moment, its claim ready before: the claims of all that are due together leave at once.

        If anything has changed when the moment comes, the claim is withdrawn and what is owed is looked up anew.
        """
        if not self._is_near(view) or self._intolerable_skew():
            return False
        upcoming = self._timetable.upcoming or 0
        if items := self._owed(upcoming) - view.disabled_items:
            await self._fly(view, Fire(upcoming, FireSource.CRON), items)
        return bool(items)

    async def _fly(self, view: JobView, fire: Fire, items: frozenset[int]) -> bool:
        """Claim, run and settle; return whether anything was claimed."""
        offsets = await self._offsets.read(items)
        claim = await self._claim(view, fire, items)
        if claim is None:
            return False
        began, checkpoints = current_time(), _Checkpoints(self._offsets, claim, offsets)
        flight = Flight(self._job, view.config, claim, checkpoints, self._shared.threads, self._complain)
        outcomes = flight.outcomes
        job, events, session = view.layout.job, self._shared.events, self._member.session
        late = self._shared.clock.now() - fire.slot / 1000
        events.put(Began(job, self._member.id, fire.slot, fire.source, tuple(claim.items), late))
        try:
            with CancelScope() as self._flight, session.deadline(self._member.incarnation) as deadline:
                if not deadline.cancel_called:  # a reply that comes too late shall not start a handler's first step
                    await self._execute(view, flight)
        except get_cancelled_exc_class():
            with move_on_after(LAST_WORD, shield=True):
                await self._settle(claim, outcomes)
            raise
        seconds = current_time() - began
        await session.lull()
        for item in claim.items:
            outcome = outcomes.get(item, Outcome.CANCELLED)
            self.tally.count(outcome)
            events.put(Ended(job, self._member.id, fire.slot, fire.source, item, outcome, seconds))
        if not await self._settle(claim, outcomes):
            raise SessionEnded("the session was lost before its items were settled")
        self._note_misfires(view)
        return True

    async def _execute(self, view: JobView, flight: Flight) -> None:
        """Run the handlers, and what listens around them."""
        listeners, claim = self._job.listeners, flight.claim
        if not listeners:
            await execute(flight)
            return
        context = instance_context(view.config, claim, flight.checkpoints)
        if await before(listeners, self._member, view, claim, context):
            await execute(flight)
            await after(listeners, self._member, view, claim, context)
        else:
            flight.outcomes.update(dict.fromkeys(claim.items, Outcome.FAILED))

    def _complain(self, context: Context, error: Exception) -> None:
        """Pass a failure on to the error handler now configured."""
        fire_time, config = context.fire_time.isoformat(), self._config
        failure = Failure(context.job_name, context.instance, context.claimed, context.task_id, fire_time, error)
        self._shared.complaints.put(config.error_handler, config.error_handler_options, failure)

    async def _claim(self, view: JobView, fire: Fire, items: frozenset[int]) -> Claim | None:
        member = self._member
        if not view.config.monitor_execution:
            return self._ledger.assume(items, fire.slot, fire)
        now, following = self._now(), self._timetable.upcoming or 0
        hold = None
        if fire.slot == following and fire.source is FireSource.CRON:
            until = current_time() + (fire.slot - now) / 1000
            hold = Hold(until, lambda: self._views.value is view and not self._leaving)
            now, following = fire.slot, self._timetable.following()
        taken = await self._ledger.claim(view, fire, items, now, following, hold)
        if hold is not None and not taken.stale:
            self._timetable.advance(fire.slot)
        if taken.elsewhere and fire.source is not FireSource.FAILOVER:
            await self._wait_for_others(view, fire, taken.elsewhere)
        if taken.stale and fire.source is not FireSource.FAILOVER and not self._leaving:
            await self._rest(view)
        if taken.claim is not None and taken.claim.incarnation != member.session.incarnation:
            raise SessionEnded("the session was lost while claiming")
        return taken.claim

    async def _settle(self, claim: Claim, outcomes: dict[int, Outcome]) -> bool:
        """Give the items back; False if the session was lost.  A claim without fences has written nothing."""
        hand_over = self._config.failover
        return not claim.fences or await self._ledger.settle(claim, outcomes, self._now(), hand_over=hand_over)

    async def _wait_for_others(self, view: JobView, fire: Fire, items: frozenset[int]) -> None:
        """Let another instance finish what it runs of our items; then run the newest moment, if misfire is wanted."""
        self._report_misfire(items, 1, "another instance still runs it")
        if not view.config.misfire:
            self._floors.update(dict.fromkeys(items, fire.slot))
            return
        self._elsewhere |= items
        for item in items:  # first of all: nothing else takes them back, should the mark fail
            self._tasks.start_soon(self._until_free, item)
        await self._ledger.mark_misfired(view, items, fire.slot)

    async def _until_free(self, item: int) -> None:
        await self._member.session.wait_deleted(self._member.layout.item(item).running)
        self._elsewhere.discard(item)
        self._missed = self._timetable.newest
        if item in self._ledger.known():
            with suppress(RegistryError):  # a record that is out of date is refused when claimed, and read then
                await self._ledger.learn([item])
            self._report_gaps(frozenset((item,)))
        self._nap.cancel()

    def _note_misfires(self, view: JobView) -> None:
        """Moments that came while the flight was on have collapsed into the newest: run it once, or drop it."""
        if passed := self._timetable.advance(self._now()):
            self._report_misfire(self._held, passed, "the last run was still going on")
            if view.config.misfire:
                self._missed = self._timetable.newest
            else:
                self._floor = self._timetable.newest

    def _report_misfire(self, items: Iterable[int], moments: int, why: str, slot: int = 0) -> None:
        job, slot = self._member.layout.job, slot or self._timetable.newest
        log.warning("misfire: %s", why, extra={"job": job, "slot": slot, "moments": moments})
        self._shared.events.put(Misfired(job, self._member.id, slot, tuple(sorted(items)), moments, why))

    def _intolerable_skew(self) -> ClockSkew | None:
        tolerated, skew = self._config.max_time_diff_seconds, self._member.session.clock_skew
        if tolerated < 0 or skew is None or abs(skew) <= tolerated:
            return None
        return ClockSkew.of(skew, tolerated)

    async def _rest(self, view: JobView) -> None:
        """Wait for the next moment, for news in the view, or to be woken."""
        upcoming = self._timetable.upcoming
        delay = LONGEST_NAP * 1000 if upcoming is None else max(0, upcoming - self._now())
        if view.config.monitor_execution and delay > self._lead:
            delay -= self._lead
        with move_on_after(min(LONGEST_NAP, delay / 1000)) as self._nap:
            if not self._leaving:  # it may have been asked to before there was a nap to cancel
                await self._views.until(lambda newer: newer is not view)


def _parameter(data: bytes) -> str | None:
    """Return the job parameter that a trigger brings; without data the configured one holds."""
    return data.decode("utf-8", "replace") or None


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """The offsets of one run, and the fence they are saved under."""

    offsets: Offsets
    claim: Claim
    known: dict[int, str]

    def get(self, item: int) -> str | None:
        return self.known.get(item)

    async def save(self, item: int, value: str) -> None:
        await self.offsets.save(self.claim, item, value)
        self.known[item] = value


def _schedule(config: JobConfig) -> tuple[object, ...]:
    return config.cron, config.time_zone, config.dst
