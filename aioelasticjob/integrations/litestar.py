"""Litestar: ``Litestar([health(jobs)], lifespan=[elastic_job(jobs)])``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from litestar import Litestar, Response, get
from litestar.handlers import HTTPRouteHandler

from aioelasticjob.app import ElasticJob
from aioelasticjob.integrations.guest import guest


def elastic_job(jobs: ElasticJob) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Return a lifespan that runs the jobs."""
    return lambda app: guest(jobs, app)


def health(jobs: ElasticJob, path: str = "/health") -> HTTPRouteHandler:
    """Return a route that answers with the health of this process; its status is 503 when the jobs have ended."""

    @get(path)
    async def answer() -> Response[dict[str, object]]:
        now = jobs.health
        return Response(now.as_json(), status_code=503 if now.status == "down" else 200)

    return answer
