"""A run asked for by hand is neither lost nor run twice, whatever comes between the asking and the claim."""

from __future__ import annotations

import logging
from collections import Counter

import anyio
import pytest

from aioelasticjob.engine.claims import ITEMS_AT_ONCE
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_settings_changes import JobProcesses, start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"
AWAY = 0.02
"""Seconds between the instance and the registry, each way: things happen while its requests travel."""
SWEEP = range(0, 151, 10)
"""Milliseconds after the request at which something happens to it."""


async def far(here: SimulatedJobs, **settings: object) -> JobProcesses:
    them = await start_processes(here, "a", work=0.05, **{"sharding_total_count": 2, "cron": NEVER, **settings})
    here.faults.delay("10.0.0.1", REGISTRY, AWAY)
    await anyio.sleep(1)
    return them


async def ask(here: SimulatedJobs, them: JobProcesses, name: str = "a", parameter: bytes = b"P") -> None:
    await here.write(Create(LAYOUT.trigger(await them.id_of(name)), parameter))


@pytest.mark.parametrize("monitored", [True, False])
@pytest.mark.parametrize("after", SWEEP)
def test_a_connection_that_breaks_neither_loses_a_request_nor_doubles_it(after: int, monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here, monitor_execution=monitored)
        await ask(here, them)
        await anyio.sleep(after / 1000)
        here.faults.reset("10.0.0.1", REGISTRY)
        await anyio.sleep(10)
        assert Counter((run.items, run.parameter) for run in them.runs) == {((0,), "P"): 1, ((1,), "P"): 1}
        assert await here.names(LAYOUT.triggers) == ()

    simulate(scene)


@pytest.mark.parametrize("after", SWEEP)
def test_an_assignment_that_moves_neither_loses_a_request_nor_doubles_it(after: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
        await ask(here, them)
        await anyio.sleep(after / 1000)
        await here.write(Set(LAYOUT.sharding, b"", -1))
        await anyio.sleep(10)
        assert Counter((run.items, run.parameter) for run in them.runs) == {((0,), "P"): 1, ((1,), "P"): 1}

    simulate(scene)


@pytest.mark.parametrize("after", SWEEP)
def test_a_second_request_takes_the_place_of_one_not_yet_claimed_or_follows_it(after: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
        path = LAYOUT.trigger(await them.id_of("a"))
        await ask(here, them, parameter=b"A")
        await anyio.sleep(after / 1000)
        await here.write(Set(path, b"B", -1) if await here.observer.exists(path) else Create(path, b"B"))
        await anyio.sleep(10)
        count = Counter(run.parameter for run in them.runs)
        assert count["B"] == 2
        assert count["A"] in (0, 2)
        assert await here.names(LAYOUT.triggers) == ()

    simulate(scene)


async def overtaken(here: SimulatedJobs, **settings: object) -> JobProcesses:
    """Let half of a's items move to b while a still runs them, until 80."""
    them = await start_processes(here, "a", work=20, cron="0 * * * * ?", **settings)
    await here.until(61)
    await them.start_processes("b")
    await here.until(63)
    assert await them.holders() == {0: "a", 1: "a", 2: "b", 3: "b"}
    them.work = 1
    return them


@pytest.mark.parametrize("failover", [True, False])
def test_items_that_run_elsewhere_are_run_with_the_parameter_when_they_are_free(failover: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await overtaken(here, failover=failover)
        await ask(here, them, "b")
        await here.until(119)
        again = [(round(run.at), run.host, run.items, run.source, run.parameter) for run in them.since(62)]
        assert again == [(80, "b", (2,), "TRIGGER", "P"), (80, "b", (3,), "TRIGGER", "P")]

    simulate(scene)


@pytest.mark.parametrize("trouble", ["reset", "moved"])
@pytest.mark.parametrize("after", SWEEP)
def test_what_was_deferred_is_not_lost_when_its_claim_fails(after: int, trouble: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await overtaken(here)
        here.faults.delay("10.0.0.2", REGISTRY, AWAY)
        await ask(here, them, "b")
        await here.until(80 + after / 1000)
        if trouble == "reset":
            here.faults.reset("10.0.0.2", REGISTRY)
        else:
            await here.write(Set(LAYOUT.sharding, b"", -1))
        await here.until(119)
        again = Counter((run.host, run.items, run.parameter) for run in them.since(62))
        assert again == {("b", (2,), "P"): 1, ("b", (3,), "P"): 1}

    simulate(scene)


def test_items_that_run_elsewhere_are_run_once_though_the_claim_of_those_beside_them_fails() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await overtaken(here, failover=True)
        await them.change(shardingTotalCount=6)  # b holds 3, which a still runs, and two that nobody runs
        await here.until(79)
        here.faults.delay("10.0.0.2", REGISTRY, AWAY)
        await here.until(79.94)
        await ask(here, them, "b")
        await anyio.sleep(0.04)
        await here.write(Set(LAYOUT.sharding, b"", -1))
        await here.until(119)
        assert Counter(run.items for run in them.since(79) if run.host == "b") == {(3,): 1, (4,): 1, (5,): 1}

    simulate(scene)


def test_items_that_have_moved_before_they_could_be_run_are_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedLog, "admits", lambda *_, **__: True)

    async def scene(here: SimulatedJobs) -> None:
        them = await overtaken(here)
        await ask(here, them, "b")
        await anyio.sleep(0.5)
        await here.flag(LAYOUT.server_disabled("10.0.0.2"))
        await here.until(90)
        assert them.since(62) == []

    simulate(scene)
    assert [(one.items, one.moments) for one in caplog.records if "moved to another" in one.getMessage()] == [  # type: ignore[attr-defined]
        ((2,), 1),
        ((3,), 1),
    ]


def test_items_deferred_by_an_instance_that_leaves_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedLog, "admits", lambda *_, **__: True)

    async def scene(here: SimulatedJobs) -> None:
        them = await overtaken(here)
        await ask(here, them, "b")
        await anyio.sleep(0.5)
        await here.flag(LAYOUT.shutdown(await them.id_of("b")))
        await here.until(90)
        assert them.since(62) == []

    simulate(scene)
    logged = [one for one in caplog.records if "trigger" in one.getMessage()]
    assert sorted(item for one in logged for item in one.items) == [2, 3]  # type: ignore[attr-defined]


def test_more_items_than_one_claim_takes_are_run_though_the_assignment_moves_between() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here, sharding_total_count=ITEMS_AT_ONCE + 3)
        await anyio.sleep(5)
        await ask(here, them)
        while not await here.names(LAYOUT.item(0).execution):
            await anyio.sleep(0.005)
        await here.write(Set(LAYOUT.sharding, b"", -1))
        await anyio.sleep(10)
        count = Counter(run.items for run in them.runs)
        assert len(count) == ITEMS_AT_ONCE + 3
        assert set(count.values()) == {1}
        assert {run.parameter for run in them.runs} == {"P"}

    simulate(scene)


@pytest.mark.parametrize("flags", [[LAYOUT.server_paused("10.0.0.1")], [LAYOUT.item(n).disabled for n in (0, 1)]])
def test_a_request_to_what_is_switched_off_is_taken_and_said_to_come_to_nothing(
    flags: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
        for flag in flags:
            await here.flag(flag)
        await anyio.sleep(1)
        await ask(here, them)
        await anyio.sleep(1)
        assert await here.names(LAYOUT.triggers) == ()
        for flag in flags:
            await here.write(Delete(flag))
        await anyio.sleep(5)
        assert them.runs == []

    caplog.set_level(logging.WARNING)
    simulate(scene)
    assert len([one for one in caplog.records if "trigger" in one.getMessage()]) == 1


def test_an_item_refused_for_what_was_made_by_hand_is_reported_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
        path = LAYOUT.item(0).execution
        await here.write(Create(path, ephemeral=True))
        await ask(here, them)
        await anyio.sleep(5)
        assert [(run.items, run.parameter) for run in them.runs] == [((1,), "P")]
        assert await here.names(LAYOUT.triggers) == ()

    simulate(scene)
    assert [one.items for one in caplog.records if "somebody has made by hand" in one.getMessage()] == [(0,)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("monitored", [True, False])
def test_a_request_during_a_run_does_not_swallow_the_late_run_of_what_was_missed(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=12, sharding_total_count=1, monitor_execution=monitored)
        await here.until(11)
        await ask(here, them)
        them.work = 1
        await here.until(39)
        assert [(round(run.at), run.source) for run in them.runs] == [
            (10, "CRON"),
            (22, "TRIGGER"),
            (23, "MISFIRE"),
            (30, "CRON"),
        ]

    simulate(scene)
