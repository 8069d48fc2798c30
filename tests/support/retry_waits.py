"""Waits between the attempts of a run that belongs to no job of a registry, so that no view can end them."""

from __future__ import annotations

from collections.abc import Collection

from anyio import sleep

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.early_end import RetryWaits
from aioelasticjob.engine.ending import Ending
from aioelasticjob.ground.latest import Latest
from aioelasticjob.model import Claim
from aioelasticjob.registry.tree import Tree


class PlainWaits(RetryWaits):
    """Waits before each attempt, whatever a view would say."""

    def __init__(self, config: JobConfig | None = None) -> None:
        view = JobView(Layout("job"), Tree(), config or JobConfig.build(job_name="job"))
        ending = Latest(Ending())
        super().__init__(Latest(view), ending)
        self._job_ends = ending

    def leave(self) -> None:
        """Have the job leave, as its process does when it stops."""
        self._job_ends.set(self._job_ends.value.with_process())
        super().leave()

    async def wait(self, claim: Claim, items: Collection[int], seconds: float) -> str:
        await sleep(seconds)
        return ""
