"""Clusters whose jobs have schedules of every kind, with jitter, under the faults that all others have, too."""

from __future__ import annotations

from random import Random

import pytest

from aioelasticjob.config.job import JobConfig
from tests.simulation import scheduling
from tests.simulation.simulation import live, plan, replay

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_with_schedules_of_every_kind_keeps_all_promises(seed: int) -> None:
    verdict = live(plan(seed, failover=seed % 2 == 1, requests=True, schedules=True))
    assert not verdict.violations, verdict.report()
    assert "--schedules" in replay(verdict.plan)


def test_the_plans_have_every_kind_of_schedule_with_jitter_and_without() -> None:
    jobs = [job for seed in range(20) for job in plan(seed, schedules=True).jobs]
    configs = [JobConfig.build(job_name=job.name, **dict(job.settings)) for job in jobs]
    kinds = {(one.cron is not None, one.every is not None, bool(one.at), bool(one.start_at)) for one in configs}
    assert len(kinds) == 4
    assert {bool(one.jitter) for one in configs} == {True, False}


def test_each_schedule_by_which_an_operator_replaces_another_one_is_right() -> None:
    dice = Random(7)
    stored = JobConfig.build(job_name="job", cron="* * * * * ?").as_json()
    found = [JobConfig.from_settings(**{**stored, **scheduling.other_schedule(dice)}) for _ in range(40)]
    assert all(one.schedule is not None for one in found)
    assert len({one.schedule_settings for one in found}) > 8
