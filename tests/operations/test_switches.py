"""Switching off is done once; switching on removes only what was asked for, and names what stays off."""

from __future__ import annotations

import pytest

from aioelasticjob import JobConfig, operations
from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create, Delete
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

A, B = "10.0.0.1", "10.0.0.2"
SAME = " (for a whole job disabling is the same as pausing)"


@pytest.mark.parametrize(("on", "off", "same"), [("pause", "resume", ""), ("disable", "enable", SAME)])
def test_a_job_is_switched_off_by_one_node_whichever_word_is_used(on: str, off: str, same: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        first = await getattr(operations, on)(here.observer, "job")
        assert (first.summary, first.paths) == (f"job: paused{same}", (LAYOUT.paused,))
        again = await getattr(operations, on)(here.observer, "job")
        assert (again.summary, again.changed) == (f"job: is paused already{same}", False)
        await here.until(15)
        assert them.runs == []
        done = await getattr(operations, off)(here.observer, "job")
        assert (done.summary, done.paths) == (f"job: {'resumed' if not same else 'enabled'}{same}", (LAYOUT.paused,))
        last = await getattr(operations, off)(here.observer, "job")
        assert (last.summary, last.changed) == (f"job: is not paused as a whole{same}", False)
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
