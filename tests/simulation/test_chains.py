"""Clusters whose jobs follow each other, under the faults of processes and of the network."""

from __future__ import annotations

import pytest

from aioelasticjob.config.following import check_following
from aioelasticjob.config.job import JobConfig
from tests.simulation.simulation import live, plan, replay

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_with_chains_keeps_all_promises(seed: int) -> None:
    verdict = live(plan(seed, failover=seed % 2 == 0, chains=True))
    assert not verdict.violations, verdict.report()
    assert "--chains" in replay(verdict.plan)


def test_whether_a_follower_was_busy_when_a_moment_came_does_not_depend_on_the_clocks_of_hosts() -> None:
    verdict = live(plan(380015, chains=True))
    assert not verdict.violations, verdict.report()


def test_the_plans_have_chains_of_every_length_with_different_item_counts() -> None:
    plans = [plan(seed, chains=True) for seed in range(20)]
    assert {len(one.jobs) for one in plans} == {3, 4, 5}
    for one in plans:
        jobs = {job.name: dict(job.settings) | {"cron": dict(job.settings).get("cron", job.cron)} for job in one.jobs}
        configs = {name: JobConfig.build(job_name=name, **settings) for name, settings in jobs.items()}
        for config in configs.values():
            check_following(config, configs, 0)
        assert [config.job_name for config in configs.values() if not config.after] == [one.jobs[0].name]
    assert any(len({job.items for job in one.jobs}) > 2 for one in plans)
    assert any(len(dict(job.settings).get("after", ())) > 1 for one in plans for job in one.jobs)
