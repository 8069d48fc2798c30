"""When an instance coordinates its job next, and when the leader looks for runs that were cut off."""

from __future__ import annotations

import anyio
import pytest
from anyio import current_time

from aioelasticjob.engine.pacing import LINGERING_RUNS_INTERVAL, PAUSE_AFTER_REMOVAL, Pacing
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import run
from tests.engine.test_claims import LAYOUT, ME, ClaimedJob


def test_the_leader_looks_for_cut_off_runs_when_members_or_orphans_change_and_on_every_tick() -> None:
    job = ClaimedJob()

    async def main() -> None:
        rest = Pacing(ME)
        job.config = job.config.changed(failover=True)
        job.write(Set(LAYOUT.config, job.config.to_json(), -1), Create(LAYOUT.host, ME.encode()))

        def looks(*, tick: bool = False) -> bool:
            return rest.looks_at_records(job.view(), tick)

        assert (looks(), looks(), looks(tick=True), looks()) == (True, False, True, False)
        job.write(Create(LAYOUT.item(0).orphan))  # by its runner, who stays; it may have been rescued too often
        assert (looks(), looks()) == (True, False)
        job.write(Delete(LAYOUT.item(0).orphan))
        assert (looks(), looks()) == (True, False)
        job.registry.commit([Create(LAYOUT.instance("10.0.0.2@-@1-b"), ephemeral=True)], 2)
        assert (looks(), looks()) == (True, False)

    run(main, seed=0)


def test_membership_is_quiet_once_nobody_has_come_or_gone_for_as_long_as_is_wanted() -> None:
    job = ClaimedJob()

    async def main() -> None:
        job.write(Set(LAYOUT.config, job.config.changed(sharding_quiet=2, reconcile_interval=60).to_json(), -1))
        pacing = Pacing(ME)
        assert pacing.look(job.view())[:3] == (False, False, False)
        assert pacing.pause(job.view(), quiet=False) == 2
        await anyio.sleep(pacing.pause(job.view(), quiet=False))
        assert pacing.look(job.view())[:3] == (True, False, False)
        assert pacing.pause(job.view(), quiet=True) == 58
        job.registry.commit([Create(LAYOUT.instance("10.0.0.2@-@1"), ephemeral=True)], 2)
        assert pacing.look(job.view())[:3] == (False, False, False)

    run(main, seed=0)


def test_a_tick_comes_at_each_interval_and_sooner_if_that_was_made_shorter() -> None:
    job = ClaimedJob()

    async def main() -> None:
        job.write(Set(LAYOUT.config, job.config.changed(reconcile_interval=60).to_json(), -1))
        pacing = Pacing(ME)
        assert not pacing.look(job.view()).tick
        await anyio.sleep(60)
        assert [pacing.look(job.view()).tick for _ in range(2)] == [True, False]
        job.write(Set(LAYOUT.config, job.config.changed(reconcile_interval=10).to_json(), -1))
        assert not pacing.look(job.view()).tick
        assert pacing.pause(job.view(), quiet=True) == 10
        pacing.lingering = True
        assert pacing.pause(job.view(), quiet=True) == LINGERING_RUNS_INTERVAL

    run(main, seed=0)


def test_counts_are_due_at_intervals_of_their_own() -> None:
    job = ClaimedJob()

    async def main() -> None:
        job.write(Set(LAYOUT.config, job.config.changed(reconcile_interval=60, statistics_interval=25).to_json(), -1))
        pacing, due = Pacing(ME), list[tuple[float, bool, bool]]()
        assert pacing.look(job.view())[1:3] == (False, False)
        while current_time() < 61:
            await anyio.sleep(pacing.pause(job.view(), quiet=True))
            due.append((round(current_time()), *pacing.look(job.view())[1:3]))
        assert due == [(25, False, True), (50, False, True), (60, True, False), (75, False, True)]
        job.write(Set(LAYOUT.config, job.config.changed(statistics_interval=5).to_json(), -1))
        assert not pacing.look(job.view()).counts
        assert pacing.pause(job.view(), quiet=True) == 5

    run(main, seed=0)


@pytest.mark.parametrize(
    ("happens", "waits"),
    [
        ([Delete(LAYOUT.config)], True),
        ([Delete(LAYOUT.shutdowns)], True),
        ([Delete(LAYOUT.host)], True),
        ([Delete(LAYOUT.item(1).instance)], True),
        ([Delete(LAYOUT.item(1).instance), Set(LAYOUT.sharding, b"", -1)], False),
        ([Delete(LAYOUT.host), Set(LAYOUT.instance(ME), b'{"leaving": true}', -1)], False),
        ([Create(LAYOUT.item(0).disabled)], False),
    ],
)
def test_nothing_is_written_for_a_while_after_something_was_removed_by_hand(happens: list[Op], waits: bool) -> None:
    job = ClaimedJob()

    async def main() -> None:
        pacing = Pacing(ME)
        job.write(Create(LAYOUT.host, ME.encode()))
        before = job.view()
        job.write(*happens)
        pacing.see(before, job.view())
        assert pacing.is_held is waits
        if waits:
            assert pacing.pause(job.view(), quiet=True) == PAUSE_AFTER_REMOVAL
            await anyio.sleep(PAUSE_AFTER_REMOVAL)
            assert not pacing.is_held

    run(main, seed=0)


def test_the_leader_looks_for_records_when_they_are_switched_off_on_a_tick_and_after_the_connection_broke() -> None:
    job = ClaimedJob()

    async def main() -> None:
        pacing = Pacing(ME)

        def looks(*, tick: bool = False) -> bool:
            return pacing.looks_at_records(job.view(), tick)

        job.write(Create(LAYOUT.host, ME.encode()))
        assert not looks(tick=True)
        job.write(Set(LAYOUT.config, job.config.changed(monitor_execution=False).to_json(), -1))
        assert (looks(), looks(), looks(tick=True), looks()) == (True, False, True, False)
        pacing.look_again()
        assert (looks(), looks()) == (True, False)
        job.write(Set(LAYOUT.host, b"other", -1))
        assert not looks(tick=True)

    run(main, seed=0)
