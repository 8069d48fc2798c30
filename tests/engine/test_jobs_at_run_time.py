"""Jobs that are added, and that leave, while the other jobs of their process run."""

from __future__ import annotations

import logging
from asyncio import all_tasks
from contextvars import ContextVar
from unittest import mock

import anyio
import pytest
from anyio import Event, create_task_group, current_time, move_on_after, sleep

from aioelasticjob import (
    ElasticJob,
    InstanceContext,
    InvalidSetting,
    InvalidState,
    ItemContext,
    JobConfig,
    JobConflict,
    operations,
)
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.life import Life
from aioelasticjob.engine.local_jobs import STARTING_AT_ONCE
from aioelasticjob.errors import NotPermitted
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op
from aioelasticjob.testing import UnhandledErrors, VirtualCluster, simulated
from aioelasticjob.testing.virtual_cluster import REGISTRY

EVERY_SECOND = "* * * * * ?"
YEARLY = "0 0 0 1 1 ?"


async def nothing(context: ItemContext) -> None: ...


def application() -> ElasticJob:
    app = ElasticJob("embedded://")
    app.add(nothing, name="first", cron=YEARLY)
    return app


async def write(session: Session, *changes: Op) -> None:
    await session.commit(changes, incarnation=session.incarnation)


async def instances(session: Session, job: str) -> tuple[str, ...]:
    return await session.children(Layout(job).instances)


async def test_a_job_that_is_added_while_the_application_runs_joins_and_runs(virtual_cluster: VirtualCluster) -> None:
    ran = list[str]()

    async def work(context: ItemContext) -> None:
        ran.append(context.job_name)

    here = await virtual_cluster.start(application())
    here.app.add(work, name="added", cron=EVERY_SECOND)
    await here.app.wait_joined("added")
    assert len(await instances(here.session, "added")) == 1
    await sleep(5)
    assert len(ran) in (4, 5)
    assert [job.job_name for job in here.app.jobs] == ["first", "added"]
    assert [job.name for job in here.app.health.jobs] == ["first", "added"]


async def test_decorators_work_while_the_application_runs(virtual_cluster: VirtualCluster) -> None:
    sent = list[int]()
    app = (await virtual_cluster.start(application())).app

    @app.dataflow("flow")
    async def fetch(context: ItemContext) -> list[int]:
        return [] if sent else [1, 2]

    @fetch.process
    async def process(context: ItemContext, record: int) -> None:
        sent.append(record)

    @app.job("function")
    async def function(context: ItemContext) -> None: ...

    await app.wait_joined("flow")
    await app.wait_joined("function")
    await virtual_cluster.trigger("flow")
    assert sent == [1, 2]


async def test_a_job_is_not_added_a_second_time(virtual_cluster: VirtualCluster) -> None:
    app = (await virtual_cluster.start(application())).app
    app.add(nothing, name="added")
    for name in ("added", "first"):
        with pytest.raises(InvalidSetting, match=f"'{name}': is declared twice"):
            app.add(nothing, name=name)
    await app.wait_joined("added")


async def test_what_keeps_an_added_job_from_joining_is_raised_and_its_name_is_free_again(
    virtual_cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    here = await virtual_cluster.start(application())
    there = Layout("added")
    theirs = JobConfig.build(job_name="added", job_type="DATAFLOW")
    await write(here.session, Create(there.root), Create(there.config, theirs.to_json()))
    with caplog.at_level(logging.WARNING):
        here.app.add(nothing, name="added")
        for _ in range(2):
            with pytest.raises(JobConflict, match="already a DATAFLOW job"):
                await here.app.wait_joined("added")
    assert "added: the job was added, and cannot run in this process: job_name = 'added'" in caplog.text
    problem = here.app.health.jobs[1].problem
    assert problem is not None
    assert "already a DATAFLOW job" in problem
    assert here.app.health.ready
    await write(here.session, Delete(there.config), Delete(there.root))
    here.app.add(nothing, name="added")
    await here.app.wait_joined("added")
    assert here.app.health.jobs[1].problem is None
    assert len(await instances(here.session, "added")) == 1


async def test_a_dataflow_job_that_is_added_without_a_process_does_not_join(virtual_cluster: VirtualCluster) -> None:
    app = (await virtual_cluster.start(application())).app

    @app.dataflow("flow")
    async def fetch(context: ItemContext) -> list[int]:
        return []

    with pytest.raises(InvalidSetting, match="process"):
        await app.wait_joined("flow")


async def test_a_job_leaves_when_its_run_has_ended_and_its_configuration_stays(
    virtual_cluster: VirtualCluster,
) -> None:
    runs = list[str]()

    async def work(context: ItemContext) -> None:
        runs.append("began")
        await sleep(5)
        runs.append("ended")

    app = application()
    app.add(work, name="long", cron="0/10 * * * * ?")
    here = await virtual_cluster.start(app)
    other = await virtual_cluster.start(app, jobs=["first"])
    await sleep(11)
    began = current_time()
    await here.app.leave("long")
    assert current_time() == pytest.approx(began + 4, abs=0.3)
    assert runs == ["began", "ended"]
    assert await instances(here.session, "long") == ()
    assert (await operations.job(here.session, "long", now=0)).config.cron == "0/10 * * * * ?"
    assert [job.job_name for job in here.app.jobs] == ["first"]
    assert [job.name for job in here.app.health.jobs] == ["first"]
    await sleep(30)
    assert len(runs) == 2
    assert len(await instances(other.session, "first")) == 2


async def test_a_job_may_be_added_again_after_it_has_left_and_not_before(virtual_cluster: VirtualCluster) -> None:
    ended = list[str]()

    async def work(context: ItemContext) -> None:
        await sleep(5)
        ended.append(context.instance)

    app = application()
    app.add(work, name="long", cron="0/10 * * * * ?")
    app = (await virtual_cluster.start(app)).app
    await sleep(11)
    async with create_task_group() as tasks:
        tasks.start_soon(app.leave, "long")
        await sleep(1)
        with pytest.raises(InvalidState, match=r"still leaves this process: await app\.leave\('long'\)"):
            app.add(work, name="long")
    app.add(work, name="long")
    await app.wait_joined("long")
    await sleep(14)
    assert len(ended) == 2  # by the configuration in the registry
    assert len(set(ended)) == 2


async def test_a_job_that_an_operator_has_shut_down_here_runs_again_if_it_leaves_and_is_added(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    await operations.shut_down(here.session, "first")
    await sleep(5)
    with pytest.raises(InvalidState, match="an operator has asked this instance to leave"):
        await here.app.wait_joined("first")
    await here.app.leave("first")
    here.app.add(nothing, name="first")
    await here.app.wait_joined("first")
    assert len(await instances(here.session, "first")) == 1


async def test_a_job_that_is_added_while_the_registry_is_away_joins_when_it_is_back(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    virtual_cluster.faults.partition([REGISTRY], [here.host])
    await sleep(100)  # the session ends meanwhile
    here.app.add(nothing, name="stays")
    here.app.add(nothing, name="leaves")
    with move_on_after(10) as limit:
        await here.app.wait_joined("stays")
    assert limit.cancelled_caught
    began = current_time()
    await here.app.leave("leaves")
    assert current_time() == began
    virtual_cluster.faults.heal()
    await here.app.wait_joined("stays")
    assert len(await instances(here.session, "stays")) == 1
    assert not await here.session.exists(Layout("leaves").root)


async def test_of_many_jobs_that_are_added_at_once_only_some_own_tasks_meanwhile(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    many = 5 * STARTING_AT_ONCE
    before = len(all_tasks())
    most = list[int]()

    async def count() -> None:
        while True:
            most.append(len(all_tasks()) - before)
            await sleep(0.01)

    async with create_task_group() as tasks:
        tasks.start_soon(count)
        for number in range(many):
            here.app.add(nothing, name=f"added-{number}", cron=YEARLY)
        for number in range(many):
            await here.app.wait_joined(f"added-{number}")
        tasks.cancel_scope.cancel()
    assert 0 < max(most) <= 3 * STARTING_AT_ONCE
    assert all(job.instance is not None for job in here.app.health.jobs)


async def test_a_process_that_ends_while_a_job_joins_does_not_wait_for_it(
    virtual_cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    joining, refused = Event(), list[str]()

    async def never(*_: object, **__: object) -> None:
        joining.set()
        await anyio.sleep_forever()

    here = await virtual_cluster.start(application())
    monkeypatch.setattr("aioelasticjob.engine.life.join", never)
    here.app.add(nothing, name="added")

    async def wait() -> None:
        try:
            await here.app.wait_joined("added")
        except InvalidState as error:
            refused.append(str(error))

    async with create_task_group() as tasks:
        tasks.start_soon(wait)
        await joining.wait()
        began = current_time()
        await here.stop()
    assert current_time() == pytest.approx(began, abs=0.5)
    assert refused == ["the job added does not run in this process: the application stops"]


async def test_a_job_that_leaves_while_it_joins_leaves_nothing_behind(
    virtual_cluster: VirtualCluster,
) -> None:
    here = await virtual_cluster.start(application())
    for number in range(20):
        here.app.add(nothing, name="added")
        await sleep(0.0005 * number)
        await here.app.leave("added")
        if await here.session.exists(Layout("added").root):
            assert await instances(here.session, "added") == ()
    here.app.add(nothing, name="added")
    await here.app.wait_joined("added")


async def test_a_run_may_let_its_own_job_leave(virtual_cluster: VirtualCluster) -> None:
    ran = list[float]()
    app = application()

    async def once(context: ItemContext) -> None:
        await app.leave(context.job_name)
        ran.append(current_time())

    app.add(once, name="once", cron=EVERY_SECOND)
    here = await virtual_cluster.start(app)
    await sleep(5)
    assert len(ran) == 1
    assert [job.job_name for job in here.app.jobs] == ["first"]
    assert [job.job_name for job in app.jobs] == ["first", "once"]  # what another process would declare


async def test_a_job_that_a_run_adds_knows_nothing_of_that_run(virtual_cluster: VirtualCluster) -> None:
    request: ContextVar[str] = ContextVar("request", default="none")
    seen = list[str]()
    app = application()

    async def inner(context: InstanceContext) -> None:
        seen.append(request.get())
        await app.leave("inner")

    async def outer(context: ItemContext) -> None:
        request.set("the request of the outer run")
        app.add(inner, name="inner", cron=EVERY_SECOND, per="instance")
        await app.wait_joined("inner")

    app.add(outer, name="outer")
    here = await virtual_cluster.start(app)
    await virtual_cluster.trigger("outer")
    await sleep(5)
    assert seen == ["none"]
    assert [job.job_name for job in here.app.jobs] == ["first", "outer"]


async def test_a_job_that_cannot_start_after_it_has_registered_is_unregistered(
    virtual_cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await virtual_cluster.start(application())
    there = list[tuple[str, ...]]()

    async def refused(life: Life, config: JobConfig) -> None:
        there.append(await instances(here.session, "added"))
        raise NotPermitted("/added")

    monkeypatch.setattr(Life, "_live", refused)
    here.app.add(nothing, name="added")
    with pytest.raises(NotPermitted):
        await here.app.wait_joined("added")
    await sleep(1)
    assert [len(one) for one in there] == [1]
    assert await instances(here.session, "added") == ()


def test_a_defect_of_this_package_in_joining_is_reported_with_its_stack() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        here = await cluster.start(application())
        with mock.patch.object(Life, "_live", side_effect=AssertionError("a defect")):
            here.app.add(nothing, name="added")
            with pytest.raises(AssertionError, match="a defect"):
                await here.app.wait_joined("added")

    with pytest.raises(UnhandledErrors, match="errors nobody handled"):
        simulated(scene)(VirtualCluster())


async def test_calls_that_make_no_sense_are_refused(virtual_cluster: VirtualCluster) -> None:
    app = application()
    with pytest.raises(InvalidState, match="wait_joined of first: the application must be running; at present it is: "):
        await app.wait_joined("first")
    with pytest.raises(InvalidState, match="leave of first: the application must be running"):
        await app.leave("first")
    here = await virtual_cluster.start(app)
    await here.app.wait_joined("first")
    with pytest.raises(InvalidSetting, match="name = 'other': no job of this name"):
        await here.app.wait_joined("other")
    with pytest.raises(InvalidSetting, match="name = 'other': no job of this name"):
        await here.app.leave("other")
    await here.app.leave("first")
    with pytest.raises(InvalidSetting, match="name = 'first': no job of this name"):
        await here.app.leave("first")
