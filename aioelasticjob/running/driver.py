"""Performs the commands of ``JobState``, and passes it the facts: answers of the registry, and clock readings."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from math import inf

from aioelasticjob.clock import Clock, moment
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.missed_marks import mark_missed_moments
from aioelasticjob.coordination.progress import Offsets
from aioelasticjob.coordination.record_cache import RecordCache
from aioelasticjob.coordination.unmonitored import advance_accounted, read_accounted
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import ClockSkew, RegistryError, SessionEnded, Suspended
from aioelasticjob.events import Events, Misfired
from aioelasticjob.model import Fire, Record
from aioelasticjob.running.clock_skew import Reading
from aioelasticjob.running.commands import (
    Command,
    MarkMissed,
    ReadAccounted,
    ReadItems,
    Report,
    SayLowered,
    WriteAccounted,
)
from aioelasticjob.running.limited_log import LimitedLog
from aioelasticjob.running.schedule import STEPS, Passed
from aioelasticjob.running.state import Items
from aioelasticjob.running.step import JobState

log = logging.getLogger(__name__)


class StateDriver(JobState):
    """Adds to ``JobState`` the I/O that performs its commands.  This class decides nothing.

    It has more than twelve methods: each fact that makes commands is a method here, too.
    """

    def __init__(
        self,
        member: Member,
        view: JobView,
        clock: Clock,
        events: Events,
        limited_log: LimitedLog,
        up_since: float,
        items: Items,
    ) -> None:
        super().__init__(member.id, view, Reading.of(member.session, clock), up_since, items)
        self._member, self._wall, self._events = member, clock, events
        self._log = limited_log
        self.cache, self.offsets = RecordCache(member, self._believable, items), Offsets(member)

    def now(self) -> int:
        """Read the clocks, and return the time that the job uses, in milliseconds."""
        return self.clock.take(Reading.of(self._member.session, self._wall))

    def intolerable_skew(self) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return self.clock.intolerable(self.config)

    @property
    def unsteady(self) -> float:
        """Return after how many seconds to call ``look`` again because the time was set; infinity if it was not."""
        wait = self.steady_in
        return max(wait, 0.01) if wait else inf  # at least 10 ms: a rounded timer may fire before the time is steady

    async def look(self, view: JobView) -> frozenset[int]:
        """Apply a view (schedule, items gained and lost, what is disabled), and compute which moments are due.

        Return the items that, as this view is the first to show, run on another instance.  No view will show the end of
        those runs, so the caller waits for it and calls ``released``.

        Raises:
            RegistryError: something could not be read or written.  The next call does what is left.
        """
        self.now()
        self.see(view)
        while self.commands:
            await self._perform(self.commands.pop(0))
        return self.begun_elsewhere

    def collapse(self, view: JobView, *, rerun: bool) -> None:
        """See ``JobState.collapse``."""
        self.now()
        super().collapse(view, rerun=rerun)
        self._say_all()

    def runs_elsewhere(self, items: Collection[int], fire: Fire) -> None:
        """See ``JobState.runs_elsewhere``."""
        self.now()
        super().runs_elsewhere(items, fire)
        self._say_all()

    def is_obstructed(self, items: Collection[int], fire: Fire) -> None:
        """See ``JobState.is_obstructed``."""
        self.now()
        super().is_obstructed(items, fire)
        self._say_all()

    def reach(self, moment: int) -> None:
        """See ``JobState.reach``.  The caller has just read the clocks."""
        super().reach(moment)
        self._say_all()

    def released(self, item: int) -> None:
        """See ``JobState.released``."""
        self.now()
        super().released(item)
        self._say_all()

    def report(self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "") -> None:
        """Report moments that need not be in the schedule, or another instance's run that was cut off."""
        self.missed.put(items, passed, why, cut_off)
        self._say_all()

    def report_lost_runs(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and that nobody rescues, each once."""
        self.missed.report_lost_runs(cut_off)
        self._say_all()

    async def _perform(self, command: Command) -> None:
        member = self._member
        match command:
            case ReadItems():
                running = frozenset(await self.cache.learn(command.records))
                await self.offsets.learn(command.offsets)
                self.now()
                command.then(running)
            case MarkMissed():
                marked = await mark_missed_moments(member, self.cache, command.view, command.said)
                self.now()
                command.then(marked)
            case ReadAccounted():
                known = await read_accounted(member)
                self.now()
                command.then(known)
            case WriteAccounted():
                written: bool | None
                try:
                    written = await advance_accounted(member, command.view, command.until, command.version)
                except (Suspended, SessionEnded):
                    raise
                except RegistryError:
                    written = None
                self.now()
                command.then(written)
            case _:
                self._say(command)

    def _say_all(self) -> None:
        """Perform commands that only write reports: a fact between two views causes no other commands."""
        while self.commands:
            command = self.commands.pop(0)
            assert isinstance(command, Report | SayLowered)
            self._say(command)

    def _say(self, command: Report | SayLowered) -> None:
        if isinstance(command, Report):
            self._report_missed(command)
        else:
            self._say_lowered(command)

    def _report_missed(self, report: Report) -> None:
        """Report missed moments with an event, a count and a line in the log."""
        job, slot, moments = self._member.layout.job, report.passed.last, report.passed.count
        ran_on = f"; it ran on {report.cut_off}" if report.cut_off not in report.why else ""
        message = f"{_items(report.items)} missed {_moments(report.passed)}: {report.why}{ran_on}"
        self._log.warning(log, job, report.why, message, slot=slot, items=report.items, moments=moments)
        self._events.counts[job].misfired += moments * len(report.items)
        me, first, now = self._member.id, report.passed.first, self._wall.now()
        self._events.put(Misfired(job, me, first, slot, report.items, moments, report.why, report.cut_off, now))

    def _say_lowered(self, lowered: SayLowered) -> None:
        claimed, since = (moment(one / 1000).isoformat(timespec="seconds") for one in (lowered.slot, lowered.since))
        log.warning(
            "%s: item %d is claimed up to %s, though it was only %s just now: the registry's clock was ahead.  The "
            "item counts as claimed up to now; the moment claimed is not run again, others up to it may run twice",
            *(self._member.layout.job, lowered.item, claimed, since),
            extra={"job": self._member.layout.job, "item": lowered.item, "slot": lowered.slot},
        )

    def _believable(self) -> float:
        """Return up to which moment records can be believed, in milliseconds."""
        self.now()
        return self.clock.believable()


def _items(items: tuple[int, ...]) -> str:
    """Return item numbers as text; if there are more than ten, only the first and the last."""
    if len(items) > 10:
        return f"{len(items)} items ({items[0]} to {items[-1]})"
    return f"item{'s' if len(items) > 1 else ''} {', '.join(map(str, items))}"


def _moments(passed: Passed) -> str:
    """Return missed moments as text."""
    first, last = (moment(one / 1000).isoformat(timespec="seconds") for one in (passed.first, passed.last))
    if passed.count == 1:
        return f"the run of {last}"
    at_least = "at least " if passed.count >= STEPS else ""
    return f"{at_least}{passed.count} runs ({first} to {last})"
