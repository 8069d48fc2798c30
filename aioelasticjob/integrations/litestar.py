"""Litestar: ``Litestar([health(jobs)], lifespan=[elastic_job(jobs)])``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from litestar import Litestar, Response, get
from litestar.handlers import HTTPRouteHandler

from aioelasticjob.app import ElasticJob
from aioelasticjob.engine.health import Probe
from aioelasticjob.integrations.guest import guest


def elastic_job(jobs: ElasticJob) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Return a lifespan that runs the jobs."""
    return lambda app: guest(jobs, app)


def health(jobs: ElasticJob, path: str = "/health") -> HTTPRouteHandler:
    """Return a route that answers with the health of this process; its status is 503 when the jobs have ended."""
    return _answering(jobs, "health", path)


def liveness(jobs: ElasticJob, path: str = "/health/live") -> HTTPRouteHandler:
    """Return a route whose status is 503 when the jobs have ended, so that only a restart brings them back."""
    return _answering(jobs, "live", path)


def readiness(jobs: ElasticJob, path: str = "/health/ready") -> HTTPRouteHandler:
    """Return a route whose status is 503 while the registry is away, a job waits, or the jobs are leaving."""
    return _answering(jobs, "ready", path)


def _answering(jobs: ElasticJob, asked: Probe, path: str) -> HTTPRouteHandler:
    @get(path)
    async def answer() -> Response[dict[str, object]]:
        now = jobs.health
        return Response(now.as_json(), status_code=now.status_code(asked))

    return answer
