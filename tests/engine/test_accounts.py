"""What is accounted for without a run is written only under what it was decided on."""

from __future__ import annotations

import pytest

from aioelasticjob.core.view import JobView
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.transaction import Create, Set
from tests.engine.test_claims import LAYOUT, SLOT, ClaimedJob, done


@pytest.fixture
def job() -> ClaimedJob:
    job = ClaimedJob(2)
    job.write(Create(LAYOUT.schedule, b"{}"))
    return job


def written(job: ClaimedJob, view: JobView) -> dict[int, VersionedRecord] | None:
    """Account for all moments up to ``SLOT``, of both items."""
    wanted = {item: (job.seen[item], Record(accounted=SLOT)) for item in job.items}
    return done(write_accounts(job.member, view, wanted))


def test_records_are_written_with_the_versions_that_the_next_write_checks(job: ClaimedJob) -> None:
    for _ in range(2):
        found = written(job, job.view())
        assert found is not None
        job.seen |= found
    assert [job.record(item).accounted for item in job.items] == [SLOT, SLOT]
    assert [job.seen[item].version for item in job.items] == [1, 1]


@pytest.mark.parametrize("path", [LAYOUT.sharding, LAYOUT.schedule])
def test_nothing_is_written_under_an_assignment_or_schedules_that_were_replaced(job: ClaimedJob, path: str) -> None:
    view = job.view()
    job.write(Set(path, b"{}", -1))
    assert written(job, view) is None
    assert not any(LAYOUT.item(item).execution in job.registry.nodes for item in job.items)


def test_a_record_that_somebody_else_has_written_meanwhile_stays_as_it_is(job: ClaimedJob) -> None:
    job.elsewhere(0, running=False)
    job.learn()
    theirs = Record(SLOT + 1000, "SCHEDULE", "other", 2, accounted=SLOT + 1000)
    job.elsewhere(0, theirs, running=False)
    assert written(job, job.view()) == {}
    assert job.record(0) == theirs
    job.learn()
    found = written(job, job.view())
    assert found is not None
    assert found.keys() == {0, 1}
