"""What bounds how many items run side by side, for tests that make executions themselves."""

from __future__ import annotations

from anyio import CapacityLimiter

from aioelasticjob.config.job import JobConfig


def turns_of(config: JobConfig) -> CapacityLimiter | None:
    """Return the limiter of a job's ``items_at_once``; None if it has none."""
    return None if config.items_at_once is None else CapacityLimiter(config.items_at_once)
