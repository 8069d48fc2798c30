"""Runs of disjoint items of one job go on side by side in one process: requests, and scheduled runs beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import InstanceContext, ItemContext, OnceListener, operations
from aioelasticjob.registry.transaction import Create, Delete, Op
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"


@dataclass
class Spans:
    """The runs of one process: when each began and ended, and why it was made."""

    here: SimulatedJobs
    work: Callable[[ItemContext], float]
    """Seconds that the run of an item takes."""
    done: list[tuple[int, str, float, float]] = field(default_factory=list)
    """Item, source, begin and end of each run, in seconds after the start."""
    most: int = 0
    """How many runs went on at the same time at most."""
    written: list[tuple[float, Sequence[Op]]] = field(default_factory=list)
    """The transactions that have written records, and when; only if the test notes them."""
    _under_way: Counter[int] = field(default_factory=Counter)

    async def __call__(self, context: ItemContext) -> None:
        began = self.here.now()
        self._under_way[context.item] += 1
        assert self._under_way[context.item] == 1, "an item runs twice at the same time"
        self.most = max(self.most, self._under_way.total())
        try:
            await anyio.sleep(self.work(context))
        finally:
            self._under_way[context.item] -= 1
            about = context.item, context.source.value
            self.done.append((*about, round(began, 1), round(self.here.now(), 1)))

    def of(self, item: int) -> list[tuple[str, float, float]]:
        """Return the source, the begin and the end of each run of an item."""
        return [(source, began, ended) for one, source, began, ended in sorted(self.done) if one == item]


def play(
    scene: Callable[[SimulatedJobs], Awaitable[None]], *, work: Callable[[ItemContext], float], **settings: Any
) -> Spans:
    """Play a scene with one process that has two items, and return its runs."""
    spans = list[Spans]()

    async def whole(here: SimulatedJobs) -> None:
        spans.append(Spans(here, work))
        app = here.app(spans[0], **{"sharding_total_count": 2, "cron": NEVER, **settings})
        async with app.running():
            await scene(here)

    simulate(whole)
    return spans[0]


async def ask_twice(here: SimulatedJobs) -> None:
    await here.until(5)
    await here.trigger("first", items=[0])
    await here.until(6)
    await here.trigger("second", items=[1])
    await here.until(60)


@pytest.mark.parametrize("recorded", [True, False])
def test_requests_for_different_items_run_at_the_same_time(recorded: bool) -> None:
    spans = play(ask_twice, work=lambda _: 20, monitor_execution=recorded)
    assert sorted(spans.done) == [(0, "TRIGGER", 5.0, 25.0), (1, "TRIGGER", 6.0, 26.0)]


def test_a_limit_of_items_bounds_all_runs_together() -> None:
    spans = play(ask_twice, work=lambda _: 20, items_at_once=1)
    assert sorted(spans.done) == [(0, "TRIGGER", 5.0, 25.0), (1, "TRIGGER", 25.0, 45.0)]


def test_scheduled_runs_go_on_beside_a_request_whose_item_catches_up_afterwards() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.until(5)
        await here.trigger(items=[0])
        await here.until(48)

    spans = play(scene, work=lambda one: 20 if one.source == "TRIGGER" else 1, cron="0/10 * * * * ?")
    on_time = [("SCHEDULE", float(second), second + 1.0) for second in (10, 20, 30, 40)]
    assert spans.of(1) == on_time
    assert spans.of(0) == [("MISFIRE", 25.0, 26.0), *on_time[2:], ("TRIGGER", 5.0, 25.0)]


def test_a_request_runs_beside_a_scheduled_run_of_another_item() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.until(5)
        await here.write(Create(LAYOUT.item(1).disabled))
        await here.until(12)
        await here.write(Delete(LAYOUT.item(1).disabled))
        await here.until(13)
        await here.trigger(items=[1])
        await here.until(50)

    spans = play(scene, work=lambda one: 30 if one.source == "SCHEDULE" else 1, cron="10 * * * * ?")
    assert spans.of(0) == [("SCHEDULE", 10.0, 40.0)]
    assert ("TRIGGER", 13.0, 14.0) in spans.of(1)


def test_without_independent_items_one_slow_item_delays_the_others_on_its_process() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.until(34)

    spans = play(scene, work=lambda one: 15 if one.item == 0 and one.source == "SCHEDULE" else 1, cron="0/10 * * * * ?")
    assert spans.of(1) == [("MISFIRE", 25.0, 26.0), ("SCHEDULE", 10.0, 11.0), ("SCHEDULE", 30.0, 31.0)]


def test_a_cancelled_run_ends_and_the_run_beside_it_goes_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.until(5)
        await here.trigger("first", items=[0])
        await here.trigger("second", items=[1])
        await here.until(8)
        await operations.cancel(here.observer, "job", item=0)
        await here.until(9)
        shown.append(((await here.record(0)).outcome, (await here.record(1)).completed))
        await here.until(40)

    shown = list[tuple[str, bool]]()
    spans = play(scene, work=lambda _: 20)
    assert sorted(spans.done) == [(0, "TRIGGER", 5.0, 8.0), (1, "TRIGGER", 5.0, 25.0)]
    assert shown == [("stopped", False)]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_job_that_leaves_waits_for_all_of_its_runs_and_begins_no_other(recorded: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, lambda one: 5 + 5 * one.item)
        app = here.app(spans, cron=NEVER, sharding_total_count=3, monitor_execution=recorded)

        async def ask_too_late() -> None:
            await here.until(8)
            await here.trigger("third", items=[2])

        async with anyio.create_task_group() as tasks, app.running():
            tasks.start_soon(ask_too_late)
            await here.until(5)
            await here.trigger("first", items=[0])
            await here.trigger("second", items=[1])
            await here.until(7)
        assert sorted(spans.done) == [(0, "TRIGGER", 5.0, 10.0), (1, "TRIGGER", 5.0, 15.0)]
        assert here.now() < 16
        if recorded:
            outcomes = [(await here.record(item)).outcome for item in (0, 1)]
            assert outcomes == ["completed", "completed"]
        assert all([not await here.names(LAYOUT.item(item).execution) for item in (0, 1)])

    simulate(scene)


def test_all_runs_are_cut_off_and_settled_when_a_job_has_waited_long_enough() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, lambda _: 100)
        app = here.app(spans, cron=NEVER, sharding_total_count=2, shutdown_timeout=3)
        async with app.running():
            await here.until(5)
            await here.trigger("first", items=[0])
            await here.trigger("second", items=[1])
            await here.until(7)
        assert sorted(spans.done) == [(0, "TRIGGER", 5.0, 10.0), (1, "TRIGGER", 5.0, 10.0)]
        assert [(await here.record(item)).outcome for item in (0, 1)] == ["cancelled", "cancelled"]

    simulate(scene)


def test_health_shows_the_items_of_all_runs() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(Spans(here, lambda one: 10 - 5 * one.item), cron=NEVER, sharding_total_count=2)
        async with app.running():
            await here.until(5)
            for item in (1, 0):
                await here.trigger(f"item{item}", items=[item])
            shown = list[tuple[int, ...]]()
            for second in (6, 12, 17):
                await here.until(second)
                shown.append(app.health.jobs[0].running)
            assert shown == [(0, 1), (0,), ()]

    simulate(scene)


def test_records_are_switched_off_only_when_all_runs_have_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.until(5)
        await here.trigger("first", items=[0])
        await here.until(6)
        await operations.configure(here.observer, "job", {"monitor_execution": False})
        await here.until(8)
        await here.trigger("second", items=[0])
        await here.until(40)

    spans = play(scene, work=lambda _: 10)
    assert spans.of(0) == [("TRIGGER", 5.0, 15.0), ("TRIGGER", 15.0, 25.0)]


def test_once_listeners_of_runs_that_go_on_side_by_side_are_called_once_each() -> None:
    said = list[str]()

    def saying(what: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def say(context: InstanceContext) -> None:
            said.append(f"{what} {context.fire.run[:5]}")
            await anyio.sleep(3)

        return say

    once = OnceListener(before=saying("before"), after=saying("after"))

    async def scene(here: SimulatedJobs) -> None:
        await here.until(5)
        await here.trigger("first", items=[0])
        await here.trigger("other", items=[1])
        await here.until(40)

    spans = play(scene, work=lambda _: 5, listeners=[once])
    assert sorted(said) == ["after first", "after other", "before first", "before other"]
    assert spans.most == 2


def test_an_outage_that_ends_the_session_cuts_off_all_runs_and_each_is_made_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, lambda _: 40)

        async def main() -> None:
            async with here.app(spans, cron=NEVER, sharding_total_count=2, failover=True).running():
                await anyio.sleep_forever()

        here.faults.start("a", "10.0.0.1", main)
        await here.until(5)
        await here.trigger("first", items=[0])
        await here.until(6)
        await here.trigger("second", items=[1])
        await here.until(12)
        here.faults.partition(["10.0.0.1"], [REGISTRY])
        await here.until(30)
        here.faults.heal()
        await here.until(90)
        for item in (0, 1):
            assert [source for source, *_ in spans.of(item)] == ["FAILOVER", "TRIGGER"]
        assert [(await here.record(item)).outcome for item in (0, 1)] == ["completed", "completed"]

    simulate(scene)
