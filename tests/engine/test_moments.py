"""No run begins before its moment, by the time that the job uses, however the run came about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from typing import Any, TypeVarTuple

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, JobListener, OnceListener, operations
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs import context as contexts
from aioelasticjob.testing import Process, VirtualClock
from aioelasticjob.testing.loop import VirtualLoop, run_on
from tests.support.simulated_jobs import REGISTRY, SimulatedJobs, simulated_jobs

Ts = TypeVarTuple("Ts")
EARLY = 0.00015
"""Seconds by which the timers of uvloop may ring before their time, as measured."""
AHEAD, BEHIND = 0.8, -0.8
"""Seconds by which the clock of a host may be wrong, so that its jobs still use it."""
EVERY_SECOND = "* * * * * ?"
NEVER = "0 0 0 1 1 ? 2090"


class EarlyLoop(VirtualLoop):
    """A loop whose timers ring a little before their time, as those of uvloop do."""

    def call_at_boot_time(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        early = EARLY if when > self._now + 2 * EARLY else 0.0  # otherwise who waits for the rest would wait for ever
        return super().call_at_boot_time(when - early, callback, *args, context=context)


class Begun(list[tuple[str, int]]):
    """The source of each run, and how many microseconds after its moment it began, by the clock of its host."""

    def note(self, context: contexts.Context) -> None:
        late = moment(VirtualClock().now()) - context.fire_time
        self.append((context.source.value, late // timedelta(microseconds=1)))

    async def item(self, context: ItemContext) -> None:
        self.note(context)

    async def instance(self, context: InstanceContext) -> None:
        self.note(context)

    def sources(self) -> set[str]:
        return {source for source, _ in self}

    def too_early(self) -> list[tuple[str, int]]:
        return [one for one in self if one[1] < 0]


Way = Callable[[SimulatedJobs, Begun], ElasticJob]


def scheduled(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    return here.app(begun.item, cron=EVERY_SECOND)


def unmonitored(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    return here.app(begun.item, cron=EVERY_SECOND, monitor_execution=False, failover=False)


def per_instance(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    return here.app(begun.instance, cron=EVERY_SECOND, per="instance", sharding_total_count=3)


def with_listener(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    return here.app(begun.item, cron=EVERY_SECOND, listeners=[JobListener(before=begun.instance)])


def with_listener_once_in_the_cluster(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    return here.app(begun.item, cron=EVERY_SECOND, listeners=[OnceListener(before=begun.instance)])


def dataflow(here: SimulatedJobs, begun: Begun) -> ElasticJob:
    app = here.app(begun.item, cron=NEVER)

    @app.dataflow("flow", cron=EVERY_SECOND)
    async def fetch(context: ItemContext) -> list[int]:
        begun.note(context)
        return []

    @fetch.process
    async def process(context: ItemContext, records: list[int]) -> None: ...

    return app


def play(scene: Callable[[SimulatedJobs], Awaitable[None]], loop: VirtualLoop | None = None) -> None:
    async def main() -> None:
        async with simulated_jobs() as here:
            await scene(here)

    run_on(loop or EarlyLoop(), main, 0)


def start(here: SimulatedJobs, name: str, app: ElasticJob, *, skew: float = 0.0) -> Process:
    """Start an instance on a host of its own, whose clock may be wrong."""

    async def main() -> None:
        async with app.running():
            await anyio.sleep_forever()

    return here.faults.start(name, f"10.0.0.{name}", main, skew=skew)


@pytest.mark.parametrize(
    "way", [scheduled, unmonitored, per_instance, with_listener, with_listener_once_in_the_cluster, dataflow]
)
def test_no_handler_begins_before_its_moment_though_timers_ring_early(way: Way) -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        async with way(here, begun).running():
            await here.until(30.5)

    play(scene)
    assert len(begun) >= 29
    assert begun.sources() == {"SCHEDULE"}
    assert begun.too_early() == []


def test_a_run_whose_timer_rings_early_begins_within_two_milliseconds_after_its_moment() -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        async with scheduled(here, begun).running():
            await here.until(30.5)

    play(scene)
    assert max(late for _, late in begun) < 2_000


def test_a_run_that_was_planned_does_not_begin_before_its_moment_though_timers_ring_early() -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(begun.item, cron=NEVER).running():
            await operations.ask(here.observer, "job", at=moment(here.start + 20))
            await here.until(21)

    play(scene)
    assert begun.sources() == {"TRIGGER"}
    assert begun.too_early() == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_run_that_was_asked_for_waits_until_the_clock_of_its_host_shows_its_moment(by_hand: bool) -> None:
    """Its moment is given by the registry's clock, and that of the host may be behind."""
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        start(here, "1", here.app(begun.item, cron=NEVER), skew=BEHIND)
        await here.until(5)
        if by_hand:
            await here.trigger()
        else:
            await operations.ask(here.observer, "job")
        await here.until(7)

    play(scene)
    assert begun.sources() == {"TRIGGER"}
    assert begun.too_early() == []


def test_a_rescue_waits_until_the_clock_of_its_host_shows_the_moment_of_the_run_that_was_cut_off() -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        async def cut_off(_context: ItemContext) -> None:
            await anyio.sleep_forever()

        settings: dict[str, Any] = {"cron": "0/20 * * * * ?", "failover": True, "shutdown_timeout": 0}
        first = here.app(cut_off, **settings)

        async def leave() -> None:
            async with first.running():
                await here.until(20.1)

        here.faults.start("1", "10.0.0.1", leave)
        await here.until(1)
        start(here, "2", here.app(begun.item, **settings), skew=BEHIND)
        await here.until(22)

    play(scene)
    assert "FAILOVER" in begun.sources()
    assert begun.too_early() == []


@pytest.mark.parametrize("way", [scheduled, unmonitored])
@pytest.mark.parametrize("back", [0.3, 1.5])
def test_a_run_waits_for_its_moment_if_the_clock_went_back_a_little_just_before(way: Way, back: float) -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        process = start(here, "1", way(here, begun), skew=AHEAD)
        await here.until(9.95 - AHEAD)
        process.skew = AHEAD - back
        await here.until(20)

    play(scene)
    assert len(begun) >= 15
    assert begun.too_early() == []


def test_an_unmonitored_run_waits_for_its_moment_if_the_clock_went_back_while_its_offset_was_read() -> None:
    begun = Begun()

    async def scene(here: SimulatedJobs) -> None:
        async def save(context: ItemContext) -> None:
            begun.note(context)
            await context.save_offset("read")

        process = start(here, "1", here.app(save, cron="0/10 * * * * ?", monitor_execution=False, failover=False))
        here.faults.delay("10.0.0.1", REGISTRY, 0.02)
        await here.until(20.01)
        process.skew = -0.3
        await here.until(25)

    play(scene)
    assert len(begun) == 2
    assert begun.too_early() == []
