"""The jobs of one process: they start together, share the time, and leave together; each has lives of its own."""

from __future__ import annotations

import gc
from asyncio import all_tasks, create_task, get_running_loop, wait
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import anyio
import pytest
from anyio import CancelScope, Event, create_task_group, current_time, sleep

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig
from aioelasticjob.core.account import JobState
from aioelasticjob.core.commands import Steps
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.life import History, Life
from aioelasticjob.engine.local_jobs import STARTING_AT_ONCE, watch_clock
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import join
from aioelasticjob.engine.runs import EndedRun, Runs
from aioelasticjob.engine.settlements import Settlement
from aioelasticjob.errors import NotPermitted, SessionEnded
from aioelasticjob.events import Began
from aioelasticjob.model import ClockReading
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.testing import UnhandledErrors, VirtualClock, VirtualCluster, run, simulated
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, end_life, running_job, simulate

ran = Counter[str]()


def test_the_time_is_asked_for_through_another_job_if_one_may_not_be_written() -> None:
    asked = list[str]()

    class Asking:
        is_refusing = False

        def __init__(self, name: str) -> None:
            self.name = name

        async def ask_time(self) -> None:
            asked.append(self.name)
            if self.name == "read-only":
                raise NotPermitted("/read-only")

    async def main() -> None:
        session = _five_seconds_ahead()
        jobs = cast(list[JobScheduler], [Asking("read-only"), Asking("open")])
        with anyio.move_on_after(9.5):
            await watch_clock(cast(Session, session), lambda: jobs, lambda: None)

    run(main, seed=0)
    assert (asked[0], set(asked[1:])) == ("read-only", {"open"})


def test_the_time_is_asked_for_less_and_less_often_if_no_job_may_be_written() -> None:
    asked = list[float]()

    class ReadOnly:
        is_refusing = False

        async def ask_time(self) -> None:
            asked.append(get_running_loop().time())
            raise NotPermitted("/read-only")

    async def main() -> None:
        session = _five_seconds_ahead()
        jobs = cast(list[JobScheduler], [ReadOnly(), ReadOnly()])
        with anyio.move_on_after(600):
            await watch_clock(cast(Session, session), lambda: jobs, lambda: None)

    run(main, seed=0)
    assert len(asked) < 60


def _five_seconds_ahead() -> SimpleNamespace:
    """Return a session whose registry is behind this host's clock."""
    time, clock = get_running_loop().time, VirtualClock()
    return SimpleNamespace(steady_time=time, read_clocks=lambda: ClockReading(clock.now(), time(), skew=5.0))


def two_jobs(here: SimulatedJobs, ended: list[tuple[str, float]], **other: Any) -> ElasticJob:
    """Return an application with two jobs, each run of which takes three seconds."""

    async def work(context: ItemContext) -> None:
        await anyio.sleep(3)
        ended.append((context.job_name, here.now()))

    app = here.app(work, cron="0/10 * * * * ?")
    app.add(work, **{"name": "other", "cron": "0/10 * * * * ?", **other})
    return app


async def left(here: SimulatedJobs) -> list[str]:
    return [name for job in ("job", "other") for name in await here.names(Layout(job).instances)]


def test_jobs_leave_together_when_what_they_run_has_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        ended: list[tuple[str, float]] = []
        async with two_jobs(here, ended).running():
            assert len(await left(here)) == 2
            await here.until(11)
        assert sorted((job, round(at, 1)) for job, at in ended) == [("job", 13.0), ("other", 13.0)]
        assert here.now() < 14
        assert await left(here) == []

    simulate(scene)


def test_jobs_of_a_process_that_is_cancelled_leave_all_the_same_with_their_runs_cut_and_settled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        ended: list[tuple[str, float]] = []
        with anyio.move_on_after(11 - here.now()):
            async with two_jobs(here, ended).running():
                await anyio.sleep_forever()
        assert ended == []
        assert here.now() < 12
        assert await left(here) == []
        assert await here.names(LAYOUT.item(0).execution) == ()  # no lock is left
        assert (await here.record(0)).outcome == "cancelled"

    simulate(scene)


def test_jobs_of_a_process_that_is_cancelled_leave_also_while_its_block_cleans_up() -> None:
    async def scene(here: SimulatedJobs) -> None:
        with anyio.move_on_after(11 - here.now()):
            async with two_jobs(here, []).running():
                try:
                    await anyio.sleep_forever()
                finally:
                    with CancelScope(shield=True):
                        await sleep(1)
                        assert await left(here) == []
                        cut = await here.record(0)
                        assert cut.outcome == "cancelled"
                        await here.until(35)
        assert await here.record(0) == cut  # nothing was claimed meanwhile

    simulate(scene)


def test_jobs_leave_at_once_when_asyncio_cancels_all_tasks() -> None:
    """As at the end of ``asyncio.run``, if another task than the main one runs the jobs.

    Here the handlers come before all but the scheduler.
    """

    async def scene(here: SimulatedJobs) -> None:
        outside = all_tasks()

        async def runs() -> None:
            async with two_jobs(here, []).running():
                await sleep(100)

        running = create_task(runs())
        await here.until(11)
        tasks = [(repr(task), task) for task in all_tasks() - outside]
        for _, task in sorted(tasks, key=lambda one: ("Scheduler" not in one[0], "TaskScope" not in one[0])):
            task.cancel()
        await wait([running])
        assert here.now() < 11.5
        assert await left(here) == []
        assert (await here.record(0)).outcome == "cancelled"

    simulate(scene)


@pytest.mark.parametrize("waits", ["life.join", "local_jobs.follow_common_nodes"])
def test_a_process_that_is_cancelled_while_it_starts_ends_at_once(monkeypatch: pytest.MonkeyPatch, waits: str) -> None:
    async def never(*_: object, **__: object) -> None:
        await anyio.sleep_forever()

    async def scene(here: SimulatedJobs) -> None:
        monkeypatch.setattr(f"aioelasticjob.engine.{waits}", never)
        began = here.now()
        with anyio.move_on_after(3):
            async with two_jobs(here, []).running():
                raise AssertionError("it has started")
        assert here.now() == pytest.approx(began + 3, abs=0.5)

    simulate(scene)


def test_if_one_job_cannot_start_the_others_do_not_stay() -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = JobConfig.build(job_name="other", job_type="DATAFLOW")
        await here.write(Create(Layout("other").root), Create(Layout("other").config, there.to_json()))
        begun = False
        with pytest.raises(InvalidSetting, match="other"):
            async with two_jobs(here, []).running():
                begun = True
        assert not begun
        assert await left(here) == []

    simulate(scene)


def test_of_many_jobs_that_start_only_some_own_a_task_meanwhile() -> None:
    many, most = 5 * STARTING_AT_ONCE, list[int]()

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ?")
        for number in range(many - 1):
            app.add(lambda context: anyio.sleep(0), name=f"job-{number}", cron="0 0 0 1 1 ?")

        async def count() -> None:
            while True:
                most.append(len(all_tasks()))
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            async with app.running():
                tasks.cancel_scope.cancel()
                assert len([job for job in app.health.jobs if job.instance is not None]) == many

    simulate(scene)
    assert max(most) < many


async def count(context: ItemContext) -> None:
    ran[context.job_name] += 1


@simulated
async def _a_defect_in_one_job(cluster: VirtualCluster) -> None:
    await cluster.start(_broken_and_sound())
    await sleep(30)


def test_a_defect_of_this_package_in_one_job_makes_it_join_again_and_the_others_do_not_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    see, failures = JobState.see, list[int]()

    def fails_sometimes(self: JobState, view: JobView) -> Steps[None]:
        if self.view.config.job_name == "broken" and len(failures) < 3 and ran["sound"] > 5 * (len(failures) + 1):
            failures.append(1)
            raise AssertionError("a defect")
        return see(self, view)

    monkeypatch.setattr(JobState, "see", fails_sometimes)
    ran.clear()
    with pytest.raises(UnhandledErrors, match="errors nobody handled") as raised:
        _a_defect_in_one_job(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["a defect"] * 3
    assert ran["sound"] >= 29
    assert ran["broken"] >= 29 - 2 * 3  # a second for each time that it joins again


def _broken_and_sound(handler: Callable[[ItemContext], Awaitable[object]] = count) -> ElasticJob:
    app = ElasticJob("embedded://")
    for name in ("broken", "sound"):
        app.add(handler, name=name, cron="* * * * * ?")
    return app


def test_a_defect_while_one_job_joins_again_is_that_job_s_too(monkeypatch: pytest.MonkeyPatch) -> None:
    see, failures = JobState.see, list[str]()

    def fail(what: str) -> None:
        failures.append(what)
        raise AssertionError(what)

    def looks(self: JobState, view: JobView) -> Steps[None]:
        if self.view.config.job_name == "broken" and not failures and ran["sound"] > 5:
            fail("looks")
        return see(self, view)

    async def joins(member: Member, *args: Any, **named: Any) -> object:
        if member.layout.job == "broken" and 0 < len(failures) < 3:
            fail("joins")
        return await join(member, *args, **named)

    monkeypatch.setattr(JobState, "see", looks)
    monkeypatch.setattr("aioelasticjob.engine.life.join", joins)
    ran.clear()
    with pytest.raises(UnhandledErrors) as raised:
        _a_defect_in_one_job(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["looks", "joins", "joins"]
    assert ran["sound"] >= 29
    assert ran["broken"] >= 29 - 2 * 3


def test_a_life_that_begins_in_the_moment_in_which_its_session_ends_is_ended_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That the session is over is reported a first time while it begins, and again while it ends."""
    start, end, begun = Life._live, Life.end, list[str]()

    async def starts(self: Life, *args: Any) -> None:
        if self.member.layout.job == "broken":
            begun.append(self.member.id)
            if len(begun) == 1:
                self.end_soon()
        await start(self, *args)

    async def ends(self: Life, *args: Any) -> None:
        if self.member.layout.job == "broken":
            self.end_soon()
        await end(self, *args)

    monkeypatch.setattr(Life, "_live", starts)
    monkeypatch.setattr(Life, "end", ends)
    _a_defect_in_one_job(VirtualCluster())
    assert len(begun) == 2


def test_an_error_that_comes_while_a_life_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    settle, failing = Runs._settle, list[Runs]()

    def settles(self: Runs, ended: EndedRun) -> Settlement | None:
        if self in failing:
            raise AssertionError("the second")
        return settle(self, ended)

    async def work(context: ItemContext) -> None:
        await sleep(0.5)

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        here = await cluster.start(_broken_and_sound(work))
        await sleep(10.2)
        failing.append(running_job(here.app, "broken").runs)
        end_life(here.app, AssertionError("the first"), "broken")
        await sleep(10)

    monkeypatch.setattr(Runs, "_settle", settles)
    with pytest.raises(UnhandledErrors) as raised:
        scene(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["the first", "the second"]


async def test_lives_that_are_over_are_not_kept_until_their_next_times_would_have_come(
    virtual_cluster: VirtualCluster,
) -> None:
    app, lives = ElasticJob("embedded://"), list[ref[object]]()
    app.add(count, name="job", cron="* * * * * ?")
    here = await virtual_cluster.start(app)
    for _ in range(10):
        await sleep(3)
        lives.append(ref(running_job(here.app, "job")))
        end_life(here.app, SessionEnded("the session is over"))
    await sleep(3)
    gc.collect()
    assert [one for one in lives if one() is not None] == []


async def stubborn(context: ItemContext) -> None:
    try:
        await sleep(8)
    finally:
        with CancelScope(shield=True):
            await sleep(3)


async def test_why_a_life_ends_is_reported_before_it_waits_for_its_handlers(
    virtual_cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = list[float]()
    monkeypatch.setattr(History, "warn_rejoin", lambda *_: warned.append(current_time()))
    app = ElasticJob("embedded://")
    app.add(stubborn, name="job", cron="*/10 * * * * ?")
    here = await virtual_cluster.start(app)
    await sleep(12 - current_time())
    end_life(here.app, SessionEnded("the session is over"))
    await sleep(10)
    assert warned == [pytest.approx(12, abs=0.1)]


async def test_a_process_that_is_cancelled_waits_for_the_handlers_of_a_life_that_ends_and_for_nothing_else(
    virtual_cluster: VirtualCluster,
) -> None:
    took, done = list[float](), Event()
    app = ElasticJob("embedded://")
    app.add(stubborn, name="job", cron="*/10 * * * * ?", monitor_execution=False)

    async def process() -> None:
        with CancelScope() as scope:
            async with here.app.running():
                await sleep(12 - current_time())
                end_life(here.app, SessionEnded("the session is over"))
                await sleep(0.5)
                scope.cancel()
                await sleep(60)
        took.append(current_time() - 12)
        done.set()

    here = await virtual_cluster.start(app)
    await here.stop()
    virtual_cluster.faults.start("10.0.3.1", "10.0.3.1", process)
    await done.wait()
    assert took == [pytest.approx(3, abs=0.5)]


def test_a_defect_after_the_process_has_given_up_waiting_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def settles(self: Runs, ended: EndedRun) -> Settlement | None:
        raise AssertionError("too late")

    async def unheeding(context: ItemContext) -> None:
        with CancelScope(shield=True):
            await sleep(9)

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        app = ElasticJob("embedded://")
        app.add(unheeding, name="job", cron="*/10 * * * * ?", shutdown_timeout=1.0)
        here = await cluster.start(app)
        await sleep(13)
        await here.stop()

    monkeypatch.setattr(Runs, "_settle", settles)
    with pytest.raises(UnhandledErrors) as raised:
        scene(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["too late"]


def test_a_process_that_gives_up_a_life_that_ends_waits_for_its_handler_and_reports_its_error_once() -> None:
    ended = list[float]()

    async def unheeding(context: ItemContext) -> None:
        with CancelScope(shield=True):
            await sleep(20)
        ended.append(current_time())

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        app = ElasticJob("embedded://")
        app.add(unheeding, name="job", cron="*/30 * * * * ?", shutdown_timeout=1.0)
        here = await cluster.start(app)
        await sleep(32 - current_time())
        end_life(here.app, RuntimeError("a defect"))
        await here.stop()
        assert ended == [pytest.approx(50, abs=0.5)]

    with pytest.raises(UnhandledErrors) as raised:
        scene(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["a defect"]


async def test_a_job_that_has_just_joined_again_runs_nothing_while_its_process_leaves(
    virtual_cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    joining, may_join, joined, runs = Event(), Event(), Event(), list[float]()

    async def joins(member: Member, *args: Any, **named: Any) -> object:
        if member.layout.job == "short" and runs:
            joining.set()
            await may_join.wait()
            joined.set()
        return await join(member, *args, **named)

    async def short(context: ItemContext) -> None:
        runs.append(current_time())

    async def long(context: ItemContext) -> None:
        await sleep(20)

    app = ElasticJob("embedded://")
    app.add(short, name="short", cron="* * * * * ?")
    app.add(long, name="long", cron="0/30 * * * * ?", shutdown_timeout=60)
    monkeypatch.setattr("aioelasticjob.engine.life.join", joins)
    here = await virtual_cluster.start(app)
    await virtual_cluster.event(Began, job="long")
    end_life(here.app, SessionEnded("the session is over"), "short")
    await joining.wait()
    async with create_task_group() as tasks:
        tasks.start_soon(here.stop)
        await sleep(2)
        may_join.set()
        await joined.wait()
        before = len(runs)
    assert len(runs) == before
