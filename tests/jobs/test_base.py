from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext
from aioelasticjob.config.job import JobConfig
from aioelasticjob.engine.dataflow import DataflowEngine
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.base import Job, instance_context, item_context
from aioelasticjob.jobs.dataflow import Dataflow
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from tests.support.simulated_jobs import SimulatedJobs, simulate

CONFIG = JobConfig.build(job_name="job", sharding_item_parameters={0: "Beijing"})


async def good(context: object) -> None: ...
def plain(context: object) -> None: ...
async def none() -> None: ...
async def two(context: object, more: object) -> None: ...
async def optional(context: object, more: object = None) -> None: ...
async def generator(context: object) -> AsyncIterator[int]:
    yield 1


class Called:
    async def __call__(self, context: object) -> None: ...

    async def method(self, context: object) -> None: ...


@pytest.mark.parametrize(
    ("handler", "blocking"),
    [
        (good, False),
        (plain, True),
        (optional, False),
        (Called(), False),
        (Called().method, False),
        (functools.partial(two, more=1), False),
        (print, True),
    ],
)
def test_what_can_be_called_with_one_context_is_a_handler(handler: Any, blocking: bool) -> None:
    assert Job.declare(CONFIG, handler).blocking is blocking


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (none, r"must take one context.*: write async def none\(context: ItemContext\)$"),
        (lambda: None, r"must take one context.*, as \(context: ItemContext\): too many positional"),
        (Called.method, r"is a method without its object: write app\.add\(object\.method\) in place of the decorator"),
        (two, "must take one context.*'more'"),
        ("report", "must be a function"),
        (None, "must be a function"),
        (generator, "is a generator"),
    ],
)
def test_what_cannot_is_refused_when_it_is_declared(handler: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says) as caught:
        Job.declare(CONFIG, handler)
    assert caught.value.setting == "handler"


def test_a_run_that_is_not_recorded_has_no_fence() -> None:
    seen = {0: VersionedRecord(Record(), None)}
    claim = Claim(Fire(1_000, FireSource.SCHEDULE), "me", 1, seen, {}, is_recorded=False)
    context = instance_context(CONFIG, claim, None)  # type: ignore[arg-type]  # not asked for here
    assert (context.fences, context.fence, context.monitor_execution) == ({}, 0, False)


def test_the_contexts_log_carries_the_run_and_keeps_the_callers_fields(caplog: pytest.LogCaptureFixture) -> None:
    claim = Claim(Fire(1_000, FireSource.SCHEDULE), "me", 1, {0: VersionedRecord(Record(), 0, 17)}, {0: Record()})
    context = item_context(CONFIG, claim, 0, None)  # type: ignore[arg-type]  # not asked for here
    with caplog.at_level(logging.INFO):
        context.log.info("indexed", extra={"files": 3})
    (record,) = caplog.records
    assert (record.__dict__["job"], record.__dict__["item"], record.__dict__["files"]) == ("job", 0, 3)
    assert record.__dict__["task_id"] == context.task_id == "job@-@0@-@READY@-@me@-@19700101T000001Z.11"
    assert record.__dict__["run_id"] == context.run_id == "job@19700101T000001Z"
    assert (context.parameter, context.fence) == ("Beijing", 17)


@pytest.mark.parametrize("monitored", [True, False])
@pytest.mark.parametrize("per", ["item", "instance"])
def test_a_context_says_whether_its_run_is_monitored(per: str, monitored: bool) -> None:
    seen: list[bool] = []

    async def note(context: ItemContext | InstanceContext) -> None:
        seen.append(context.monitor_execution)

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(note, cron="0/10 * * * * ?", per=per, monitor_execution=monitored).running():
            await here.until(11)
        assert seen == [monitored]

    simulate(scene)


@pytest.mark.parametrize("listeners", [5, [5]])
def test_what_is_no_list_of_listeners_is_refused_by_name(listeners: Any) -> None:
    async def handler(context: ItemContext) -> None: ...

    with pytest.raises(InvalidSetting, match="a list of JobListener and OnceListener"):
        ElasticJob("embedded:///x").add(handler, cron="* * * * * ?", listeners=listeners)
    with pytest.raises(InvalidSetting, match="a list of JobListener and OnceListener"):
        ElasticJob("embedded:///x").dataflow("flow", cron="* * * * * ?", listeners=listeners)(handler)


@pytest.mark.parametrize("handler", [good, lambda context: None, functools.partial(lambda context: None)])
def test_the_declared_executor_is_kept_if_the_handler_cannot_be_sent_to_a_process(handler: Any) -> None:
    changed = CONFIG.model_copy(update={"executor": "process", "timeout": 5})
    assert Job.declare(CONFIG, handler).fitted(changed) == changed.model_copy(update={"executor": "thread"})
    assert Job.declare(CONFIG, plain).fitted(changed) is changed


def test_the_declared_executor_is_kept_if_a_function_of_a_dataflow_cannot_be_sent_to_a_process() -> None:
    for process, executor in ((lambda context, record: None, "thread"), (divmod, "process")):
        flow = Dataflow(CONFIG, good)
        flow.process(process)
        job = Job(CONFIG, good, True, engine=DataflowEngine(flow))
        assert job.fitted(CONFIG.model_copy(update={"executor": "process"})).executor == executor
