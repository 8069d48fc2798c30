"""The hundred jobs of a soak: ten of each kind, half of them with failover."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anyio import from_thread, sleep

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, JobConfig, Retry
from aioelasticjob.jobs.context import AnyContext, described
from tests.chaos.stage import ROOT
from tests.chaos.worker import Order
from tests.soak.journal import PROCESS, noted

EACH: Final = 10
"""Jobs of each kind."""
PERIOD: Final = 15
"""Seconds between two moments of a job."""
COMMON: Final = {"reconcile_interval": 5, "shutdown_timeout": 5}
RETRY: Final = Retry(attempts=3, backoff=0.1)
WORK: Final = (0.1, 0.8)
"""Seconds that a run takes, from and to."""


class OnPurpose(Exception):
    """An attempt that is to fail."""


@dataclass(frozen=True, slots=True)
class SoakJob:
    """A job, its kind, and its settings."""

    kind: str
    name: str
    settings: Mapping[str, Any]

    @property
    def config(self) -> JobConfig:
        """What the judges have to know of it."""
        flow = {"job_type": "DATAFLOW", "streaming": True} if self.kind == "stream" else {}
        return JobConfig.build(job_name=self.name, **flow, **self.settings)


Declare = Callable[[ElasticJob, SoakJob, Order], object]


def _noted(context: AnyContext) -> Any:
    return noted(json.loads(described(context)))


async def coroutine(context: ItemContext) -> None:
    """Work in the loop."""
    with _noted(context):
        await sleep(random.uniform(*WORK))


def in_thread(context: ItemContext) -> None:
    """Work in a thread, which gives way when it is asked to."""
    with _noted(context):
        end = time.monotonic() + random.uniform(*WORK)
        while time.monotonic() < end:
            time.sleep(0.05)
            from_thread.check_cancelled()


def in_process(context: ItemContext) -> None:
    """Work in a process of the application's."""
    with _noted(context):
        time.sleep(random.uniform(*WORK))


async def for_instance(context: InstanceContext) -> None:
    """Work once for all items that the instance holds."""
    with _noted(context):
        await sleep(random.uniform(*WORK))


async def retried(context: ItemContext) -> None:
    """Work, and fail every other time, but never at the last attempt."""
    with _noted(context):
        await sleep(random.uniform(*WORK))
        if context.attempt < RETRY.attempts and random.random() < 0.5:
            raise OnPurpose("failed on purpose")


async def batches(context: ItemContext) -> AsyncIterator[list[int]]:
    """Hand out three batches."""
    with _noted(context):
        for first in (0, 10, 20):
            await sleep(random.uniform(*WORK) / 3)
            yield list(range(first, first + 10))


async def _record(context: ItemContext, record: int) -> None:
    await sleep(0.001)


def _function(handler: Any, **more: Any) -> Declare:
    return lambda app, job, order: app.add(handler, name=job.name, **job.settings, **more)


def _flow(app: ElasticJob, job: SoakJob, order: Order, *, streaming: bool) -> None:
    app.dataflow(job.name, streaming=streaming, **job.settings)(batches).process(_record)


def _script(app: ElasticJob, job: SoakJob, order: Order) -> None:
    command = [sys.executable, "-m", "tests.soak.script"]
    app.script(job.name, command=command, directory=str(ROOT), **job.settings)


def _request(app: ElasticJob, job: SoakJob, order: Order, *, path: str, **more: Any) -> None:
    headers = {PROCESS.replace("_", "-"): PROCESS}
    app.http(job.name, url=f"{order.requests}/{path}", environment_headers=headers, **job.settings, **more)


KINDS: Final[Mapping[str, Declare]] = {
    "coroutine": _function(coroutine),
    "thread": _function(in_thread),
    "process": _function(in_process, executor="process"),
    "instance": _function(for_instance, per="instance"),
    "retried": _function(retried, retry=RETRY),
    "flow": partial(_flow, streaming=False),
    "stream": partial(_flow, streaming=True),
    "script": _script,
    "request": partial(_request, path="work"),
    "retried-request": partial(_request, path="flaky", retry=RETRY),
}


def _job(kind: str, number: int) -> SoakJob:
    moments = {"cron": f"{number}/{PERIOD} * * * * ?", "sharding_total_count": 1 + number % 2}
    return SoakJob(kind, f"{kind}-{number}", {**moments, "failover": number % 4 < 2, **COMMON})


SOAK_JOBS: Final = tuple(_job(kind, number) for kind in KINDS for number in range(EACH))


def declare(app: ElasticJob, order: Order) -> None:
    """Declare all jobs."""
    for job in SOAK_JOBS:
        KINDS[job.kind](app, job, order)
