"""Whatever users' code raises, wherever it is called: it has failed, and nothing else ends."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio import sleep
from pydantic import field_validator

from aioelasticjob import (
    Depends,
    ElasticJob,
    InstanceContext,
    ItemContext,
    JobListener,
    OnceListener,
    Outcome,
    Retry,
    operations,
)
from aioelasticjob.core import strategies
from aioelasticjob.core.layout import Layout
from aioelasticjob.error_handlers import Failure, Options
from aioelasticjob.errors import NotAnException
from aioelasticjob.events import Ended, Events, Misfired, Refused
from aioelasticjob.ground.limited_log import INTERVAL
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import Kind
from aioelasticjob.jobs.kinds import Options as KindOptions
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import VirtualCluster, run, simulated
from tests.engine.dataflow_runs import DataflowRun, dataflow, run_dataflow
from tests.engine.test_execution import execution_of
from tests.error_handlers.failures import delivered_by
from tests.support.simulated_jobs import SimulatedJobs, simulate

Raise = Callable[[], None]
Declare = Callable[[ElasticJob, dict[str, Any], Raise], None]
CRON = "0 * * * * ?"


class Panic(BaseException):
    """What PyO3 raises when Rust panics."""


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise Panic


class Unprintable(Exception):
    """An error whose class keeps Python from printing it: ``__getattr__`` raises no AttributeError."""

    def __getattr__(self, name: str) -> object:
        return {"code": 5}[name]


ERRORS: dict[str, Callable[[], BaseException]] = {
    "panic": lambda: Panic("index out of bounds"),
    "exit": lambda: SystemExit(3),
    "cancelled": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("several", [Panic(), ValueError()]),
    "mute": Mute,
    "unprintable": Unprintable,
    "generator exit": GeneratorExit,
}


async def nothing(context: Any, *given: object, **named: object) -> None: ...


def handler(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext) -> None:
        await anyio.sleep(1)
        fail()

    app.add(bad, **settings)


def handler_of_two_items(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    handler(app, {**settings, "sharding_total_count": 2}, fail)


def handler_within_a_limit(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    handler(app, {**settings, "timeout": 10}, fail)


def handler_of_an_instance(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: InstanceContext) -> None:
        fail()

    app.add(bad, **settings, per="instance")


def plain_handler(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    def bad(context: ItemContext) -> None:
        fail()

    app.add(bad, **settings)


def asking_for(provider: Callable[..., Any]) -> Callable[..., Any]:
    asked = Depends(provider)

    async def good(context: ItemContext, given: object = asked) -> None: ...

    return good


def provider(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad() -> None:
        fail()

    app.add(asking_for(bad), **settings)


def set_up(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad() -> AsyncIterator[None]:
        fail()
        yield

    app.add(asking_for(bad), **settings)


def tear_down(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad() -> AsyncIterator[None]:
        yield
        fail()

    app.add(asking_for(bad), **settings)


def plain_tear_down(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    def bad() -> Iterator[None]:
        try:
            yield
        finally:
            fail()

    app.add(asking_for(bad), **settings)


def before(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: InstanceContext) -> None:
        fail()

    app.add(nothing, **settings, listeners=[JobListener(before=bad)])


def before_once(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: InstanceContext) -> None:
        fail()

    app.add(nothing, **settings, listeners=[OnceListener(before=bad)])


def after(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: InstanceContext) -> None:
        fail()

    app.add(nothing, **settings, listeners=[JobListener(after=bad)])


def after_once(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: InstanceContext) -> None:
        fail()

    app.add(nothing, **settings, listeners=[OnceListener(after=bad)])


def fetch(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext) -> None:
        fail()

    app.dataflow(**settings)(bad).process(nothing)


def generator(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext) -> AsyncIterator[list[int]]:
        yield [1]
        fail()

    app.dataflow(**settings)(bad).process(nothing)


def closed_generator(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext) -> AsyncIterator[list[int]]:
        try:
            yield [1]
            yield [1]
        finally:
            fail()

    async def fails(context: ItemContext, record: int) -> bool:
        return False

    app.dataflow(**settings, max_failures=0)(bad).process(fails)


def lazy_batch(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    class Lazy(list[int]):
        def __iter__(self) -> Iterator[int]:
            fail()
            return iter(())

    async def lazy(context: ItemContext) -> list[int]:
        return Lazy([1])

    app.dataflow(**settings)(lazy).process(nothing)


async def one(context: ItemContext) -> list[int]:
    return [1]


def process(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext, record: int) -> None:
        fail()

    app.dataflow(**settings)(one).process(bad)


def retry(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    class Bad:
        async def __call__(self) -> None: ...

        def wraps(self, call: Any) -> Any:
            fail()

    app.dataflow(**settings, retry=Bad())(one).process(nothing)


def dead(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def fails(context: ItemContext, record: int) -> bool:
        return False

    async def bad(context: ItemContext, record: int, error: Exception) -> None:
        fail()

    flow = app.dataflow(**settings)(one)
    flow.process(fails)
    flow.dead(bad)


def strategy(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    def bad(given: strategies.AssignmentInput) -> strategies.Assignment:
        fail()
        return {}

    strategies._BUILT_IN["bad"] = bad  # type: ignore[index]  # taken away by the fixture
    app.add(nothing, **settings, sharding_strategy="bad", sharding_total_count=2)


def own_kind(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    async def bad(context: ItemContext, options: KindOptions) -> None:
        fail()

    kinds.find = lambda _: Kind(KindOptions, bad)  # type: ignore[assignment]  # put back by the fixture
    app.kind("bad", **settings)


def validators_of_a_kind(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
    declared = False

    class Bad(KindOptions):
        where: str

        @field_validator("where")
        @classmethod
        def _is_there(cls, where: str) -> str:
            if declared:
                fail()
            return where

    async def run(context: ItemContext, options: Bad) -> None: ...

    kinds.find = lambda _: Kind(Bad, run)  # type: ignore[assignment]  # put back by the fixture
    app.kind("bad", **settings, where="here")
    declared = True


FAILED, COMPLETED = Outcome.FAILED, Outcome.COMPLETED
PLACES: list[tuple[Declare, Outcome]] = [
    *((place, FAILED) for place in (handler, handler_of_two_items, handler_within_a_limit, handler_of_an_instance)),
    *((place, FAILED) for place in (plain_handler, provider, set_up, tear_down, plain_tear_down, before, before_once)),
    *((place, COMPLETED) for place in (after, after_once)),
    *((place, FAILED) for place in (fetch, generator, closed_generator, lazy_batch, retry)),
    *((place, COMPLETED) for place in (process, dead)),
    (own_kind, FAILED),
]


@contextmanager
def as_it_was() -> Iterator[None]:
    """Forget the strategies and kinds of a test."""
    find, known = kinds.find, dict(strategies._BUILT_IN)
    strategies.find.cache_clear()
    try:
        yield
    finally:
        kinds.find = find
        strategies._BUILT_IN.clear()  # type: ignore[attr-defined]
        strategies._BUILT_IN.update(known)  # type: ignore[attr-defined]
        strategies.find.cache_clear()


def lived(declare: Declare, fail: Raise, **settings: Any) -> list[Ended]:
    """Run a job that misbehaves beside one that does not, on two instances with failover, and return the former's ends.

    The two instances and the other job have to go on as if nothing were.
    """
    app = ElasticJob("embedded://")
    cluster: list[VirtualCluster] = []

    async def main(here: VirtualCluster) -> None:
        cluster.append(here)
        app.add(nothing, name="good", cron=CRON, sharding_total_count=2)
        declare(app, {"name": "bad", "cron": CRON, "failover": True, **settings}, fail)
        for _ in range(2):
            await here.start(app)
        await here.until(here.now + timedelta(minutes=4, seconds=30))
        assert [(one.alive, one.failure) for one in here.instances] == [(True, None)] * 2
        for name in ("good", "bad"):
            assert len((await operations.job(here._session, name, now=0)).instances) == 2

    with as_it_was():
        simulated(main)(VirtualCluster())
    events = cluster[0].events
    assert [one.outcome for one in events if isinstance(one, Ended) and one.job == "good"] == [COMPLETED] * 8
    assert not any(isinstance(one, Misfired | Refused) for one in events)
    return [one for one in events if isinstance(one, Ended) and one.job == "bad"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("declare", "outcome"), PLACES, ids=[place.__name__ for place, _ in PLACES])
def test_whatever_is_raised_is_the_outcome_of_that_call(
    declare: Declare, outcome: Outcome, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Failure] = []

    async def hear(failure: Failure, options: Options) -> None:
        heard.append(failure)

    def fail() -> None:
        raise ERRORS[error]()

    delivered_by(monkeypatch, hear=hear)
    ends = lived(declare, fail, error_handler="hear")
    assert {one.outcome for one in ends} == {outcome}
    assert len(ends) == (8 if declare is handler_of_two_items else 4)
    assert len(heard) == len(ends)
    assert all(one.subject.startswith("bad: item" if not one.part else f"bad: {one.part} of item") for one in heard)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_handler_that_fails_is_in_the_log(
    error: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def bad(failure: Failure, options: Options) -> None:
        raise ERRORS[error]()

    def fail() -> None:
        raise ValueError("no luck")

    delivered_by(monkeypatch, bad=bad)
    assert [one.outcome for one in lived(handler, fail, error_handler="bad")] == [FAILED] * 4
    assert caplog.text.count("error handler bad failed") == 4


@pytest.mark.parametrize("error", ERRORS)
def test_a_strategy_that_fails_ends_nobodys_coordination_and_is_named_once_a_minute(
    error: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ERRORS[error]()

    assert [one.outcome for one in lived(strategy, fail)] == [COMPLETED] * 8
    assert 1 <= caplog.text.count("bad: the sharding strategy bad failed") <= 4  # each process, once a minute
    assert re.search(r"\d+ more lines? (was|were) left out, about 1 job: sharding strategies failed", caplog.text)


@pytest.mark.parametrize("error", ERRORS)
def test_validators_of_a_kind_that_fail_end_no_coordination(error: str) -> None:
    armed, failed = False, 0

    def fail() -> None:
        nonlocal failed
        if armed:
            failed += 1
            raise ERRORS[error]()

    app = ElasticJob("embedded://")

    async def main(here: VirtualCluster) -> None:
        nonlocal armed
        validators_of_a_kind(app, {"name": "bad", "cron": CRON}, fail)
        app.add(nothing, name="good", cron=CRON)
        instance = await here.start(app)
        status = await here.settled("bad")
        armed = True
        change = Set(Layout("bad").config, status.config.changed(description="new").to_json(), -1)
        await instance.session.commit([change], incarnation=instance.session.incarnation)
        for _ in range(3):
            (end,) = await here.next_fire("good")
            assert end.outcome is COMPLETED
        assert (instance.alive, instance.failure) == (True, None)
        assert failed
        armed = False

    with as_it_was():
        simulated(main)(VirtualCluster())


async def cancels_itself(context: ItemContext, record: object = None) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def leaves_a_scope_behind(context: ItemContext, record: object = None) -> None:
    anyio.CancelScope().__enter__()


async def leaves_a_cancelled_group_behind(context: ItemContext, record: object = None) -> None:
    group = await anyio.create_task_group().__aenter__()
    group.cancel_scope.cancel()
    await anyio.sleep(1)


BEHIND = [cancels_itself, leaves_a_scope_behind, leaves_a_cancelled_group_behind]


@pytest.mark.parametrize("limits", [{}, {"timeout": 10}, {"attempt_timeout": 10}, {"retry": Retry(2)}], ids=str)
@pytest.mark.parametrize("bad", BEHIND)
def test_what_a_handler_leaves_behind_in_our_task_ends_nothing(bad: Any, limits: dict[str, Any]) -> None:
    def declare(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
        app.add(bad, **settings, **limits)

    ended = lived(declare, lambda: None)
    assert len(ended) == 4
    assert not {one.outcome for one in ended} & {Outcome.TIMED_OUT, Outcome.STOPPED}


@pytest.mark.parametrize("bad", BEHIND)
def test_what_process_leaves_behind_keeps_no_other_record_from_its_end(bad: Any) -> None:
    async def three(context: ItemContext) -> list[int]:
        return [1, 2, 3]

    def declare(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
        app.dataflow(**settings, concurrency=1)(three).process(bad)

    assert [one.outcome for one in lived(declare, lambda: None)] == [COMPLETED] * 4


def test_dead_is_shown_why_a_record_failed() -> None:
    shown: list[Exception] = []

    async def panics(context: ItemContext, record: int) -> None:
        raise Panic

    async def show(context: ItemContext, record: int, error: Exception) -> None:
        shown.append(error)

    run_dataflow(DataflowRun(dataflow(), one, panics, show))
    (error,) = shown
    assert isinstance(error, NotAnException)
    assert isinstance(error.__cause__, Panic)


@pytest.mark.parametrize("error", ERRORS)
def test_an_engine_that_fails_has_failed_its_items(error: str) -> None:
    class Bad:
        def check(self) -> bool:
            return False

        async def __call__(self, execution: Any) -> None:
            execution.outcomes[0] = Outcome.COMPLETED
            raise ERRORS[error]()

    async def main() -> dict[int, Outcome]:
        from aioelasticjob.config.job import JobConfig
        from aioelasticjob.engine.execution import execute

        config = JobConfig.build(job_name="job", sharding_total_count=2)
        execution = execution_of(config, lambda _: None, 0, 1)
        execution.job = Job(config, nothing, False, engine=Bad())
        await execute(execution)
        return execution.outcomes

    assert run(main) == {0: Outcome.COMPLETED, 1: Outcome.FAILED}


def test_an_observer_that_fails_misses_the_event_and_the_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def put(self, event: object) -> None:
            raise Panic("full")

    async def main() -> None:
        events = Events()
        events.attach(Bad())
        with events.listen() as listener:
            for _ in range(4):
                events.put(Refused("job", "me", "why"))
        assert len(listener) == 4
        await sleep(INTERVAL)

    run(main)
    text = "the listener Bad failed to take an event, which it does not get again"
    assert [line for line in caplog.messages if "Bad" in line] == [
        f"{text}: NotAnException: it raised Panic: full",
        f"3 more lines were left out: {text}",
    ]


def test_raise_lets_out_an_error_that_is_an_exception() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def bad(context: ItemContext) -> None:
            sys.exit(3)

        with pytest.raises(NotAnException, match="the handler raised SystemExit: 3"):
            async with here.app(bad, cron=CRON, error_handler="raise").running():
                await here.until(90)

    simulate(scene)


@pytest.mark.parametrize("kind", ["handler", "dataflow"])
def test_a_provider_may_keep_a_scope_open_for_as_long_as_the_run_takes(kind: str) -> None:
    kept: list[str] = []

    async def group() -> AsyncIterator[None]:
        async def watch() -> None:
            kept.append("begins")
            await anyio.sleep(2)
            kept.append("ends")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            yield

    asked = Depends(group)

    async def takes_a_while(context: ItemContext, given: object = asked) -> None:
        await anyio.sleep(1)

    async def fetches(context: ItemContext, given: object = asked) -> list[int] | None:
        await anyio.sleep(1)
        return None

    def declare(app: ElasticJob, settings: dict[str, Any], fail: Raise) -> None:
        if kind == "handler":
            app.add(takes_a_while, **settings, timeout=10)
        else:
            app.dataflow(**settings)(fetches).process(nothing)

    assert [one.outcome for one in lived(declare, lambda: None)] == [COMPLETED] * 4
    assert kept == ["begins", "ends"] * 4
