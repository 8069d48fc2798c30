"""The schedule of a job: its moments follow from its settings alone, so everybody who asks gets the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice

from aioelasticjob.cron import Cron
from aioelasticjob.cron.fields import FIRST_YEAR, LAST_YEAR, shortened
from aioelasticjob.cron.zone import typed_time, zone_named
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.schedules.calendars import Calendar, ClosedDays, checked_name
from aioelasticjob.schedules.common import Common
from aioelasticjob.schedules.days import day_of, start_of
from aioelasticjob.schedules.moments import LATEST, Between, CronMoments, Dates, Interval, Moments, OnOpenDays, Union
from aioelasticjob.schedules.settings import ScheduleSettings

SEPARATOR = ";"
"""What stands between two cron expressions; no expression has one inside."""
MAX_PARTS = 1_000
"""The most expressions and moments of a schedule."""
SHORTEST = 1.0
"""The shortest interval, in seconds."""
LONGEST = 10**9
"""The longest interval, in seconds."""
TYPED = "must be a time such as 2026-12-24T18:00, in time_zone, or 2026-12-24T18:00:00+01:00"
"""What is right where a time is to be written."""
NAMED = 3
"""How many single moments a description names."""
NO_CALENDARS: Mapping[str, Calendar] = {}
_MOVED = {
    "skip": "not on days of",
    "next": "on the next open day instead of days of",
    "previous": "on the previous open day instead of days of",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ClosedDay:
    """A day whose moments calendars leave out or move."""

    first: datetime
    """The first of the moments on this day."""
    closed_by: tuple[str, ...]
    """The calendars that close the day, each with the name of the day."""
    moved: datetime | None
    """Where the first moment moves; None if it is left out."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The moments of a job, and what is said of them.  Two are equal if their settings are."""

    settings: ScheduleSettings
    job: str = field(compare=False)
    """The job whose delays these are; empty without jitter, so that jobs with equal settings share one schedule."""
    crons: tuple[Cron, ...] = field(compare=False, repr=False)
    """The parsed expressions; empty if the schedule has none."""
    dates: tuple[datetime, ...] = field(compare=False, repr=False)
    """The single moments, in ascending order; empty if the schedule has none."""
    zone: tzinfo = field(compare=False, repr=False)
    _moments: Moments = field(compare=False, repr=False)
    _open_days: OnOpenDays | None = field(compare=False, repr=False)
    """The part of the moments that heeds calendars; None without calendars."""
    calendars: tuple[Calendar, ...] = field(compare=False, repr=False)
    """All calendars that decide its moments, without those that are missing."""
    _found: list[tuple[int | None, int | None]] = field(compare=False, repr=False)
    """The last question of ``after``, and its answer: all jobs with the same schedule ask the same."""

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time, both in milliseconds since the epoch; None if there is none."""
        asked, found = self._found[0]
        if asked != time:  # an earlier question may have another answer, also without a moment between the two
            found = self._moments.after(time)
            self._found[0] = time, found
        return found

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time, both in milliseconds since the epoch; None if there is none."""
        return self._moments.until(time)

    def starts(self, time: int) -> int:
        """Return when the runs of a moment begin: at the moment, or later if there is jitter, the same for everybody.

        They begin before the next moment, so moments begin in their order.
        """
        longest = round(self.settings.jitter * 1000)
        following = self._moments.after(time) if longest else None
        if following is not None:
            longest = min(longest, following - time)
        if not longest:
            return time
        digest = hashlib.sha256(f"{self.job} {time}".encode()).digest()
        return time + int.from_bytes(digest[:8]) % longest

    def has_come(self, time: int) -> int:
        """Return up to when moments have come at a time: up to then, or up to before a moment that begins later."""
        newest = self._moments.until(time) if self.settings.jitter else None
        return time if newest is None or self.starts(newest) <= time else newest - 1

    def next_to_come(self, now: datetime) -> datetime | None:
        """Return the first moment whose runs do not begin until later, in the schedule's zone; None if there is none.

        That is ``next_after``, unless there is jitter, and the newest moment is still delayed.
        """
        return self._at(self.after(self.has_come((now - _EPOCH) // _MILLISECOND)))

    def start_of(self, time: datetime) -> datetime:
        """Return when the runs of a moment begin, in the schedule's zone."""
        return moment(self.starts((time - _EPOCH) // _MILLISECOND) / 1000).astimezone(self.zone)

    def newest_come(self, now: datetime) -> datetime | None:
        """Return the newest moment whose runs are to have begun at a time; None if there is none."""
        return self._at(self.until(self.has_come((now - _EPOCH) // _MILLISECOND)))

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first moment strictly after an aware time, in the schedule's zone; None if there is none."""
        return self._at(self.after((after - _EPOCH) // _MILLISECOND))

    def previous_before(self, before: datetime) -> datetime | None:
        """Return the newest moment strictly before an aware time, in the schedule's zone; None if there is none."""
        return self._at(self.until(-((_EPOCH - before) // _MILLISECOND) - 1))

    def times_after(self, start: datetime, n: int) -> list[datetime]:
        """Return the next ``n`` moments strictly after an aware time; fewer if the schedule ends."""
        return list(islice(self._times(start), n))

    @property
    def never_fires(self) -> bool:
        """Whether the schedule has no moment at all, as with the 30th of February."""
        return not self.settings.common_with and self._moments.until(LATEST) is None

    @property
    def missing_calendars(self) -> tuple[str, ...]:
        """The calendars whose contents are not known: no moment is left out because of them, and none is run."""
        parts = (self.settings, *self.settings.common_with)
        named = [pair for one in parts for pair in zip(one.calendar, one.contents, strict=True)]
        return tuple(dict.fromkeys(name for name, contents in named if not contents))

    @property
    def named_calendars(self) -> tuple[tuple[str, Calendar], ...]:
        """The calendars that its settings name, with their names, without those that are missing."""
        return () if self._open_days is None else self._open_days.closed.calendars

    def closed_between(self, after: datetime, until: datetime, at_most: int) -> list[ClosedDay]:
        """Return the days after a time and up to another one on which calendars leave out or move moments."""
        open_days = self._open_days
        found = list[ClosedDay]()
        if open_days is None:
            return found
        last = (until - _EPOCH) // _MILLISECOND
        first = open_days.moments.after((after - _EPOCH) // _MILLISECOND)
        while first is not None and first <= last and len(found) < at_most:
            day = day_of(first, self.zone)
            end = start_of(day + 1, self.zone) - 1
            if closed_by := open_days.closed.closed_by(day):
                moved = self._at(open_days.moved(first))
                found.append(ClosedDay(moment(first / 1000).astimezone(self.zone), closed_by, moved))
            first = open_days.moments.after(end)
        return found

    @property
    def uses_zone(self) -> bool:
        """Whether the moments depend on the rules of the time zone."""
        if self.settings.common_with:
            return any(one.uses_zone for one in self.parts)
        typed = (*self.settings.at, self.settings.start_at, self.settings.end_at)
        return bool(self.crons or self.settings.calendar) or any(one is not None and _is_local(one) for one in typed)

    @property
    def expression(self) -> str:
        """The schedule as short text: its cron expressions, its interval, or its moments."""
        settings = self.settings
        if settings.common_with:
            return " and ".join(one.expression for one in self.parts)
        if settings.cron is not None:
            return settings.cron
        if settings.every is not None:
            return f"every {interval_text(settings.every)}"
        return f"at {', '.join(settings.at[:NAMED])}{_and_more(self.dates)}"

    def describe(self) -> str:
        """Return the schedule as an English sentence."""
        if self.settings.common_with:
            return f"The moments that all of these have: {'; '.join(one.describe() for one in self.parts)}"
        if self.crons:
            said = [one.describe().removesuffix(f", {one.time_zone}") for one in self.crons]
            sentence = f"{'; '.join(said)}, {self.settings.time_zone}"
        elif self.settings.every is not None:
            sentence = f"Every {interval_text(self.settings.every)}"
        else:
            named = [time_text(one) for one in self.dates[:NAMED]]
            sentence = f"At {', '.join(named)}{_and_more(self.dates)}"
        if self.settings.calendar:
            sentence += f", {_MOVED[self.settings.calendar_mode]} {', '.join(self.settings.calendar)}"
        if self.settings.start_at is not None:
            sentence += f", from {self.settings.start_at}"
        if self.settings.end_at is not None:
            sentence += f", until {self.settings.end_at}"
        if self.settings.jitter:
            sentence += f", each up to {interval_text(self.settings.jitter)} later"
        return sentence

    @property
    def parts(self) -> list[Schedule]:
        """The schedules whose common moments these are."""
        several = (replace(self.settings, common_with=()), *self.settings.common_with)
        known = {one.hash: one for one in self.calendars}
        found = [schedule_of(one, calendars=known) for one in several]
        return [one for one in found if one is not None]

    def _times(self, after: datetime) -> Iterator[datetime]:
        while (found := self.next_after(after)) is not None:
            yield found
            after = found

    def _at(self, milliseconds: int | None) -> datetime | None:
        return None if milliseconds is None else moment(milliseconds / 1000).astimezone(self.zone)


def schedule_of(
    settings: ScheduleSettings, job: str = "", calendars: Mapping[str, Calendar] = NO_CALENDARS
) -> Schedule | None:
    """Return the schedule that settings describe; None if they describe none, so that a job runs only when asked for.

    From the name of the job follows by how much each moment is delayed, if there is jitter.  ``calendars`` has the
    contents of calendars by their hashes.  A calendar whose contents it does not have is missing.

    Raises:
        InvalidSetting: a setting is wrong, or two of them contradict each other.
    """
    known = {one: calendars[one] for one in settings.all_contents if one in calendars}
    if settings.all_contents:
        settings = settings.knowing(known)
    return _schedule_of(settings, job if settings.jitter else "", tuple(known.values()))


@lru_cache(maxsize=4096)
def _schedule_of(settings: ScheduleSettings, job: str, calendars: tuple[Calendar, ...]) -> Schedule | None:
    chosen = [name for name in ("cron", "every", "at") if getattr(settings, name) not in (None, ())]
    if not chosen:
        return None
    if len(chosen) > 1:
        first, second, *_ = chosen
        expected = f"there is {first} as well: a job has one of cron, every and at, so set {first} or {second} to none"
        raise InvalidSetting(second, getattr(settings, second), expected)
    zone = zone_named(settings.time_zone)
    start = None if settings.start_at is None else _typed("start_at", settings.start_at, zone)
    end = None if settings.end_at is None else _typed("end_at", settings.end_at, zone)
    if start is not None and end is not None and end < start:
        raise InvalidSetting("end_at", settings.end_at, f"must not be earlier than start_at = {settings.start_at}")
    crons = () if settings.cron is None else _crons(settings)
    dates = sorted({_typed("at", one, zone) for one in settings.at})
    moments: Moments
    if crons:
        moments = CronMoments(crons[0]) if len(crons) == 1 else Union(tuple(map(CronMoments, crons)))
    elif settings.every is not None:
        moments = Interval(start or 0, _interval(settings.every))
    else:
        moments = Dates(tuple(dates))
    contents = {one.hash: one for one in calendars}
    open_days = None
    if settings.calendar:
        named = zip(map(checked_name, settings.calendar), settings.contents, strict=True)
        closed = ClosedDays(tuple((name, contents[one]) for name, one in named if one))
        moments = open_days = OnOpenDays(moments, closed, settings.calendar_mode, zone)
    if start is not None or end is not None:
        moments = Between(moments, start or 0, LATEST if end is None else end)
    if settings.common_with:
        others = [schedule_of(one, "", contents) for one in settings.common_with]
        moments = Common((moments, *(one._moments for one in others if one is not None)))
    single = tuple(moment(one / 1000).astimezone(zone) for one in dates)
    return Schedule(settings, job, crons, single, zone, moments, open_days, calendars, [(None, None)])


def interval_text(seconds: float) -> str:
    """Return a duration exactly, in its units, such as ``1h 30m`` or ``45s``."""
    rest = round(seconds * 1000)
    parts = list[str]()
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return " ".join(parts)


def _crons(settings: ScheduleSettings) -> tuple[Cron, ...]:
    assert settings.cron is not None
    texts = settings.cron.split(SEPARATOR)
    if len(texts) == 1:
        return (Cron.parse(settings.cron, settings.time_zone, settings.dst),)
    if len(texts) > MAX_PARTS:
        raise InvalidSetting("cron", shortened(settings.cron), f"must be at most {MAX_PARTS:,} expressions")
    return tuple(Cron.parse(text.strip(), settings.time_zone, settings.dst) for text in texts)


def _interval(seconds: float) -> int:
    """Return an interval in milliseconds."""
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidSetting("every", seconds, f"must be {SHORTEST:g} to {LONGEST} seconds")
    return round(seconds * 1000)


def _typed(setting: str, text: str, zone: tzinfo) -> int:
    """Return a time that a setting names, in milliseconds since the epoch."""
    found = typed_time(setting, text, zone, TYPED)
    if not FIRST_YEAR < found.year < LAST_YEAR:
        raise InvalidSetting(setting, text, f"must be a year from {FIRST_YEAR + 1} to {LAST_YEAR - 1}")
    return (found - _EPOCH) // _MILLISECOND


def _is_local(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is None


def _and_more(found: tuple[object, ...]) -> str:
    return f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
