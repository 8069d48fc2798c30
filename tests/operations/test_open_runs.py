"""A run that the history calls running, and that the registry knows to have ended, is not shown as running."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record
from aioelasticjob.observers.sql import OutcomeCount, RunEntry
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.open_runs import ENDED, RUNNING, judged, recounted
from aioelasticjob.operations.status import ActiveRun
from tests.console.samples import INSTANCES, NOW, ended, item, status

FENCE = 0x2A


def row(began: float = NOW, number: int = 0, *, job: str = "report", fence: int = FENCE) -> RunEntry:
    """Return a run without an end, as the history has it."""
    task = f"{job}@-@{number}@-@READY@-@{INSTANCES[0]}@-@20270115T080000Z.{fence:x}"
    return RunEntry(
        id=f"{job}-{number}-{began}",
        job=job,
        task_id=task,
        item=number,
        source="SCHEDULE",
        host="host",
        ip="10.0.0.1",
        instance=INSTANCES[0],
        fire_time=moment(began),
        began=moment(began + 0.02),
        ended=None,
        outcome=RUNNING,
        seconds=None,
        failure=None,
        namespace="billing",
    )


def shown(run: RunEntry, *jobs: JobStatus) -> str:
    return judged(run, {one.name: one for one in jobs}).outcome


def lock(fence: int = FENCE) -> ActiveRun:
    return ActiveRun(INSTANCES[0], moment(NOW), fence)


def begun(at: float) -> Record:
    """Return the record of a run that goes on."""
    return replace(ended("", at), completed=False, completed_at=0)


def test_a_run_is_running_while_the_registry_has_its_lock() -> None:
    assert shown(row(), status("report", (item(0, run=lock(), record=begun(NOW)),), now=NOW)) == RUNNING


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_of_the_newest_run_the_registry_knows_how_it_has_ended(outcome: str) -> None:
    assert shown(row(), status("report", (item(0, record=ended(outcome, NOW)),), now=NOW)) == outcome


def test_a_run_that_was_cut_off_has_ended() -> None:
    assert shown(row(), status("report", (item(0, record=begun(NOW)),), now=NOW)) == ENDED


def test_an_older_run_than_the_one_that_the_registry_knows_has_ended() -> None:
    newer = item(0, run=lock(FENCE + 1), record=begun(NOW + 60))
    assert shown(row(), status("report", (newer,), now=NOW)) == ENDED
    newer = item(0, record=ended("completed", NOW + 60))
    assert shown(row(), status("report", (newer,), now=NOW)) == ENDED


def test_a_newer_run_than_the_one_that_the_console_knows_is_running() -> None:
    older = item(0, record=ended("completed", NOW - 60))
    assert shown(row(), status("report", (older,), now=NOW)) == RUNNING
    assert shown(row(), status("report", (item(0),), now=NOW)) == RUNNING  # no run is known yet


def test_a_run_of_a_job_or_an_item_that_was_removed_has_ended() -> None:
    assert shown(row()) == ENDED
    assert shown(replace(row(), namespace=None)) == RUNNING  # it may be another program's
    assert shown(row(number=3), status("report", (item(0),), now=NOW)) == ENDED


def test_without_records_a_run_has_ended_when_its_instance_is_gone() -> None:
    plain = {"now": NOW, "monitor_execution": False}
    assert shown(row(), status("report", (item(0),), **plain)) == RUNNING  # type: ignore[arg-type]
    assert shown(row(), status("report", (item(0),), instances=INSTANCES[1:], **plain)) == ENDED  # type: ignore[arg-type]


def test_a_run_of_several_items_together_is_running_while_its_instance_runs_them() -> None:
    together = status("report", (item(0, run=lock(FENCE - 1), record=begun(NOW)),), now=NOW, per="instance")
    assert shown(row(), together) == RUNNING


def test_what_has_ended_in_the_history_is_left_as_it_is() -> None:
    assert shown(replace(row(), outcome="failed")) == "failed"


def test_runs_that_have_ended_do_not_count_as_running() -> None:
    counts = (OutcomeCount(0, RUNNING, 2), OutcomeCount(0, "completed", 5), OutcomeCount(1, RUNNING, 1))
    runs = [
        replace(row(NOW), outcome=ENDED),
        replace(row(NOW + 1), outcome="completed"),
        row(NOW + 61),
        replace(row(NOW + 500), outcome=ENDED),  # it came after the runs were counted
    ]
    assert recounted(counts, runs, NOW, 60) == (
        OutcomeCount(0, "completed", 6),
        OutcomeCount(0, ENDED, 1),
        OutcomeCount(1, RUNNING, 1),
    )
