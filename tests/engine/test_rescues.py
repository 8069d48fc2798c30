"""Orphans and their rescuers, with instances that really vanish from the simulated network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import anyio
import pytest

from aioelasticjob import ElasticJob, FireSource, InstanceContext, ItemContext, OnceListener, operations
from aioelasticjob.core import records
from aioelasticjob.core.account import Past
from aioelasticjob.core.choice import Choice
from aioelasticjob.core.commands import ClaimItems, Command, NodeCommand
from aioelasticjob.core.requests import Request, encode, encode_progress
from aioelasticjob.engine.claims import ClaimResult
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.passes import InTask, Pass, Passes
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.error_handlers import ErrorDispatcher, Failure, Options
from aioelasticjob.errors import GivenUp, RegistryError
from aioelasticjob.events import Began, CaughtUp, Ended, Events, HandedOver, Misfired, Refused, Rescued
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Fire, Outcome, Progress, Record, Requested
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import Faults, Process, VirtualClock, VirtualCluster, run, simulated
from aioelasticjob.testing.virtual_cluster import REGISTRY, Instance
from tests.engine.test_claims import ClaimedJob, done
from tests.error_handlers.failures import delivered_by
from tests.support.clocks import StandingClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

T = TypeVar("T")


@dataclass
class Workers:
    """Instances of one job, each a process on a host of its own."""

    here: SimulatedJobs
    settings: dict[str, object]
    work: float
    faults: Faults
    runs: list[tuple[float, str, int, str]] = field(default_factory=list)
    """Second, host, item, source."""
    slots: list[tuple[float, int]] = field(default_factory=list)
    """Scheduled second, item."""
    ends: list[tuple[float, str, int]] = field(default_factory=list)

    async def start_process(self, name: str) -> Process:
        known = await self.here.names(LAYOUT.instances)
        process = self.faults.start(name, f"10.0.0.{ord(name) - 96}", lambda: self._main(name))
        while len(await self.here.names(LAYOUT.instances)) == len(known):
            assert not process.ended
            await anyio.sleep(0.01)
        return process

    async def _main(self, name: str) -> None:
        async def handler(context: ItemContext) -> None:
            self.runs.append((round(self.here.now(), 1), name, context.item, context.source.value))
            self.slots.append((context.fire_time.timestamp() - self.here.start, context.item))
            await anyio.sleep(self.work)
            self.ends.append((round(self.here.now(), 1), name, context.item))

        app = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)
        app.add(handler, name="job", **self.settings)  # type: ignore[arg-type]
        async with app.running():
            await anyio.sleep_forever()

    def rescues(self) -> list[tuple[float, str, int]]:
        return [(at, name, item) for at, name, item, source in self.runs if source == "FAILOVER"]


def workers_of(here: SimulatedJobs, *, work: float = 8, **settings: object) -> Workers:
    return Workers(here, {"cron": "0/30 * * * * ?", "failover": True, **settings}, work, here.faults)


def test_every_orphan_is_rescued_by_the_others_side_by_side() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, sharding_total_count=6)
        victim, *_ = [await them.start_process(name) for name in "abc"]
        await here.until(32)
        lost = {item for _, name, item, _ in them.runs if name == "a"}
        assert len(lost) == 2
        them.faults.crash(victim)
        await here.until(59)
        assert {item for _, _, item in them.rescues()} == lost
        assert {name for _, name, _ in them.rescues()} == {"b", "c"}
        assert await here.names(LAYOUT.orphans) == ()
        for item in range(6):
            record = await here.record(item)
            assert (record.completed, record.slot % 30_000) == (True, 0)
            assert await here.names(LAYOUT.item(item).sharding) == ("instance",)

    simulate(scene)


def test_a_run_that_was_cancelled_is_not_rescued_when_its_process_dies_before_it_has_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=8, sharding_total_count=2)
        victim, _ = [await them.start_process(name) for name in "ab"]
        await here.until(31)
        (item,) = [item for _, name, item, _ in them.runs if name == "a"]
        them.faults.pause(victim)  # it does not see the wish any more
        await operations.cancel(here.observer, "job", item=item, by="anna")
        await anyio.sleep(1)
        them.faults.crash(victim)
        await here.until(58)
        assert them.rescues() == []
        record = await here.record(item)
        assert (record.outcome, record.completed, record.slot % 30_000) == ("stopped", True, 0)
        assert await here.names(LAYOUT.orphans) == ()
        await here.until(62)
        assert [(name, source) for at, name, one, source in them.runs if one == item and at > 58] == [("b", "SCHEDULE")]

    simulate(scene)


def test_a_run_that_was_begun_while_the_clock_was_an_hour_ahead_is_rescued_for_its_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=8, sharding_total_count=2)
        victim, _ = [await them.start_process(name) for name in "ab"]
        await here.until(31)
        (item,) = [item for _, name, item, _ in them.runs if name == "a"]
        record = await here.record(item)
        early = replace(record, slot=record.slot + 3_600_000)
        await here.write(Set(LAYOUT.item(item).execution, records.encode(early), -1))
        them.faults.crash(victim)
        await here.until(58)
        assert [(name, one) for _, name, one in them.rescues()] == [("b", item)]
        assert [slot for slot, one in them.slots if one == item] == [30, 3630]
        assert await here.names(LAYOUT.orphans) == ()
        await here.until(62)
        assert [name for at, name, one, _ in them.runs if one == item and at > 58] == ["b"]

    simulate(scene)


def test_a_run_whose_moment_is_the_last_one_that_a_record_can_have_is_rescued_in_every_time_zone() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=8, sharding_total_count=1, time_zone="Asia/Shanghai")
        first, second = [await them.start_process(name) for name in "ab"]
        await here.until(31)
        last = replace(await here.record(0), slot=records.MAX_MILLISECONDS)
        await here.write(Set(LAYOUT.item(0).execution, records.encode(last), -1))
        them.faults.crash(first if them.runs[0][1] == "a" else second)
        await here.until(62)
        assert len(them.rescues()) == 1
        assert [at for at, *_ in them.runs if at > 50] == [60]

    simulate(scene)


def test_a_rescuer_that_dies_is_itself_replaced() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=20, sharding_total_count=1, cron="0 * * * * ?")
        processes = {name: await them.start_process(name) for name in "abc"}
        await here.until(62)
        (owner,) = {name for _, name, _, _ in them.runs}
        them.faults.crash(processes[owner])
        await here.until(72)
        ((_, rescuer, _),) = them.rescues()
        them.faults.crash(processes[rescuer])
        await here.until(110)
        (last,) = set("abc") - {owner, rescuer}
        assert [name for _, name, _ in them.rescues()] == [rescuer, last]
        assert [name for _, name, _ in them.ends] == [last]

    simulate(scene)


def test_when_everybody_is_busy_orphans_wait_until_somebody_is_not() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=20, sharding_total_count=4, cron="0 * * * * ?")
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(61)
        them.faults.crash(processes["a"])
        await here.until(78)
        assert them.rescues() == []
        assert len(await here.names(LAYOUT.orphans)) == 2
        await here.until(125)
        assert [(at, name) for at, name, _ in them.rescues()] == [(80.0, "b"), (80.0, "b")]

    simulate(scene)


def test_the_owner_returns_while_its_item_is_being_rescued() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=25, sharding_total_count=1, cron="0/20 * * * * ?", sharding_strategy="sticky")
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(21)
        (owner,) = {name for _, name, _, _ in them.runs}
        them.faults.crash(processes[owner])
        while not them.rescues():
            await anyio.sleep(0.1)
        await them.start_process(owner)
        await here.until(140)
        spans = sorted((at, at + 25) for at, name, _, source in them.runs if at > 22)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert len(them.rescues()) == 1

    simulate(scene)


@pytest.mark.parametrize("how", ["leader", "other"])
def test_it_does_not_matter_whether_the_leader_died(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, sharding_total_count=3)
        processes = {name: await them.start_process(name) for name in "abc"}
        await here.until(31)
        leader = (await here.observer.get(LAYOUT.host)).data.decode().partition("@")[0]
        name = next(one for one in "abc" if (f"10.0.0.{ord(one) - 96}" == leader) == (how == "leader"))
        (lost,) = {item for _, runner, item, _ in them.runs if runner == name}
        them.faults.crash(processes[name])
        await here.until(59)
        assert [item for _, _, item in them.rescues()] == [lost]

    simulate(scene)


@pytest.mark.parametrize(("cron", "work", "moment"), [("0/30 * * * * ?", 3, 30.5), ("* * * * * ?", 0.06, 31.03)])
def test_from_the_registrys_notice_of_the_death_to_the_rescue_takes_no_time_of_ours(
    cron: str, work: float, moment: float
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=work, sharding_total_count=2, cron=cron)
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(moment)
        lost = [item for _, name, item, _ in them.runs if name == "a"][-1]
        them.faults.crash(processes["a"])
        await here.observer.wait_deleted(LAYOUT.item(lost).running)
        noticed = here.now()
        while not them.rescues():
            await anyio.sleep(0.001)
        assert here.now() - noticed < 0.2

    simulate(scene)


def test_a_graceful_leaver_hands_over_what_it_could_not_finish() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=20, sharding_total_count=2, shutdown_timeout=2)
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(31)
        processes["a"].terminate()
        await here.until(75)
        assert [(at, name) for at, name, _ in them.rescues()] == [(50.0, "b")]

    simulate(scene)


def test_without_failover_an_orphan_waits_for_its_next_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, sharding_total_count=2, failover=False)
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(31)
        them.faults.crash(processes["a"])
        await here.until(75)
        assert them.rescues() == []
        assert await here.names(LAYOUT.orphans) == ()
        assert sorted(item for at, name, item, _ in them.runs if at == 60.0) == [0, 1]

    simulate(scene)


def test_marks_are_cleared_when_failover_is_switched_off_and_when_the_item_goes() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=25, sharding_total_count=3, cron="0 * * * * ?")
        await them.start_process("a")
        await here.until(61)
        for item in (1, 2):
            await here.write(Create(LAYOUT.item(item).orphan))
        stored = (await here.observer.get(LAYOUT.config)).data
        await here.write(Set(LAYOUT.config, stored.replace(b'"shardingTotalCount": 3', b'"shardingTotalCount": 2'), -1))
        await anyio.sleep(1)
        assert await here.names(LAYOUT.orphans) == ("1",)
        stored = (await here.observer.get(LAYOUT.config)).data
        await here.write(Set(LAYOUT.config, stored.replace(b'"failover": true', b'"failover": false'), -1))
        await anyio.sleep(1)
        assert await here.names(LAYOUT.orphans) == ()

    simulate(scene)


def test_an_orphans_mark_by_mistake_is_removed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=1, sharding_total_count=1)
        await them.start_process("a")
        await here.until(35)
        await here.write(Create(LAYOUT.item(0).orphan))
        await here.until(36)
        assert await here.names(LAYOUT.orphans) == ()
        assert them.rescues() == []

    simulate(scene)


def test_a_disabled_item_is_not_rescued_until_it_is_enabled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=20, sharding_total_count=1, cron="0 * * * * ?")
        processes = {name: await them.start_process(name) for name in "ab"}
        await here.until(61)
        (owner,) = {name for _, name, _, _ in them.runs}
        await here.flag(LAYOUT.item(0).disabled)
        them.faults.crash(processes[owner])
        await here.until(75)
        assert them.rescues() == []
        await here.write(Delete(LAYOUT.item(0).disabled))
        await here.until(77)
        assert len(them.rescues()) == 1

    simulate(scene)


def test_the_newest_moment_that_nobody_was_up_for_is_caught_up_within_its_window() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/30 * * * * ?", catch_up=3600).running():
            await here.until(31)
        await here.until(125)
        back = here.app(cron="0/30 * * * * ?", catch_up=3600)
        async with listening(here, back), back.running():
            await here.until(151)
        assert [event.slot / 1000 - here.start for event in here.events if isinstance(event, CaughtUp)] == [120.0]
        assert back.counts["job"].caught_up == 1
        await here.until(220)
        async with here.app(cron="0/30 * * * * ?", catch_up=0, overwrite=True).running():
            await here.until(241)

    assert simulate(scene).starts() == [
        (30.0, "SCHEDULE", 30.0),
        (125.5, "MISFIRE", 120.0),
        (150.0, "SCHEDULE", 150.0),
        (240.0, "SCHEDULE", 240.0),
    ]


def cluster_of(work: Callable[[ItemContext], Awaitable[None]], **settings: object) -> tuple[VirtualCluster, ElasticJob]:
    """Return a cluster, and an application with one job of two items for it."""
    app = ElasticJob("embedded://", session_timeout=10)
    app.add(work, name="job", **{"failover": True, "sharding_total_count": 2, **settings})
    return VirtualCluster(), app


async def pair(cluster: VirtualCluster, app: ElasticJob) -> tuple[Instance, Instance, int]:
    """Start two instances; return them and the item of the second."""
    first, second = await cluster.start(app), await cluster.start(app)
    await cluster.settled()
    (item,) = await second.holds()
    return first, second, item


def events_of(cluster: VirtualCluster, kind: type[T]) -> list[T]:
    return [event for event in cluster.events if isinstance(event, kind)]


@pytest.mark.parametrize("seed", range(4))
def test_what_a_deadline_cut_is_rescued_within_seconds_of_the_reconnection_though_its_session_lives(seed: int) -> None:
    async def scene() -> None:
        async def work(context: ItemContext) -> None:
            await anyio.sleep(600 if context.source is FireSource.SCHEDULE else 1)

        cluster, app = cluster_of(work, cron="0 0/10 * * * ?")
        _, second, item = await pair(cluster, app)
        await cluster.event(Began)
        await anyio.sleep(30)
        session = second.session.incarnation
        cluster.faults.partition([REGISTRY], [second.host])
        await anyio.sleep(8.5)  # beyond the deadline, within the session's timeout
        cluster.faults.heal()
        healed = cluster.now
        rescued = await cluster.event(Rescued, item=item)
        assert (cluster.now - healed).total_seconds() < 5  # and not at the leader's tick
        assert second.session.incarnation == session
        (handed_over,) = events_of(cluster, HandedOver)
        assert (handed_over.item, rescued.slot) == (item, handed_over.slot)

    run(scene, seed=seed)


def test_a_hand_over_that_did_not_happen_is_not_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=60, cron="0/30 * * * * ?", failover=True, sharding_total_count=2, shutdown_timeout=1)
        async with listening(here, app):
            async with app.running():
                await here.until(31)
                await here.flag(LAYOUT.item(0).orphan)  # somebody's by hand, which the leaver finds in its way
            await anyio.sleep(1)
        assert [event.item for event in here.events if isinstance(event, HandedOver)] == [1]
        assert await here.names(LAYOUT.orphans) == ("0", "1")

    simulate(scene)


@pytest.mark.parametrize("cron", ["0 0 0 * * ?", "0 0/10 * * * ?"])
def test_the_rescue_of_a_triggered_run_and_its_rescue_are_for_what_was_asked(cron: str) -> None:
    async def scene() -> None:
        runs: list[tuple[FireSource, str, datetime]] = []

        async def work(context: ItemContext) -> None:
            runs.append((context.source, context.job_parameter, context.fire_time))
            await anyio.sleep(30)

        cluster, app = cluster_of(work, cron=cron, sharding_total_count=1, job_parameter="the usual")
        for _ in range(3):
            await cluster.start(app)
        await cluster.settled()
        await anyio.sleep(100)
        (owner,) = [one for one in cluster.instances if await one.holds()]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(cluster.trigger, parameter="day 7"))
            began = await cluster.event(Began, source=FireSource.TRIGGER)
            owner.kill()
            rescued = await cluster.event(Rescued)
            next(one for one in cluster.instances if rescued.instance.startswith(f"{one.host}@")).kill()
            again = await cluster.event(Rescued)
            tasks.cancel_scope.cancel()
        assert began.slot == rescued.slot == again.slot
        asked = moment(began.slot / 1000)
        sources = [FireSource.TRIGGER, FireSource.FAILOVER, FireSource.FAILOVER]
        assert runs == [(source, "day 7", asked) for source in sources]
        assert 0 < (again.at - asked.timestamp()) < 60
        await cluster.event(Ended, source=FireSource.FAILOVER)
        if cron != "0 0 0 * * ?":  # the schedule goes on as if nothing had been asked for
            await cluster.next_fire()
            assert runs[3][:2] == (FireSource.SCHEDULE, "the usual")

    run(scene)


def test_without_failover_a_triggered_run_that_was_cut_off_is_missed_for_when_it_was_asked_for() -> None:
    async def scene() -> None:
        async def work(context: ItemContext) -> None:
            await anyio.sleep(30)

        cluster, app = cluster_of(work, cron="0 0 0 * * ?", failover=False)
        _, second, item = await pair(cluster, app)
        await operations.ask(cluster._session, "job")
        asked = await cluster.event(Began, items=(item,))
        second.kill()
        missed = await cluster.event(Misfired)
        assert (missed.items, missed.slot, missed.cut_off) == ((item,), asked.slot, asked.instance)

    run(scene)


def test_a_clock_too_far_off_takes_neither_triggers_nor_orphans_and_says_so() -> None:
    async def scene() -> None:
        runs: list[tuple[str, int, FireSource]] = []

        async def work(context: ItemContext) -> None:
            runs.append((context.instance.partition("@")[0], context.item, context.source))
            await anyio.sleep(30)

        cluster, app = cluster_of(work, cron="0 0/10 * * * ?", max_time_diff_seconds=5)
        first, second, item = await pair(cluster, app)
        await cluster.event(Began)
        await anyio.sleep(40)
        second._process.skew = 60.0
        await anyio.sleep(10)  # its heartbeats tell
        await operations.ask(cluster._session, "job")
        await cluster.event(Refused)
        await anyio.sleep(1)
        assert runs[2:] == [(first.host, 1 - item, FireSource.TRIGGER)]
        first.kill()
        refused = await cluster.event(Refused, within=30)  # and not at the next moment
        assert "tolerated are 5 s" in refused.why
        assert refused.instance.startswith(second.host)
        await anyio.sleep(60)
        assert len(runs) == 3
        assert len(events_of(cluster, Refused)) == 2
        third = await cluster.start(app)
        await cluster.event(Rescued)
        assert runs[3:] == [(third.host, 1 - item, FireSource.FAILOVER)]

    run(scene)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("work", "rescue"), [(40, 40), (65, 0)], ids=["long", "no time at all"])
def test_after_a_rescue_its_item_runs_together_with_the_others(work: int, rescue: int, seed: int) -> None:
    async def scene() -> None:
        begun = 0

        async def handler(context: ItemContext) -> None:
            nonlocal begun
            begun += 1
            await anyio.sleep(rescue if context.source is FireSource.FAILOVER else work if begun <= 2 else 1)

        cluster, app = cluster_of(handler, cron="0 * * * * ?", listeners=[OnceListener(before=nothing, after=nothing)])
        _, second, _ = await pair(cluster, app)
        await cluster.event(Began)
        second.kill()
        await cluster.event(Rescued)
        together = await cluster.event(Began, source=FireSource.MISFIRE)
        assert together.items == (0, 1)
        for _ in together.items:
            end = await cluster.event(Ended, source=FireSource.MISFIRE)
            assert end.outcome is Outcome.COMPLETED  # and nobody has waited for himself

    run(scene, seed=seed)


async def nothing(_context: InstanceContext) -> None: ...


def killing(cluster: VirtualCluster, ran: list[tuple[str, str]], *, first: int = 1) -> ElasticJob:
    """Return an application whose handler kills its process in every run of the first moments, rescues included."""
    app = ElasticJob("embedded://", session_timeout=5)
    moments: list[datetime] = []

    @app.job(cron="0 0/5 * * * ?", failover=True, error_handler="hear")
    async def job(context: ItemContext) -> None:
        host = context.instance.partition("@")[0]
        ran.append((host, context.source.value))
        if context.fire_time not in moments:
            moments.append(context.fire_time)
        if moments.index(context.fire_time) < first:
            next(one for one in cluster.instances if one.host == host).kill()
            await anyio.sleep_forever()

    return app


def test_a_handler_that_kills_its_process_is_rescued_three_times_and_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Failure] = []

    async def hear(failure: Failure, options: Options) -> None:
        heard.append(failure)

    async def main(cluster: VirtualCluster) -> None:
        ran: list[tuple[str, str]] = []
        app = killing(cluster, ran)
        for _ in range(6):
            await cluster.start(app)
        report = await cluster.event(Misfired)
        assert [source for _, source in ran] == ["SCHEDULE", "FAILOVER", "FAILOVER", "FAILOVER"]
        assert len({host for host, _ in ran}) == 4
        assert report.why.startswith("given up: its run and 3 rescues in a row were cut off")
        assert (report.items, report.cut_off.partition("@")[0], report.first) == ((0,), ran[-1][0], report.slot)
        (item,) = (await cluster.status("job")).items
        assert item.record is not None
        assert (item.outcome, item.record.completed, item.record.rescues) == ("given up", True, 3)
        (end,) = await cluster.next_fire("job")
        assert (end.outcome, end.source) == (Outcome.COMPLETED, FireSource.SCHEDULE)
        (item,) = (await cluster.status("job")).items
        assert (item.outcome, item.record.rescues if item.record else None) == ("completed", 0)
        assert [one.alive for one in cluster.instances].count(True) == 2

    delivered_by(monkeypatch, hear=hear)
    simulated(main)(VirtualCluster())
    (failure,) = heard
    assert isinstance(failure.error, GivenUp)
    assert failure.subject.startswith("job: item 0 failed: GivenUp: given up: its run and 3 rescues")


def test_if_a_handler_kills_its_process_no_other_run_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: VirtualCluster) -> None:
        app, moments = ElasticJob("embedded://", session_timeout=5), list[datetime]()

        @app.job(cron="0 0/5 * * * ?", failover=True, sharding_total_count=4, error_handler="hear")
        async def job(context: ItemContext) -> None:
            moments.append(context.fire_time)
            if context.item == 0 and context.fire_time == moments[0]:
                cluster.instances[-1].kill()
            await anyio.sleep(5)

        while not events_of(cluster, Misfired):  # a supervisor starts the next process
            await cluster.start(app)
            while cluster.instances[-1].alive and not events_of(cluster, Misfired):
                await anyio.sleep(1)
        await anyio.sleep(30)
        assert [report.items for report in events_of(cluster, Misfired)] == [(0,)]
        assert [one.outcome for one in (await cluster.status("job")).items] == ["given up", *["completed"] * 3]

    async def hear(failure: Failure, options: Options) -> None: ...

    delivered_by(monkeypatch, hear=hear)
    simulated(main)(VirtualCluster())


def test_each_moment_has_a_count_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: VirtualCluster) -> None:
        ran: list[tuple[str, str]] = []
        app = killing(cluster, ran, first=2)
        for _ in range(9):
            await cluster.start(app)
        for moments in (1, 2):
            await cluster.event(Misfired)
            assert [source for _, source in ran] == ["SCHEDULE", "FAILOVER", "FAILOVER", "FAILOVER"] * moments
        (end,) = await cluster.next_fire("job")
        assert end.outcome is Outcome.COMPLETED

    async def hear(failure: Failure, options: Options) -> None: ...

    delivered_by(monkeypatch, hear=hear)
    simulated(main)(VirtualCluster())


def test_a_run_that_is_handed_over_again_and_again_is_given_up() -> None:
    """Each instance puts the mark itself when it leaves; the limit holds all the same."""

    async def main(cluster: VirtualCluster) -> None:
        app, began = ElasticJob("embedded://"), list[str]()

        @app.job(cron="0 0 * * * ?", failover=True, max_rescues=2, shutdown_timeout=1)
        async def job(context: ItemContext) -> None:
            began.append(context.instance.partition("@")[0])
            await anyio.sleep(600)

        for _ in range(5):
            await cluster.start(app)
        await cluster.event(Began)
        for _ in range(2):
            await next(one for one in cluster.instances if one.host == began[-1]).stop()
            await cluster.event(Rescued)
        await next(one for one in cluster.instances if one.host == began[-1]).stop()
        report = await cluster.event(Misfired)
        assert report.why.startswith("given up: its run and 2 rescues in a row were cut off")
        assert len(began) == 3
        (item,) = (await cluster.status("job")).items
        assert item.outcome == "given up"

    simulated(main)(VirtualCluster())


def test_a_rescue_that_ends_sets_the_count_back_and_one_that_is_handed_over_keeps_it() -> None:
    async def main(cluster: VirtualCluster) -> None:
        app = ElasticJob("embedded://", session_timeout=5)

        @app.job(cron="0 0 * * * ?", failover=True, shutdown_timeout=1)
        async def job(context: ItemContext) -> None:
            await anyio.sleep(30)

        async def rescues() -> tuple[int, str | None]:
            (item,) = (await cluster.status("job")).items
            assert item.record is not None
            return item.record.rescues, item.outcome

        for _ in range(3):
            await cluster.start(app)
        began = await cluster.event(Began)
        next(one for one in cluster.instances if began.instance.startswith(f"{one.host}@")).kill()
        rescued = await cluster.event(Rescued)
        assert await rescues() == (1, None)
        await next(one for one in cluster.instances if rescued.instance.startswith(f"{one.host}@")).stop()
        await cluster.event(Rescued)
        assert await rescues() == (2, None)
        await cluster.event(Ended, outcome=Outcome.COMPLETED)
        await anyio.sleep(1)
        assert await rescues() == (0, "completed")

    simulated(main)(VirtualCluster())


def test_what_came_during_a_run_that_was_cut_off_is_reported_though_failover_was_switched_off_meanwhile() -> None:
    async def scene() -> None:
        async def work(context: ItemContext) -> None:
            await anyio.sleep(600 if context.source is FireSource.SCHEDULE else 1)

        cluster, app = cluster_of(work, cron="0/10 * * * * ?")
        first, second, item = await pair(cluster, app)
        began = await cluster.event(Began)
        await anyio.sleep(25)
        stored = (await first.session.get(LAYOUT.config)).data.replace(b'"failover": true', b'"failover": false')
        await first.session.commit([Set(LAYOUT.config, stored, -1)], incarnation=first.session.incarnation)
        session = second.session.incarnation
        await anyio.sleep(1)
        cluster.faults.partition([REGISTRY], [second.host])
        await cluster.event(Ended, item=item)  # by the deadline, which is within the session's timeout
        cluster.faults.heal()
        await anyio.sleep(5)
        missed = [event for event in events_of(cluster, Misfired) if item in event.items and not event.cut_off]
        assert min(event.first for event in missed) == began.slot + 10_000
        assert second.session.incarnation == session

    run(scene)


def test_the_rescue_of_a_run_for_a_request_ends_it_even_if_the_view_is_older_than_the_run() -> None:
    job, fires = ClaimedJob(1), list[Fire]()
    clock = StandingClock(job.registry.now)
    paths, orphan = LAYOUT.item(0), Create(LAYOUT.item(0).orphan, b"{}")
    job.config = job.config.changed(failover=True)
    job.write(Set(LAYOUT.config, job.config.to_json(), -1), orphan, Create(paths.execution, b""))
    older = job.view()
    request = Request("r", FireSource.TRIGGER, 1, 1_009_000)
    job.write(Delete(paths.orphan), Create(LAYOUT.request("r"), encode(request)))
    job.write(Create(LAYOUT.request_item("r", 0), encode_progress(Progress(1_009_000))))
    lost = Record(1_005_000, FireSource.TRIGGER, "10.0.0.2@-@1", begun=1_009_000, completed=False)
    lost = replace(lost, asked=1_009_000, request="r")
    job.write(Set(paths.execution, records.encode(lost), -1), orphan)
    events = Events()
    dispatcher = ErrorDispatcher(clock, events.counts, LimitedLog())
    stats = ExecutionStats(job.member, clock, events, dispatcher)
    driver = StateDriver(job.member, older, stats, Past(clock.now()))

    class Rescuer:
        def begin(self) -> Pass:
            run = Choice(job.member.id, driver.state, 100, driver.offsets.possible).next_run(older)
            assert run is not None
            yield from run
            return inf

        def perform(self, command: Command) -> object:
            if isinstance(command, ClaimItems):
                fires.append(command.fire)
                return ClaimResult()
            assert isinstance(command, NodeCommand)
            return InTask(partial(driver.perform, command))

        def refused(self, error: RegistryError) -> float:
            raise error

    work = Passes(Rescuer(), driver, cast(Any, SimpleNamespace(scheduler=None))).turn()  # nothing is awaited
    assert not isinstance(work, float)
    done(work())
    assert [one.requested for one in fires] == [Requested("r", 0, {0: (Progress(1_009_000), 0)})]


@pytest.mark.parametrize("survivors", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_all_orphans_of_a_dead_instance_take_the_time_of_one_run(survivors: int, seed: int) -> None:
    async def scene() -> None:
        async def work(context: ItemContext) -> None:
            await anyio.sleep(30)

        count = 4 * (survivors + 1)
        cluster, app = cluster_of(work, cron="0 0/10 * * * ?", sharding_total_count=count)
        victim, *_ = [await cluster.start(app) for _ in range(survivors + 1)]
        await cluster.settled()
        lost = await victim.holds()
        assert len(lost) == 4
        for _ in range(survivors + 1):
            await cluster.event(Began)
        await anyio.sleep(25)
        victim.kill()
        rescued = [await cluster.event(Rescued) for _ in lost]
        assert sorted(one.item for one in rescued) == sorted(lost)
        assert max(one.at for one in rescued) - min(one.at for one in rescued) < 1
        shares = Counter(one.instance for one in rescued)
        assert max(shares.values()) == -(-4 // survivors)
        assert len(shares) == survivors

    run(scene, seed=seed)
