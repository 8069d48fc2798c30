"""What is commanded is performed: records are read and written, and what was missed is reported."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.account import Past
from aioelasticjob.core.commands import FollowReleases, NodeCommand, Steps
from aioelasticjob.core.reasons import BUSY
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.refusals import SETTLE, Refusals
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import RegistryError, Suspended
from aioelasticjob.events import Events, Misfired
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_claims import CONFIG, LAYOUT, ME, THEIRS, ClaimedJob, done
from tests.support.clocks import StandingClock

OTHER = "10.0.0.2@-@1"
SLOT = 1010
EVERY_TEN = CONFIG.changed(sharding_total_count=1, cron="0/10 * * * * ?", misfire=False)


async def look(driver: StateDriver, view: JobView) -> None:
    """Apply a view, and perform the commands that this takes."""
    driver.now()
    steps: Steps[None] = driver.state.see(view)
    answer = None
    with suppress(StopIteration):
        while True:
            command = steps.send(answer)
            answer = None if isinstance(command, FollowReleases) else await driver.perform(cast(NodeCommand, command))
    driver.say_all()


def followed(job: ClaimedJob, config: JobConfig = EVERY_TEN) -> tuple[StateDriver, list[Misfired]]:
    """Return the driver of an instance that holds item 0 and has just come up, and what it reports."""
    job.write(Set(LAYOUT.config, config.to_json(), -1))
    clock = StandingClock(job.registry.now)
    events, missed = Events(), list[Misfired]()
    events.put = lambda event: missed.append(event) if isinstance(event, Misfired) else None  # type: ignore[method-assign]
    return _driver(job, job.member, clock, config, events), missed


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_moment_that_the_last_holder_ran_is_not_run_again(interrupted: bool) -> None:
    job = ClaimedJob(1)
    job.registry.now = SLOT - 5
    driver, missed = followed(job)
    job.write(Set(LAYOUT.item(0).instance, OTHER.encode(), -1))
    done(look(driver, read(job.registry.tree(), LAYOUT, EVERY_TEN)))
    job.registry.now = SLOT + 0.2
    record = Record(
        slot=SLOT * 1000, instance=OTHER, begun=SLOT * 1000, completed_at=SLOT * 1000, accounted=SLOT * 1000
    )
    job.write(Create(LAYOUT.item(0).execution, records.encode(record)))
    job.write(Set(LAYOUT.item(0).instance, ME.encode(), -1))
    job.registry.now = SLOT + 0.5
    view = read(job.registry.tree(), LAYOUT, EVERY_TEN)
    if interrupted:
        job.session.reads.append("suspended")
        with pytest.raises(Suspended):
            done(look(driver, view))
    done(look(driver, view))
    assert driver.state.timeline.newest == SLOT * 1000
    assert (driver.state.due().items, missed) == (frozenset(), [])


def test_what_came_during_a_run_on_another_instance_is_written_and_then_reported_once() -> None:
    job = ClaimedJob(1)
    job.registry.now = SLOT + 1
    begun = Record(SLOT * 1000, "SCHEDULE", OTHER, SLOT * 1000, 0, 0, completed=False, accounted=SLOT * 1000)
    paths = LAYOUT.item(0)
    job.write(Create(paths.execution, records.encode(begun)))
    job.registry.commit([Create(paths.running, OTHER.encode(), ephemeral=True)], THEIRS)
    driver, missed = followed(job)
    for job.registry.now in (SLOT + 2, SLOT + 21):  # only its runner writes the record while it runs
        done(look(driver, read(job.registry.tree(), LAYOUT, EVERY_TEN)))
    assert (missed, job.record()) == ([], begun)
    ended = replace(begun, completed=True, completed_at=SLOT * 1000 + 21_000)
    job.write(Set(paths.execution, records.encode(ended), -1), Delete(paths.running))
    driver.released(0)
    for _ in range(2):
        done(look(driver, read(job.registry.tree(), LAYOUT, EVERY_TEN)))
    assert [(one.first, one.slot, one.why) for one in missed] == [((SLOT + 10) * 1000, (SLOT + 20) * 1000, BUSY)]
    assert job.record().accounted == (SLOT + 20) * 1000
    assert [one.by for one in job.record().owing] == [ME]
    assert driver.state.due().items == frozenset()


def test_when_the_registry_refused_settlements_is_known_also_after_it_accepts_them_again() -> None:
    job, clock = ClaimedJob(1), StandingClock(SLOT)
    job.registry.now = SLOT
    refusals = Refusals("job", clock)
    driver = _driver(job, replace(job.member, refusals=refusals), clock, CONFIG, Events())
    refusals.refused(SETTLE, RegistryError("the quota is used up"))
    for _ in range(3):
        driver.now()
        assert driver.state.refusals == ((clock.time - SLOT, max(0.0, clock.time - SLOT - 10)),)
        clock.time = job.registry.now = clock.time + 10
        refusals.accepted(SETTLE)


def _driver(job: ClaimedJob, member: Member, clock: StandingClock, config: JobConfig, events: Events) -> StateDriver:
    dispatcher = ErrorDispatcher(clock, events.counts, LimitedLog())
    stats = ExecutionStats(member, clock, events, dispatcher)
    return StateDriver(member, read(job.registry.tree(), LAYOUT, config), stats, Past(clock.now()))
