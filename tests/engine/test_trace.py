"""Which events observers get of each run: every item that began ends, once, whatever comes between."""

from __future__ import annotations

from collections import defaultdict

import anyio

from aioelasticjob import InstanceContext, ItemContext, JobListener, Outcome
from aioelasticjob.events import Began, Ended, HandedOver, JobEvent, Misfired, Rescued, Started
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate


def of(here: SimulatedJobs, item: int) -> list[str]:
    """Return the events of an item, in order."""
    names = []
    for event in here.events:
        items = getattr(event, "items", (getattr(event, "item", -1),))
        if item in items:
            names.append(event.outcome.value if isinstance(event, Ended) else type(event).__name__)
    return names


def tasks(events: list[JobEvent]) -> dict[str, list[str]]:
    """Return the names of the events by the run's name."""
    found: dict[str, list[str]] = defaultdict(list)
    for event in events:
        for task in event.task_ids if isinstance(event, Began) else [getattr(event, "task_id", "")]:
            found[task].append(type(event).__name__)
    return found


def test_the_events_of_a_run_have_one_name_from_claim_to_end_and_their_own_times() -> None:
    names: dict[int, str] = {}

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            names[context.item] = context.task_id
            await anyio.sleep(1 + context.item)
            if context.item == 1:
                raise ValueError("no luck")

        app = here.app(handler, cron="0/30 * * * * ?", sharding_total_count=2)
        async with listening(here, app), app.running():
            await here.until(35)

    here = simulate(scene)
    assert of(here, 0) == ["Began", "Started", "completed"]
    assert of(here, 1) == ["Began", "Started", "failed"]
    ended = {event.item: event for event in here.events if isinstance(event, Ended)}
    assert [round(ended[item].seconds, 2) for item in (0, 1)] == [1.0, 2.0]
    assert [round(ended[item].at - here.start, 1) for item in (0, 1)] == [31.0, 32.0]
    assert str(ended[1].failure) == "no luck"
    assert ended[1].failure is not None
    assert ended[1].failure.__traceback__ is not None
    assert tasks(here.events) == {names[item]: ["Began", "Started", "Ended"] for item in (0, 1)}


def test_a_run_of_all_items_has_one_name() -> None:
    names: list[str] = []

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: InstanceContext) -> None:
            names.append(context.task_id)

        app = here.app(handler, cron="0/30 * * * * ?", sharding_total_count=3, per="instance")
        async with listening(here, app), app.running():
            await here.until(31)

    here = simulate(scene)
    (began,) = [event for event in here.events if isinstance(event, Began)]
    assert (began.items, began.task_ids) == ((0, 1, 2), (names[0],) * 3)
    assert [type(event) for event in here.events if event is not began] == [Started, Ended, Ended, Ended]
    assert {event.task_id for event in here.events if isinstance(event, Started | Ended)} == set(names)


def test_a_run_that_takes_too_long() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            await anyio.sleep(100)

        app = here.app(handler, cron="0/30 * * * * ?", timeout=2)
        async with listening(here, app), app.running():
            await here.until(35)

    here = simulate(scene)
    assert of(here, 0) == ["Began", "Started", "timed out"]
    (ended,) = [event for event in here.events if isinstance(event, Ended)]
    assert isinstance(ended.failure, TimeoutError)


def test_items_that_a_listener_keeps_from_running_end_without_having_started() -> None:
    async def refuse(context: InstanceContext) -> None:
        raise RuntimeError("not today")

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None: ...

        app = here.app(None, cron="0/30 * * * * ?")
        app.add(handler, name="other", cron="0/30 * * * * ?", listeners=[JobListener(before=refuse)])
        async with listening(here, app), app.running():
            await here.until(31)

    here = simulate(scene)
    events = [event for event in here.events if event.job == "other"]
    assert [type(event) for event in events] == [Began, Ended]
    assert isinstance(events[1], Ended)
    assert (events[1].outcome, str(events[1].failure)) == (Outcome.FAILED, "not today")


def test_what_a_leaver_cannot_finish_is_handed_over_and_rescued() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def slow(context: ItemContext) -> None:
            await anyio.sleep(1000)

        async def quick(context: ItemContext) -> None:
            await anyio.sleep(1)

        settings = {"cron": "30 * * * * ?", "failover": True, "shutdown_timeout": 2.0, "sharding_total_count": 2}
        first, second = here.app(slow, **settings), here.app(quick, **settings)
        leave = anyio.Event()

        async def live() -> None:
            async with listening(here, first), first.running():
                await leave.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(live)
            await here.until(10)
            async with listening(here, second), second.running():
                await here.until(35)
                leave.set()
                await here.until(55)
            group.cancel_scope.cancel()

    here = simulate(scene)
    (over,) = [event for event in here.events if isinstance(event, HandedOver) and event.at < here.start + 45]
    assert of(here, over.item)[:2] == ["Began", "Started"]
    assert of(here, over.item)[2:] == ["cancelled", "HandedOver", "Began", "Rescued", "Started", "completed"]
    (rescued,) = [event for event in here.events if isinstance(event, Rescued)]
    cancelled = next(event for event in here.events if isinstance(event, Ended) and event.item == over.item)
    assert cancelled.task_id == over.task_id != rescued.task_id
    assert (rescued.cut_off, rescued.slot) == (cancelled.instance, cancelled.slot)


def test_a_crash_names_whose_run_it_was() -> None:
    async def scene(here: SimulatedJobs, failover: bool) -> None:
        async def handler(context: ItemContext) -> None:
            await anyio.sleep(30 if here.now() < 35 else 1)

        async def main() -> None:
            app = here.app(handler, cron="30 * * * * ?", failover=failover)
            async with listening(here, app), app.running():
                await anyio.sleep_forever()

        first = here.faults.start("a", "10.0.0.1", main)
        await here.until(10)
        here.faults.start("b", "10.0.0.2", main)
        await here.until(33)
        (holder,) = {(await here.observer.get(LAYOUT.item(0).running)).data.decode()}
        assert holder.startswith("10.0.0.1@")
        here.faults.crash(first)
        await here.until(59)
        events = [event for event in here.events if isinstance(event, Rescued | Misfired)]
        assert [event.cut_off for event in events] == [holder]

    for failover in (True, False):
        simulate(lambda here, failover=failover: scene(here, failover))  # type: ignore[misc]
