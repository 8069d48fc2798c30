"""Waits between the attempts of a run that belongs to no job of a registry, so that no view can end them."""

from __future__ import annotations

from collections.abc import Collection

from anyio import sleep

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.view import JobView
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import Claim
from aioelasticjob.registry.tree import Tree
from aioelasticjob.running.early_end import RetryWaits


class PlainWaits(RetryWaits):
    """Waits before each attempt, whatever a view would say."""

    def __init__(self, config: JobConfig | None = None) -> None:
        super().__init__(Latest(JobView(Layout("job"), Tree(), config or JobConfig.build(job_name="job"))))

    async def wait(self, claim: Claim, items: Collection[int], seconds: float) -> str:
        await sleep(seconds)
        return ""
