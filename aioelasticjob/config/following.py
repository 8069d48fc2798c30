"""Jobs that follow others: what their settings say of each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from aioelasticjob.config.job import JobConfig
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.schedules import ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import Calendar


def check_following(config: JobConfig, known: Mapping[str, JobConfig], now: int) -> None:
    """Check what a job follows, as far as these jobs are known; ``now`` is in milliseconds since the epoch.

    Raises:
        InvalidSetting: it follows itself through others, or a job that keeps no records or has no schedule, or jobs
            that have no moment in common within a year.
    """
    jobs = {**known, config.job_name: config}
    if circle := _circle(config.job_name, jobs):
        expected = f"must not lead back to the job: {' after '.join(circle)}"
        raise InvalidSetting("after", config.after, expected)
    for name in config.after:
        upstream = jobs.get(name)
        if upstream is None:
            continue
        if not upstream.monitor_execution:
            expected = f"must be jobs with monitor_execution = True: nobody sees when a run of {name} has ended"
            raise InvalidSetting("after", name, expected)
        if not upstream.after and upstream.schedule is None:
            raise InvalidSetting("after", name, f"must be jobs with a schedule: {name} has none, so it has no moments")
    moments = followed_moments(config.job_name, jobs)
    schedule = None if moments is None else schedule_of(moments, calendars=contents_of(jobs.values()))
    if schedule is None or schedule.missing_calendars:  # only the registry has calendars
        return
    if schedule.settings.common_with and schedule.after(now) is None:
        expected = "must be jobs with common moments: these have none within a year"
        raise InvalidSetting("after", config.after, expected)


def contents_of(jobs: Iterable[JobConfig]) -> dict[str, Calendar]:
    """Return the contents of all calendars that jobs name, by their hashes, as far as they are known."""
    contents = dict[str, Calendar]()
    for job in jobs:
        contents |= job.contents
    return contents


def followed_moments(job: str, jobs: Mapping[str, JobConfig]) -> ScheduleSettings | None:
    """Return the schedule of a job, which follows others, from the configurations; None if one of them is missing."""
    found = list[ScheduleSettings]()
    waiting = [job]
    for name in waiting:
        config = jobs.get(name)
        if config is None:
            return None
        if config.after:
            waiting += [one for one in config.after if one not in waiting]
        else:
            found.append(config.schedule_settings)
    return common_moments(found)


def common_moments(schedules: list[ScheduleSettings]) -> ScheduleSettings:
    """Return one schedule with the moments that all of these have.  None of them is delayed: followers wait anyway."""
    apart = dict[ScheduleSettings, None]()  # a set that keeps its order
    for one in schedules:
        apart |= dict.fromkeys((replace(one, common_with=()), *one.common_with))
    first, *others = [replace(one, jitter=0.0) for one in apart]
    return replace(first, common_with=tuple(dict.fromkeys(one for one in others if one != first)))


def _circle(job: str, jobs: Mapping[str, JobConfig]) -> list[str]:
    """Return the way from a job back to itself, through the jobs that each follows; empty if there is none."""
    ways = [[job]]
    for way in ways:
        config = jobs.get(way[-1])
        for name in () if config is None else config.after:
            if name == job:
                return [*way, name]
            if all(name not in other for other in ways):
                ways.append([*way, name])
    return []
