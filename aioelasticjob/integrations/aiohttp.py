"""aiohttp: ``app.cleanup_ctx.append(elastic_job(jobs))`` and ``app.router.add_get("/health", health(jobs))``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from aioelasticjob.app import ElasticJob
from aioelasticjob.integrations.guest import guest


def elastic_job(jobs: ElasticJob) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context that runs the jobs."""

    async def around(app: web.Application) -> AsyncIterator[None]:
        async with guest(jobs, app):
            yield

    return around


def health(jobs: ElasticJob) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that answers with the health of this process; its status is 503 when the jobs have ended."""

    async def answer(request: web.Request) -> web.Response:
        now = jobs.health
        return web.json_response(now.as_json(), status=503 if now.status == "down" else 200)

    return answer
