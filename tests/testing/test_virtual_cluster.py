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
from anyio import create_task_group, from_thread, sleep

from aioelasticjob import ElasticJob, FireSource, InvalidSetting, InvalidState, ItemContext, Outcome
from aioelasticjob.engine.application import RunningApp
from aioelasticjob.events import Began, Ended, JobEvent, Started
from aioelasticjob.testing import Instance, NotSeen, VirtualClock, VirtualCluster, simulated
from aioelasticjob.testing.errors import see_what_is_wanted
from aioelasticjob.testing.stand_ins import stand_in


def test_a_process_shares_with_the_application_only_what_is_named_here() -> None:
    app = ElasticJob("embedded://", event_store="sqlite:///events.db", metrics=0)
    twin = stand_in(app, app.settings, {})
    shared = {name for name, value in vars(twin).items() if value is vars(app)[name]}
    # A new field belongs here if it is the same in each process, into Presence if each process has its own.
    assert shared == {"_from_outside", "_overwrite", "_threads", "_processes"}


def test_a_process_begins_with_nothing_of_what_the_application_was_or_did() -> None:
    app = ElasticJob("embedded://", event_store="sqlite:///events.db", metrics=0)
    app._here.phase = "running"
    here = stand_in(app, app.settings, {})._here
    for field in dataclasses.fields(RunningApp):
        mine, theirs = getattr(here, field.name), getattr(app._here, field.name)
        assert mine is not theirs or not mine, field.name  # equal texts and None are one object
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
    with pytest.raises(InvalidState, match="the application must be running"):
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
async def _a_kill_during_a_trigger(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")

    async def report(context: ItemContext) -> None:
        await sleep(10)

    app.add(report, name="report", sharding_total_count=2, failover=True)
    doomed, _ = await cluster.start(app), await cluster.start(app)
    await cluster.settled()
    (item,) = await doomed.holds()
    async with create_task_group() as tasks:
        tasks.start_soon(_kill_after, doomed, 2)
        ends = await cluster.trigger()
    assert [(end.item, end.outcome) for end in ends] == [(0, Outcome.COMPLETED), (1, Outcome.COMPLETED)]
    assert {end.item: end.source for end in ends} == {item: FireSource.FAILOVER, 1 - item: FireSource.TRIGGER}


async def _kill_after(instance: Instance, seconds: float) -> None:
    await sleep(seconds)
    instance.kill()


def test_a_run_that_was_asked_for_and_was_cut_off_has_ended_when_it_is_rescued() -> None:
    _a_kill_during_a_trigger(VirtualCluster())


@simulated
async def _two_triggers_at_once(cluster: VirtualCluster) -> None:
    app, ran, ends = ElasticJob("embedded://"), list[str](), dict[str, tuple[Ended, ...]]()

    async def report(context: ItemContext) -> None:
        await sleep(5)
        ran.append(context.job_parameter)

    async def trigger(parameter: str) -> None:
        ends[parameter] = await cluster.trigger(parameter=parameter)

    app.add(report, name="report", sharding_total_count=2)
    await cluster.start(app)
    await cluster.start(app)
    await cluster.settled()
    async with create_task_group() as tasks:
        tasks.start_soon(trigger, "Monday")
        tasks.start_soon(trigger, "Tuesday")
    assert sorted(ran) == ["Monday", "Monday", "Tuesday", "Tuesday"]
    assert {parameter: [end.item for end in found] for parameter, found in ends.items()} == {
        "Monday": [0, 1],
        "Tuesday": [0, 1],
    }
    assert len({end.run_id for found in ends.values() for end in found}) == 2
    assert {len({end.run_id for end in found}) for found in ends.values()} == {1}
    with pytest.raises(NotSeen):  # both runs are past
        await cluster.event(Ended, within=1)


def test_two_runs_may_be_asked_for_at_once_and_each_caller_is_given_the_ends_of_its_own() -> None:
    _two_triggers_at_once(VirtualCluster())


@simulated
async def _triggers_of_two_jobs(cluster: VirtualCluster) -> None:
    app, ends = ElasticJob("embedded://"), list[str]()

    async def slow(context: ItemContext) -> None:
        await sleep(60)

    async def trigger(job: str) -> None:
        (end,) = await cluster.trigger(job)
        ends.append(end.job)

    app.add(slow, name="slow")
    app.add(_nothing, name="quick")
    await cluster.start(app)
    async with create_task_group() as tasks:
        tasks.start_soon(trigger, "slow")
        await cluster.event(Began, job="slow")
        tasks.start_soon(trigger, "quick")
    assert ends == ["quick", "slow"]


def test_who_waits_for_a_run_takes_no_event_from_others_who_wait() -> None:
    _triggers_of_two_jobs(VirtualCluster())


@simulated
async def _a_request_of_another_during_a_trigger(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")

    async def report(context: ItemContext) -> None:
        await sleep(5)

    app.add(report, name="report")
    instance = await cluster.start(app)
    await cluster.settled()
    asked = await instance.app.trigger("report")
    (end,) = await cluster.trigger()
    assert end.run_id.startswith("report@")
    assert not end.run_id.startswith(f"report@{asked.request}-")


def test_the_end_of_another_request_is_not_taken_for_that_of_the_trigger() -> None:
    _a_request_of_another_during_a_trigger(VirtualCluster())


@simulated
async def _a_trigger_without_records(cluster: VirtualCluster) -> None:
    app, ran = ElasticJob("embedded://"), list[str]()

    async def report(context: ItemContext) -> None:
        ran.append(context.job_parameter)

    app.add(report, name="report", sharding_total_count=2, monitor_execution=False)
    await cluster.start(app)
    ends = await cluster.trigger(parameter="now")
    assert [(end.item, end.source) for end in ends] == [(0, FireSource.TRIGGER), (1, FireSource.TRIGGER)]
    assert ran == ["now", "now"]


def test_a_job_without_records_is_triggered_too() -> None:
    _a_trigger_without_records(VirtualCluster())


@simulated
async def _all_die_while_a_trigger_waits(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    app.add(_forever, name="report", cron="0 0 7 * * ?", failover=True)
    only = await cluster.start(app)
    await cluster.settled()
    async with create_task_group() as tasks:
        tasks.start_soon(_kill_later, only)
        text = (
            r"^no end of items \[0\] in the run of report, of which no instance is alive, within 60 simulated seconds"
        )
        with pytest.raises(NotSeen, match=text):
            await cluster.trigger(within=60)


async def _kill_later(instance: Instance) -> None:
    await sleep(5)
    instance.kill()


async def _forever(context: ItemContext) -> None:
    await sleep(3600)


def test_a_trigger_that_has_waited_in_vain_says_that_no_instance_is_alive() -> None:
    _all_die_while_a_trigger_waits(VirtualCluster())


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
