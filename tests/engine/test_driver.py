"""What is commanded is performed: records are read, and what was missed is reported."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.commands import NodeCommand, RemoveTrigger, Steps
from aioelasticjob.core.state import Past
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.refusals import SETTLE, Refusals
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import RegistryError, Suspended
from aioelasticjob.events import Events
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create, Set
from tests.engine.test_claims import CONFIG, LAYOUT, ME, ClaimedJob, done
from tests.support.clocks import StandingClock

OTHER = b"10.0.0.2@-@1"
SLOT = 1010


async def look(driver: StateDriver, view: JobView) -> None:
    """Apply a view, and perform the commands that this takes."""
    driver.now()
    steps: Steps[None] = driver.state.see(view)
    answer = None
    with suppress(StopIteration):
        while True:
            answer = await driver.perform(cast(NodeCommand, steps.send(answer)))


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("away", [False, True])
def test_a_moment_that_the_last_holder_ran_is_not_run_again(away: bool, interrupted: bool) -> None:
    job, clock = ClaimedJob(1), StandingClock(SLOT - 5)
    job.registry.now = SLOT - 5
    on = CONFIG.changed(sharding_total_count=1, cron="0/10 * * * * ?")
    paths, off = LAYOUT.item(0), on.changed(monitor_execution=False)
    job.write(Set(paths.instance, OTHER, -1), Set(LAYOUT.config, on.to_json(), -1))
    view = read(job.registry.tree(), LAYOUT, on)
    events = Events()
    dispatcher = ErrorDispatcher(clock, events.counts, LimitedLog())
    stats = ExecutionStats(job.member, clock, events, dispatcher)
    driver = StateDriver(job.member, view, stats, Past(clock.now()))
    done(look(driver, view))
    job.registry.now = SLOT + 0.2
    if not away:  # else there was no connection when the moment came
        done(look(driver, view))
    record = Record(slot=SLOT * 1000, instance=OTHER.decode(), begun=SLOT * 1000 - 500)
    job.write(Create(paths.execution, records.encode(record)))
    job.write(Set(paths.instance, ME.encode(), -1), Set(LAYOUT.config, off.to_json(), -1))
    job.registry.now = SLOT + 0.5
    view = read(job.registry.tree(), LAYOUT, on)
    if interrupted:
        job.session.reads.append("suspended")
        with pytest.raises(Suspended):
            done(look(driver, view))
    done(look(driver, view))
    assert driver.state.timetable.newest == SLOT * 1000
    assert not driver.state.claimable()


@pytest.mark.parametrize("is_outdated", [False, True])
def test_a_trigger_is_not_removed_by_who_has_yet_to_see_the_newest_assignment(is_outdated: bool) -> None:
    job, clock, trigger = ClaimedJob(1), StandingClock(SLOT), LAYOUT.trigger(ME)
    job.write(Create(trigger))
    driver = _driver(job, job.member, clock)
    if is_outdated:
        job.write(Set(LAYOUT.sharding, b"", -1))  # it may give this instance items that the trigger is for
    assert done(driver.perform(RemoveTrigger(trigger, 0))) is not is_outdated
    assert (trigger in job.registry.nodes) is is_outdated


def test_when_the_registry_refused_settlements_is_known_also_after_it_accepts_them_again() -> None:
    job, clock = ClaimedJob(1), StandingClock(SLOT)
    job.registry.now = SLOT
    refusals = Refusals("job", clock)
    driver = _driver(job, replace(job.member, refusals=refusals), clock)
    refusals.refused(SETTLE, RegistryError("the quota is used up"))
    for _ in range(3):
        driver.now()
        assert driver.state.missed.refusals == ((clock.time - SLOT, max(0.0, clock.time - SLOT - 10)),)
        clock.time = job.registry.now = clock.time + 10
        refusals.accepted(SETTLE)


def _driver(job: ClaimedJob, member: Member, clock: StandingClock) -> StateDriver:
    events = Events()
    dispatcher = ErrorDispatcher(clock, events.counts, LimitedLog())
    stats = ExecutionStats(member, clock, events, dispatcher)
    return StateDriver(member, read(job.registry.tree(), LAYOUT, CONFIG), stats, Past(clock.now()))
