"""FastAPI, Starlette and Litestar with jobs inside, driven as a server drives them, in virtual time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import pytest
from fastapi import FastAPI
from litestar import Litestar
from starlette.applications import Starlette
from starlette.routing import Route

from aioelasticjob import Depends, ElasticJob, ItemContext
from aioelasticjob.integrations import fastapi, host, lifespan_state, litestar, starlette
from aioelasticjob.testing import Faults, VirtualClock, run
from aioelasticjob.zookeeper.server import serve
from tests.support.asgi_server import NotStarted, get, serving

PATHS = ("/health", "/health/live", "/health/ready")

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def in_fastapi(jobs: ElasticJob) -> FastAPI:
    app = FastAPI(lifespan=fastapi.elastic_job(jobs))
    app.get("/health")(fastapi.health(jobs))
    app.get("/health/live")(fastapi.liveness(jobs))
    app.get("/health/ready")(fastapi.readiness(jobs))
    return app


def in_starlette(jobs: ElasticJob) -> Starlette:
    answers = (starlette.health, starlette.liveness, starlette.readiness)
    routes = [Route(path, answer(jobs)) for path, answer in zip(PATHS, answers, strict=True)]
    return Starlette(routes=routes, lifespan=starlette.elastic_job(jobs))


def in_litestar(jobs: ElasticJob) -> Litestar:
    answers = [litestar.health(jobs), litestar.liveness(jobs), litestar.readiness(jobs)]
    return Litestar(answers, lifespan=[litestar.elastic_job(jobs)], logging_config=None)


frameworks = pytest.mark.parametrize("within", [in_fastapi, in_starlette, in_litestar])


async def probed(app: Any) -> list[int]:
    """Return the status codes of health, liveness and readiness."""
    return [(await get(app, path))[0] for path in PATHS]


def colour(app: Annotated[Any, Depends(host)]) -> str:
    return str(app.state.colour)


async def paint(context: ItemContext, colour: Annotated[str, Depends(colour)]) -> None:
    calls.append(f"{context.item} {colour}")
    await anyio.sleep(3)


def painter(address: str = "embedded://", **settings: Any) -> ElasticJob:
    """Return jobs that paint every ten seconds, in the host's colour."""
    jobs = ElasticJob(address, clock=VirtualClock(), session_timeout=10, connection_timeout=5)
    jobs.add(paint, name="paint", **{"cron": "0/10 * * * * ?", "sharding_total_count": 2, **settings})
    return jobs


@frameworks
def test_jobs_run_while_the_application_does_and_use_its_state(within: Callable[[ElasticJob], Any]) -> None:
    async def main() -> None:
        app = within(painter())
        app.state.colour = "green"
        async with serving(app):
            await anyio.sleep(15)
        await anyio.sleep(20)

    run(main)
    assert sorted(calls) == ["0 green", "1 green"]


@frameworks
def test_health_says_what_this_process_holds_and_runs(within: Callable[[ElasticJob], Any]) -> None:
    async def main() -> None:
        jobs = painter()
        app = within(jobs)
        app.state.colour = "green"
        async with serving(app):
            await anyio.sleep(11)
            status, health = await get(app, "/health")
            (job,) = health["jobs"]
            assert (status, health["status"]) == (200, "up")
            assert health["registry"].startswith("zk://127.0.0.1:")
            assert job["instance"].startswith(f"127.0.0.1@-@{health['pid']}-")
            assert (job["name"], job["leads"], job["holds"], job["running"]) == ("paint", True, [0, 1], [0, 1])
            assert job["next_fire"] == "2026-01-01T00:00:20+00:00"
            await anyio.sleep(4)
            assert (await get(app, "/health"))[1]["jobs"][0]["running"] == []
        status, health = await get(app, "/health")
        assert (status, health["status"], health["registry"]) == (503, "down", None)
        assert health["jobs"][0] == {
            **job,
            "instance": None,
            "leads": False,
            "holds": [],
            "running": [],
            "next_fire": None,
        }

    run(main)


@frameworks
def test_an_application_does_not_start_without_its_registry(within: Callable[[ElasticJob], Any]) -> None:
    async def main() -> None:
        with pytest.raises(NotStarted, match=r"no registry at 127\.0\.0\.1:1"):
            async with serving(within(painter("zk://127.0.0.1:1/nobody"))):
                pytest.fail("it has started")

    run(main)


async def burn(context: ItemContext) -> None:
    raise ValueError("on fire")


@frameworks
def test_jobs_that_end_by_an_error_leave_their_host_alone_and_tell(
    within: Callable[[ElasticJob], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        jobs = ElasticJob("embedded://", clock=VirtualClock())
        jobs.add(burn, cron="0/10 * * * * ?", error_handler="raise")
        app = within(jobs)
        async with serving(app):
            await anyio.sleep(9)
            assert (await get(app, "/health"))[0] == 200
            await anyio.sleep(60)
            status, health = await get(app, "/health")
            assert (status, health["status"]) == (503, "down")

    run(main)  # its end is an ordinary one: what the host does after the jobs is done
    (said,) = (record for record in caplog.records if record.levelno == logging.CRITICAL)
    assert said.getMessage() == "the jobs have ended because of an error (the application around them goes on): burn"


def test_a_registry_that_is_away_suspends_the_jobs_and_is_no_reason_to_restart_the_process() -> None:
    async def registry() -> None:
        async with serve("0.0.0.0", 2181, clock=VirtualClock().now):
            await anyio.sleep_forever()

    async def main() -> None:
        faults = Faults()
        server = faults.start("registry", "10.0.0.1", registry)
        await anyio.sleep(0.1)
        app = in_fastapi(painter("zk://10.0.0.1:2181/shop", disabled=True))
        async with serving(app):
            assert (await get(app, "/health"))[1]["status"] == "up"
            assert await probed(app) == [200, 200, 200]
            faults.crash(server)
            await anyio.sleep(1)
            status, health = await get(app, "/health")
            assert (status, health["status"]) == (200, "suspended")
            assert await probed(app) == [200, 200, 503]

    run(main)


@frameworks
def test_a_process_that_drains_is_alive_and_not_ready(within: Callable[[ElasticJob], Any]) -> None:
    async def main() -> None:
        app = within(painter())
        app.state.colour = "green"
        seen: list[list[int]] = []

        async def look() -> None:
            await anyio.sleep(1)
            health = (await get(app, "/health"))[1]
            assert (health["status"], health["phase"], health["jobs"][0]["running"]) == ("up", "leaving", [0, 1])
            seen.append(await probed(app))

        async with anyio.create_task_group() as tasks, serving(app):
            await anyio.sleep(11)
            seen.append(await probed(app))
            tasks.start_soon(look)
        seen.append(await probed(app))
        assert seen == [[200, 200, 200], [200, 200, 503], [503, 503, 503]]

    run(main)


@asynccontextmanager
async def own(app: Any) -> AsyncIterator[dict[str, str]]:
    calls.append("opened")
    yield {"paint": "red"}
    calls.append("closed")


async def paint_in_state(context: ItemContext, state: Annotated[dict[str, str], Depends(lifespan_state)]) -> None:
    try:
        await anyio.sleep(5)
    finally:
        calls.append(f"{context.item} {state['paint']}")


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
def test_the_applications_own_lifespan_is_around_the_jobs(framework: Callable[..., Any]) -> None:
    async def main() -> None:
        jobs = ElasticJob("embedded://", clock=VirtualClock())
        jobs.add(paint_in_state, cron="0/10 * * * * ?")
        async with serving(framework(lifespan=starlette.elastic_job(jobs, own))):
            await anyio.sleep(11)

    run(main)
    assert calls == ["opened", "0 red", "closed"]
