"""No operation writes to a job of Elastic-Job for Java: each is refused, and its nodes stay as they were."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

import pytest

from aioelasticjob import JobConfig, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import ForeignData
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import Tree
from tests.support.java_trees import ID, IP, RELEASES, java_job
from tests.support.simulated_jobs import SimulatedJobs, simulate

START, END = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
TEXT = json.dumps({"jobs": [{"jobName": "job", "cron": "0/7 * * * * ?"}, {"jobName": "fresh"}]})
Act = Callable[[Session], Awaitable[object]]
WRITING: Mapping[str, tuple[Act, ...]] = {
    "ask": (
        lambda s: operations.ask(s, "job"),
        lambda s: operations.ask(s, "job", items=[1], id="again", at=END),
    ),
    "backfill": (lambda s: operations.backfill(s, "job", START, END),),
    "cancel": (lambda s: operations.cancel(s, "job"),),
    "cancel_request": (lambda s: operations.cancel_request(s, "job", "again"),),
    "configure": (lambda s: operations.configure(s, "job", {"description": "changed"}, by="ada"),),
    "create": (lambda s: operations.create(s, "job", {}, handler="report"),),
    "create_all": (lambda s: operations.create_all(s, TEXT, handler="report"),),
    "disable": (
        lambda s: operations.disable(s, "job"),
        lambda s: operations.disable(s, "job", server=IP),
        lambda s: operations.disable(s, "job", item=1),
    ),
    "disable_server": (lambda s: operations.disable_server(s, IP),),
    "enable": (
        lambda s: operations.enable(s, "job"),
        lambda s: operations.enable(s, "job", server=IP),
        lambda s: operations.enable(s, "job", item=1),
    ),
    "enable_server": (lambda s: operations.enable_server(s, IP),),
    "import_jobs": (
        lambda s: operations.import_jobs(s, TEXT),
        lambda s: operations.import_jobs(s, TEXT, overwrite=True, by="ada"),
    ),
    "is_created": (lambda s: operations.is_created(s, "job"),),
    "pause": (
        lambda s: operations.pause(s, "job", by="ada"),
        lambda s: operations.pause(s, "job", server=IP),
    ),
    "pause_request": (lambda s: operations.pause_request(s, "job", "again"),),
    "pause_server": (lambda s: operations.pause_server(s, IP),),
    "plan_backfill": (lambda s: operations.plan_backfill(s, "job", START, END),),
    "preview": (lambda s: operations.preview(s, "job", {"description": "changed"}),),
    "preview_import": (lambda s: operations.preview_import(s, TEXT, overwrite=True),),
    "remove": (
        lambda s: operations.remove(s, "job"),
        lambda s: operations.remove(s, "job", force=True, by="ada"),
    ),
    "remove_created": (lambda s: operations.remove_created(s, "job"),),
    "remove_server": (lambda s: operations.remove_server(s, IP),),
    "rerun": (lambda s: operations.rerun(s, "job", START),),
    "resume": (
        lambda s: operations.resume(s, "job"),
        lambda s: operations.resume(s, "job", server=IP),
    ),
    "resume_request": (lambda s: operations.resume_request(s, "job", "again"),),
    "resume_server": (lambda s: operations.resume_server(s, IP),),
    "shut_down": (
        lambda s: operations.shut_down(s, "job"),
        lambda s: operations.shut_down(s, "job", instance=ID),
    ),
}
"""By operation, calls that would write to the job, or say what would be written."""
READING = frozenset(
    {
        *(
            "dump",
            "ended",
            "export_jobs",
            "handler_processes",
            "handlers",
            "job",
            "job_of_request",
            "jobs",
            "names",
            "request",
            "requests",
        ),
        *("processes", "server", "watch", "watch_all", "watch_processes"),
        *("calendar", "calendars", "remove_calendar", "set_calendar"),  # these belong to no job
    }
)
"""Operations that only read, or that write to no job."""


async def everything(here: SimulatedJobs) -> Tree:
    return await here.observer.subtree(["/"])


def test_every_operation_is_tried() -> None:
    found = {
        name
        for name in operations.__all__
        if inspect.isroutine(operation := getattr(operations, name))
        and "session" in inspect.signature(operation).parameters
    }
    assert found == WRITING.keys() | READING


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", sorted(WRITING))
def test_an_operation_on_a_job_of_java_is_refused_and_changes_no_node(name: str, release: str, is_up: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job(release, is_up=is_up))
        before = await everything(here)
        for act in WRITING[name]:
            with pytest.raises(ForeignData, match=f"Elastic-Job {release} for Java, so nothing is written"):
                await act(here.observer)
        assert await everything(here) == before  # data, versions, and all the rest of each node's stat

    simulate(scene)


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_done_to_a_server_in_all_jobs_leaves_out_the_jobs_of_java(release: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job(release, is_up=True))
        layout = Layout("ours")
        config = JobConfig(job_name="ours").to_json()
        await here.write(*map(Create, layout.skeleton), Create(layout.config, config), Create(layout.server(IP)))
        before = (await everything(here)).below("/job")
        for act in (
            operations.pause_server,
            operations.resume_server,
            operations.disable_server,
            operations.enable_server,
            operations.remove_server,
        ):
            assert (await act(here.observer, IP)).changed
        assert await here.observer.children(layout.servers) == ()
        assert (await everything(here)).below("/job") == before

    simulate(scene)


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_java_is_listed_as_foreign_with_the_reason_and_reading_it_changes_nothing(
    release: str, is_up: bool
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job(release, is_up=is_up))
        before = await everything(here)
        (listed,) = await operations.jobs(here.observer, now=0)
        one = await operations.job(here.observer, "job", now=0)
        async with operations.watch_all(here.observer) as states:
            (watched,) = await anext(states)
        for status in (listed, one, watched):
            assert (status.state, status.foreign, status.next_fire) == ("foreign", True, None)
            assert "/job/config = " in (status.fault or "")
            assert f"is of Elastic-Job {release} for Java" in (status.fault or "")
        assert await operations.requests(here.observer, "job") == ()
        assert "/job/config" in await operations.dump(here.observer, "job")
        assert await everything(here) == before

    simulate(scene)


@pytest.mark.parametrize("release", ["1.x", "3.x"])
def test_an_export_says_why_a_job_of_java_cannot_be_exported(release: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job(release, is_up=False))
        with pytest.raises(ForeignData, match=f"Elastic-Job {release} for Java"):
            await operations.export_jobs(here.observer, ["job"])

    simulate(scene)


def test_a_job_of_java_does_not_prevent_the_export_of_all_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job("3.x", is_up=False))
        await here.write(Create("/ours"), Create("/ours/config", JobConfig(job_name="ours").to_json()))
        found = json.loads(await operations.export_jobs(here.observer))
        assert [job["jobName"] for job in found["jobs"]] == ["ours"]
        assert "job is left out of the export: " in caplog.text
        assert "Elastic-Job 3.x for Java" in caplog.text

    simulate(scene)


def test_a_configuration_of_ours_that_was_edited_is_replaced_by_an_import_as_before() -> None:
    async def scene(here: SimulatedJobs) -> None:
        layout = Layout("job")
        await here.write(*map(Create, layout.skeleton), Create(layout.epoch), Create(layout.config, b"jobClass: x"))
        (status,) = await operations.jobs(here.observer, now=0)
        assert (status.state, status.foreign) == ("faulty", False)
        done = await operations.import_jobs(here.observer, TEXT, overwrite=True)
        assert done.summary == "imported: 1 new (fresh), 1 replaced (job)"
        (_, status) = await operations.jobs(here.observer, now=0)
        assert status.state == "nobody there"

    simulate(scene)


def test_the_settings_of_a_job_of_2_x_are_exported_and_a_job_that_is_made_of_them_is_ours() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*java_job("2.x", is_up=False))
        text = (await operations.export_jobs(here.observer)).replace('"jobName": "job"', '"jobName": "moved"')
        done = await operations.import_jobs(here.observer, text)
        assert done.summary.startswith("imported: 1 new (moved); moved: the key 'jobClass' is not known")
        (java, moved) = await operations.jobs(here.observer, now=0)
        assert (java.state, moved.state) == ("foreign", "nobody there")
        assert moved.config.sharding_item_parameters == {0: "A", 1: "B", 2: "C"}
        assert (await operations.pause(here.observer, "moved")).changed

    simulate(scene)
