"""Statuses of jobs as a registry would show them, for pages and rules that only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aioelasticjob.config.job import JobConfig
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, attention
from aioelasticjob.operations.observed_runs import ObservedRun
from aioelasticjob.operations.status import ServerStatus

NOW = 1_800_000_000.0
INSTANCES = ("10.0.0.1@-@1-a", "10.0.0.2@-@2-b", "10.0.0.3@-@3-c")


def reasons(
    status: JobStatus, runs: Sequence[ObservedRun], unsettled_for: float = 0.0, *, now: float = NOW, **known: Any
) -> tuple[attention.Reason, ...]:
    """Return why a job needs a person, at ``NOW`` unless another time is given."""
    return attention.reasons(status, now, attention.Seen(runs, unsettled_for, **known))


def item(number: int, holder: str | None = INSTANCES[0], **facts: Any) -> ItemStatus:
    """Return an item that waits."""
    plain = ItemStatus(number, None, holder, None, None, False, False, False, None)
    return replace(plain, **facts)


def ended(outcome: str, begun: float, seconds: float = 1.0) -> Record:
    """Return the record of a run that began at ``begun``, seconds since the epoch."""
    began = int(begun * 1000)
    done = began + int(seconds * 1000)
    return Record(slot=began, source="SCHEDULE", instance=INSTANCES[0], begun=began, completed_at=done, outcome=outcome)


def status(
    name: str,
    items: tuple[ItemStatus, ...] = (),
    *,
    now: float,
    instances: tuple[str, ...] = INSTANCES[:1],
    paused: bool = False,
    settled: bool = True,
    **settings: Any,
) -> JobStatus:
    """Return a job with one server for each instance."""
    config = JobConfig(job_name=name, **{"sharding_total_count": len(items) or 1, **settings})
    held: Mapping[str, list[int]] = {one: [its.item for its in items if its.holder == one] for one in instances}
    return JobStatus(
        config=config,
        fault=None,
        leader=instances[0] if instances else None,
        settled=settled,
        next_fire=None,
        instances=tuple(
            InstanceStatus(one, one.partition("@")[0], "host", 1, moment(now), n == 0, tuple(held[one]), ())
            for n, one in enumerate(instances)
        ),
        servers=tuple(
            ServerStatus(one.partition("@")[0], "host", False, paused, 1, flagged_at=(moment(now),) * paused)
            for one in instances
        ),
        items=items,
    ).at(now)
