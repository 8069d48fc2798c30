"""A job in a few words: what lists say of it is true."""

from __future__ import annotations

import pytest

from aioelasticjob.config import JobConfig
from aioelasticjob.model import Record
from aioelasticjob.operations import ItemStatus, JobStatus


def record(begun: int, outcome: str, *, completed: bool = True) -> Record:
    return Record(begun, "CRON", "one", begun, begun + 500, begun + 1000, completed, outcome)


def job(*records: Record | None) -> JobStatus:
    items = tuple(ItemStatus(n, None, None, None, None, False, False, False, one) for n, one in enumerate(records))
    return JobStatus(JobConfig(job_name="report"), None, None, True, None, (), (), items)


@pytest.mark.parametrize("outcome", ["failed", "timed out", "cancelled"])
def test_what_went_wrong_is_not_hidden_behind_the_other_items_of_that_fire(outcome: str) -> None:
    wrong = record(2000, outcome)
    others = [record(2000, "completed"), None, Record(), record(1000, "completed"), record(2000, "", completed=False)]
    assert job(*others, wrong).last == wrong
    assert job(wrong, *others).last == wrong


def test_an_older_failure_is_over_once_a_newer_run_has_begun() -> None:
    newer = record(3000, "completed")
    assert job(record(2000, "failed"), newer).last == newer
    assert job(None, Record()).last is None
