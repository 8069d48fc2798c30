"""Jobs of every kind of schedule in a simulated cluster, and ways to break their timelines on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from random import Random
from unittest import mock

from aioelasticjob.core.schedules import InForce
from aioelasticjob.core.timeline import Timeline
from aioelasticjob.ground.times import moment
from aioelasticjob.schedules import ScheduleSettings, schedule_of
from aioelasticjob.testing.loop import START
from tests.simulation.cluster import JobPlan

HORIZON = 600
"""Seconds of single moments: no simulated cluster lives longer."""


def of_every_kind(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[JobPlan, ...]:
    """Return jobs whose moments are as often, but follow from other settings, and are delayed in most jobs."""
    dice = Random(f"schedules {seed}")
    return tuple(_with_schedule(job, dice) for job in jobs)


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


def _following(changed: Callable[[ScheduleSettings, int], ScheduleSettings]) -> AbstractContextManager[object]:
    """Let each instance follow schedules whose settings were changed."""
    original = Timeline.__init__

    def init(self: Timeline, periods: Sequence[InForce], now: int) -> None:
        def wrong(one: InForce) -> InForce:
            if one.schedule is None or not now:  # judges make timelines, too
                return one
            settings = changed(one.schedule.settings, now)
            return replace(one, schedule=schedule_of(settings, one.schedule.job))

        original(self, [wrong(one) for one in periods], now)

    return mock.patch.object(Timeline, "__init__", init)
