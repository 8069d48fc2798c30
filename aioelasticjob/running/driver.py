"""Performs the commands of a job's state, and passes it the facts: answers of the registry, and clock readings."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import assert_never

from aioelasticjob.clock import Clock
from aioelasticjob.coordination.commit import delete
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.missed_marks import advance_accounted, mark_missed_moments, read_accounted
from aioelasticjob.coordination.progress import Offsets
from aioelasticjob.coordination.record_cache import RecordCache
from aioelasticjob.coordination.request_runs import requested_run
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.model import Requested
from aioelasticjob.running.clock_skew import Reading
from aioelasticjob.running.commands import (
    AnyReport,
    MarkMissed,
    NodeCommand,
    NoteAccepted,
    NoteRefused,
    ReadAccounted,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    RemoveTrigger,
    Report,
    SayLowered,
    SayNothingToRun,
    SayRefused,
    WriteAccounted,
)
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.state import Past
from aioelasticjob.running.stats import ExecutionStats
from aioelasticjob.running.step import JobState


class StateDriver(JobState):
    """Adds to ``JobState`` the I/O that performs commands.  This class decides nothing."""

    def __init__(self, member: Member, view: JobView, clock: Clock, stats: ExecutionStats, past: Past) -> None:
        super().__init__(member.id, view, Reading.of(member.session, clock), past)
        self._member, self._wall, self._stats = member, clock, stats
        self.cache = RecordCache(member, self._believable, self.items)
        self.offsets = Offsets(member, self.cache)

    def now(self) -> int:
        """Read the clocks, and return the time that the job uses, in milliseconds."""
        host = self._wall.now()
        return self.clock.take(Reading(host, *self._member.session.compare_clocks(host)))

    @property
    def steady_in(self) -> float:
        """Seconds after which to call ``look`` again because the time was set; infinity if it was not."""
        wait = self.clock.unsteady if self.has_future_records or self.clock.may_be_set_back else 0.0
        return max(wait, 0.01) if wait else inf  # at least 10 ms: a rounded timer may fire before the time is steady

    def released(self, item: int) -> None:
        """See ``JobState.released``."""
        self.now()
        super().released(item)
        self.say_all()

    def report(
        self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "", *, handled: bool = False
    ) -> None:
        """Report moments that need not be in the schedule, or another instance's run that was cut off."""
        self.missed.put(items, passed, why, cut_off, handled=handled)
        self.say_all()

    async def perform(self, command: NodeCommand) -> object:
        """Perform a command that reads or writes nodes of the job, and return its answer."""
        member = self._member
        match command:
            case ReadOffsets(items, claimed):
                return await (self.offsets.reread(items) if claimed else self.offsets.read(items))
            case ReadItems():
                running = frozenset(await self.cache.learn(command.records))
                await self.offsets.read(command.offsets)
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
            case ReadRequested(item, record):
                paths = [member.layout.request(record.request), member.layout.request_item(record.request, item)]
                requested: Requested | None = requested_run(item, record, *await member.session.get_many(paths))
                return requested
            case RemoveTrigger(path, version):
                return await delete(member, path, version, "to take a request")
            case _:
                assert_never(command)

    def say_all(self) -> None:
        """Make the reports that are left."""
        while self.reports:
            self._say(self.reports.pop(0))

    def _say(self, report: AnyReport) -> None:
        match report:
            case Report():
                self._stats.missed_reports.put(self.view.config, report)
            case SayLowered():
                self._stats.missed_reports.lowered(self._member.layout.job, report)
            case SayRefused(why, again):
                self._stats.refused(why, again=again)
            case SayNothingToRun(why):
                self._stats.nothing_to_run(why)
            case NoteAccepted(purpose):
                self._member.refusals.accepted(purpose)
            case NoteRefused(purpose, error):
                self._member.refusals.refused(purpose, error)
            case _:
                assert_never(report)

    def _believable(self) -> float:
        """Return up to which moment records can be believed, in milliseconds: infinity while the time is uncertain."""
        now = self.now()
        return inf if self.clock.unsteady else now
