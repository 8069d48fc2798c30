"""Switching off is done once; switching on removes only what was asked for, and names what stays off."""

from __future__ import annotations

from typing import Any

import pytest

from aioelasticjob import JobConfig, operations
from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create, Delete
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

A, B = "10.0.0.1", "10.0.0.2"
SAME = " (for a whole job disabling is the same as pausing)"


@pytest.mark.parametrize(
    ("on", "off", "same", "done", "already"),
    [
        ("pause", "resume", "", "resumed", "is not paused as a whole"),
        ("disable", "enable", SAME, "enabled", "is neither paused nor disabled as a whole"),
    ],
)
def test_a_job_is_switched_off_by_one_node_whichever_word_is_used(
    on: str, off: str, same: str, done: str, already: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        first = await getattr(operations, on)(here.observer, "job")
        assert (first.summary, first.paths) == (f"job: paused{same}", (LAYOUT.paused,))
        again = await getattr(operations, on)(here.observer, "job")
        assert (again.summary, again.changed) == (f"job: is paused already{same}", False)
        await here.until(15)
        assert them.runs == []
        ended = await getattr(operations, off)(here.observer, "job")
        assert (ended.summary, ended.paths) == (f"job: {done}", (LAYOUT.paused,))
        last = await getattr(operations, off)(here.observer, "job")
        assert (last.summary, last.changed) == (f"job: {already}", False)
        await here.until(25)
        assert {run.host for run in them.runs} == {"a", "b"}

    simulate(scene)


@pytest.mark.parametrize(("on", "off", "said"), [("pause", "resume", "paused"), ("disable", "enable", "disabled")])
def test_a_job_is_switched_off_on_a_server_and_on_again_and_asked_twice_it_says_so(
    on: str, off: str, said: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        first = await getattr(operations, on)(here.observer, "job", server=A)
        assert (first.summary, first.changed) == (f"job: {said} on {A}", True)
        again = await getattr(operations, on)(here.observer, "job", server=A)
        assert (again.summary, again.changed) == (f"job: is {said} on {A} already", False)
        await here.until(15)
        assert {run.host for run in them.runs} == {"b"}
        assert set((await them.holders()).values()) == ({"a", "b"} if on == "pause" else {"b"})
        assert (await getattr(operations, off)(here.observer, "job", server=A)).changed
        last = await getattr(operations, off)(here.observer, "job", server=A)
        assert (last.summary, last.changed) == (f"job: is not {said} on {A} by itself", False)
        await here.until(25)
        assert {run.host for run in them.since(19)} == {"a", "b"}

    simulate(scene)


def test_a_server_is_switched_off_in_all_jobs_by_one_node() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them, observer = await start_processes(here), here.observer
        done = await operations.pause_server(observer, A)
        assert done.summary == f"server {A}: paused in all jobs (it is known to job, other)"
        assert done.paths == (SWITCHES, server_switch(A), server_switch(A, "paused"))
        again = await operations.pause_server(observer, A)
        assert (again.summary, again.changed) == (f"server {A}: is paused in all jobs already", False)
        assert (await operations.disable_server(observer, A)).paths == (server_switch(A, "disabled"),)
        await here.until(15)
        assert {run.host for run in them.runs} == {"b"}
        assert set(them.others) == {"b"}
        (host, _) = operations.by_server(await operations.jobs(observer, now=0))
        assert (host.ip, host.disabled, host.paused, host.disabled_in, host.paused_in) == (A, True, True, (), ())
        assert (await operations.resume_server(observer, A)).summary == f"server {A}: resumed in all jobs"
        done = await operations.enable_server(observer, A)
        assert done.paths == (server_switch(A, "disabled"), server_switch(A))  # nothing is left of it
        assert (await operations.enable_server(observer, A)).summary == f"server {A}: is not disabled in all jobs"
        await here.until(25)
        assert {run.host for run in them.since(19)} == {"a", "b"}

    simulate(scene)


def test_what_was_off_for_another_reason_stays_off_and_is_named() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        observer = here.observer
        await operations.disable(observer, "job", server=A)
        await operations.pause(observer, "job", server=B)
        await operations.disable(observer, "job", item=3)
        await operations.disable_server(observer, A)
        await operations.pause(observer, "job")
        assert (await operations.enable_server(observer, A)).summary == (
            f"server {A}: enabled in all jobs; it is still disabled in job"
        )
        await operations.disable_server(observer, B)
        assert (await operations.resume(observer, "job")).summary == (
            f"job: resumed; it is still paused on {B}, disabled on {A}, disabled in all jobs on {B}, "
            "disabled for the item 3"
        )
        assert "is not paused as a whole; it is still paused" in (await operations.resume(observer, "job")).summary
        done = await operations.enable(observer, "job", server=B)
        assert (done.summary, done.changed) == (
            f"job: is not disabled on {B} by itself; {B} is disabled in all jobs",
            False,
        )
        await operations.pause(observer, "job")
        assert (await operations.resume(observer, "job", server=B)).summary == (
            f"job: resumed on {B}; the whole job is paused"
        )

    simulate(scene)


def test_a_job_that_was_declared_disabled_is_enabled_as_a_whole_in_one_action() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", disabled=True)
        observer = here.observer
        await here.until(15)
        assert them.runs == []
        done = await operations.enable(observer, "job", by="anna")
        assert done.summary == f"job: enabled, also on {A}, {B}; servers that join from now on start enabled"
        await them.start_processes("c")
        await here.until(35)
        assert {run.host for run in them.since(19)} == {"a", "b", "c"}
        again = await operations.enable(observer, "job")
        assert (again.summary, again.changed) == ("job: is neither paused nor disabled as a whole", False)

    simulate(scene)


def test_a_server_that_an_operator_has_disabled_stays_so_when_the_whole_job_is_enabled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "ab", disabled=True)
        observer = here.observer
        await operations.enable(observer, "job", server=A)
        await operations.disable(observer, "job", server=A)
        await operations.pause(observer, "job")
        done = await operations.enable(observer, "job")
        assert done.summary == (
            f"job: enabled, also on {B}; servers that join from now on start enabled; it is still disabled on {A}"
        )

    simulate(scene)


def test_a_pause_has_an_author_a_note_and_an_end_and_can_be_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        observer = here.observer
        end = moment(here.start + 60)
        done = await operations.pause(observer, "job", by="anna", note="the bank is closed", until=end)
        assert done.summary == f"job: paused until {time_text(end)}"
        pause = (await operations.job(observer, "job", now=here.start + 10)).pause
        assert pause is not None
        assert (pause.by, pause.note, pause.until) == ("anna", "the bank is closed", here.start + 60)
        later = moment(here.start + 90)
        changed = await operations.pause(observer, "job", by="bert", until=later)
        assert changed.summary == f"job: its pause was changed: paused until {time_text(later)}"
        now = (await operations.job(observer, "job", now=here.start + 10)).pause
        assert now is not None
        assert (now.since, now.by, now.note, now.until) == (pause.since, "bert", "", here.start + 90)
        await here.until(100)
        assert (await operations.resume(observer, "job")).summary == "job: is not paused as a whole"
        anew = await operations.pause(observer, "job")
        assert anew.summary == "job: paused"
        there = (await operations.job(observer, "job", now=here.start + 100)).pause
        assert there is not None
        assert there.since >= here.start + 100

    simulate(scene)


def test_a_server_is_paused_in_all_jobs_until_a_time_and_again_after_that() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        observer = here.observer
        end = moment(here.start + 15)
        done = await operations.pause_server(observer, A, until=end)
        assert done.summary == f"server {A}: paused in all jobs until {time_text(end)} (it is known to job, other)"
        assert not (await operations.pause_server(observer, A)).changed
        changed = await operations.pause_server(observer, A, by="anna", note="new disks", until=end)
        assert changed.summary == f"server {A}: its pause was changed: paused in all jobs until {time_text(end)}"
        pause = (await operations.server(observer, A, now=here.start + 10)).host.pause
        assert pause is not None
        assert (pause.by, pause.note, pause.until) == ("anna", "new disks", here.start + 15)
        assert (await operations.server(observer, A, now=here.start + 15)).host.pause is None
        await here.until(25)
        assert {run.host for run in them.since(12)} == {"a", "b"}
        assert (await operations.pause_server(observer, A)).changed

    simulate(scene)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"until": moment(1000)}, "still to come"),
        ({"note": "x" * 1001}, "at most 1,000 characters"),
        ({"server": A, "until": moment(4e9)}, "no end for one server in one job"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        with pytest.raises(InvalidSetting, match=said):
            await operations.pause(here.observer, "job", **options)
        assert not (await operations.job(here.observer, "job", now=here.start)).paused

    simulate(scene)


def test_one_item_is_switched_off_and_on_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        assert (await operations.disable(here.observer, "job", item=2)).summary == "job: item 2 is disabled"
        assert not (await operations.disable(here.observer, "job", item=2)).changed
        await here.until(15)
        assert {item for run in them.runs for item in run.items} == {0, 1, 3}
        assert (await operations.enable(here.observer, "job", item=2)).changed
        assert (await operations.enable(here.observer, "job", item=2)).summary == "job: item 2 is not disabled"
        await here.until(25)
        assert {item for run in them.since(19) for item in run.items} == {0, 1, 2, 3}

    simulate(scene)


def test_an_item_can_be_switched_off_before_anybody_has_run_the_job() -> None:
    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", cron="0/10 * * * * ?", sharding_total_count=4)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()))
        assert (await operations.disable(here.observer, "job", item=1)).changed
        them = await start_processes(here, "a")
        await here.until(15)
        assert {item for run in them.runs for item in run.items} == {0, 2, 3}

    simulate(scene)


def test_a_job_can_be_paused_before_anybody_has_run_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", cron="0/10 * * * * ?", sharding_total_count=4)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()))
        assert (await operations.pause(here.observer, "job")).changed
        them = await start_processes(here, "a")
        await here.until(25)
        assert (them.runs, them.others["a"] > 0) == ([], True)

    simulate(scene)


def test_a_server_that_nobody_knows_any_more_can_be_enabled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(
            Create(SWITCHES), Create(server_switch("10.0.0.9")), Create(server_switch("10.0.0.9", "paused"))
        )
        await start_processes(here)
        assert (await operations.resume_server(here.observer, "10.0.0.9")).changed
        assert await here.names(SWITCHES) == ()

    simulate(scene)


def test_a_flag_with_nodes_below_it_is_said_to_be_in_the_way() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a")
        await operations.pause(here.observer, "job")
        await operations.pause(here.observer, "job", server=A)
        await operations.pause_server(here.observer, A)
        await operations.disable(here.observer, "job", item=0)
        flags = (LAYOUT.paused, LAYOUT.server_paused(A), server_switch(A, "paused"), LAYOUT.item(0).disabled)
        await here.write(*(Create(f"{flag}/x") for flag in flags))
        for undo in (
            operations.resume(here.observer, "job"),
            operations.resume(here.observer, "job", server=A),
            operations.resume_server(here.observer, A),
            operations.enable(here.observer, "job", item=0),
        ):
            with pytest.raises(NotPossible, match=r"has nodes below it.*remove those first"):
                await undo
        await here.write(Delete(f"{LAYOUT.paused}/x"))
        assert (await operations.resume(here.observer, "job")).changed

    simulate(scene)
