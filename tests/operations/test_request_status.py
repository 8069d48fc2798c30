"""How far a request has come, and when all its runs have ended."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from aioelasticjob import InvalidSetting, operations
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import RequestStatus
from aioelasticjob.operations.queries import requests_view, view_of
from aioelasticjob.operations.request_status import _without_cut_off, status_of_request
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import VirtualClock
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"


def test_a_request_is_waited_for_running_and_done() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=5, cron=NEVER)
        await operations.pause(here.observer, "job")
        await operations.ask(here.observer, "job", delay=0, parameter="fail", items=[1], id="r")
        assert (await operations.request(here.observer, "job", "r")).waiting == (1,)
        await operations.resume(here.observer, "job")
        await anyio.sleep(1)
        found = await operations.request(here.observer, "job", "r")
        assert (found.state, found.running, found.waiting) == ("running", (1,), ())
        assert (found.outcomes, found.is_over) == ({}, False)
        ended = await operations.ended(here.observer, "job", "r")
        assert (ended.state, ended.outcomes, here.now() < 12) == ("done", {"failed": 1}, True)

    simulate(scene)


def test_the_outcomes_of_a_request_that_goes_on_are_text() -> None:
    """As those of one that has ended, which are read from JSON: programs print the keys and make JSON of them."""

    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=5, cron=NEVER, sharding_total_count=2)
        for id, parameter, outcome in (("completing", "", "completed"), ("failing", "fail", "failed")):
            await operations.pause(here.observer, "job")
            await operations.ask(here.observer, "job", delay=0, parameter=parameter, id=id)
            await operations.disable(here.observer, "job", item=1)
            await operations.resume(here.observer, "job")
            await anyio.sleep(6)
            found = await operations.request(here.observer, "job", id)
            assert (found.state, found.outcomes) == ("waiting", {outcome: 1})  # the disabled item has not begun
            assert [type(key) for key in found.outcomes] == [str]
            await operations.enable(here.observer, "job", item=1)
            await anyio.sleep(6)

    simulate(scene)


@pytest.mark.parametrize("failover", [True, False])
def test_the_end_of_a_run_whose_process_died_is_not_waited_for_in_vain(failover: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=5, cron=NEVER, failover=failover)
        await operations.ask(here.observer, "job", id="r")
        found = list[RequestStatus]()

        async def wait() -> None:
            found.append(await operations.ended(here.observer, "job", "r"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(1)
            here.faults.crash(them.people["a"])
        assert found[0].outcomes == ({"completed": 4} if failover else {"completed": 2, "cut off": 2})
        assert (found[0].state, found[0].running) == ("done", ())

    simulate(scene)


def test_a_run_that_ended_after_the_request_was_read_does_not_count_as_cut_off() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=5, cron=NEVER, failover=False)
        await operations.disable(here.observer, "job", item=2)  # so the request stays open
        await operations.ask(here.observer, "job", items=[1, 2], delay=0, id="r")
        await anyio.sleep(1)
        view = await requests_view(here.observer, "job", "r")
        (request,) = view.requests
        await anyio.sleep(10)
        found = status_of_request(view, request)
        assert found.running == (1,)
        assert await _without_cut_off(here.observer, view, found) == found

    simulate(scene)


def test_runs_that_were_cut_off_are_called_so_while_nobody_is_up_to_note_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=600, cron=NEVER, failover=False)
        await operations.ask(here.observer, "job", id="r")
        for name, state, cut_off in (("a", "running", 2), ("b", "done", 4)):
            await anyio.sleep(1)
            here.faults.crash(them.people[name])
            await anyio.sleep(60)
            (found,) = await operations.requests(here.observer, "job")
            assert (found.state, found.outcomes, len(found.running)) == (state, {"cut off": cut_off}, 4 - cut_off)
        assert await operations.request(here.observer, "job", "r") == found

    simulate(scene)


def test_a_backfill_of_which_a_run_was_cut_off_waits_for_the_next_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=600, cron="0 0 2 * * ?", failover=False)
        days = moment(here.start - 7 * 24 * 3600), moment(here.start)
        await operations.backfill(here.observer, "job", *days, items=[0], id="week")
        await anyio.sleep(1)
        here.faults.crash(them.people["a"])
        await anyio.sleep(60)
        (found,) = await operations.requests(here.observer, "job")
        assert (found.state, found.outcomes, found.waiting, found.running) == ("waiting", {"cut off": 1}, (0,), ())

    simulate(scene)


def test_of_many_requests_only_the_one_that_is_asked_about_is_read() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        for id in ("r", "kept", "other"):
            await operations.ask(here.observer, "job", id=id, delay=60)
        await here.write(Create(LAYOUT.request("odd"), b"nonsense"))
        for view in (
            await requests_view(here.observer, "job", "r"),
            await view_of(here.observer, "job", request="r"),
        ):
            assert [one.id for one in view.requests] == ["r"]
        assert not (await view_of(here.observer, "job", request="")).requests
        for id in ("x", "odd", "a/b"):
            with pytest.raises(InvalidSetting, match="has no such request; there are: r, kept, other"):
                await operations.request(here.observer, "job", id)

    simulate(scene)


def test_who_cancels_a_request_reads_neither_other_requests_nor_the_items_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        for id in ("r", "kept", "other"):
            await operations.ask(here.observer, "job", id=id, delay=60)
        subtree, read = here.observer.subtree, set[str]()

        async def noted(*roots: Sequence[str]) -> Tree:
            tree = await subtree(*roots)
            read.update(tree)
            return tree

        monkeypatch.setattr(here.observer, "subtree", noted)
        for act in (operations.pause_request, operations.resume_request, operations.cancel_request):
            assert (await act(here.observer, "job", "r", by="anna")).changed
        below_leader = {path for path in read if path.startswith(LAYOUT.leader)}
        assert read - below_leader == {LAYOUT.config, LAYOUT.request("r")}
        note = await here.observer.get(LAYOUT.operator)
        assert note is not None
        assert b"anna" in note.data

    simulate(scene)


def test_who_asks_for_runs_reads_the_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        subtree, reads = here.observer.subtree, list[Tree]()

        async def noted(*roots: Sequence[str]) -> Tree:
            reads.append(await subtree(*roots))
            return reads[-1]

        monkeypatch.setattr(here.observer, "subtree", noted)
        await operations.ask(here.observer, "job", id="r", delay=60)
        assert (await operations.ask(here.observer, "job", id="r", delay=60)).summary.startswith("job: asked already")
        assert len(reads) == 2

    simulate(scene)


def test_the_job_of_a_request_is_found_by_the_id() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", id="r", delay=60)
        assert await operations.job_of_request(here.observer, "r") == "job"
        await operations.ask(here.observer, "other", id="r", delay=60)
        for id, why in (("r", "several jobs"), ("x", "no job has it"), ("a/b", "no id")):
            with pytest.raises(InvalidSetting, match=why):
                await operations.job_of_request(here.observer, id)

    simulate(scene)


def test_what_has_expired_is_shown_so_though_no_instance_is_there_to_note_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=60, expires=90, id="r")
        here.faults.crash(them.people["a"])
        request = (await operations.request(here.observer, "job", "r")).request
        times = (request.at - 1, "planned"), (request.at, "waiting"), (request.expires, "expired")
        for milliseconds, state in times:
            found = await operations.request(here.observer, "job", "r", now=milliseconds / 1000)
            assert (found.state, found.is_over) == (state, state == "expired")
        await here.until(300)
        ended = await operations.ended(here.observer, "job", "r", clock=VirtualClock())
        assert (ended.state, ended.outcomes_text) == ("expired", "nothing was run")

    simulate(scene)


async def _follow(here: SimulatedJobs, said: list[str]) -> None:
    """Wait for the end of the request, and note the warnings."""
    await operations.ended(here.observer, "job", "r", clock=VirtualClock(), warn=said.append)


def test_who_waits_is_warned_once_why_nothing_can_begin() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=60, id="r")
        said = list[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_follow, here, said)
            await operations.pause(here.observer, "job")
            await here.until(30)
            assert said == []  # it is not due yet
            await here.until(90)
            await operations.pause_request(here.observer, "job", "r")
            await here.until(100)
            await operations.resume(here.observer, "job")
            await here.until(110)
            await operations.resume_request(here.observer, "job", "r")
        assert said == [
            "job: is paused: resume it first; the request waits until then",
            "job: the request r is paused: resume it first; the request waits until then",
        ]

    simulate(scene)


def test_who_waits_is_warned_that_no_instance_is_left() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=60, id="r")
        here.faults.crash(them.people["a"])
        said = list[str]()
        with anyio.move_on_after(120):
            await _follow(here, said)
        assert said == ["job: no instance is there: start a process that runs it first; the request waits until then"]

    simulate(scene)


def test_who_waits_is_warned_that_a_run_was_cut_off_and_nobody_is_left_to_rescue_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER, work=600, failover=True)
        await operations.ask(here.observer, "job", id="r")
        said = list[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_follow, here, said)
            await anyio.sleep(5)
            assert said == []
            here.faults.crash(them.people["a"])
            await anyio.sleep(60)
            tasks.cancel_scope.cancel()
        assert said == ["job: no instance is there: start a process that runs it first; the request waits until then"]

    simulate(scene)


def test_who_waits_is_warned_that_what_is_left_is_disabled_or_that_the_job_keeps_no_records() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", failover=False)
        await here.until(25)
        await operations.disable(here.observer, "job", item=1)
        await operations.rerun(here.observer, "job", moment(here.start + 20), items=[0, 1], id="r")
        said = list[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_follow, here, said)
            await anyio.sleep(20)
            await operations.configure(here.observer, "job", {"monitor_execution": False})
            await anyio.sleep(5)
            tasks.cancel_scope.cancel()
        ends = "; the request waits until then"
        assert said == [
            f"job: all items that are left are disabled (1): enable one first{ends}",
            f"job: without records it runs no moments again: set monitor_execution = True first{ends}",
        ]

    simulate(scene)
