"""Jobs that follow others, as the registry holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from aioelasticjob.clock import SystemClock
from aioelasticjob.config.following import check_following, contents_of, followed_moments
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import COMMON, Layout
from aioelasticjob.core.view import parse, with_calendars
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.operations.status import ItemStatus, JobStatus, UpstreamStatus
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree
from aioelasticjob.schedules import Schedule, schedule_of

FOLLOW_EACH_OTHER: Final = "they follow each other, so each waits for the other"


async def check_upstreams(session: Session, config: JobConfig) -> Schedule | None:
    """Check the jobs that a job is to follow; return the schedule that it has from them, None if it follows none.

    Raises:
        InvalidSetting: there is no such job, or the job cannot follow it.
        RegistryError: the registry could not be read.
    """
    if not config.after:
        return None
    found = await _upstreams(session, config)
    missing = [name for name in config.after if name not in found]
    if missing:
        raise InvalidSetting("after", missing[0], "must be jobs of this namespace: there is no such job")
    check_following(config, found, round(SystemClock().now() * 1000))
    moments = followed_moments(config.job_name, {**found, config.job_name: config})
    return None if moments is None else schedule_of(moments, calendars=contents_of(found.values()))


async def marks_of(session: Session, tree: Tree, layout: Layout) -> list[str]:
    """Return the marks that a job, whose nodes are in a tree, has at the jobs that it follows."""
    node = tree.get(layout.config)
    named = set[str]()
    with suppress(ForeignData):
        named.update(() if node is None else parse(node.data, layout).after)
    marks = [Layout(name).follower(layout.job) for name in sorted(named)]
    nodes = await session.get_many(marks) if marks else ()
    return [mark for mark, found in zip(marks, nodes, strict=True) if found is not None]


def with_upstreams(job: JobStatus, jobs: Mapping[str, JobStatus], now: float) -> JobStatus:
    """Return the status of a job with what the jobs that it follows are to it; ``now`` is in seconds since the epoch.

    ``jobs`` has the statuses of all jobs, at least of those that it follows.
    """
    if not job.config.after:
        return job
    follow_each_other = _circle(job, jobs)
    upstreams = [jobs.get(name) for name in job.config.after]
    ended = [0 if one is None else _ended(one) for one in upstreams]
    waiting = _waiting_moment(job, min(ended), now)
    found = list[UpstreamStatus]()
    for name, upstream in zip(job.config.after, upstreams, strict=True):
        problem = FOLLOW_EACH_OTHER if name in follow_each_other else _problem(upstream)
        items = () if upstream is None or waiting is None else _open_items(upstream, waiting)
        found.append(UpstreamStatus(name, problem, items))
    at = None if waiting is None or job.schedule is None else moment(waiting / 1000).astimezone(job.schedule.zone)
    return replace(job, upstreams=tuple(found), waiting_moment=at)


def _waiting_moment(job: JobStatus, ended: int, now: float) -> int | None:
    """Return the oldest moment that has passed, and that the followed jobs have yet to end, in milliseconds."""
    if job.schedule is None:
        return None
    following = job.schedule.after(max(ended, round(job.scheduled_since * 1000)))
    return following if following is not None and following <= now * 1000 else None


def _ended(upstream: JobStatus) -> int:
    """Return up to when all items have ended their moments, in milliseconds; 0 if that is not known."""
    return min((_last_end(item) for item in _counted(upstream)), default=0)


def _open_items(upstream: JobStatus, waiting: int) -> tuple[int, ...]:
    return tuple(item.item for item in _counted(upstream) if _last_end(item) < waiting)


def _counted(upstream: JobStatus) -> list[ItemStatus]:
    return [item for item in upstream.items if item.item < upstream.config.sharding_total_count]


def _last_end(item: ItemStatus) -> int:
    ends = () if item.record is None else item.record.ends
    return ends[-1].last if ends else 0


def _problem(upstream: JobStatus | None) -> str:
    """Return why nothing comes from a job that is followed; empty if all is well."""
    if upstream is None:
        return "there is no such job"
    if upstream.foreign:
        return "it is another program's"
    if not upstream.config.monitor_execution:
        return "it keeps no records (monitor_execution is off)"
    return "" if upstream.config.after or upstream.config.schedule is not None else "it has no schedule"


def _circle(job: JobStatus, jobs: Mapping[str, JobStatus]) -> frozenset[str]:
    """Return the jobs that a job follows and that follow it, maybe through others."""
    found = set[str]()
    for name in job.config.after:
        seen = {name}
        waiting = [name]
        while waiting:
            one = jobs.get(waiting.pop())
            newer = set() if one is None else set(one.config.after) - seen
            seen |= newer
            waiting += newer
        if job.name in seen:
            found.add(name)
    return frozenset(found)


async def _upstreams(session: Session, config: JobConfig) -> dict[str, JobConfig]:
    """Return the configurations of all jobs that a job follows, also through others, as far as they can be used."""
    found = dict[str, JobConfig]()
    wanted = set(config.after)
    seen = {config.job_name}
    while wanted:
        seen |= wanted
        found |= await _configurations(session, sorted(wanted))
        wanted = {name for one in found.values() for name in one.after} - seen
    return found


async def _configurations(session: Session, names: Iterable[str]) -> dict[str, JobConfig]:
    """Return the configurations of some jobs, without those that nobody can use."""
    layouts = [Layout(name) for name in names]
    found = dict[str, JobConfig]()
    nodes = await session.get_many([layout.config for layout in layouts])
    common = await session.subtree(COMMON)
    for layout, node in zip(layouts, nodes, strict=True):
        if node is None:
            continue
        try:
            found[layout.job] = with_calendars(parse(node.data, layout), common)
        except ForeignData:
            continue
    return found
