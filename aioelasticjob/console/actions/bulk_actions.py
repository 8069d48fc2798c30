"""Actions on many jobs: each job by itself, a few at a time, and a report of what came of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from aioelasticjob.errors import ElasticJobError
from aioelasticjob.logging import logger

AT_ONCE: Final = 8
"""Jobs of one bulk action that are worked on at a time."""
REPORTS_KEPT: Final = 50
"""Reports that are kept; the audit log has all."""

Do: TypeAlias = Callable[[str], Awaitable[str]]
"""Does something to a job, and returns a sentence about what it did."""
log = logger(__name__)


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came of a bulk action for one job."""

    summary: str = ""
    error: Exception | None = None
    """Why it was not done; None if it was."""


@dataclass(slots=True)
class BulkAction:
    """An action on many jobs, which goes on or has ended."""

    who: str
    registry: str
    kind: str
    jobs: Sequence[str]
    results: dict[str, JobResult] = field(default_factory=dict)
    """By job; grows while the action goes on."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    id: str = field(default_factory=lambda: token_urlsafe(9))

    @property
    def failures(self) -> int:
        """How many jobs it was not done to, so far."""
        return sum(result.error is not None for result in self.results.values())


class BulkActions:
    """The bulk actions of one console that go on, and the last ones that have ended."""

    def __init__(self) -> None:
        self._kept: dict[str, BulkAction] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let bulk actions be started while the block runs; those that go on at its end are cancelled."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    def find(self, id: str) -> BulkAction | None:
        """Return a bulk action; None if nobody knows it any more."""
        return self._kept.get(id)

    def start(self, bulk: BulkAction, do: Do) -> None:
        """Begin with a bulk action; it goes on when its page is closed."""
        assert self._tasks is not None, "the console is not open"
        ended = [one.id for one in self._kept.values() if one.ended.is_set()]
        for id in ended[: max(0, len(self._kept) + 1 - REPORTS_KEPT)]:
            del self._kept[id]
        self._kept[bulk.id] = bulk
        self._tasks.start_soon(_run, bulk, do)


async def _run(bulk: BulkAction, do: Do) -> None:
    waiting = iter(bulk.jobs)

    async def work() -> None:
        for job in waiting:
            bulk.results[job] = await _result(do, job)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)
    bulk.ended.set()


async def _result(do: Do, job: str) -> JobResult:
    """Do it to one job; an error is this job's only."""
    try:
        return JobResult(await do(job))
    except ElasticJobError as error:
        return JobResult(error=error)
    except Exception as error:
        log.exception("a bulk action failed for the job %s", job, extra={"job": job})
        return JobResult(error=error)
