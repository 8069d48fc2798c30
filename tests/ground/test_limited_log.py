"""Of log lines alike, some are written, and one line counts the others at the end of the interval."""

from __future__ import annotations

import logging
from functools import partial

import pytest
from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import Ended, Misfired
from aioelasticjob.ground.limited_log import INTERVAL, MOST, LimitedLog
from aioelasticjob.testing import VirtualCluster, run, simulated

LOG = logging.getLogger("test")


def test_of_lines_alike_one_is_written_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        warn = partial(LimitedLog().warning, LOG, "job")
        for _ in range(5):
            warn("busy", "item 0 missed a run", slot=7)
        warn("away", "item 1 missed a run")
        await sleep(INTERVAL + 1)
        assert caplog.messages[2:] == ["4 more lines were left out, about 1 job: busy"]
        warn("busy", "item 2 missed a run")
        await sleep(INTERVAL + 1)
        warn("busy", "item 3 missed a run")

    run(main)
    assert caplog.messages == [
        "job: item 0 missed a run",
        "job: item 1 missed a run",
        "4 more lines were left out, about 1 job: busy",
        "job: item 2 missed a run",
        "job: item 3 missed a run",
    ]
    assert [vars(record).get("slot") for record in caplog.records] == [7, None, None, None, None]
    assert {vars(record)["job"] for record in caplog.records if "left out" not in record.getMessage()} == {"job"}


def test_of_lines_about_many_jobs_some_are_written_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited = LimitedLog()
        for number in range(MOST + 30):
            for _ in range(2):
                limited.warning(LOG, f"job-{number}", "busy", "item 0 missed a run")
        assert len(caplog.messages) == MOST
        await sleep(INTERVAL + 1)
        limited.warning(LOG, "job-0", "busy", "item 0 missed a run")

    run(main)
    assert caplog.messages[MOST:] == [
        f"{MOST + 60} more lines were left out, about {MOST + 30} jobs: busy",
        "job-0: item 0 missed a run",
    ]


def test_the_line_that_counts_has_the_level_of_the_lines_that_it_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited = LimitedLog()
        for _ in range(3):
            limited.admits(LOG, "job", "leaders assign items", level=logging.INFO)
            limited.admits(LOG, "job", "busy")
        limited.close()

    caplog.set_level(logging.INFO)
    run(main)
    assert {record.getMessage().rpartition(": ")[2]: record.levelno for record in caplog.records} == {
        "leaders assign items": logging.INFO,
        "busy": logging.WARNING,
    }


def test_lines_that_nobody_has_counted_are_counted_at_the_end_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited = LimitedLog()
        limited.warning(LOG, "a", "written", "item 0 missed a run")
        for job in ("b", "b", "b", "c", "c"):
            limited.warning(LOG, job, "busy", "item 0 missed a run")
        assert len(caplog.messages) == 3
        limited.close()
        limited.close()
        await sleep(INTERVAL + 1)

    run(main)
    assert caplog.messages[3:] == ["3 more lines were left out, about 2 jobs: busy"]


def test_lines_after_the_end_are_all_written(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited = LimitedLog()
        limited.close()
        for _ in range(3):
            limited.warning(LOG, "a", "busy", "item 0 missed a run")

    run(main)
    assert len(caplog.messages) == 3


def test_of_lines_that_are_each_about_something_else_a_job_writes_as_many_as_a_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        limited = LimitedLog()
        for number in range(MOST + 10):
            limited.warning(LOG, "job", "expired", f"request {number} has expired", each=MOST)
        limited.close()

    run(main)
    assert caplog.messages == [
        *(f"job: request {number} has expired" for number in range(MOST)),
        "10 more lines were left out, about 1 job: expired",
    ]


def test_of_lines_about_no_job_the_newest_is_quoted_if_it_was_left_out_and_reports_a_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        limited = LimitedLog()

        def say(state: str) -> None:
            if limited.admits(LOG, None, "it comes and goes", each=2, newest=state):
                LOG.warning("%s", state)

        for number in range(3):
            say(f"gone {number}")
            say(f"there {number}")
        await sleep(INTERVAL + 1)
        say("gone 3")
        say("there 3")
        await sleep(INTERVAL + 1)
        for _ in range(3):
            if limited.admits(LOG, None, "busy"):
                LOG.warning("it is busy")
        limited.close()

    run(main)
    assert caplog.messages == [
        "gone 0",
        "there 0",
        "4 more lines were left out: it comes and goes; the newest: there 2",
        "gone 3",
        "there 3",
        "it is busy",
        "2 more lines were left out: busy",
    ]
    assert "job" not in vars(caplog.records[-2])


def test_kinds_that_are_over_take_no_memory() -> None:
    async def main() -> None:
        limited = LimitedLog()
        for number in range(10):
            limited.warning(LOG, "job", f"instance {number} is gone", "item 0 missed a run")
            await sleep(INTERVAL / 2)
        assert len(limited._intervals) <= 2
        await sleep(INTERVAL)
        assert not limited._intervals

    run(main)


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


async def _fail(context: ItemContext) -> None:
    raise ValueError(f"no paper for item {context.item}")


@simulated
async def _a_job_that_always_fails(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    app.add(_fail, name="fails", cron="* * * * * ?", sharding_total_count=3)
    await cluster.start(app)
    await sleep(45.5)


def test_a_job_that_always_fails_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    cluster = VirtualCluster()
    _a_job_that_always_fails(cluster)
    failed = [event for event in cluster.events if isinstance(event, Ended)]
    lines = [record for record in caplog.records if "no paper" in record.getMessage()]
    assert len(lines) == MOST
    assert all(record.exc_info for record in lines)
    (count,) = [text for text in caplog.messages if "left out" in text]
    assert count == f"{len(failed) - MOST} more lines were left out, about 1 job: runs fail with ValueError"
