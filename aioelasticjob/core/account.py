"""Decides, from facts, which moments of an instance's items are due, and which are reported as missed or excused.

An item's record says up to where the item is accounted for.  All moments after that are owed.  The newest of them is
run, run late, reported or excused, depending on the item's present state; older ones are never run any more.  What is
reported is written into the record first, together with up to where the item is accounted for then, and reported when
the registry has accepted it.

Nothing here waits, reads a clock, asks the registry or writes a log.  A method that needs the registry is a generator
of commands, and is given the answers.  Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from aioelasticjob.core import reasons
from aioelasticjob.core.clock_skew import AHEAD, ClockSkewMonitor
from aioelasticjob.core.commands import (
    AnyReport,
    ClaimItems,
    FollowReleases,
    ReadItems,
    Report,
    SayAhead,
    SayLowered,
    SayRefused,
    Steps,
    WriteAccounts,
)
from aioelasticjob.core.ends import BEGINS, MISSED, OFF, up_to, with_end
from aioelasticjob.core.items import (
    Item,
    Lock,
    assumed,
    claimed,
    learned,
    left_by_the_gone,
    promised_by_others,
    reported,
    settled,
)
from aioelasticjob.core.pauses import Pause
from aioelasticjob.core.reasons import Cause, Missed, Newest
from aioelasticjob.core.records import begun, ended_by_others, is_cut_off
from aioelasticjob.core.request_runs import ended_as
from aioelasticjob.core.timeline import Passed, Timeline
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ClockSkew, ElasticJobError
from aioelasticjob.model import (
    NONE,
    SCHEDULED,
    Claim,
    ClockReading,
    End,
    EndedItem,
    Fire,
    FireSource,
    Outcome,
    Owing,
    Record,
    VersionedRecord,
)

MAX_FUTURE = 60_000
"""How far in the future an item may be accounted for, in milliseconds.  Beyond that it would not run for too long."""
ATTEMPTS = 3
"""How often accounts are decided in one pass if other instances have written records meanwhile."""


@dataclass(slots=True)
class Past:
    """What the earlier lives of a job in this process have left for the next one."""

    since: float = inf
    """Since when an instance has been up, by the registry's clock, as far as known when the first life began."""
    instances: tuple[str, ...] = ()
    """What this process was called in its last sessions, and is called in this one."""


@dataclass(frozen=True, slots=True)
class Off:
    """The time in which this process has seen an item switched off."""

    since: int
    """When the item was switched off, or when this process noticed it."""
    until: int
    """When this process last saw the item switched off."""


@dataclass(frozen=True, slots=True)
class Closing:
    """A record that accounts for moments of an item of which none is run."""

    record: Record
    missed: tuple[Missed, ...] = ()
    """The moments that are reported once the record is written."""
    newest: Newest = Newest.MISSED
    lost: Record | None = None
    """The item's run that was cut off, if it is reported as well."""
    given_up: tuple[Owing, ...] = ()
    """The reports that instances had promised which are gone."""
    lowered_from: int = 0
    """Up to when the item was accounted for, if that was too far in the future."""


@dataclass(slots=True)
class Due:
    """The items that can be claimed for the newest moment."""

    on_time: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    @property
    def items(self) -> frozenset[int]:
        """All of these items."""
        return frozenset([*self.on_time, *self.late]) or NONE


class JobState:
    """The items that one instance of a job holds, and the moments that are due for them."""

    def __init__(self, me: str, view: JobView, reading: ClockReading, past: Past) -> None:
        self.clock = ClockSkewMonitor(reading)
        self.reports: list[AnyReport] = []
        """What the driver has to report.  The driver removes each report when it has made it."""
        self.items: dict[int, Item] = {}
        """The items that this instance holds, as it has read or written them last."""
        self.held: frozenset[int] = NONE
        self.view = view
        """The newest view that this object was given."""
        self.timeline = Timeline.of(view.schedules, self.clock.now, view.upstreams)
        self.refusals: tuple[tuple[float, float], ...] = ()
        """How many seconds ago each span began and ended in which the registry refused what a run needs.

        The driver sets it.
        """
        self._me = me
        self._past = past
        self._looked_at: JobView | None = None
        """The newest view that was applied completely."""
        self._looked_last = self.clock.now
        """Up to when the view that was applied last is known to have held, or when this object was made."""
        self._is_recorded = view.config.monitor_execution
        """Whether the items that are held have records."""
        self._unread = set[int]()
        """Items whose records may have changed since they were read."""
        self._unchecked = set[int]()
        """Items that may be accounted for up to a time that has yet to come, which the log says."""
        self._followed = set[int]()
        """Items whose run on another instance, or whose lock, this process follows until its end."""
        self._known = dict[int, int]()
        """Up to when items were accounted for when records were switched on or off, until they are looked at again."""
        self._off = dict[int, Off]()
        self._noticed = view
        """The newest view of which this process has noticed what is switched off."""
        self._noticed_at = self.clock.now
        self._obstructed = dict[int, int]()
        """Items that nodes made by hand kept from being claimed, each with the moment of that claim."""
        self._seen_until = dict[str, int]()
        """Up to when this process has seen instances that are gone."""
        self._refuses = False
        """Whether this instance has refused the last fire."""
        self.open: tuple[Claim, ...] = ()
        """The claims whose runs go on here.  Each item is in at most one of them."""
        self._busy = dict[int, Claim]()
        """The items that run, each with its claim.  None is claimed, whatever the registry shows of it meanwhile."""
        self.unsettled = dict[int, EndedItem]()
        """Items whose run has ended, while nobody has begun to settle it.

        They are known as they will be when it is settled, so they can be claimed again, together with the settlement.
        """

    # Questions.

    @property
    def steady_in(self) -> float:
        """Seconds after which to look again because records claim moments that are far in the future; or infinity."""
        wait = self.clock.unsteady
        latest = self.clock.now + MAX_FUTURE
        if not wait or not any(item.accounted > latest for item in self.items.values()):
            return inf
        return max(wait, 0.01)  # at least 10 ms: a rounded timer may fire before the time is steady

    def intolerable_skew(self) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return self.clock.intolerable(self.view.config)

    def is_catch_up(self, moment: int) -> bool:
        """Whether no instance was up when a moment came."""
        return self.timeline.start_of(moment) < self._up_since

    @property
    def runs_for_schedule(self) -> bool:
        """Whether a run goes on here that nobody has asked for: one of the schedule, or its rescue."""
        return any(claim.fire.requested is None for claim in self.open)

    def free(self) -> frozenset[int]:
        """Return the items that run nowhere, wait for no rescuer, and are not switched off."""
        free = [number for number, item in self.items.items() if self._is_free(number, item)]
        return frozenset(free) or NONE

    @property
    def all_run(self) -> bool:
        """Whether all items that this instance holds run here, so that nothing can be claimed before one has ended."""
        return self.held <= self._busy.keys()

    def _is_free(self, number: int, item: Item) -> bool:
        return item.is_free and number not in self._busy and number not in self._off

    def blocked_by_hand(self) -> list[int]:
        """Return the items whose locks somebody has made by hand, in their order."""
        return sorted(number for number, item in self.items.items() if item.lock is Lock.BY_HAND)

    def due(self) -> Due:
        """Return the items that this instance can claim now for the newest moment."""
        due = Due()
        newest = self.timeline.newest if self._is_settled else 0
        for number, item in self.items.items():
            if item.accounted < newest and self._is_free(number, item):
                match self._fate(number, item, newest):
                    case Newest.RUN:
                        due.on_time.append(number)
                    case Newest.LATE:
                        due.late.append(number)
        return due

    def due_soon(self, moment: int) -> frozenset[int]:
        """Return the items that this instance can claim ahead for a moment that has yet to come."""
        if not self._is_settled or self.timeline.lacks_calendar(moment):
            return NONE
        soon = [number for number, item in self.items.items() if item.accounted < moment and item.is_free]
        if self._obstructed:
            soon = [number for number in soon if moment > self._obstructed.get(number, 0)]
        if self._off or self._busy:
            soon = [number for number in soon if number not in self._off and number not in self._busy]
        if len(soon) == len(self.held):
            return self.held  # the same object for each fire
        return frozenset(soon)

    # Facts.

    def see(self, view: JobView) -> Steps[None]:
        """Apply a view, and account for the moments of which none is run.

        If the registry refuses a command, its error ends this generator, and the driver calls this method again later.
        """
        self._notice(view)
        if view is not self._looked_at or self._unread:
            yield from self._take_in(view)
        self.timeline.advance(self.clock.now)
        self._say_what_is_ahead()
        self.notice_what_is_off(view)
        yield from self._account(view)

    def notice_what_is_off(self, view: JobView) -> None:
        """Note which items are switched off now: their moments are excused.

        The nodes below a server have no date here, so this is called also while a run goes on.  Nothing tells when a
        switch was taken away, so what was off in the view before counts as off until this one came.
        """
        self._notice(view)
        now = self.clock.now
        if view.tree.outdated or self.clock.was_away(now):
            return
        self._noticed_at = now
        if (ended := view.ended_pause(self._me)) is not None:
            self._notice_ended(ended)
        self._note_off(view, self.clock.heard)

    def _notice(self, view: JobView) -> None:
        """Note up to when the view before is known to have held, if this is a newer one."""
        if (before := self._noticed) is view:
            return
        until = self._known_until()
        self._note_off(before, until)
        if before is self._looked_at:
            self._looked_last = max(self._looked_last, until)
        self._noticed = view
        self._noticed_at = until

    def _known_until(self) -> int:
        """Return up to when the view that was noticed last is known to have held."""
        outages = [began for began, _ in self.clock.outages() if began >= self._noticed_at]
        return min(self.clock.heard, *outages) if outages else self.clock.heard

    def _note_off(self, view: JobView, until: int) -> None:
        """Note which items were switched off in a view that is known to have held until then."""
        if self._me in view.active and not view.disabled_items:
            return
        if view.pause_ends_at != inf:  # the moment at which it ends is run, also if the view is a little older
            until = min(until, round(view.pause_ends_at * 1000) - 1)
        for number in self.held:
            known = self._off.get(number)
            since = view.switched_off_at(number, self._me, until)
            if since is None:
                continue
            if known is None:
                self._off[number] = Off(min(since, until), until)
            else:
                self._off[number] = Off(known.since, max(known.until, until))

    def _notice_ended(self, pause: Pause) -> None:
        """Note that a pause has ended by itself: moments before its end are excused, also if this process was away."""
        last = round(pause.until * 1000) - 1
        for number, item in self.items.items():
            if self.timeline.has_moment(item.accounted, last):
                seen = self._off.get(number) or Off(int(pause.since * 1000), last)
                self._off[number] = Off(seen.since, max(seen.until, last))

    def released(self, item: int) -> None:
        """Note that an item's run on another instance has ended, or that its lock is gone: its record is read again."""
        self._followed.discard(item)
        self._unread.add(item)

    def read_again(self, items: Iterable[int]) -> None:
        """Note that the records of items may have changed."""
        self._unread.update(self.held.intersection(items))

    def note_obstructed(self, items: Iterable[int], moment: int) -> None:
        """Note that nodes which somebody made by hand kept items from being claimed for a moment."""
        self._obstructed |= dict.fromkeys(self.held.intersection(items), moment)

    def claim(self, view: JobView, fire: Fire, found: Mapping[int, Item]) -> tuple[ClaimItems, dict[int, Closing]]:
        """Return the command that claims items, and what is reported of each item once it is claimed.

        The claim of a scheduled moment accounts for all moments up to it.  Except for a rescue, a claim settles what
        has ended here.
        """
        begins = self.clock.now
        next_fire = self.timeline.upcoming or 0
        if fire.slot == next_fire and fire.source is FireSource.SCHEDULE:  # the moment is still to come
            begins = fire.start
            next_fire = self.timeline.following()
        newest = Newest.LATE if fire.source is FireSource.MISFIRE else Newest.RUN
        is_scheduled = fire.source in SCHEDULED
        promised = dict[int, Closing]()
        wanted = dict[int, Record]()
        for number, item in found.items():
            missed = self._missed(number, item, fire.slot - 1, view) if is_scheduled else []
            accounted = fire.slot if is_scheduled else item.accounted
            owing, gone = self._promises(item, missed, view)
            ends = self._ends(item.record, view, *_missed_ends(missed, begins))
            record = begun(item.record, fire, self._me, begins, next_fire, accounted, owing, ends)
            wanted[number] = record
            if missed or gone:
                promised[number] = Closing(record, tuple(missed), newest, given_up=gone)
        before = {number: item.seen for number, item in found.items()}
        settling = dict[int, EndedItem]()
        if fire.source is not FireSource.FAILOVER:
            settling, self.unsettled = self.unsettled, settling
        return ClaimItems(view, fire, before, wanted, settling), promised

    def claimed(self, claim: Claim, promised: Mapping[int, Closing]) -> None:
        """Note what a claim has written, and report what it has promised.

        Its items run from now on.  ``ended`` is called once they are settled or given back.
        """
        self.open = (*self.open, claim)
        self._busy |= dict.fromkeys(claim.items, claim)
        for number, seen in claim.items.items():
            self._obstructed.pop(number, None)
            if (item := self.items.get(number)) is not None:
                self.items[number] = claimed(item, seen) if claim.is_recorded else settled(item, seen)
        if promised:
            self._report({number: one for number, one in promised.items() if number in claim.items})

    def item_ended(self, number: int, ended: EndedItem) -> None:
        """Note that the run of an item has ended, while others of its claim may go on.

        A run without records needs no settlement.
        """
        del self._busy[number]
        if ended.claim.is_recorded:
            self.unsettled[number] = ended
        if (item := self.items.get(number)) is not None:
            self.items[number] = settled(item, ended.written())

    def to_settle(self, view: JobView, soon: int) -> frozenset[int]:
        """Return the items whose ended runs are settled without waiting for their next claim.

        Another instance holds them now, they are switched off, or this instance leaves: nobody claims them here.  Or
        all runs of their claim have ended, and no moment has come, or comes until ``soon``, for which they are claimed.
        """
        if not view.assignment_stands or self._me not in view.active:
            return frozenset(self.unsettled)
        until = self.timeline.has_come(soon)
        return frozenset([number for number in self.unsettled if not self._settlement_waits(number, until)])

    def _settlement_waits(self, number: int, until: int) -> bool:
        """Whether the settlement of an item that has ended waits for others, or for the claim of a moment."""
        item = self.items.get(number)
        if item is None or not self._is_free(number, item):
            return False
        claim = self.unsettled[number].claim
        others_go_on = any(one is claim for one in self.open)
        return others_go_on or self.timeline.has_moment(item.accounted, until)

    def take_unsettled(self, numbers: Collection[int]) -> dict[int, EndedItem]:
        """Return some items whose runs have ended; the caller settles them."""
        return {number: self.unsettled.pop(number) for number in sorted(numbers)}

    def begin_to_settle(self, ended: Mapping[int, EndedItem]) -> list[tuple[Claim, dict[int, VersionedRecord]]]:
        """Note that items are being settled: until ``ended`` is called they are busy.

        Return those of each claim as a claim of their own, with the records to write.
        """
        parts = list[tuple[Claim, dict[int, VersionedRecord]]]()
        left = dict(ended)
        while left:
            claim = next(iter(left.values())).claim
            records = {number: one.record for number, one in left.items() if one.claim is claim}
            left = {number: one for number, one in left.items() if one.claim is not claim}
            part = replace(claim, items={number: claim.items[number] for number in records})
            parts.append((part, records))
            self.open = (*self.open, part)
            self._busy |= dict.fromkeys(records, part)
        return parts

    def settled_with_claim(self, ended: Mapping[int, EndedItem], claim: Claim) -> None:
        """Note that items were settled in the transaction that has claimed others, or the same again."""
        zxid = next(iter(claim.items.values())).zxid
        for number, one in ended.items():
            if (item := self.items.get(number)) is not None:
                self.items[number] = settled(item, one.written(zxid))

    def ended(self, written: Mapping[int, VersionedRecord], claim: Claim) -> None:
        """Note what the settlement of a claim has written; items that it has not settled are read again.

        Items that had ended before are settled apart, and may run again.
        """
        self.open = tuple([one for one in self.open if one is not claim])
        for number in claim.items:
            if self._busy.get(number) is not claim:
                continue
            del self._busy[number]
            item = self.items.get(number)
            if item is None:
                continue
            if number in written:
                self.items[number] = settled(item, written[number])
            else:
                self._unread.add(number)

    def waits_for_runs(self, view: JobView) -> bool:
        """Whether a view is applied only once the runs here have ended, because it switches records on or off.

        What is known of the items is forgotten then, and a run that goes on would be forgotten with it.
        """
        has_runs = bool(self.open or self.unsettled)
        return has_runs and (self._switched_at(view) is not None or self._switches_records(view))

    def refuse(self, why: ElasticJobError) -> None:
        """Report that this instance refuses a fire."""
        self.reports.append(SayRefused(why, again=self._refuses))
        self._refuses = True

    def accept(self) -> None:
        """Note that this instance runs fires again."""
        self._refuses = False

    def refuse_due(self, view: JobView, items: Iterable[int], why: ElasticJobError) -> Steps[None]:
        """Account for the newest moment of items without a run: it is refused, and older moments are missed.

        That the fire is refused is promised as well: if this instance is gone before it can say so, the next one who
        writes the record reports the moment.
        """
        newest = self.timeline.newest
        refused = Owing(self._me, self.clock.now, newest, newest, 1, reasons.CLOCK)
        closings = dict[int, Closing]()
        for number in items:
            item = self.items[number]
            missed = self._missed(number, item, newest - 1, view)
            ends = _missed_ends(missed, self.clock.now)
            ends.append(End(newest, newest, MISSED, self.clock.now))
            closings[number] = self._closing(item, item.record, newest, missed, view, refused, ends=ends)
        if (yield from self._write(view, closings)):
            self.refuse(why)

    def leave(self, view: JobView) -> Steps[None]:
        """Write what only this process knows before the instance leaves: what it saw switched off, and has reported."""
        if not self._is_recorded:
            return
        held = {
            number: item
            for number, item in self.items.items()
            if item.lock is Lock.FREE and view.assignment.get(number) == self._me
        }
        excused = dict[int, Closing]()
        for number, item in held.items():
            off = self._off.get(number)
            if off is not None and self.timeline.has_moment(item.accounted, self.timeline.has_come(off.until)):
                excused[number] = self._excuse(number, item, off, view)
        if excused and not (yield from self._write(view, excused)):
            return
        kept = dict[int, Closing]()
        for number in held.keys() - self._unread:
            record = self.items[number].record
            left = tuple([one for one in record.owing if one.by != self._me])
            if left != record.owing:  # these reports were made before this is written
                kept[number] = Closing(replace(record, owing=left))
        if kept:
            yield from self._write(view, kept)

    def report(
        self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "", *, handled: bool = False
    ) -> None:
        """Report moments that need not be in the schedule, or a run that was cut off."""
        if concerned := tuple(sorted(items)):
            self.reports.append(Report(concerned, passed, why, cut_off, handled))

    def report_lost(self, lost: Mapping[int, Record], why: str) -> None:
        """Report runs that were cut off, and that nobody runs again: those of one moment and instance together."""
        together = dict[tuple[int, str], list[int]]()
        for number, record in lost.items():
            together.setdefault((record.moment, record.instance), []).append(number)
        for (moment, instance), items in sorted(together.items()):
            self.report(items, Passed(moment, moment), why, instance)

    # How a view is applied.

    def _take_in(self, view: JobView) -> Steps[None]:
        """Apply a view: forget the items that were lost, and read those that were gained or may have changed."""
        before = self._looked_at
        self.view = view
        given = view.given_to(self._me)
        for number, item in list(self.items.items()):
            if given.get(number) != item.given:
                del self.items[number]
                self._off.pop(number, None)
        is_recorded = view.schedules.periods[-1].recorded
        switched_at = self._switched_at(view)
        if switched_at is not None:  # maybe on and off again, since the last look
            yield from self._report_before_switch(view, given, switched_at)
        if switched_at is not None or self._switches_records(view):
            self._known = {number: item.accounted for number, item in self.items.items()}
            self._is_recorded = is_recorded
            self.items.clear()
            self._off.clear()
        schedule = view.layout.schedule
        config = view.layout.config
        has_changed = before is None or any(before.tree.get(path) != view.tree.get(path) for path in (schedule, config))
        if has_changed or view.upstreams is not None:
            self.timeline = Timeline.of(view.schedules, self.clock.now, view.upstreams)
        if before is not None and before.instances is not view.instances:
            gone = before.instances.keys() - view.instances.keys()
            self._seen_until |= dict.fromkeys(gone, self.clock.now)
        yield from self._learn(view, given)
        self._unread.clear()
        self.held = self.held if self.held == self.items.keys() else frozenset(self.items) or NONE
        self._looked_at = view
        self._looked_last = self.clock.now
        followed = frozenset([n for n, one in self.items.items() if self._is_to_be_followed(n, one, view)])
        if new := followed - self._followed:
            self._followed |= new
            yield FollowReleases(new)

    def _switched_at(self, view: JobView) -> int | None:
        """Return when records were first switched on or off since the last look; None if they were not."""
        return view.schedules.replaced_at(self.timeline.followed_since, self._is_recorded)

    def _switches_records(self, view: JobView) -> bool:
        return view.schedules.periods[-1].recorded is not self._is_recorded

    def _report_before_switch(self, view: JobView, given: Mapping[int, int], switched_at: int) -> Steps[None]:
        """Report what items owe because records are switched on or off: afterwards nothing shows it.

        Another instance that still runs an item does not hold it, so it does not report what came during its run.  An
        item may have been given to this instance before the switch, when it was too busy to look.
        """
        held = {number: given_by for number, given_by in given.items() if view.given_at(number) <= switched_at}
        yield from self._learn(view, held)
        until = self.timeline.has_come(min(self.clock.now, switched_at))
        closings = dict[int, Closing]()
        for number, item in self.items.items():
            if number not in self._off:
                missed = tuple(self._missed(number, item, until, view))
                closings[number] = Closing(item.record, missed)
        self._report(closings)

    def _learn(self, view: JobView, given: Mapping[int, int]) -> Steps[None]:
        """Read those of the given items that are not known yet, or whose records may have changed."""
        before = self._looked_at
        unread = frozenset(given) - self.items.keys() | (self._unread | self._in_doubt(view)).intersection(given)
        if unread and self._is_recorded:
            yield from self._read(view, unread, given)
        elif unread:
            yield ReadItems(unread, are_recorded=False)
            seen = {} if before is None else before.given_to(self._me)
            for number in unread:
                given_at = view.given_at(number)
                if seen.get(number) != given[number]:
                    given_at = self._since_last_look(given_at)
                given_at = self.timeline.has_come(min(self.clock.now, given_at))
                accounted = max(self._known.pop(number, 0), given_at)
                self.items[number] = assumed(given[number], accounted)

    def _in_doubt(self, view: JobView) -> frozenset[int]:
        """Return the items whose run was cut off, and which are not being rescued: maybe they have been rescued."""
        if not (self._is_recorded and view.config.failover):
            return NONE
        cut_off = frozenset([number for number, item in self.items.items() if item.is_cut_off]) or NONE
        return cut_off - view.orphans - view.rescues.keys() if cut_off else NONE

    def _read(self, view: JobView, unread: frozenset[int], given: Mapping[int, int]) -> Steps[None]:
        before = self._looked_at
        found = yield ReadItems(unread)
        for number, one in found.items():
            made_at, made_by = view.made_at(number), view.made_by(number)
            if before is not None and before.made_by(number) != made_by:
                made_at = self._since_last_look(made_at)
            known = self._known.pop(number, 0)
            self.items[number] = learned(one, given[number], self.timeline.has_come(made_at), made_by, known)
        self._unchecked.update(found)

    def _since_last_look(self, date: int) -> int:
        """Return the date of something that this process has not seen before; the time of the last look if it is wrong.

        A date that is more than a minute older than the last look was written by a clock that was behind.
        """
        last = min(self._looked_last, self.clock.now)
        return date if date > last - MAX_FUTURE else last

    def _say_what_is_ahead(self) -> None:
        """Say, once the clock is steady, which items are accounted for up to a time that has yet to come."""
        now = self.clock.now
        items = self.items
        if self.clock.unsteady:
            self._unchecked.update(items)
        elif self._unchecked:
            accounted = {number: items[number].accounted for number in self._unchecked if number in items}
            ahead = {number: until for number, until in accounted.items() if now + AHEAD < until <= now + MAX_FUTURE}
            self._unchecked.clear()
            if ahead:
                self.reports.append(SayAhead(tuple(sorted(ahead)), max(ahead.values())))

    def _is_to_be_followed(self, number: int, item: Item, view: JobView) -> bool:
        """Whether no view will show that an item is free: another instance runs it, or the leader will end its run."""
        if number in self._busy or number in self.unsettled:
            return False
        if item.lock is not Lock.FREE:
            return number not in view.rescues
        return view.config.failover and item.is_cut_off and bool(ended_as(view, number, item.record, item.seen.zxid))

    # What is accounted for without a run.

    def _account(self, view: JobView) -> Steps[None]:
        """Write up to where items are accounted for of which no moment is run, and report what they have missed."""
        if not (view.assignment_stands and self._is_settled and self._me in view.instances):
            return
        for _ in range(ATTEMPTS):
            closings = self._closings(view)
            if not closings or not (yield from self._write(view, closings)):
                return
            if self._unread:
                yield from self._take_in(view)

    def _write(self, view: JobView, closings: Mapping[int, Closing]) -> Steps[bool]:
        """Write records, and report what they promise; the result is False if the view is outdated."""
        if self._is_recorded:
            records = {number: (self.items[number].seen, one.record) for number, one in closings.items()}
            written: Mapping[int, VersionedRecord] | None = yield WriteAccounts(view, records)
            if written is None:
                return False
        else:
            written = {number: VersionedRecord(one.record, None) for number, one in closings.items()}
        for number, seen in written.items():
            self.items[number] = reported(self.items[number], seen)
        self._unread.update(closings.keys() - written.keys())
        self._report({number: closings[number] for number in written})
        return True

    def _closings(self, view: JobView) -> dict[int, Closing]:
        """Return what is to be written of each item of which no moment is run now."""
        closings = dict[int, Closing]()
        newest = self.timeline.newest
        for number, item in self.items.items():
            if item.lock is not Lock.FREE or number in self._busy or number in self.unsettled:
                continue  # until it is free, only its runner writes the record
            record = item.record
            if is_cut_off(record):
                if not view.config.failover:
                    closings[number] = self._end_lost(item, view)
            elif item.accounted > self.clock.now + MAX_FUTURE and not self.clock.unsteady:
                now = self.timeline.has_come(self.clock.now)
                closing = self._closing(item, replace(record, ends=up_to(record.ends, now)), now, [], view)
                closings[number] = replace(closing, lowered_from=item.accounted)
            elif view.is_followed and not record.ends and self._is_recorded:
                begins = End(item.accounted, item.accounted, BEGINS, self.clock.now)
                closings[number] = self._closing(item, record, item.accounted, [], view, ends=[begins])
            elif (excused := self._of_one_off(number, item, view)) is not None:
                closings[number] = excused
            elif number in self._off:
                continue
            elif item.accounted < newest and self._me in view.active:
                if self._fate(number, item, newest) is Newest.MISSED:
                    missed = self._missed(number, item, newest, view)
                    closings[number] = self._closing(item, record, newest, missed, view)
            elif record.owing and left_by_the_gone(record, self._me, view.instances, self._seen_until):
                closings[number] = self._closing(item, record, item.accounted, [], view)
        return closings

    def _of_one_off(self, number: int, item: Item, view: JobView) -> Closing | None:
        """Return what is to be written of an item that is, or was, switched off; None if there is nothing."""
        if (off := self._off.get(number)) is None:
            return None
        if view.switched_off_at(number, self._me, off.since) is not None:
            since = self.timeline.has_come(off.since)
            if not self.timeline.has_moment(item.accounted, since):
                return self._excuse_for_followers(number, item, off, view)
            missed = self._missed(number, item, since, view)
            return self._closing(item, item.record, since, missed, view)
        if self.timeline.has_moment(item.accounted, self.timeline.has_come(off.until)):
            return self._excuse(number, item, off, view)
        del self._off[number]
        return None

    def _excuse_for_followers(self, number: int, item: Item, off: Off, view: JobView) -> Closing | None:
        """Return a record that excuses what has come so far: followers do not wait until the item is on again."""
        has_come = self.timeline.has_come(off.until)
        if view.is_followed and item.record.ends and self.timeline.has_moment(item.accounted, has_come):
            return self._excuse(number, item, off, view)
        return None

    def _excuse(self, number: int, item: Item, off: Off, view: JobView) -> Closing:
        """Return a record that excuses what came while this process saw an item switched off."""
        since = self.timeline.has_come(off.since)
        until = self.timeline.has_come(off.until)
        missed = self._missed(number, item, since, view)
        ends = _missed_ends(missed, self.clock.now)
        ends += [
            End(passed.first, passed.last, OFF, self.clock.now)
            for passed in self.timeline.passed(max(item.accounted, since), until)
        ]
        return self._closing(item, item.record, until, missed, view, ends=ends)

    def _end_lost(self, item: Item, view: JobView) -> Closing:
        """Return a record that ends a run which was cut off and is not rescued: its holder reports it once."""
        record = ended_by_others(item.record, Outcome.CANCELLED.value, item.record.completed_at)
        moment = item.record.moment
        lost = Owing(self._me, self.clock.now, moment, moment, 1, reasons.CUT_OFF, item.record.instance)
        return replace(self._closing(item, record, item.accounted, [], view, lost), lost=item.record)

    def _closing(
        self,
        item: Item,
        record: Record,
        accounted: int,
        missed: Collection[Missed],
        view: JobView,
        *more: Owing,
        ends: Sequence[End] | None = None,
    ) -> Closing:
        """Return a record that accounts for moments, and promises their reports, those of the gone, and maybe more.

        ``ends`` say how the item has ended these moments, for followers; by default it has missed them.
        """
        owing, gone = self._promises(item, missed, view)
        newer = _missed_ends(missed, self.clock.now) if ends is None else ends
        all_ends = self._ends(record, view, *newer)
        promising = replace(record, accounted=accounted, owing=(*owing, *more), ends=all_ends)
        return Closing(promising, tuple(missed), given_up=gone)

    def _ends(self, record: Record, view: JobView, *newer: End) -> tuple[End, ...]:
        """Return the ends of an item with newer ones; none if nobody follows the job.

        They begin with the time up to which the item is accounted for.
        """
        if not view.is_followed:
            return ()
        begins = bool(newer) and newer[0].outcome == BEGINS
        return with_end(record.ends, *newer) if record.ends or begins else ()

    def _promises(
        self, item: Item, missed: Collection[Missed], view: JobView
    ) -> tuple[tuple[Owing, ...], tuple[Owing, ...]]:
        """Return the reports that the next record of an item promises, and those of them that the gone have left."""
        if not missed and not item.record.owing:
            return (), ()
        me = self._me
        now = self.clock.now
        gone = left_by_the_gone(item.record, me, view.instances, self._seen_until)
        others = promised_by_others(item.record, me, view.instances, now)
        owing = [Owing(me, now, one.passed.first, one.passed.last, one.passed.count, one.why) for one in missed]
        taken_over = [replace(one, by=me, at=now) for one in gone]
        return (*others, *owing, *taken_over), gone

    def _missed(self, number: int, item: Item, until: int, view: JobView) -> list[Missed]:
        """Return the moments up to a time that an item has missed, with their reasons."""
        if not self.timeline.has_moment(item.accounted, until):
            return []
        why = reasons.OBSTRUCTED if number in self._obstructed else reasons.HELD_UP
        causes = self._causes(number, item, view)
        return reasons.explained(self.timeline, item.accounted, until, causes, why, item.open_moment)

    def _causes(self, number: int, item: Item, view: JobView) -> list[Cause]:
        """Return why moments of an item may have passed without a run; the first cause of a moment is its reason."""
        clock = self.clock
        record = item.record
        spans = (
            (reasons.SKIPPED, clock.skipped),
            (reasons.AWAY, clock.outages()),
            (reasons.REFUSED, clock.spans(self.refusals)),
        )
        hindrances = [Cause(*one) for one in self.timeline.hindrances(self.timeline.newest)]
        causes = list[Cause]()
        for one in self.timeline.lacking:
            assert one.schedule is not None
            why = reasons.NO_CALENDAR.format(", ".join(one.schedule.missing_calendars))
            causes.append(Cause(one.since + 1, one.until, why))
        causes += [Cause(began, ended, why) for why, found in spans for began, ended in found]
        causes += reasons.of_last_run(record)
        causes.append(Cause(0, self._up_since - 1, reasons.NO_INSTANCE_UP))
        causes += [Cause(one.since + 1, one.until, reasons.ENDED) for one in self.timeline.replaced]
        last = record.instance
        if not last or last in view.instances:
            before = reasons.BLOCKED
        elif last in self._past.instances:
            before = reasons.OURS
        else:
            before = reasons.GONE.format(last)
        causes.append(Cause(0, view.given_at(number), before))
        causes.append(Cause(0, view.assigned_at, reasons.UNSETTLED))
        if record.asked:  # the item was busy with that run, or already with the one before
            causes.append(Cause(0, record.completed_at, reasons.BUSY))
        return hindrances + [self._of_moments(one) for one in causes]

    def _of_moments(self, cause: Cause) -> Cause:
        """Return a cause with the moments that have come in its time."""
        has_come = self.timeline.has_come
        return Cause(has_come(cause.began - 1) + 1, has_come(cause.ended), cause.why)

    def _fate(self, number: int, item: Item, moment: int) -> Newest:
        """Return what happens to the newest moment of an item that is free and not switched off."""
        config = self.view.config
        if moment == item.open_moment:
            return Newest.RUN
        if moment <= self._obstructed.get(number, 0) or self.timeline.lacks_calendar(moment):
            return Newest.MISSED
        if self.timeline.hindrance(moment):
            return Newest.MISSED
        if self.is_catch_up(moment):
            is_recent = self.timeline.start_of(moment) > self.clock.now - config.catch_up * 1000
            return Newest.RUN if is_recent else Newest.MISSED
        record = item.record
        came = self.timeline.start_of(moment)
        if record.asked and record.completed and came < record.begun:
            # without ``misfire``, this method was asked before the request was answered, so the moment came on time
            return Newest.LATE if config.misfire else Newest.RUN
        was_busy = record.completed and record.begun <= came <= record.completed_at
        if was_busy and self.timeline.came_by(moment) > item.seen.zxid > 0:  # hosts' clocks differ, transactions do not
            was_busy = False
        if was_busy or self.clock.was_away(came):
            return Newest.LATE if config.misfire else Newest.MISSED
        return Newest.RUN

    @property
    def _is_settled(self) -> bool:
        """Whether the leader has noted whether runs are recorded.

        Until then nobody knows which moments count: as long as the note says otherwise than the configuration, it has
        moments that were run and of which there are no records.  A configuration that nobody can use is never noted.
        """
        is_noted = self.timeline.is_recorded is self.view.config.monitor_execution
        return is_noted or self.view.unusable is not None

    @property
    def _up_since(self) -> int:
        """Since when an instance has always been up."""
        up_since = min(self.view.up_since, self._past.since) * 1000
        return int(min(up_since, self.clock.now))

    # What is reported.

    def _report(self, closings: Mapping[int, Closing]) -> None:
        """Report what was written: the same moments of several items together."""
        together = dict[tuple[Missed, Newest], list[int]]()
        for number, closing in closings.items():
            for missed in closing.missed:
                together.setdefault((missed, closing.newest), []).append(number)
            if closing.lowered_from:
                self.reports.append(SayLowered(number, closing.lowered_from, closing.record.accounted))
            for one in closing.given_up:
                passed = Passed(one.first, one.last, one.count)
                self.report([number], passed, one.why, one.cut_off)
        for (missed, newest), items in together.items():
            self.reports.append(Report(tuple(sorted(items)), missed.passed, missed.why, newest=newest))
        lost = {number: closing.lost for number, closing in closings.items() if closing.lost is not None}
        self.report_lost(lost, reasons.CUT_OFF)


def _missed_ends(missed: Iterable[Missed], now: int) -> list[End]:
    """Return the ends of moments that an item has missed, for followers."""
    return [End(one.passed.first, one.passed.last, MISSED, now) for one in missed]
