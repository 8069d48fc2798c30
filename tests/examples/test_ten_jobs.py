"""The ten jobs run at their moments in simulated time; what belongs to the real world runs in real time."""

from __future__ import annotations

import os
import runpy
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from aioelasticjob import ElasticJob, FireSource, ItemContext, Outcome, operations
from aioelasticjob.events import Ended
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs import kinds
from aioelasticjob.testing import VirtualCluster
from tests.docs.pages import ROOT
from tests.support.processes import Workers

PROGRAM = str(ROOT / "examples" / "ten_jobs" / "jobs.py")
START = datetime(2026, 12, 31, 13, 58, tzinfo=UTC)
"""New Year's Eve, a Thursday, two minutes before nine in New York."""
END = datetime(2026, 12, 31, 23, 2, tzinfo=UTC)
"""Two minutes after midnight in Berlin."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def outside_world(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Let scripts and requests note what they would run: neither can be simulated."""
    noted = set[tuple[str, str]]()
    find = kinds.find

    def noting(name: str) -> kinds.Kind[Any]:
        async def note(context: ItemContext, options: Any) -> None:
            noted.add((context.job_name, options.command if name == "script" else options.url))

        return replace(find(name), run=note)

    monkeypatch.setattr(kinds, "find", noting)
    return noted


def grid(step: timedelta) -> list[datetime]:
    """Return the moments of an interval from the start of the test to its end."""
    first = START + (EPOCH - START) % step
    steps = (END - first) // step
    return [first + number * step for number in range(steps + 1)]


def at(*times: str) -> list[datetime]:
    return [datetime.fromisoformat(f"2026-12-31T{time}Z") for time in times]


@pytest.mark.virtual_time(start=START)
async def test_each_job_runs_at_its_moments_on_new_years_eve(
    virtual_cluster: VirtualCluster, outside_world: set[tuple[str, str]]
) -> None:
    example = runpy.run_path(PROGRAM)
    instance = await virtual_cluster.start(example["app"])
    await example["prepare"](instance.app, instance.session)
    await virtual_cluster.until(END)
    ends = [event for event in virtual_cluster.events if isinstance(event, Ended)]
    assert {end.outcome for end in ends} == {Outcome.COMPLETED}
    scheduled: dict[str, list[datetime]] = {}
    for end in ends:
        if end.source is FireSource.SCHEDULE:
            scheduled.setdefault(end.job, []).append(moment(end.slot / 1000))
    assert scheduled == {
        "poll": grid(timedelta(seconds=45)),
        "greet": at("14:00"),
        "raise_prices": at("23:00"),
        "tidy_up": [hour + timedelta(minutes=30) for hour in grid(timedelta(hours=1))[:-1]],
        "disk_usage": grid(timedelta(hours=1)),
        "ping": grid(timedelta(minutes=5)),
        "close_the_books": at("22:00"),
        "report-lotus": at("14:00"),
        "report-peony": at("21:00"),
        "send_invoices": at("22:00"),
    }
    (warmed_up,) = [end for end in ends if end.source is not FireSource.SCHEDULE]
    assert warmed_up.job == "warm_up"
    assert outside_world == {("disk_usage", "df -h /"), ("ping", "http://127.0.0.1:8080/health")}


@pytest.mark.virtual_time(start=START)
async def test_the_books_are_closed_on_business_days_and_the_invoices_follow(virtual_cluster: VirtualCluster) -> None:
    example = runpy.run_path(PROGRAM)
    instance = await virtual_cluster.start(example["app"], jobs=["close_the_books", "send_invoices", "warm_up"])
    await example["prepare"](instance.app, instance.session)
    closed = await virtual_cluster.next_fire("close_the_books")
    followed = await virtual_cluster.event(Ended, job="send_invoices")
    assert [end.slot for end in closed] == [followed.slot]
    for job in ("close_the_books", "send_invoices"):
        status = await virtual_cluster.status(job)
        assert status.next_fire == datetime(2027, 1, 4, 22, tzinfo=UTC), "Friday is New Year's Day"


def test_the_program_and_the_request_are_made_in_real_time(
    embedded_registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=204)

    async def main() -> None:
        service = web.Application()
        service.router.add_get("/health", answer)
        async with TestServer(service) as server:
            monkeypatch.setenv("SERVICE", str(server.make_url("")).rstrip("/"))
            app: ElasticJob = runpy.run_path(PROGRAM)["app"]
            app.use_registry(embedded_registry)
            async with app.running() as session:
                for job in ("disk_usage", "ping"):
                    request = await app.trigger(job)
                    ended = await operations.ended(session, job, request.request)
                    assert dict(ended.outcomes) == {"completed": 1}

    anyio.run(main)
    assert "/health" in asked


@pytest.mark.process
def test_the_program_starts_and_ends_without_a_word_of_an_error(worker_processes: Workers) -> None:
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    child = worker_processes.start(PROGRAM, environment=environment)
    child.wait_for_output("the caches are warm")
    os.kill(child.pid, signal.SIGINT)
    assert child.wait() == 0, child.output
    assert "Traceback" not in child.output
