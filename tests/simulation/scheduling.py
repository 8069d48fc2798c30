"""Jobs of every kind of schedule in a simulated cluster, some with a calendar that operators edit and remove.

And ways to break their timelines on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from unittest import mock

from anyio import current_time, sleep

from aioelasticjob.core import reasons, rules
from aioelasticjob.core.effects import NoteSchedule
from aioelasticjob.core.layout import CALENDARS, calendar_path
from aioelasticjob.core.rules import RuleInput
from aioelasticjob.core.schedules import InForce
from aioelasticjob.core.timeline import Timeline
from aioelasticjob.core.upstreams import Upstreams
from aioelasticjob.errors import Conflict
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, put
from aioelasticjob.schedules import ScheduleSettings, schedule_of
from aioelasticjob.testing.loop import START
from tests.simulation.cluster import Cluster, JobPlan
from tests.simulation.omissions import unreported

HORIZON = 600
"""Seconds of single moments: no simulated cluster lives longer."""
CALENDAR = calendar_path("closed")
ZONE = "GMT+23:59"
"""The time zone of jobs with a calendar: a minute after the start of a cluster, the second of January begins there."""
OPEN = b"2030-01-01\n"
"""A calendar with no day that any cluster lives to see."""
OPEN_AGAIN = b"2031-01-01\n"
"""Another one."""
DAYS = (OPEN, b"2026-01-01\n", b"2026-01-02\n", b"weekdays thu\n", b"weekdays fri\n2026-01-01\n")
"""Calendars.  The first of January is a Thursday."""
NO_DAYS = (None, b"{nonsense")
"""What leaves a calendar missing: it is removed, or holds nonsense."""


def of_every_kind(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[JobPlan, ...]:
    """Return jobs whose moments are as often, but follow from other settings, and are delayed in most jobs."""
    dice = Random(f"schedules {seed}")
    days = Random(f"calendars {seed}")  # dice of its own, so that schedules without a calendar are the seed's
    return tuple(_with_calendar(_with_schedule(job, dice), days) for job in jobs)


async def make_calendar(cluster: Cluster, data: bytes = OPEN) -> None:
    """Make the calendar, or replace its days; try again while the registry is away."""
    while not await cluster.operate(lambda session: _write(session, data)):
        await sleep(1)


async def edit_calendar(cluster: Cluster, dice: Random, seconds: float) -> None:
    """Let operators edit the calendar and remove it by hand for a while."""
    end = current_time() + seconds
    while current_time() < end:
        await sleep(min(dice.uniform(2, 12), end - current_time()))
        data = dice.choice(DAYS if dice.random() < 0.7 else NO_DAYS)
        cluster.break_("operator", detail=f"the calendar becomes {data!r}")
        await cluster.operate(partial(_write, data=data))
        cluster.mend("operator")


async def _write(session: Session, data: bytes | None) -> None:
    tree = await session.subtree([CALENDARS])
    there = tree.get(CALENDAR)
    operations: list[Op] = [] if CALENDARS in tree else [Create(CALENDARS)]
    if data is not None:
        operations.append(put(CALENDAR, data, there))
    elif there is not None:
        operations.append(Delete(CALENDAR))
    with suppress(Conflict):
        await session.commit(operations, incarnation=session.incarnation)


def _with_calendar(job: JobPlan, dice: Random) -> JobPlan:
    if dice.random() < 0.4:
        return job
    mode = dice.choice(["skip", "skip", "next", "previous"])
    settings = {"calendar": "closed", "calendar_mode": mode, "time_zone": ZONE}
    return replace(job, settings=(*job.settings, *settings.items()))


def other_schedule(dice: Random) -> dict[str, object]:
    """Return settings, by their keys in the registry, with which an operator replaces a schedule by another kind."""
    kinds: list[dict[str, object]] = [
        {"every": float(dice.randint(1, 5))},
        {"cron": "0/3 * * * * ?; 1/5 * * * * ?"},
        {"at": _single_moments(dice.choice([2, 3]))},
        {"every": 4.0, "startAt": moment(START + 1.5).isoformat()},
    ]
    chosen = dice.choice(kinds)
    return {"cron": None, "every": None, "at": [], "startAt": None, "jitter": dice.choice([0, 0.2, 0.4]), **chosen}


def _with_schedule(job: JobPlan, dice: Random) -> JobPlan:
    period = int(job.period)
    kinds: list[dict[str, object]] = [
        {"every": period},
        {"every": period, "start_at": moment(START + dice.choice([0.25, 0.5]))},
        {"cron": f"0/{2 * period} * * * * ?; {period}/{2 * period} * * * * ?; 0 * * * * ?"},
        {"at": _single_moments(period)},
    ]
    settings = {**dice.choice(kinds), "jitter": dice.choice([0, 0.2, 0.5]) * period}
    return replace(job, settings=(*job.settings, ("cron", None), *settings.items()))


def _single_moments(period: int) -> list[str]:
    return [moment(START + second).isoformat() for second in range(0, HORIZON, period)]


# Defects: instances go by their timelines, and judges by the schedules that the leader has noted.


def delays_of_their_own() -> AbstractContextManager[object]:
    """Let each instance delay a moment by another time."""
    original = Timeline.start_of
    numbers = count(1)

    def start_of(self: Timeline, moment: int) -> int:
        own = vars(self)
        if "number" not in own:
            own["number"] = next(numbers)
        start = original(self, moment)
        return start + own["number"] * 300 % 1_500 if start > moment else moment

    return mock.patch.object(Timeline, "start_of", start_of)


def begin_undelayed() -> AbstractContextManager[object]:
    """Begin a moment when it is, though it is delayed."""
    return mock.patch.object(Timeline, "start_of", lambda _self, moment: moment)


def follow_the_first_expression() -> AbstractContextManager[object]:
    """Follow only the first of several expressions."""

    def first(settings: ScheduleSettings, _now: int) -> ScheduleSettings:
        return settings if settings.cron is None else replace(settings, cron=settings.cron.split(";")[0])

    return _following(first)


def count_from_now() -> AbstractContextManager[object]:
    """Count an interval from when an instance looks at it first."""

    def from_now(settings: ScheduleSettings, now: int) -> ScheduleSettings:
        return settings if settings.every is None else replace(settings, start_at=moment(now / 1000).isoformat())

    return _following(from_now)


def leave_out_dates() -> AbstractContextManager[object]:
    """Leave out every second one of single moments."""
    return _following(lambda settings, _now: replace(settings, at=settings.at[::2]))


def heed_no_calendar() -> AbstractContextManager[object]:
    """Run the moments on days of calendars, too."""
    return _following(lambda settings, _now: replace(settings, calendar=(), contents=()))


def run_without_the_calendar() -> AbstractContextManager[object]:
    """Run moments although a calendar is missing."""
    return mock.patch.object(Timeline, "lacks_calendar", return_value=False)


def missing_calendar_unreported() -> AbstractContextManager[object]:
    """Report no moment that was missed because a calendar was missing."""
    return unreported(reasons.NO_CALENDAR.format("closed"))


def edits_unnoticed() -> AbstractContextManager[object]:
    """Note no schedule of which only the calendars' contents have changed."""
    original = rules.note_schedule

    def note_schedule(now: RuleInput) -> Iterator[NoteSchedule]:
        noted = now.view.schedules.noted
        wanted = now.view.config.schedule_settings
        before = ScheduleSettings.of_json(noted[-1]) if noted else wanted
        if before == wanted or replace(before, contents=wanted.contents) != wanted:
            yield from original(now)

    changed = [note_schedule if rule is original else rule for rule in rules.LEADER_RULES]
    return mock.patch.object(rules, "LEADER_RULES", tuple(changed))


def _following(changed: Callable[[ScheduleSettings, int], ScheduleSettings]) -> AbstractContextManager[object]:
    """Let each instance follow schedules whose settings were changed."""
    original = Timeline.__init__

    def init(self: Timeline, periods: Sequence[InForce], now: int, upstreams: Upstreams | None = None) -> None:
        def wrong(one: InForce) -> InForce:
            if one.schedule is None or not now:  # judges make timelines, too
                return one
            settings = changed(one.schedule.settings, now)
            contents = {calendar.hash: calendar for calendar in one.schedule.calendars}
            return replace(one, schedule=schedule_of(settings, one.schedule.job, contents))

        original(self, [wrong(one) for one in periods], now, upstreams)

    return mock.patch.object(Timeline, "__init__", init)
