from __future__ import annotations

import logging
from functools import partial

import pytest
from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import Misfired
from aioelasticjob.running.limited_log import INTERVAL, MOST, LimitedLog
from aioelasticjob.testing import VirtualCluster, run, simulated


def test_of_lines_alike_one_is_written_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        warn = partial(LimitedLog().warning, logging.getLogger("test"), "job")
        for _ in range(5):
            warn("busy", "item 0 missed a run", slot=7)
        warn("away", "item 1 missed a run")
        await sleep(INTERVAL)
        warn("busy", "item 2 missed a run")
        await sleep(INTERVAL)
        warn("busy", "item 3 missed a run")

    run(main)
    assert caplog.messages == [
        "job: item 0 missed a run",
        "job: item 1 missed a run",
        "job: item 2 missed a run (4 such lines were left out before this one)",
        "job: item 3 missed a run",
    ]
    assert [vars(record).get("slot") for record in caplog.records] == [7, None, None, None]
    assert {vars(record)["job"] for record in caplog.records} == {"job"}


def test_of_lines_about_many_jobs_some_are_written_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited, log = LimitedLog(), logging.getLogger("test")
        for number in range(MOST + 30):
            for _ in range(2):
                limited.warning(log, f"job-{number}", "busy", "item 0 missed a run")
        assert len(caplog.messages) == MOST
        await sleep(INTERVAL)
        limited.warning(log, "job-0", "busy", "item 0 missed a run")

    run(main)
    assert caplog.messages[MOST:] == [
        f"{MOST + 60} more lines were left out, about {MOST + 30} jobs: busy",
        "job-0: item 0 missed a run",
    ]


def test_lines_that_nobody_has_counted_are_counted_at_the_end_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited, log = LimitedLog(), logging.getLogger("test")
        limited.warning(log, "a", "written", "item 0 missed a run")
        for job in ("b", "b", "b", "c", "c"):
            limited.warning(log, job, "busy", "item 0 missed a run")
        assert len(caplog.messages) == 3
        limited.close()
        limited.close()

    run(main)
    assert caplog.messages[3:] == ["3 more lines were left out, about 2 jobs: busy"]


def test_the_first_line_of_a_kind_is_written_whatever_the_time_is(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited, log = LimitedLog(), logging.getLogger("test")
        for number in range(100):
            await sleep(0.1)  # at some of these times, subtracting a minute and adding it again gives a later time
            limited.warning(log, "job", f"kind {number}", "item 0 missed a run")

    run(main)
    assert len(caplog.messages) == 100


def test_lines_that_are_each_about_something_else_hide_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited, log = LimitedLog(), logging.getLogger("test")
        for number in range(MOST + 10):
            limited.warning(log, "job", "expired", f"request {number} has expired", each=True)
        limited.close()

    run(main)
    assert caplog.messages == [
        *(f"job: request {number} has expired" for number in range(MOST)),
        "10 more lines were left out, about 1 job: expired",
    ]


def test_kinds_that_are_over_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited, log = LimitedLog(), logging.getLogger("test")
        for number in range(10):
            limited.warning(log, "job", f"instance {number} is gone", "item 0 missed a run")
            await sleep(INTERVAL)
        limited.warning(log, "job", "busy", "item 0 missed a run")
        limited.warning(log, "job", "busy", "item 0 missed a run")
        await sleep(INTERVAL)
        limited.warning(log, "job", "away", "item 0 missed a run")
        assert list(limited._kinds) == ["busy", "away"]  # what was left out of "busy" has not been written yet
        limited.close()

    run(main)
    assert caplog.messages[-1] == "1 more line was left out, about 1 job: busy"


async def _slow(context: ItemContext) -> None:
    await sleep(2.5)


@simulated
async def _a_job_that_is_always_late(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    app.add(_slow, name="slow", cron="* * * * * ?", misfire=False)
    await cluster.start(app)
    await sleep(50)
    assert len([event for event in cluster.events if isinstance(event, Misfired)]) > 10


def test_a_job_that_is_always_late_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    _a_job_that_is_always_late(VirtualCluster())
    (line,) = [text for text in caplog.messages if " missed " in text]
    assert line.startswith("slow: item 0 missed ")
    assert ": the last run was still going on; they are not run (reported by " in line
