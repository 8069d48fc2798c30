"""aiohttp: ``app.cleanup_ctx.append(elastic_job(jobs))`` and ``app.router.add_get("/health", health(jobs))``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from aioelasticjob.app import ElasticJob
from aioelasticjob.engine.health import Probe
from aioelasticjob.integrations.guest import guest

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


def elastic_job(jobs: ElasticJob) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context that runs the jobs."""

    async def around(app: web.Application) -> AsyncIterator[None]:
        async with guest(jobs, app):
            yield

    return around


def health(jobs: ElasticJob) -> Answer:
    """Return a handler that answers with the health of this process; its status is 503 when the jobs have ended."""
    return _answering(jobs, "health")


def liveness(jobs: ElasticJob) -> Answer:
    """Return a handler whose status is 503 when the jobs have ended, so that only a restart brings them back."""
    return _answering(jobs, "live")


def readiness(jobs: ElasticJob) -> Answer:
    """Return a handler whose status is 503 while the registry is away, a job waits, or the jobs are leaving."""
    return _answering(jobs, "ready")


def _answering(jobs: ElasticJob, asked: Probe) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        now = jobs.health
        return web.json_response(now.as_json(), status=now.status_code(asked))

    return answer
