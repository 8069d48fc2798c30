"""The health of jobs, also as time passes and nothing in the registry changes."""

from __future__ import annotations

from types import MappingProxyType

from aioelasticjob.clock import moment
from aioelasticjob.console.attention import LONG_RUN, SETTLE_LIMIT
from aioelasticjob.console.health import AGE, HealthGroups
from aioelasticjob.console.registry_watch import RegistrySnapshot, RegistryWatch
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.operations import ActiveRun, JobStatus
from tests.console.samples import INSTANCES, item, status
from tests.support.clocks import StandingClock

NOW = 1_800_000_000.0


def _groups() -> tuple[HealthGroups, StandingClock]:
    clock = StandingClock(NOW)
    return HealthGroups(RegistryWatch(RegistrySettings("billing", "zk://127.0.0.1:1/billing"), clock), clock), clock


def _snapshot(version: int, *jobs: JobStatus) -> RegistrySnapshot:
    by_name = {job.name: job for job in jobs}
    return RegistrySnapshot(version, MappingProxyType(by_name), MappingProxyType(dict.fromkeys(by_name, version)), True)


def _running(name: str, *begun: float) -> JobStatus:
    runs = [ActiveRun(INSTANCES[0], moment(at)) for at in begun]
    items = tuple(item(number, run=run) for number, run in enumerate(runs))
    return status(name, items, now=NOW, cron="0/10 * * * * ?")


def test_a_run_becomes_long_although_nothing_changes_and_only_its_job_is_looked_at_again() -> None:
    groups, clock = _groups()
    snapshot = _snapshot(1, _running("hangs", NOW + 600, NOW), _running("later", NOW + 60), status("rests", now=NOW))
    first = groups.update(snapshot).of
    assert (first["hangs"].group, groups.counts) == ("running", {"running": 2, "waiting": 1})
    clock.time = NOW + LONG_RUN - 1
    assert groups.update(snapshot).of is first
    clock.time = NOW + LONG_RUN
    second = groups.update(snapshot).of
    assert (second["hangs"].word, groups.counts) == ("running long", {"attention": 1, "running": 1, "waiting": 1})
    assert all(second[name] is first[name] for name in ("later", "rests"))
    clock.time += 59
    assert groups.update(snapshot).of is second
    clock.time += 1
    assert groups.update(snapshot).counts == {"attention": 2, "waiting": 1}
    clock.time = NOW + LONG_RUN + 600
    assert groups.update(snapshot).of["hangs"].reasons[0].values == {"items": "0, 1"}
    last = groups.of
    clock.time += 10 * LONG_RUN
    assert groups.update(snapshot).of is last


def test_a_job_that_has_changed_or_is_gone_is_not_looked_at_for_its_former_run() -> None:
    groups, clock = _groups()
    groups.update(_snapshot(1, _running("ends", NOW), _running("goes", NOW)))
    snapshot = _snapshot(2, status("ends", (item(0),), now=NOW))
    before = groups.update(snapshot).of
    clock.time += LONG_RUN
    assert groups.update(snapshot).of is before


def test_items_that_are_not_assigned_are_looked_at_again_also_after_a_clock_was_set_back() -> None:
    groups, clock = _groups()
    snapshot = _snapshot(1, status("moves", (item(0),), now=NOW, settled=False))
    assert groups.update(snapshot).of["moves"].group == "waiting"
    seen = groups.of
    clock.time += AGE / 2
    assert groups.update(snapshot).of is seen
    clock.time += SETTLE_LIMIT
    assert groups.update(snapshot).of["moves"].word == "not converging"
    clock.time -= SETTLE_LIMIT
    assert groups.update(snapshot).of["moves"].group == "waiting"
