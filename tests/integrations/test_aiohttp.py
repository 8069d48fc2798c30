"""aiohttp with jobs inside, on real sockets: its client and server know no other."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aioelasticjob import Depends, ElasticJob
from aioelasticjob.integrations import host
from aioelasticjob.integrations.aiohttp import elastic_job, health, liveness, readiness
from tests.support.loops import LoopKind, run_async

PAINTED = web.AppKey("painted", anyio.Event)


def painted(app: Annotated[web.Application, Depends(host)]) -> anyio.Event:
    return app[PAINTED]


async def paint(context: object, painted: Annotated[anyio.Event, Depends(painted)]) -> None:
    painted.set()


def test_jobs_run_while_the_application_does_and_tell_what_they_hold(real_loop_kind: LoopKind) -> None:
    jobs = ElasticJob("embedded://")
    jobs.add(paint, cron="* * * * * ?", sharding_total_count=2)

    async def main() -> None:
        app = web.Application()
        app[PAINTED] = anyio.Event()
        app.cleanup_ctx.append(elastic_job(jobs))
        app.router.add_get("/health", health(jobs))
        app.router.add_get("/health/live", liveness(jobs))
        app.router.add_get("/health/ready", readiness(jobs))
        async with TestClient(TestServer(app)) as client:
            with anyio.fail_after(90):
                await app[PAINTED].wait()
            answer = await client.get("/health")
            shown: dict[str, Any] = await answer.json()
            assert (answer.status, shown["status"], shown["jobs"][0]["holds"]) == (200, "up", [0, 1])
            jobs._here.phase = "leaving"
            assert [(await client.get(f"/health{path}")).status for path in ("", "/live", "/ready")] == [200, 200, 503]
            jobs._here.phase = "running"
        assert jobs.health.status == "down"

    run_async(real_loop_kind, main)
