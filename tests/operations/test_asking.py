"""What may be asked of a job, and what is refused with the setting, the value and what would be right."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from aioelasticjob import InvalidSetting, operations
from aioelasticjob.core.view import JobView
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.testing import VirtualClock
from tests.engine.test_settings_changes import start_processes
from tests.operations.test_instances import HOSTILE
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"
NAIVE = datetime(2026, 11, 20, 8)  # a mistake that users make


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"items": []}, "items"),
        ({"items": [4]}, "items"),
        ({"items": [-1]}, "items"),
        ({"items": [True]}, "items"),
        ({"items": ["1"]}, "items"),
        ({"items": 1}, "items"),
        ({"at": NAIVE}, "at"),
        ({"at": "2026-11-20"}, "at"),
        ({"at": moment(253_402_300_799)}, "at"),  # in the last hours of the year 9999, in which zones may be ahead
        ({"at": moment(2e9), "delay": 5}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": 1e12}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": True}, "delay"),
        ({"at": moment(1_000), "expires": 60}, "expires"),  # both have passed
        ({"expires": 0}, "expires"),
        ({"expires": moment(1_000)}, "expires"),
        ({"expires": NAIVE}, "expires"),
        ({"delay": 60, "expires": moment(1_000)}, "expires"),
        ({"parameter": 7}, "parameter"),
        ({"parameter": ["ab"]}, "parameter"),  # dict() would make {"a": "b"} of it
        ({"parameter": []}, "parameter"),
        ({"parameter": {"a": object()}}, "parameter"),
        ({"parameter": {"a": float("nan")}}, "parameter"),  # other programs could not read it
        ({"parameter": "\ud800"}, "parameter"),
        ({"parameter": "x" * 70_000}, "parameter"),
        *(({"id": name}, "id") for name in HOSTILE if name not in ("zookeeper", "nosuch")),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(given: dict[str, Any], setting: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        with pytest.raises(InvalidSetting) as refused:
            await operations.ask(here.observer, "job", **given)
        assert refused.value.setting == setting
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)


def test_the_only_item_of_a_job_is_named() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER, sharding_total_count=1)
        with pytest.raises(InvalidSetting, match="job has only the item 0, not 9"):
            await operations.ask(here.observer, "job", items=[9])
        for of_an_item in (operations.disable, operations.cancel):
            with pytest.raises(InvalidSetting, match=r"job has only the item 0$"):
                await of_an_item(here.observer, "job", item=9)

    simulate(scene)


@pytest.mark.parametrize("given", [{}, {"items": [1, 2]}])
def test_a_planned_run_is_also_for_the_items_that_are_disabled_which_wait(given: dict[str, Any]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.disable(here.observer, "job", item=1)
        asked = await operations.ask(here.observer, "job", delay=5, id="r", **given)
        assert asked.summary.endswith("; the items that are disabled wait until they are enabled: 1")
        await anyio.sleep(20)
        expected = given.get("items", [0, 1, 2, 3])
        assert sorted(run.items for run in them.runs) == [(item,) for item in expected if item != 1]
        assert (await operations.request(here.observer, "job", "r")).waiting == (1,)
        await operations.enable(here.observer, "job", item=1)
        await anyio.sleep(5)
        assert sorted(run.items for run in them.runs) == [(item,) for item in expected]
        assert (await operations.request(here.observer, "job", "r")).is_over

    simulate(scene)


def test_a_run_for_now_is_refused_if_all_items_are_disabled_also_during_an_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(JobView, "assignment_stands", property(lambda _: False))

    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        for item in range(4):
            await operations.disable(here.observer, "job", item=item)
        with pytest.raises(NotPossible, match="items 0, 1, 2, 3 are disabled: enable them first"):
            await operations.ask(here.observer, "job")
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)


def test_items_are_not_named_beside_the_instance_whose_items_are_asked_for() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        (one,) = (await operations.job(here.observer, "job", now=0)).instances
        with pytest.raises(InvalidSetting, match="give either it or items") as refused:
            await operations.ask(here.observer, "job", instance=one.id, items=[0])
        assert (refused.value.setting, refused.value.value) == ("instance", one.id)
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)


def test_who_can_answer_nothing_now_is_said_unless_the_run_is_planned() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await here.flag(LAYOUT.item(1).disabled)
        with pytest.raises(NotPossible, match="item 1 is disabled: enable it first"):
            await operations.ask(here.observer, "job", items=[0, 1])
        rest = await operations.ask(here.observer, "job", id="rest")
        assert "items 0, 2, 3, without those that are disabled (1), as the request rest" in rest.summary
        await anyio.sleep(1)
        assert sorted(run.items for run in them.runs) == [(0,), (2,), (3,)]
        here.faults.crash(them.people["a"])
        await anyio.sleep(10)
        with pytest.raises(NotPossible, match="no instance is there"):
            await operations.ask(here.observer, "job")
        again = await operations.ask(here.observer, "job", id="rest")  # it was answered while somebody was there
        assert (again.changed, "asked already" in again.summary) == (False, True)
        assert (await operations.ask(here.observer, "job", delay=timedelta(hours=1))).changed

    simulate(scene)


def test_who_asks_again_is_told_how_the_runs_have_ended_in_parts_that_pages_can_translate() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=20, cron=NEVER)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(5)
        await operations.cancel(here.observer, "job", item=1)
        await anyio.sleep(60)
        again = await operations.ask(here.observer, "job", id="r")
        assert again.summary == "job: asked already: all its items, as the request r (done: 3 completed; 1 stopped)"

    simulate(scene)


def test_a_time_that_has_passed_is_refused_but_not_one_that_has_passed_just_now() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        now = VirtualClock().now()
        with pytest.raises(InvalidSetting, match="has passed: give a later time, or none to run it at once") as refused:
            await operations.ask(here.observer, "job", at=moment(now - 61))
        assert (refused.value.setting, await here.names(LAYOUT.requests)) == ("at", ())
        at = moment(now - 50)
        assert (await operations.ask(here.observer, "job", at=at, id="late")).changed
        await anyio.sleep(20)
        again = await operations.ask(here.observer, "job", at=at, id="late")
        assert (again.changed, "asked already" in again.summary) == (False, True)

    simulate(scene)


def test_requests_are_paused_resumed_and_cancelled_each_once() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=10, id="r")
        for act, changed in (
            *((operations.pause_request, True), (operations.pause_request, False)),
            *((operations.resume_request, True), (operations.resume_request, False)),
            (operations.pause_request, True),
        ):
            assert (await act(here.observer, "job", "r")).changed is changed
        await here.until(30)
        assert them.runs == []
        assert (await operations.request(here.observer, "job", "r")).state == "paused"
        assert (await operations.cancel_request(here.observer, "job", "r")).changed
        await anyio.sleep(1)
        again = await operations.cancel_request(here.observer, "job", "r")
        assert (again.changed, again.summary) == (False, "job: the request r is cancelled already")
        assert (await operations.request(here.observer, "job", "r")).state == "cancelled"
        assert them.runs == []
        with pytest.raises(InvalidSetting, match="has no such request"):
            await operations.cancel_request(here.observer, "job", "other")
        for unknown in ("r9", ["r"]):
            with pytest.raises(InvalidSetting, match="has no such request"):
                await operations.pause_request(here.observer, "job", unknown)  # type: ignore[arg-type]

    simulate(scene)


def test_a_broken_configuration_is_not_replaced_by_a_request() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        await here.write(Set(LAYOUT.config, b"nonsense", -1))
        with pytest.raises(NotPossible, match="import a whole configuration"):
            await operations.ask(here.observer, "job", items=[0])
        assert (await here.observer.get(LAYOUT.config)).data == b"nonsense"

    simulate(scene)


def test_a_request_that_makes_no_sense_keeps_its_id_and_harms_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await here.write(Create(LAYOUT.request("r"), b'{"kind": "RUN"}'))
        with pytest.raises(NotPossible, match="belongs to another request"):
            await operations.ask(here.observer, "job", id="r")
        await operations.ask(here.observer, "job", id="s")
        await anyio.sleep(1)
        assert len(them.runs) == 4
        assert [one.request.id for one in await operations.requests(here.observer, "job")] == ["s"]

    simulate(scene)
