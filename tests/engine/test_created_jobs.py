"""Jobs that are created in the registry, and that each process with their handler runs."""

from __future__ import annotations

import logging
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, current_time, sleep
from pydantic import BaseModel, Field
from rich.console import Console

from aioelasticjob import (
    ElasticJob,
    InstanceContext,
    InvalidSetting,
    InvalidState,
    ItemContext,
    JobConflict,
    operations,
)
from aioelasticjob.cli import run
from aioelasticjob.cli.jobs import _picture
from aioelasticjob.core.layout import HANDLERS, HandlerPaths, Layout
from aioelasticjob.operations.alerts.conditions import Facts, conditions
from aioelasticjob.operations.alerts.observed import ObservedRuns
from aioelasticjob.operations.attention import RESTART_LIMIT, reasons
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock, VirtualCluster
from aioelasticjob.testing.virtual_cluster import REGISTRY, Instance

EVERY_SECOND = "* * * * * ?"
YEARLY = "0 0 0 1 1 ?"
REPORT = HandlerPaths("report")


class Tenant(BaseModel):
    tenant: int = Field(ge=1)
    name: str = "nobody"


async def nothing(context: ItemContext) -> None: ...


def application(ran: list[Any] | None = None, *, model: type[BaseModel] | None = Tenant) -> ElasticJob:
    """Return an application whose handler notes the value of each parameter."""
    app = ElasticJob("embedded://")
    app.add(nothing, name="declared", cron=YEARLY)

    @app.handler("report", parameter=model)
    async def report(context: ItemContext) -> None:
        if ran is not None:
            ran.append((context.job_name, context.parameters, context.job_parameter))

    return app


async def write(session: Session, *changes: Op) -> None:
    await session.commit(changes, incarnation=session.incarnation)


async def instances(session: Session, job: str) -> tuple[str, ...]:
    return await session.children(Layout(job).instances)


def problem(instance: Instance, job: str) -> str | None:
    """Return why an instance of the application does not run a job."""
    (found,) = [one.problem for one in instance.app.health.jobs if one.name == job]
    return found


async def test_a_created_job_is_joined_within_a_second_by_every_process_with_its_handler(
    virtual_cluster: VirtualCluster,
) -> None:
    ran = list[Any]()
    app = application(ran)
    first = await virtual_cluster.start(app)
    await virtual_cluster.start(app)
    await first.app.create("tenant-17", handler="report", cron=EVERY_SECOND, job_parameter={"tenant": 17})
    await sleep(1)
    assert len(await instances(first.session, "tenant-17")) == 2
    await virtual_cluster.start(app)
    assert len(await instances(first.session, "tenant-17")) == 3  # it has joined when the application runs
    await sleep(5)
    assert ran[0] == ("tenant-17", Tenant(tenant=17), '{"tenant": 17}')
    assert len(ran) in (4, 5, 6)


async def test_a_process_without_the_handler_does_not_join(virtual_cluster: VirtualCluster) -> None:
    other = ElasticJob("embedded://")
    other.add(nothing, name="declared", cron=YEARLY)
    here = await virtual_cluster.start(other)
    await here.app.create("tenant-17", handler="report", cron=EVERY_SECOND)
    await sleep(5)
    assert not await here.session.exists(Layout("tenant-17").instances)
    assert [job.name for job in here.app.health.jobs] == ["declared"]


async def test_a_created_job_has_the_settings_of_a_declared_one(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application(model=None))
    await here.app.create(
        "many", handler="report", every="5m", sharding_total_count=3, failover=True, labels={"tenant": "17"}
    )
    status = await virtual_cluster.settled("many")
    config = status.config
    assert (config.every, config.sharding_total_count, config.failover) == (300, 3, True)
    assert (config.handler, config.labels) == ("report", {"tenant": "17"})
    ends = await virtual_cluster.trigger("many")
    assert [end.item for end in ends] == [0, 1, 2]


async def test_creating_again_with_equal_settings_does_nothing_and_with_others_is_a_conflict(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    create = here.app.create
    done = await create("tenant-1", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    assert done.changed
    again = await create("tenant-1", handler="report", cron=YEARLY, job_parameter='{"tenant": 1}')
    assert not again.changed
    with pytest.raises(JobConflict, match=r"other settings \(cron\)"):
        await create("tenant-1", handler="report", cron=EVERY_SECOND, job_parameter={"tenant": 1})
    with pytest.raises(JobConflict, match=r"other settings \(handler\)"):
        await create("tenant-1", handler="other", cron=YEARLY, job_parameter={"tenant": 1})
    with pytest.raises(JobConflict, match=r"other settings \(handler\)"):
        await create("declared", handler="report", cron=YEARLY)


async def test_of_two_that_create_the_same_job_at_once_neither_fails(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(ElasticJob("embedded://"))
    other = await virtual_cluster.start(ElasticJob("embedded://"))
    async with create_task_group() as tasks:
        for number in range(5):
            for one in (here, other):
                tasks.start_soon(_create_yearly, one, f"tenant-{number}")
    assert await here.session.children(REPORT.jobs) == tuple(f"tenant-{number}" for number in range(5))


async def _create_yearly(instance: Instance, name: str) -> None:
    await instance.app.create(name, handler="report", cron=YEARLY)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"job_parameter": {"tenant": 0}}, "no process with the handler report takes it: tenant: 0 is less than"),
        ({"job_parameter": {"tenant": "x"}}, "tenant: 'x' is not of type 'integer'"),
        ({"job_parameter": "hello"}, "must be JSON, as the handler report takes it"),
        ({}, "'tenant' is a required property"),
        ({"job_parameter": {"tenant": 1}, "cron": "never"}, "cron = 'never'"),
        ({"job_parameter": {"tenant": 1}, "corn": YEARLY}, "did you mean cron"),
        ({"job_parameter": {"tenant": 1}, "job_type": "SCRIPT"}, "job_type = 'SCRIPT'"),
    ],
)
async def test_what_is_wrong_with_a_job_is_said_before_it_is_written(
    virtual_cluster: VirtualCluster, settings: dict[str, Any], expected: str
) -> None:
    here = await virtual_cluster.start(application())
    with pytest.raises(InvalidSetting) as refused:
        await here.app.create("tenant-1", handler="report", **settings)
    assert expected in str(refused.value)
    assert not await here.session.exists(Layout("tenant-1").root)


async def test_the_schemas_of_processes_are_gone_when_they_are(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application())
    (node,) = await here.session.children(REPORT.processes)
    stat = await here.session.exists(REPORT.process(node))
    assert stat is not None
    assert stat.ephemeral_owner == here.session.incarnation
    other = await virtual_cluster.start(ElasticJob("embedded://"))
    await here.stop()
    assert await other.session.children(REPORT.processes) == ()
    await other.app.create("tenant-1", handler="report", job_parameter="what nobody can check")


class Renamed(BaseModel):
    customer: int


async def test_during_a_rollout_a_process_whose_model_refuses_the_parameter_does_not_join_and_says_why(
    virtual_cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    old = await virtual_cluster.start(application())
    new = await virtual_cluster.start(application(model=Renamed))
    with caplog.at_level(logging.WARNING):
        await old.app.create("a", handler="report", job_parameter={"tenant": 1})
        await old.app.create("b", handler="report", job_parameter={"customer": 1})
        with pytest.raises(InvalidSetting, match="'tenant' is a required property or: 'customer'"):
            await old.app.create("c", handler="report", job_parameter={"other": 1})
        await sleep(1)
    assert [one.partition("@")[0] for one in await instances(old.session, "a")] == [old.host]
    assert [one.partition("@")[0] for one in await instances(old.session, "b")] == [new.host]
    assert problem(old, "a") is None
    assert "Renamed refuses it: customer: field required" in (problem(new, "a") or "")
    assert "Tenant refuses it: tenant: field required" in (problem(old, "b") or "")
    assert "a: the job does not run in this process: job_parameter" in caplog.text
    assert new.app.health.ready
    await operations.configure(old.session, "a", {"job_parameter": '{"tenant": 1, "customer": 2}'})
    await sleep(1)
    assert len(await instances(old.session, "a")) == 2
    await operations.configure(old.session, "a", {"job_parameter": '{"customer": 2}'})
    await sleep(1)
    assert [one.partition("@")[0] for one in await instances(old.session, "a")] == [new.host]
    with pytest.raises(InvalidSetting, match="no process with the handler report takes it"):
        await operations.configure(old.session, "a", {"job_parameter": "{}"})


async def test_a_process_that_joins_never_writes_the_configuration(virtual_cluster: VirtualCluster) -> None:
    app = application()
    here = await virtual_cluster.start(app)
    await here.app.create("tenant-1", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await sleep(1)
    await operations.configure(here.session, "tenant-1", {"cron": "0 0 0 2 1 ?"})
    other = await virtual_cluster.start(app)
    virtual_cluster.faults.partition([REGISTRY], [here.host])
    await sleep(100)  # its session ends, and it joins again
    virtual_cluster.faults.heal()
    await sleep(30)
    assert len(await instances(other.session, "tenant-1")) == 2
    node = await other.session.get(Layout("tenant-1").config)
    assert node.stat.version == 1
    assert [job.differs for job in here.app.health.jobs] == [(), ()]


async def test_a_job_that_was_removed_during_an_outage_is_not_written_again(virtual_cluster: VirtualCluster) -> None:
    app = application()
    here = await virtual_cluster.start(app)
    other = await virtual_cluster.start(ElasticJob("embedded://"))
    await here.app.create("tenant-1", handler="report", cron=EVERY_SECOND, job_parameter={"tenant": 1})
    await sleep(5)
    virtual_cluster.faults.partition([REGISTRY], [here.host])
    await sleep(100)
    await other.app.remove("tenant-1")
    virtual_cluster.faults.heal()
    await sleep(60)
    assert not await other.session.exists(Layout("tenant-1").root)
    assert [job.name for job in here.app.health.jobs] == ["declared"]


async def test_removing_lets_all_instances_end_what_they_run(virtual_cluster: VirtualCluster) -> None:
    ended = list[float]()
    app = ElasticJob("embedded://")

    @app.handler("slow")
    async def slow(context: ItemContext) -> None:
        await sleep(20)
        ended.append(current_time())

    first = await virtual_cluster.start(app)
    await virtual_cluster.start(app)
    await first.app.create("job", handler="slow", cron="0 * * * * ?", sharding_total_count=2)
    await virtual_cluster.settled("job")
    minute = virtual_cluster.now.replace(second=0, microsecond=0).timestamp()
    await sleep(minute + 65 - virtual_cluster.now.timestamp())
    began = current_time()
    with pytest.raises(operations.RemovalUnfinished, match=r"runs item 0.*runs item 1"):
        await first.app.remove("job", timeout=5)
    await virtual_cluster.start(app)
    await sleep(1)
    assert len(await instances(first.session, "job")) == 2  # nobody joins any more
    with pytest.raises(JobConflict, match="is being removed"):
        await first.app.create("job", handler="slow", cron="0 * * * * ?", sharding_total_count=2)
    await first.app.remove("job")
    assert current_time() == pytest.approx(began + 15, abs=1)
    assert len(ended) == 2
    assert not await first.session.exists(Layout("job").root)
    assert await first.session.children(HandlerPaths("slow").jobs) == ()
    await sleep(1)
    assert first.app.health.jobs == ()
    with pytest.raises(InvalidSetting, match="there is no such job"):
        await first.app.remove("job")


async def test_a_removed_job_may_be_created_again_at_once(virtual_cluster: VirtualCluster) -> None:
    ran = list[Any]()
    app = application(ran)
    here = await virtual_cluster.start(app)
    await virtual_cluster.start(app)
    for number in range(1, 4):
        await here.app.create("job", handler="report", cron=EVERY_SECOND, job_parameter={"tenant": number})
        await sleep(3)
        await here.app.remove("job")
    assert {parameters.tenant for _, parameters, _ in ran} == {1, 2, 3}


async def test_a_job_that_was_removed_by_force_and_created_again_runs_again(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application())
    for _ in range(3):
        await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
        await virtual_cluster.settled("job")
        await operations.remove(here.session, "job", force=True)
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await virtual_cluster.settled("job")
    assert problem(here, "job") is None


async def test_a_name_may_be_given_to_a_job_of_another_handler(virtual_cluster: VirtualCluster) -> None:
    ran = list[str]()
    app = ElasticJob("embedded://")

    @app.handler("a")
    async def a(context: ItemContext) -> None:
        ran.append("a")

    @app.handler("b")
    async def b(context: ItemContext) -> None:
        ran.append("b")

    here = await virtual_cluster.start(app)
    for handler in ("a", "b", "a"):
        await here.app.create("job", handler=handler)
        await virtual_cluster.trigger("job")
        await here.app.remove("job")
    assert ran == ["a", "b", "a"]


async def test_a_declared_job_is_neither_removed_so_nor_replaced(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application())
    with pytest.raises(InvalidSetting, match="code declares this job"):
        await here.app.remove("declared")
    await here.app.create("tenant-1", handler="report", job_parameter={"tenant": 1})
    await virtual_cluster.settled("tenant-1")
    other = ElasticJob("embedded://")
    other.add(nothing, name="tenant-1", cron=YEARLY)
    with pytest.raises(JobConflict, match="was already created for the handler report"):
        await virtual_cluster.start(other)


async def test_a_process_that_declares_the_name_does_not_join_the_created_job(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    await operations.remove(here.session, "declared", force=True)
    await here.app.create("declared", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await sleep(5)
    assert not await here.session.exists(Layout("declared").instances)
    assert "the job was removed from the registry" in (problem(here, "declared") or "")


async def test_what_was_created_and_runs_here_is_not_declared_as_well(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application())
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await virtual_cluster.settled("job")
    with pytest.raises(InvalidSetting, match="runs here already: it was created for the handler report"):
        here.app.add(nothing, name="job")


async def test_a_created_job_leaves_one_process_and_stays_away(virtual_cluster: VirtualCluster) -> None:
    app = application()
    here = await virtual_cluster.start(app)
    await virtual_cluster.start(app)
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await sleep(1)
    await here.app.leave("job")
    await operations.configure(here.session, "job", {"job_parameter": '{"tenant": 2}'})
    await sleep(5)
    assert len(await instances(here.session, "job")) == 1
    assert [job.name for job in here.app.health.jobs] == ["declared"]


async def test_a_handler_may_be_registered_while_the_application_runs(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(ElasticJob("embedded://"))
    await here.app.create("job", handler="late", cron=YEARLY)
    ran = list[int]()

    @here.app.handler("late")
    async def late(context: InstanceContext | ItemContext) -> None:
        ran.append(1)

    await sleep(1)
    await virtual_cluster.trigger("job")
    assert ran == [1]
    with pytest.raises(InvalidSetting, match="there is a handler of this name"):
        here.app.handler("late")(late)


async def test_only_processes_with_the_handler_are_woken(virtual_cluster: VirtualCluster) -> None:
    app = application()
    here = await virtual_cluster.start(app)
    other = ElasticJob("embedded://")
    other.handler("other")(nothing)
    there = await virtual_cluster.start(other)
    await sleep(5)
    seen = list[str]()

    class Watching:
        def changed(self, kind: int, path: str) -> None:
            seen.append(path)

        def reset(self) -> None: ...

    there.session.watch({HandlerPaths("other").jobs: False}, Watching())
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await sleep(1)
    assert seen == []
    await here.app.create("another", handler="other", cron=YEARLY)
    await sleep(1)
    assert seen == [HandlerPaths("other").job("another")]


async def test_what_people_write_below_the_handlers_harms_nobody(virtual_cluster: VirtualCluster) -> None:
    here = await virtual_cluster.start(application())
    await write(
        here.session,
        Create(REPORT.job("ghost")),
        Create(REPORT.job("broken")),
        Create(Layout("broken").root),
        Create(Layout("broken").config, b"nonsense"),
        Create(REPORT.process("nonsense"), b"[]"),
        Create(REPORT.process("odd"), b'{"ip": "a", "host": "b", "pid": 1, "schema": {"type": 7}}'),
        Create(f"{HANDLERS}/by hand"),
    )
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1})
    await virtual_cluster.settled("job")
    assert problem(here, "ghost") == "the job was removed"
    assert "no job configuration" in (problem(here, "broken") or "")
    await write(here.session, Delete(REPORT.job("ghost")), Set(REPORT.job("broken"), b"x", -1))
    await sleep(1)
    assert [job.name for job in here.app.health.jobs] == ["declared", "job", "broken"]


async def test_a_job_whose_handler_nobody_has_says_so_to_operators(virtual_cluster: VirtualCluster) -> None:
    app = application()
    here = await virtual_cluster.start(app)
    other = await virtual_cluster.start(ElasticJob("embedded://"))
    await here.app.create("job", handler="report", cron=YEARLY, job_parameter={"tenant": 1}, alert_on=["nobody-there"])
    await virtual_cluster.settled("job")
    assert await operations.handlers(other.session) == ("report",)
    states = list[tuple[str, bool]]()

    async def watch() -> None:
        async with operations.watch(other.session, "job", clock=VirtualClock()) as statuses:
            async for status in statuses:
                states.append((status.state, status.lacks_handler))

    async with create_task_group() as tasks:
        tasks.start_soon(watch)
        await sleep(1)
        assert states == [("waiting", False)]
        await here.stop()
        await sleep(1)
        assert states[-1] == ("nobody there", True)
        await virtual_cluster.start(application(model=Renamed))  # it has the handler, and does not join
        await sleep(1)
        assert states[-1] == ("nobody there", False)
        await virtual_cluster.instances[-1].stop()
        await sleep(1)
        assert states[-1] == ("nobody there", True)
        tasks.cancel_scope.cancel()
    now = virtual_cluster.now.timestamp() + RESTART_LIMIT
    job = await operations.job(other.session, "job", now=now)
    (listed,) = [one for one in await operations.jobs(other.session, now=now) if one.name == "job"]
    assert job.lacks_handler
    assert listed.lacks_handler
    (reason,) = reasons(job, now)
    assert reason.kind == "nobody there"
    assert reason.sentence.format(**reason.values) == "no process has the handler report, for which it was created"
    (alert,) = conditions(Facts([job], ObservedRuns(now), now))
    assert alert.text.startswith("no process has the handler report: its runs are missed")
    screen = Console(file=StringIO(), width=200)
    screen.print(_picture(job, now))
    assert isinstance(screen.file, StringIO)
    assert "no instance is there: no process has the handler report" in screen.file.getvalue()


async def test_created_jobs_of_a_kind_run_only_where_the_kind_is_allowed(
    virtual_cluster: VirtualCluster,
) -> None:
    careful = await virtual_cluster.start(application())
    allowing = application()
    allowing.allow_created(["http"])
    here = await virtual_cluster.start(allowing)
    await here.app.create("page", handler="http", options={"url": "http://127.0.0.1:9/"}, cron=YEARLY)
    await here.app.create("other", handler="script", options={"command": "true"}, cron=YEARLY)
    await sleep(1)
    assert [one.partition("@")[0] for one in await instances(here.session, "page")] == [here.host]
    assert not await here.session.exists(Layout("other").instances)
    assert "page" not in [job.name for job in careful.app.health.jobs]
    status = await operations.job(here.session, "page", now=0)
    assert (status.config.job_type, status.config.options) == ("HTTP", {"url": "http://127.0.0.1:9/"})
    with pytest.raises(InvalidSetting, match="url"):
        await here.app.create("wrong", handler="http")
    with pytest.raises(InvalidSetting, match="the handler report runs SIMPLE jobs"):
        await operations.import_jobs(
            here.session,
            '{"jobs": [{"jobName": "x", "handler": "report", "jobType": "SCRIPT", "options": {"command": "true"}}]}',
        )


def test_which_kinds_are_allowed_comes_from_code_files_or_the_command_line(
    tmp_path: Path,
) -> None:
    assert ElasticJob("embedded://", allow_created=["script", "http"]).handlers == ("script", "http")
    file = tmp_path / "jobs.yaml"
    file.write_text("registry: embedded://\nallow_created: script\n")
    assert ElasticJob.from_settings(file).handlers == ("script",)
    assert run.application(None, file, None, ["http"]).handlers == ("script", "http")
    for wrong, expected in ((["cobol"], "cobol"), ("script", "must be a list of kinds")):
        with pytest.raises(InvalidSetting, match=expected):
            ElasticJob("embedded://").allow_created(wrong)
    with pytest.raises(InvalidSetting, match="is the name of a kind of job"):
        ElasticJob("embedded://").handler("script")(nothing)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"name": "a b"}, "name = 'a b'"),
        ({"name": ".."}, "name = '..'"),
        ({"name": "x", "parameter": dict}, "must be a pydantic model"),
        ({"name": "x", "listeners": 3}, "listeners = 3"),
    ],
)
def test_a_wrong_handler_is_refused_when_it_is_registered(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        ElasticJob("embedded://").handler(**arguments)(nothing)
    assert expected in str(refused.value)


def test_a_function_that_cannot_be_called_is_refused_as_a_handler() -> None:
    async def wrong() -> None: ...

    with pytest.raises(InvalidSetting, match=r"write async def wrong\(context: ItemContext\)"):
        ElasticJob("embedded://").handler("x")(wrong)


def test_a_declared_job_names_no_handler() -> None:
    with pytest.raises(InvalidSetting, match=r"only jobs that app\.create\(\) creates name one"):
        ElasticJob("embedded://").job("x", handler="report")(nothing)  # type: ignore[call-arg]


async def test_creating_needs_the_application_to_run(virtual_cluster: VirtualCluster) -> None:
    with pytest.raises(InvalidState, match="create of job"):
        await ElasticJob("embedded://").create("job", handler="report")
