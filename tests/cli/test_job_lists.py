"""Which jobs are listed, in which order, and which need attention: rules over what a look at the registry shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.cli.job_lists import JobList, Order
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.status import STATES
from tests.console.samples import NOW, ended, item, status

WELL = status("a-well", (item(0, record=ended("completed", NOW - 60)),), now=NOW, cron="0 0 * * * ?")
FAILING = status("b-failing", (item(0, record=ended("failed", NOW - 30)),), now=NOW, cron="0/5 * * * * ?")
NOBODY = status("c-nobody", (item(0), item(1)), now=NOW, instances=())
OFF = status("d-off", (item(0, record=ended("failed", NOW)),), now=NOW, paused=True)
JOBS = (WELL, FAILING, NOBODY, OFF)


def names(listed: JobList, jobs: tuple[JobStatus, ...] = JOBS) -> list[str]:
    return [one.status.name for one in listed.chosen(jobs, NOW)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.NAME, ["a-well", "b-failing", "c-nobody", "d-off"]),
        (Order.WORST, ["c-nobody", "b-failing", "a-well", "d-off"]),
        (Order.NEXT, ["b-failing", "a-well", "c-nobody", "d-off"]),
        (Order.LAST, ["d-off", "b-failing", "a-well", "c-nobody"]),
        (Order.ITEMS, ["c-nobody", "a-well", "b-failing", "d-off"]),
    ],
)
def test_jobs_are_sorted_and_those_without_a_value_come_last(order: Order, expected: list[str]) -> None:
    assert names(JobList(order=order)) == expected


def test_only_jobs_in_the_states_that_were_asked_for_are_listed_and_no_other_state_is_taken() -> None:
    assert names(JobList(states=("switched off", "nobody there"))) == ["c-nobody", "d-off"]
    with pytest.raises(InvalidSetting, match=r"state.*'broken'.*must be one of running, waiting"):
        JobList(states=("broken",))


def test_every_state_that_a_job_can_have_can_be_asked_for() -> None:
    plain = WELL
    seen = {one.state for one in JOBS}
    seen |= {replace(plain, **traits).state for traits in ({"foreign": True}, {"fault": "no cron"}, {"settled": False})}
    assert seen < set(STATES)


def test_jobs_that_need_attention_are_listed_with_all_of_their_reasons() -> None:
    listed = JobList(attention=True, order=Order.WORST)
    assert names(listed) == ["c-nobody", "b-failing"]
    worst, failing = listed.as_values(JOBS, NOW)
    assert worst["attention"] == [{"kind": "nobody there", "why": "nobody is there to run it", "since": None}]
    expected = {"kind": "failing", "why": "failing, at least 1 in a row (items: 0)", "since": moment(NOW - 30)}
    assert failing["attention"] == [expected]
    assert JobList().as_values((WELL,), NOW)[0]["attention"] == []


def test_it_is_said_of_what_there_is_nothing() -> None:
    assert JobList().nothing == "no jobs"
    listed = JobList(labels=(("team", "billing"), ("tier", None)), states=("waiting",), attention=True)
    assert listed.nothing == "no job with the label team=billing and tier and the state waiting needs attention"
