"""Every page of the console, with every kind of thing on it: for tests and pictures of all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, NamedTuple

import anyio

from aioelasticjob import operations
from aioelasticjob.console.actions.bulk_actions import BulkAction
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome
from aioelasticjob.operations.alerts.state import AlertState, Claim, Episode, Notification
from aioelasticjob.schedules.calendars import Calendar
from tests.console.samples import INSTANCES, ended, item, status
from tests.console.site import TIMEOUT, Site
from tests.observers.sample_events import NOON, batch, beginning, end, raised

NIGHTLY: Final = {
    "jobName": "nightly",
    "cron": "0 0 2 * * ?",
    "shardingTotalCount": 3,
    "shardingItemParameters": "0=Beijing,1=Shanghai,2=Guangzhou",
    "description": "Figures of the day",
}
"""A job that is in a registry."""


class Keys(NamedTuple):
    """What the addresses of some pages contain."""

    run: str
    """A run that failed."""
    token: str
    """An invitation."""
    report: str
    """A bulk action."""


def fill(there: Site) -> Keys:
    """Let every kind of thing be on the pages of a console that has an event store."""
    there.wait(lambda: there.watch.store is not None)
    now, cron = there.clock.now(), "0 0 2 * * ?"
    jobs = (
        status("calm", (item(0, record=ended("completed", now)),), now=now, cron=cron, description="Every night"),
        status("failing", (item(0, record=ended("failed", now)), item(1, orphaned=True)), now=now, cron=cron),
        status("known", (item(0, record=ended("failed", now)),), now=now, cron=cron),
        status("misfiring", (item(0, misfired=True), item(1, disabled=True)), now=now, instances=INSTANCES),
        status("nobody", (item(0, None),), now=now, instances=()),
        status("off", (item(0),), now=now, paused=True),
        status("wide", tuple(item(n, INSTANCES[n % 3]) for n in range(60)), now=now, instances=INSTANCES),
    )

    async def write() -> Keys:
        state, store = there.console.state, there.watch.store
        assert store is not None
        groups = state.health_of(there.watch, there.watch.snapshot.value)
        (reason,) = groups.of["known"].reasons
        await state.storage.acknowledgements.add("billing", "known", reason, "ada", "INC-7", now + 3600)
        there.watch.touch(["known"])
        slot = int(now - 60) * 1000
        failed = end(slot, 0, Outcome.FAILED, job="failing", failure=raised())
        missed = Misfired("failing", INSTANCES[0], slot, slot, (1,), 1, "the run before took too long", at=slot / 1000)
        await store.store.write(batch(*beginning(slot, job="failing"), failed, missed, namespace="billing"))
        await store.store.write(batch(*beginning(NOON, job="calm"), end(NOON, job="calm"), namespace="billing"))
        await store.ask()
        bulk = BulkAction("ada", "billing", "pause", ["calm", "failing"])
        state.bulk_actions.start(bulk, _one_fails)
        await bulk.ended.wait()
        invitation = await state.storage.accounts.invite("vera", Role.VIEWER)
        return Keys((await store.store.failures())[0].id, invitation, bulk.id)

    there.run(lambda: _add_real_job(there))
    there.show(*jobs)
    alerts = (
        AlertState(
            "failing",
            "failing",
            now - 600,
            "the last 3 runs failed",
            notified=Notification(now - 600, False, now - 600),
        ),
        AlertState("late", "known", now - 60, "not begun", tries=2, again=now + 30, trouble="the line is dead"),
        AlertState("failing", "known", now - 60, "the last 3 runs failed", claim=Claim("me", now + 60, now)),
        AlertState(
            "store-not-written", "", now - 90, "disk full", now - 30, unreported=(Episode(now - 200, now - 100),)
        ),
    )
    there.run(lambda: _show_alerts(there, alerts))
    return there.run(write)


async def _show_alerts(there: Site, alerts: tuple[AlertState, ...]) -> None:
    there.watch.snapshot.set(replace(there.watch.snapshot.value, alerts=alerts))


async def _add_real_job(there: Site) -> None:
    """Add a registry with a job: settings and dumps are read from the registry itself, where ``show`` puts nothing."""
    registries = there.console.state.registries
    registries.add(replace(there.watch.settings, name="real", address=there.registry.replace("/billing", "/real")))
    watch = registries.get("real")
    assert watch is not None
    with anyio.fail_after(TIMEOUT):
        await watch.snapshot.until(lambda now: now.read)
        await operations.import_jobs(watch.session, json.dumps({"jobs": [NIGHTLY]}))
        await operations.set_calendar(watch.session, "closed", Calendar.of({"2026-12-25": "Christmas Day"}, "sat, sun"))
        await watch.snapshot.until(lambda now: "nightly" in now.jobs)


async def _one_fails(job: str) -> str:
    if job == "failing":
        raise InvalidSetting("job", job, "another one")
    return f"{job}: paused"


def paths_of(keys: Keys) -> list[str]:
    """Return the addresses of all pages for which one has to be signed in."""
    job = "/r/billing/job/failing"
    return [
        *("/account", "/users", "/audit", "/registries", f"/welcome/{keys.token}", "/no/such/page"),
        *("/r/billing/jobs", "/r/billing/jobs?show=acknowledged", "/r/billing/jobs?q=nothing-is-called-so"),
        f"/r/billing/jobs/report/{keys.report}",
        *(
            "/r/billing/servers",
            "/r/billing/servers/10.0.0.1",
            "/r/billing/servers/10.0.0.1/disable",
            "/r/billing/transfer",
            "/r/real/calendars",
            "/r/real/calendars/closed",
            "/r/billing/jobs/new",
            "/r/billing/jobs/new?handler=report",
        ),
        "/r/billing/alerts",
        *("/r/billing/history", f"/r/billing/history/{keys.run}", "/r/billing/history?job=none"),
        *(
            job,
            "/r/billing/job/known",
            "/r/billing/job/wide",
            f"/r/billing/job/calm?from={NOON // 1000 - 10}&to={NOON // 1000 + 10}",
            "/r/real/job/nightly/settings",
            "/r/real/job/nightly/dump",
        ),
        *(
            f"{job}/acknowledge?reason=errors",
            f"{job}/do/trigger",
            "/r/real/job/nightly/do/backfill?from=2026-01-01T00:00&to=2026-01-03T00:00",
            f"{job}/do/backfill",
            f"{job}/do/shut-down",
            f"{job}/do/remove",
        ),
    ]
