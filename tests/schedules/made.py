"""Schedules for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aioelasticjob.config.job import JobConfig
from aioelasticjob.schedules import Schedule


def schedule(cron: str | Sequence[str] | None = None, **settings: Any) -> Schedule:
    """Return the schedule of a job with these settings."""
    found = JobConfig.build(job_name="job", cron=cron, **settings).schedule
    assert found is not None
    return found
