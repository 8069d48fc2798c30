"""The health of jobs as time passes."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import MappingProxyType

from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.console.watching.health import HealthGroups
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot, RegistryWatch
from aioelasticjob.core.reasons import BUSY, NO_INSTANCE_UP
from aioelasticjob.ground.times import moment
from aioelasticjob.observers.missed import Count, MissedMoments
from aioelasticjob.operations import ActiveRun, JobStatus
from aioelasticjob.operations.attention import ENDED_AFTER, LONG_RUN, RESTART_LIMIT, SETTLE_LIMIT
from tests.console.samples import INSTANCES, ended, item, status
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


def test_a_run_whose_timeout_is_long_over_is_found_though_nothing_happens_and_its_row_is_rendered_again() -> None:
    clock = StandingClock(NOW)
    watch = RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock)
    groups = HealthGroups(watch, clock)
    items = [item(n, run=ActiveRun(INSTANCES[0], moment(NOW + at))) for n, at in enumerate((-60, -50))]
    job = status("report", tuple(items), now=NOW, timeout=10.0)
    watch.snapshot.set(_snapshot(1, job, status("other", (item(0),), now=NOW)))
    groups.update(watch.snapshot.value)
    due = NOW - 60 + 10 + LONG_RUN
    for time, counts, versions in (
        (due - 0.1, {"running": 1, "waiting": 1}, {"report": 1, "other": 1}),
        (due, {"attention": 1, "waiting": 1}, {"report": 2, "other": 1}),
        (due + 9.9, {"attention": 1, "waiting": 1}, {"report": 2, "other": 1}),
        (due + 10, {"attention": 1, "waiting": 1}, {"report": 3, "other": 1}),  # the other item, too
        (due + 100, {"attention": 1, "waiting": 1}, {"report": 3, "other": 1}),
    ):
        clock.time = time
        assert groups.update(watch.snapshot.value).counts == counts
        groups.update(watch.snapshot.value)
        assert watch.snapshot.value.changed == versions
    watch.snapshot.set(_snapshot(4, status("other", (item(0),), now=NOW)))
    assert groups.update(watch.snapshot.value).counts == {"waiting": 1}


def test_the_row_of_a_job_that_does_not_settle_is_rendered_again_when_that_needs_attention() -> None:
    clock = StandingClock(NOW)
    watch = RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock)
    groups = HealthGroups(watch, clock)
    watch.snapshot.set(_snapshot(1, status("report", (item(0),), now=NOW, settled=False)))
    for after, version in (
        (0, 1),
        (SETTLE_LIMIT - 1, 1),
        (SETTLE_LIMIT, 2),
        (SETTLE_LIMIT + 9, 2),
        (SETTLE_LIMIT + 19, 2),
    ):
        clock.time = NOW + after
        groups.update(watch.snapshot.value)
        assert watch.snapshot.value.changed == {"report": version}


def test_a_restart_that_takes_too_long_needs_attention_though_nothing_happens() -> None:
    clock = StandingClock(NOW)
    watch = RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock)
    groups = HealthGroups(watch, clock)
    gone = replace(status("report", (item(0),), now=NOW, instances=()), left_at=moment(NOW))
    watch.snapshot.set(_snapshot(1, gone))
    for after, word, group, version in (
        (0, "restarting", "waiting", 1),
        (RESTART_LIMIT - 0.1, "restarting", "waiting", 1),
        (RESTART_LIMIT, "nobody there", "attention", 2),
    ):
        clock.time = NOW + after
        groups.update(watch.snapshot.value)
        assert (groups.of["report"].word, groups.of["report"].group) == (word, group)
        assert watch.snapshot.value.changed == {"report": version}


def test_missed_moments_leave_by_themselves_though_nothing_happens() -> None:
    clock = StandingClock(NOW)
    watch = RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock)
    groups = HealthGroups(watch, clock)
    watch.snapshot.set(_snapshot(1, status("report", (item(0, record=ended("completed", NOW + 1)),), now=NOW)))
    watch.missed["report"] = deque([MissedMoments(Count(3), BUSY, NOW, NOW)])
    for after, word, version in ((2, "misfiring", 1), (ENDED_AFTER - 1, "misfiring", 1), (ENDED_AFTER, "waiting", 2)):
        clock.time = NOW + after
        groups.update(watch.snapshot.value)
        assert groups.of["report"].word == word
        assert watch.snapshot.value.changed == {"report": version}


def test_moments_that_were_missed_without_a_fault_are_counted_for_an_hour() -> None:
    clock = StandingClock(NOW)
    watch = RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock)
    groups = HealthGroups(watch, clock)
    job = replace(status("report", (item(0),), now=NOW), left_at=moment(NOW))
    missed = [MissedMoments(Count(number), why, NOW, NOW) for number, why in ((3, BUSY), (4, NO_INSTANCE_UP))]
    watch.missed["report"] = deque(missed)
    assert groups.excused([job, status("other", now=NOW)]) == Count(4)
    clock.time = NOW + 3601
    assert groups.excused([job]) == Count(0)
