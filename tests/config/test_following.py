"""Jobs that follow others: which settings are refused, in one job and between those of an application."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext
from aioelasticjob.config.job import JobConfig

EVERY: dict[str, Any] = {"every": "10s"}


async def handler(context: ItemContext) -> None:
    """Do nothing."""


def app(**jobs: dict[str, Any]) -> ElasticJob:
    made = ElasticJob("zk://127.0.0.1:1/followers")
    for name, settings in jobs.items():
        made.add(handler, name=name, **settings)
    return made


def test_a_job_follows_one_job_or_several() -> None:
    def followed(after: object) -> tuple[str, ...]:
        return JobConfig.build(job_name="load", after=after).after

    assert followed("extract") == ("extract",)
    assert followed("extract, clean") == ("extract", "clean")
    assert followed(["extract", "clean", "extract"]) == ("extract", "clean")
    assert followed(()) == ()


@pytest.mark.parametrize(
    "beside",
    [
        {"cron": "0 0 * * * ?"},
        {"every": 60},
        {"at": "2030-01-01T00:00"},
        {"start_at": "2030-01-01T00:00"},
        {"end_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"jitter": 5},
    ],
)
def test_a_job_that_follows_others_has_no_moments_of_its_own(beside: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="there is after as well") as refused:
        JobConfig.build(job_name="load", after="extract", **beside)
    assert refused.value.setting in beside


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"after": "load"}, "cannot follow itself"),
        ({"after": "a/b"}, "must be names of jobs"),
        ({"after": "extract", "monitor_execution": False}, "needs monitor_execution = True"),
        ({"after": [f"job-{n}" for n in range(21)]}, "at most 20"),
        ({"after": "extract", "after_outcome": "failed"}, "completed"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        JobConfig.build(job_name="load", **settings)


def test_jobs_that_follow_each_other_are_refused_by_the_last_declaration() -> None:
    declared = app(a={"after": "c"}, b={"after": "a"})
    with pytest.raises(InvalidSetting, match="must not lead back to the job: c after b after a after c"):
        declared.add(handler, name="c", after="b")


def test_a_job_without_a_schedule_or_without_records_cannot_be_followed_in_whatever_order_they_are_declared() -> None:
    for upstream, why in (({}, "has none"), ({**EVERY, "monitor_execution": False}, "nobody sees when")):
        with pytest.raises(InvalidSetting, match=why):
            app(extract=upstream, load={"after": "extract"})
        with pytest.raises(InvalidSetting, match=why):
            app(load={"after": "extract"}, extract=upstream)


def test_upstreams_need_moments_in_common_also_through_other_jobs() -> None:
    full, half = {"cron": "0 0 * * * ?"}, {"cron": "0 30 * * * ?"}
    app(a=full, b=full, both={"after": ["a", "b"]})
    with pytest.raises(InvalidSetting, match="none within a year"):
        app(a=full, b=half, both={"after": ["a", "b"]})
    with pytest.raises(InvalidSetting, match="none within a year"):
        app(a=full, b={"after": "a"}, c=half, both={"after": ["b", "c"]})


def test_a_job_whose_upstream_is_declared_elsewhere_is_accepted() -> None:
    declared = app(load={"after": ["extract", "clean"]}, extract=EVERY)
    assert [job.job_name for job in declared.jobs] == ["load", "extract"]
