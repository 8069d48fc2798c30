"""Performs the commands of ``JobState``, and passes it the facts: answers of the registry, and clock readings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from math import inf

from aioelasticjob.clock import Clock
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.missed_marks import mark_missed_moments
from aioelasticjob.coordination.progress import Offsets
from aioelasticjob.coordination.record_cache import RecordCache
from aioelasticjob.coordination.unmonitored import advance_accounted, read_accounted
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import ClockSkew, RegistryError, SessionEnded, Suspended
from aioelasticjob.model import NONE, Fire, Record
from aioelasticjob.running.clock_skew import Reading
from aioelasticjob.running.commands import (
    Command,
    MarkMissed,
    ReadAccounted,
    ReadItems,
    Report,
    SayLowered,
    Steps,
    WriteAccounted,
)
from aioelasticjob.running.missed_reports import MissedReports
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.state import Items
from aioelasticjob.running.step import JobState


class StateDriver(JobState):
    """Adds to ``JobState`` the I/O that performs its commands.  This class decides nothing.

    It has more than twelve methods: each fact that makes reports is a method here, too.
    """

    def __init__(
        self, member: Member, view: JobView, clock: Clock, reports: MissedReports, up_since: float, items: Items
    ) -> None:
        super().__init__(member.id, view, Reading.of(member.session, clock), up_since, items)
        self._member, self._wall, self._missed_reports = member, clock, reports
        self.cache, self.offsets = RecordCache(member, self._believable, items), Offsets(member)

    def now(self) -> int:
        """Read the clocks, and return the time that the job uses, in milliseconds."""
        host = self._wall.now()
        return self.clock.take(Reading(host, *self._member.session.compare_clocks(host)))

    def intolerable_skew(self) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return self.clock.intolerable(self.view.config)

    @property
    def steady_in(self) -> float:
        """Seconds after which to call ``look`` again because the time was set; infinity if it was not."""
        wait = self.clock.unsteady if self.has_future_records or self.clock.may_be_set_back else 0.0
        return max(wait, 0.01) if wait else inf  # at least 10 ms: a rounded timer may fire before the time is steady

    async def look(self, view: JobView) -> frozenset[int]:
        """Apply a view (schedule, items gained and lost, what is disabled), and compute which moments are due.

        Return the items that this view is the first to show to run on another instance.  No view will show the end of
        those runs, so the caller waits for it and calls ``released``.

        Raises:
            RegistryError: something could not be read or written.  The next call does what is left.
        """
        self.now()
        if self.only_time_has_passed(view):
            self.has_future_records = False
            self.see_what_is_due(view)
        else:
            await self._perform(self.see(view))
        self._say_all()
        begun, self.begun_elsewhere = self.begun_elsewhere, NONE
        return begun

    def collapse(self, view: JobView, *, run_late: bool) -> None:
        """See ``JobState.collapse``."""
        self.now()
        super().collapse(view, run_late=run_late)
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

    def report(
        self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "", *, handled: bool = False
    ) -> None:
        """Report moments that need not be in the schedule, or another instance's run that was cut off."""
        self.missed.put(items, passed, why, cut_off, handled=handled)
        self._say_all()

    def report_lost_runs(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and that nobody rescues, each once."""
        self.missed.report_lost_runs(cut_off)
        self._say_all()

    async def _perform(self, steps: Steps[None]) -> None:
        """Perform the commands of these steps, and send the answers in.  After a failure no further step is made."""
        answer: object = None
        with closing(steps), suppress(StopIteration):
            while True:
                command = steps.send(answer)
                self._say_all()
                answer = await self._answer(command)
                self.now()

    async def _answer(self, command: Command) -> object:
        member = self._member
        match command:
            case ReadItems():
                running = frozenset(await self.cache.learn(command.records))
                await self.offsets.learn(command.offsets)
                return running
            case MarkMissed():
                return await mark_missed_moments(member, self.cache, command.view, command.said)
            case ReadAccounted():
                return await read_accounted(member)
            case WriteAccounted():
                try:
                    return await advance_accounted(member, command.view, command.until, command.version)
                except (Suspended, SessionEnded):
                    raise
                except RegistryError:
                    return None

    def _say_all(self) -> None:
        while self.reports:
            match self.reports.pop(0):
                case Report() as report:
                    self._missed_reports.put(self.view.config, report)
                case SayLowered() as lowered:
                    self._missed_reports.lowered(self._member.layout.job, lowered)

    def _believable(self) -> float:
        """Return up to which moment records can be believed, in milliseconds: infinity while the time is uncertain."""
        now = self.now()
        return inf if self.clock.unsteady else now
