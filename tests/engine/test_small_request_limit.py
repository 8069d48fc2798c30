"""A registry closes the connection on large requests: they are sent in parts, and other jobs run on."""

from __future__ import annotations

from collections import Counter

import pytest

from aioelasticjob import ItemContext
from aioelasticjob.engine.refusals import CLAIM
from aioelasticjob.operations import ask, configure
from tests.support.simulated_jobs import SimulatedJobs, simulate

EVERY_TWO, EVERY_TEN = "0/2 * * * * ?", "0/10 * * * * ?"
SMALL = 4096
"""Bytes of the largest request: ZooKeeper with ``-Djute.maxbuffer=4096``."""


async def nothing(context: ItemContext) -> None: ...


def test_a_job_with_many_items_and_a_small_one_run_on_time_though_the_registry_takes_small_requests_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran = Counter[int]()

    async def scene(here: SimulatedJobs) -> None:
        async def note(context: ItemContext) -> None:
            ran[round(context.fire_time.timestamp() - here.start)] += 1

        app = here.app(cron=EVERY_TWO)
        app.add(note, name="wide", cron=EVERY_TEN, sharding_total_count=100)
        async with app.running() as session:
            await here.until(95)
            requests, connection = session.requests, session._keeper.connection
            await here.until(115)
            assert session._keeper.connection is connection
            assert session.requests - requests < 400
            assert {job.name: job.problem for job in app.health.jobs} == {"job": None, "wide": None}

    here = simulate(scene, max_frame=SMALL)
    assert {moment: times for moment, times in ran.items() if moment > 10} == dict.fromkeys(range(20, 120, 10), 100)
    late = [at - fired for at, _, fired in here.starts() if fired > 10]
    assert len(late) == 52
    assert max(late) < 0.2
    lines = [record.getMessage() for record in caplog.records]
    (found,) = [line for line in lines if "closes the connection on requests of more than" in line]
    assert "bytes for /job, /wide:" in found
    assert not any("refuses to coordinate" in line for line in lines)
    assert sum("the connection to the registry was lost" in line for line in lines) <= 3


def test_the_claim_of_one_item_that_is_too_large_is_named_and_other_jobs_run_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TWO)
        app.add(nothing, name="wordy", cron=EVERY_TEN)
        async with app.running() as session:
            await here.until(11)
            await ask(session, "wordy", parameter="x" * (SMALL - 400))  # the claim has more than the request's node
            await here.until(60)
            (wordy,) = [job for job in app.health.jobs if job.name == "wordy"]
            assert [refused.what for refused in wordy.refused] == [CLAIM]
            connection = session._keeper.connection
            await here.until(80)
            assert session._keeper.connection is connection

    here = simulate(scene, max_frame=SMALL)
    assert [fired for at, _, fired in here.starts() if fired > 20 and at - fired < 0.2] == list(range(22, 80, 2))
    found = "wordy: the registry refuses to claim items: request for /wordy/execution/0 is"
    assert any(found in record.getMessage() for record in caplog.records)


def test_an_item_count_is_lowered_in_parts_that_the_registry_takes() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=100)
        async with app.running() as session:
            await here.until(25)
            await configure(session, "job", {"sharding_total_count": 1})
            await here.until(45)
            assert await here.names("/job/sharding") == ("0",)

    here = simulate(scene, max_frame=SMALL)
    assert [(item, fired) for _, item, _, fired in here.runs if fired > 35] == [(0, 40)]
