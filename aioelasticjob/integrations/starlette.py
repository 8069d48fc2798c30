"""Starlette: ``Starlette(lifespan=elastic_job(jobs))``, and an endpoint with the health of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse

from aioelasticjob.app import ElasticJob
from aioelasticjob.engine.health import Probe
from aioelasticjob.integrations.guest import guest

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
Answer: TypeAlias = Callable[[Request], Awaitable[JSONResponse]]


def elastic_job(jobs: ElasticJob, lifespan: Lifespan | None = None) -> Lifespan:
    """Return a lifespan that runs the jobs, inside the application's own lifespan if that is given."""

    @asynccontextmanager
    async def around(app: Any) -> AsyncIterator[Any]:
        own: AbstractAsyncContextManager[Any] = nullcontext() if lifespan is None else lifespan(app)
        async with own as state, guest(jobs, app, state):
            yield state

    return around


def health(jobs: ElasticJob) -> Answer:
    """Return an endpoint that answers with the health of this process; its status is 503 when the jobs have ended.

    While the registry does not answer, the status stays 200: the jobs go on by themselves when it is back, and
    restarting every process would make the outage worse.
    """
    return _answering(jobs, "health")


def liveness(jobs: ElasticJob) -> Answer:
    """Return an endpoint whose status is 503 when the jobs have ended, so that only a restart brings them back."""
    return _answering(jobs, "live")


def readiness(jobs: ElasticJob) -> Answer:
    """Return an endpoint whose status is 503 while the registry is away, a job waits, or the jobs are leaving."""
    return _answering(jobs, "ready")


def _answering(jobs: ElasticJob, asked: Probe) -> Answer:
    async def answer(request: Request) -> JSONResponse:
        now = jobs.health
        return JSONResponse(now.as_json(), status_code=now.status_code(asked))

    return answer
