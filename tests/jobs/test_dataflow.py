"""Dataflows as they are declared: what makes no sense is refused at once, and named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
import tenacity

from aioelasticjob import Dataflow, Depends, ElasticJob, InvalidSetting, ItemContext, Retry
from aioelasticjob.testing import VirtualClock, run


async def fetch(context: ItemContext) -> list[int]:
    return [1]


async def process(context: ItemContext, record: int) -> None: ...


def declared(**settings: Any) -> tuple[ElasticJob, Dataflow]:
    app = ElasticJob("embedded://", clock=VirtualClock())
    return app, app.dataflow("orders", **settings)(fetch)


def test_a_dataflow_is_named_after_its_fetch_and_stays_callable() -> None:
    app = ElasticJob("embedded://")

    @app.dataflow(cron="* * * * * ?", streaming=True)
    async def orders(context: ItemContext) -> list[int]:
        return [1]

    assert isinstance(orders, Dataflow)
    assert orders.process(process) is process
    (config,) = app.jobs
    assert (config.job_name, config.job_type, config.streaming) == ("orders", "DATAFLOW", True)
    assert orders.config is config
    assert repr(orders) == "<dataflow orders>"

    async def main() -> list[int]:
        found: list[int] = await orders(None)
        return found

    assert run(main) == [1]


def test_a_missing_process_is_found_before_anything_runs() -> None:
    app, flow = declared()
    with pytest.raises(InvalidSetting, match=r"process = None: is missing in <dataflow orders>.*@fetch.process"):
        run(lambda: _enter(app))
    flow.process(process)


async def _enter(app: ElasticJob) -> None:
    async with app.running():
        raise AssertionError("it runs")


async def one(context: ItemContext) -> None: ...


async def three(context: ItemContext, record: int, other: int) -> None: ...


async def needing(context: ItemContext, record: int, store: Annotated[str, Depends(str)]) -> None: ...


async def generating(context: ItemContext, record: int) -> AsyncIterator[int]:
    yield record


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            one,
            "process = 'one': must be a function that takes context, record, and what is provided, as (context: ",
        ),
        (three, "missing a required argument: 'other'"),
        (generating, "is a generator: only fetch yields"),
        ("process", "process = 'process': must be a function"),
        (lambda: None, "too many positional arguments"),
    ],
)
def test_a_process_that_cannot_be_called_is_refused(wrong: Any, says: str) -> None:
    _, flow = declared()
    with pytest.raises(InvalidSetting) as refused:
        flow.process(wrong)
    assert says in str(refused.value)


def test_what_is_provided_does_not_count() -> None:
    _, flow = declared()
    assert flow.process(needing) is needing
    assert flow.needs[1] is not None


def test_dead_takes_the_error_too() -> None:
    _, flow = declared(batch_size=3)
    with pytest.raises(InvalidSetting, match="dead = 'process': must be a function that takes context, records, error"):
        flow.dead(process)
    assert flow.dead(three) is three


@pytest.mark.parametrize("role", ["process", "dead"])
def test_each_is_declared_once(role: str) -> None:
    _, flow = declared()
    handler = {"process": process, "dead": three}[role]
    declare: Callable[[Any], Any] = getattr(flow, role)
    declare(handler)
    with pytest.raises(InvalidSetting, match=f"{role} = .* has one already"):
        declare(handler)


def plain(context: ItemContext) -> Iterator[list[int]]:
    yield [1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (process, "fetch = 'process': must be a function that takes context"),
        (plain, "is a plain generator: write async def"),
        (7, "fetch = 7: must be a function"),
    ],
)
def test_a_fetch_that_cannot_be_called_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        ElasticJob("embedded://").dataflow("orders")(wrong)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"concurrency": 0}, "concurrency = 0: input should be greater than or equal to 1"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"max_failures": -1}, "max_failures = -1"),
        ({"record_timeout": 0}, "record_timeout = 0"),
        ({"concurency": 3}, "did you mean concurrency"),
        ({"retry": tenacity.Retrying()}, "must be a Retry, or one of tenacity's AsyncRetrying"),
        ({"retry": 3}, "retry = 3"),
        ({"job_type": "SIMPLE"}, "job_type = 'SIMPLE': follows from how the job is declared"),
        ({"cron": "nonsense"}, "cron"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        declared(**settings)
    assert says in str(refused.value)


def test_strategies_are_taken() -> None:
    for retry in (Retry(), tenacity.AsyncRetrying()):
        declared(retry=retry)


def test_the_decorator_needs_its_parentheses() -> None:
    with pytest.raises(InvalidSetting, match="with parentheses"):
        ElasticJob("embedded://").dataflow(fetch)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"streaming": True}, {"concurrency": 3}, {"prefetch": False}])
def test_a_simple_job_refuses_what_is_for_dataflows(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=r"is for jobs declared with @app.dataflow"):
        ElasticJob("embedded://").add(one, name="simple", **setting)


def test_two_jobs_of_one_name_are_refused() -> None:
    app, _ = declared()
    with pytest.raises(InvalidSetting, match="declared twice"):
        app.dataflow("orders")(fetch)
