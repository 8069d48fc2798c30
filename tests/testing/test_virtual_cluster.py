"""What the processes of an application in simulated time share, and what each has for itself."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import get_args

import pytest
from anyio import from_thread, sleep

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, Outcome
from aioelasticjob.events import Began, Ended, JobEvent, Started
from aioelasticjob.running_app import RunningApp
from aioelasticjob.testing import NotSeen, VirtualClock, VirtualCluster, simulated
from aioelasticjob.testing.errors import see_what_is_wanted
from aioelasticjob.testing.stand_ins import stand_in


def test_a_process_shares_with_the_application_only_what_is_named_here() -> None:
    app = ElasticJob("embedded://", event_store="sqlite:///events.db", metrics=0)
    twin = stand_in(app, app.settings, {})
    shared = {name for name, value in vars(twin).items() if value is vars(app)[name]}
    # A new field belongs here if it is the same in each process, into Presence if each process has its own.
    assert shared == {"_from_outside", "_threads", "_processes"}


def test_a_process_begins_with_nothing_of_what_the_application_was_or_did() -> None:
    app = ElasticJob("embedded://", event_store="sqlite:///events.db", metrics=0)
    app._here.phase = "running"
    here = stand_in(app, app.settings, {})._here
    for field in dataclasses.fields(RunningApp):
        mine, theirs = getattr(here, field.name), getattr(app._here, field.name)
        assert mine is not theirs or mine is None, field.name
    assert isinstance(here.clock, VirtualClock)
    assert (here.recorder, here.endpoint, here.running) == (None, None, False)  # nothing of the real world


async def _nothing(context: ItemContext) -> None: ...


@simulated
async def _a_job_declared_late(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    app.add(_nothing, name="early")
    first = await cluster.start(app)
    app.add(_nothing, name="late")
    second = await cluster.start(app)
    assert [job.job_name for job in first.app.jobs] == ["early"]
    status = await cluster.settled("late")
    assert [(one.ip, one.holds) for one in status.instances] == [(second.host, (0,))]


def test_a_process_knows_the_jobs_that_were_declared_when_it_started() -> None:
    _a_job_declared_late(VirtualCluster())


@simulated
async def _some_jobs(cluster: VirtualCluster, file: Path) -> None:
    ran, app = list[str](), ElasticJob("embedded://")

    async def note(context: ItemContext) -> None:
        ran.append(context.job_name)

    for name in ("collect", "send", "tidy"):
        app.add(note, name=name, cron="0 0 7 * * ?")
    file.write_text("jobs:\n  send:\n    description: not run here\n")
    app.configure(file)
    instance = await cluster.start(app, jobs=["collect"])
    assert [job.job_name for job in instance.app.jobs] == ["collect"]
    await cluster.next_fire()  # there is only one job, so it need not be named
    await sleep(60)
    assert ran == ["collect"]
    await cluster.start(app, jobs=("send", "collect"))
    await cluster.settled("send")
    await cluster.settled("collect")
    assert {job.job_name for job in app.jobs} == {"collect", "send", "tidy"}


def test_only_the_jobs_that_are_named_run(tmp_path: Path) -> None:
    _some_jobs(VirtualCluster(), tmp_path / "settings.yaml")


@simulated
async def _a_mapping_as_parameter(cluster: VirtualCluster) -> None:
    days, app = list[object](), ElasticJob("embedded://")

    async def report(context: ItemContext) -> None:
        assert context.request is not None
        days.append(context.request["day"])

    app.add(report, name="report")
    await cluster.start(app)
    await cluster.trigger("report", parameter={"day": "Monday"})
    assert days == ["Monday"]


def test_a_job_is_triggered_with_a_mapping_as_it_is_by_the_application() -> None:
    _a_mapping_as_parameter(VirtualCluster())


@simulated
async def _a_chain(cluster: VirtualCluster) -> None:
    app, health = ElasticJob("embedded://"), list[str | None]()

    async def extract(context: ItemContext) -> None:
        health.append(app.health.jobs[0].instance)
        await app.trigger("load", id=context.run_id.replace("@", "-"))
        app.streams("load")

    app.add(extract, name="extract", sharding_total_count=2)
    app.add(_nothing, name="load")
    await cluster.start(app)
    await cluster.start(app)
    status = await cluster.settled("load")
    assert [end.outcome for end in await cluster.trigger("extract")] == [Outcome.COMPLETED] * 2
    await sleep(1)
    assert len({end.task_id for end in cluster.events if isinstance(end, Ended) and end.job == "load"}) == 1
    assert len(set(health)) == len(status.instances) == 2
    with pytest.raises(InvalidSetting, match="the application must be running"):
        await app.trigger("load")  # the test is no process of the application


def test_a_handler_may_use_the_application_and_is_given_that_of_its_own_process() -> None:
    _a_chain(VirtualCluster())


@simulated
async def _calls_of_a_thread(cluster: VirtualCluster, call: Callable[[ItemContext], object], says: str) -> None:
    app = ElasticJob("embedded://")

    def rebuild(context: ItemContext) -> None:
        call(context)

    app.add(rebuild, name="rebuild")
    await cluster.start(app)
    (end,) = await cluster.trigger()
    assert re.search(says, str(end.failure))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: time.sleep(1), "^time.sleep cannot be simulated: .* a plain one, replace the function that sleeps"),
        (
            lambda context: from_thread.run(context.save_offset, "7"),
            "^from_thread.run cannot be .*: call the handler alone, in a thread",
        ),
    ],
)
def test_what_only_a_thread_can_do_is_refused_with_what_a_test_does_instead(
    call: Callable[[ItemContext], object], says: str
) -> None:
    _calls_of_a_thread(VirtualCluster(), call, says)


def test_a_plain_handler_may_call_a_plain_function_in_the_loop() -> None:
    seen = list[object]()
    _calls_of_a_thread(VirtualCluster(), lambda context: from_thread.run_sync(seen.append, context.item), "None")
    assert seen == [0]


@simulated
async def _a_question_for_the_thread(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")

    def rebuild(context: ItemContext) -> None:
        from_thread.check_cancelled()

    app.add(rebuild, name="rebuild")
    await cluster.start(app)
    assert [end.outcome for end in await cluster.trigger()] == [Outcome.COMPLETED]


def test_a_plain_handler_may_ask_whether_it_has_been_cancelled() -> None:
    _a_question_for_the_thread(VirtualCluster())


def _two_jobs() -> ElasticJob:
    app = ElasticJob("embedded://")
    app.add(_nothing, name="send")
    app.add(_nothing, name="collect")
    return app


@simulated
async def _wrong_arguments(cluster: VirtualCluster, wrong: Callable[[VirtualCluster], Awaitable[object]]) -> None:
    app = ElasticJob("embedded://")
    app.add(_nothing, name="job")
    await cluster.start(app)
    await wrong(cluster)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda cluster: cluster.start(None), "app = None: must be an ElasticJob"),
        (lambda cluster: cluster.start(_two_jobs(), jobs=["colect"]), r"jobs = \['colect'\]: .* collect, send$"),
        (lambda cluster: cluster.start(_two_jobs(), jobs="send"), "jobs = 'send': must be a list of names of its jobs"),
        (lambda cluster: cluster.until(datetime(2026, 1, 1)), "when = .*: must be a datetime with a time zone"),
        (lambda cluster: cluster.event(Ended, nosuch=5), "nosuch = 5: Ended has no attribute of this name"),
        (lambda cluster: cluster.event(int), "kind = .*: must be a class of events: AttemptFailed, Began, "),
        (lambda cluster: cluster.event("Ended"), "kind = 'Ended': must be a class of events"),
        (lambda cluster: cluster.until(5), "when = 5: must be a datetime with a time zone"),
    ],
)
def test_wrong_arguments_are_refused_by_name(wrong: Callable[[VirtualCluster], Awaitable[object]], says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        _wrong_arguments(VirtualCluster(), wrong)


@simulated
async def _an_event_that_is_past(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    app.add(_nothing, name="report")
    await cluster.start(app)
    await cluster.trigger()
    assert [type(event) for event in cluster.events] == [Began, Started, Ended]
    with pytest.raises(NotSeen, match=r"no Started\(items=.*\) within 1 "):
        await cluster.event(Started, items=(1,), within=1)
    with pytest.raises(NotSeen, match=r"no Started\(\) after what was waited for last"):
        await cluster.event(Started, within=1)


def test_who_waits_for_an_event_that_is_past_is_told_so() -> None:
    _an_event_that_is_past(VirtualCluster())


def test_every_attribute_of_an_event_may_be_waited_for() -> None:
    for kind in get_args(JobEvent):
        see_what_is_wanted(kind, {one.name: None for one in dataclasses.fields(kind)})


@simulated
async def _nobody_is_left(cluster: VirtualCluster, wait: Callable[[VirtualCluster], Awaitable[object]]) -> None:
    app = ElasticJob("embedded://")
    app.add(_nothing, name="report", cron="0 0 7 * * ?")
    killed, stopped = await cluster.start(app), await cluster.start(app)
    await cluster.settled()
    killed.kill()
    await stopped.stop()
    before = cluster.now
    with pytest.raises(NotSeen, match=r"^no instance of report is alive; the last events: nothing$"):
        await wait(cluster)
    assert (cluster.now - before).total_seconds() < 1
    with pytest.raises(InvalidSetting, match="nosuch"):
        await cluster.settled("nosuch")


@pytest.mark.parametrize(
    "wait",
    [VirtualCluster.settled, VirtualCluster.trigger, VirtualCluster.next_fire],
    ids=["settled", "trigger", "next_fire"],
)
def test_who_waits_for_a_job_that_nobody_can_run_is_told_so_at_once(
    wait: Callable[[VirtualCluster], Awaitable[object]],
) -> None:
    _nobody_is_left(VirtualCluster(), wait)
