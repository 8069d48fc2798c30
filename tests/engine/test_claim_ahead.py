"""Claims that leave before their moment, and those that are taken back."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from types import CoroutineType
from weakref import ref

import anyio
import pytest

from aioelasticjob import ItemContext
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create, Delete
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, running_job, simulate


def test_an_idle_job_leaves_at_once_though_its_next_claim_waits() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running():
            await here.until(9.95)  # claims are sent 120 ms ahead at the latest
        assert here.now() < 10.0

    assert simulate(scene).starts() == [(5.0, "SCHEDULE", 5.0)]


def test_a_claim_is_there_when_its_moment_comes_and_the_handler_begins_then() -> None:
    async def scene(here: SimulatedJobs) -> None:
        begun: list[float] = []

        async def note(_context: ItemContext) -> None:
            begun.append(round(here.now(), 2))

        async with here.app(note, cron="0/5 * * * * ?").running():
            await here.until(9.9)
            assert begun == [5.0]
            assert await here.names(LAYOUT.item(0).execution) == ("running",)
            record = await here.record(0)
            assert (record.slot / 1000 - here.start, record.begun) == (10, record.slot)
            await here.until(10.001)
            assert begun == [5.0, 10.0]

    simulate(scene)


@pytest.mark.parametrize("first", [True, False], ids=["never ran", "ran before"])
def test_a_claim_whose_moment_is_overtaken_by_news_leaves_everything_as_it_was(first: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        before = Record()
        async with here.app(cron="0/5 * * * * ?").running():
            if not first:
                await here.until(7)
                before = await here.record(0)
            await here.until((5 if first else 10) - 0.01)
            assert (await here.record(0)).slot != before.slot
            await here.flag(LAYOUT.server_paused("127.0.0.1"))
            await here.until(12)
            left = await here.record(0)
            assert replace(left, accounted=before.accounted) == before
            assert left.accounted < (here.start + (5 if first else 10)) * 1000  # the moment is owed again
            assert await here.names(LAYOUT.item(0).execution) == ()
            await here.write(Delete(LAYOUT.server_paused("127.0.0.1")))
            await here.until(16)

    assert simulate(scene).starts() == ([] if first else [(5.0, "SCHEDULE", 5.0)]) + [(15.0, "SCHEDULE", 15.0)]


def test_what_a_claim_that_was_given_back_has_claimed_is_run_at_its_moment_by_whoever_holds_the_item_then() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running():
            await here.until(9.99)
            await here.write(Create(LAYOUT.server("10.9.9.9"), b"other"))  # news that changes nothing for us
            await here.until(12)

    assert simulate(scene).starts() == [(5.0, "SCHEDULE", 5.0), (10.0, "SCHEDULE", 10.0)]


def test_a_process_that_is_late_for_a_moment_runs_what_it_has_claimed_and_does_not_claim_it_twice() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", sharding_total_count=1)
        await here.until(19.95)
        before = await here.observer.get(LAYOUT.item(0).execution)
        here.faults.pause(them.people["a"])
        await here.until(22)
        here.faults.resume(them.people["a"])
        await here.until(25)
        assert [(round(run.at, 1), run.source) for run in them.runs] == [(10.0, "SCHEDULE"), (22.0, "SCHEDULE")]
        settled = await here.observer.get(LAYOUT.item(0).execution)
        assert settled.stat.version == before.stat.version + 1  # the claim was not given back

    simulate(scene)


def what_waits() -> Counter[type]:
    """Count the tasks, coroutines and cancel scopes that exist."""
    gc.collect()
    kinds = (asyncio.Task, CoroutineType, anyio.CancelScope)
    return Counter(type(one) for one in gc.get_objects() if issubclass(type(one), kinds))


def test_a_claim_that_waits_owns_no_task_no_coroutine_and_no_cancel_scope() -> None:
    """A thousand claims wait at once, and the garbage collector visits all that they consist of."""

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running():
            await here.until(7)
            before = what_waits()
            await here.until(9.99)
            assert what_waits() == before
            await here.until(11)

    assert simulate(scene).starts() == [(5.0, "SCHEDULE", 5.0), (10.0, "SCHEDULE", 10.0)]


def test_a_claim_that_was_given_back_is_not_kept() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running():
            await here.until(9.99)
            view = ref(running_job(here.apps[0], "job").views.value)
            await here.flag(LAYOUT.server_paused("127.0.0.1"))
            await here.until(20)
            gc.collect()
            assert view() is None

    simulate(scene)


@pytest.mark.parametrize("misfire", [False, True])
@pytest.mark.parametrize("ends", [19.83, 19.9, 19.93, 19.95, 19.97, 19.99])
def test_an_item_that_another_instance_settles_just_before_a_moment_runs_at_that_moment(
    ends: float, misfire: bool
) -> None:
    """A claim that is sent ahead may find that the item still runs elsewhere.  Then it is sent again at the moment."""

    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=ends - 10, misfire=misfire)
        await here.until(12)
        await them.start_processes("b")
        await here.until(25)
        begun = [run for run in them.runs if run.host == "b"]
        assert len(begun) == 2
        assert all(20 <= run.at < 20.1 and run.source == "SCHEDULE" for run in begun), begun

    simulate(scene)
