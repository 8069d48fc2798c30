"""The health of jobs as time passes."""

from __future__ import annotations

from types import MappingProxyType

from aioelasticjob.clock import moment
from aioelasticjob.console.attention import LONG_RUN
from aioelasticjob.console.health import HealthGroups
from aioelasticjob.console.registry_watch import RegistrySnapshot, RegistryWatch
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.operations import ActiveRun, JobStatus
from tests.console.samples import INSTANCES, item, status
from tests.support.clocks import StandingClock

NOW = 1_800_000_000.0


def _snapshot(version: int, *jobs: JobStatus) -> RegistrySnapshot:
    by_name = {job.name: job for job in jobs}
    return RegistrySnapshot(version, MappingProxyType(by_name), MappingProxyType(dict.fromkeys(by_name, version)), True)


def test_a_run_that_hangs_is_found_when_the_list_of_jobs_is_renewed_at_the_next_fire() -> None:
    clock = StandingClock(NOW)
    groups = HealthGroups(RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock), clock)
    run = ActiveRun(INSTANCES[0], moment(NOW))
    job = status("report", (item(0, run=run),), now=NOW, cron="0/10 * * * * ?")
    assert groups.update(_snapshot(1, job)).counts == {"running": 1}
    clock.time = NOW + LONG_RUN
    assert groups.update(_snapshot(2, job.at(clock.time))).counts == {"attention": 1}
    assert groups.of["report"].word == "running long"
