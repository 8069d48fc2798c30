"""One worker of a chaos run: ``python -m tests.chaos.worker ORDER`` runs both jobs until SIGTERM."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import uvloop
from anyio import create_task_group, open_signal_receiver, sleep

from aioelasticjob import ElasticJob, ItemContext, JobConfig
from aioelasticjob.errors import RegistryError
from aioelasticjob.events import EventReader, JobEvent, Misfired
from tests.support.worker_journal import Pen, TrueTime

QUICK: Final = JobConfig.build(
    job_name="rescued",
    cron="0/3 * * * * ?",
    sharding_total_count=8,
    failover=True,
    reconcile_interval=5,
    shutdown_timeout=5,
)
SLOW: Final = JobConfig.build(
    job_name="overlong", cron="0/2 * * * * ?", sharding_total_count=4, reconcile_interval=5, shutdown_timeout=5
)
JOBS: Final = (QUICK, SLOW)
WORK: Final = {QUICK.job_name: 1.2, SLOW.job_name: 3.5}
"""Seconds that a run takes on the average: the second job's runs are longer than its period."""
GAVE_UP: Final = 3
"""The exit code of a worker that the registry did not let start: it was not there, or refused."""
SPREAD: Final = (0.2, 1.8)
PANIC: Final = "panic"
"""While a file of this name lies beside the journal, every other handler ends with a ``Panic``."""


class Panic(BaseException):
    """What extensions raise, as PyO3's PanicException: no ``Exception``."""


class DidNotStart(Exception):
    """The registry was not there, or refused, before anything ran."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told."""

    process: str
    address: str
    journal: str
    epoch: float
    session_timeout: float
    hosts: str = ""
    """A file of names and addresses, which is read at each look-up; empty: names are the system's."""
    requests: str = ""
    """Where HTTP jobs send their requests."""
    event_store: str = ""

    def to_json(self) -> str:
        """Return the worker's argument."""
        return json.dumps(asdict(self))


class LookingUp(uvloop.Loop):
    """A loop that looks the names of a file up there, each time anew; it stands for a name server whose hosts move."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return the addresses of a name."""
        found = json.loads(Path(self._hosts).read_text()) if self._hosts else {}
        return await super().getaddrinfo(found.get(host, host), port, **options)


Declare: TypeAlias = Callable[[ElasticJob, Pen, Order], None]
Write: TypeAlias = Callable[[JobEvent, Pen], None]


def declare_jobs(app: ElasticJob, pen: Pen, order: Order) -> None:
    """Declare the two jobs of a chaos run."""
    panic = Path(order.journal).with_name(PANIC)
    for config in JOBS:
        settings = config.model_dump(exclude_unset=True, exclude={"job_name"})
        app.add(_handler(pen, WORK[config.job_name], panic), name=config.job_name, **settings)


def write_misfires(event: JobEvent, pen: Pen) -> None:
    """Write down an event of the jobs of a chaos run, whose handlers note begin and end of each run themselves."""
    if isinstance(event, Misfired):
        pen.misfire(event)


async def work(order: Order, declare: Declare = declare_jobs, write: Write = write_misfires) -> None:
    """Run the jobs and write down what happens, until told to stop.

    Raises:
        DidNotStart: The registry did not let the jobs start.
    """
    pen = Pen(Path(order.journal), order.process, TrueTime(order.epoch))
    app = ElasticJob(
        order.address,
        event_store=order.event_store or None,
        session_timeout=order.session_timeout,
        connection_timeout=20,
        base_sleep_time=0.2,
        max_sleep_time=1,
    )
    declare(app, pen, order)
    started, refused = False, None
    with app.events() as events, open_signal_receiver(signal.SIGTERM) as signals:
        async with create_task_group() as tasks:
            tasks.start_soon(_note, events, pen, write)
            try:
                async with app.running():
                    started = True
                    pen.started()
                    async for _ in signals:
                        break
            except RegistryError as error:
                if started:
                    raise
                refused = error
            tasks.cancel_scope.cancel()
        for event in events.take(len(events)):  # of the end
            write(event, pen)
    if refused is not None:  # raised here, because the task group would wrap it
        raise DidNotStart(str(refused)) from refused


def _handler(pen: Pen, mean: float, panic: Path) -> Callable[[ItemContext], Awaitable[None]]:
    async def handler(context: ItemContext) -> None:
        run, how = pen.begin(context), "cut off"
        try:
            await sleep(mean * random.uniform(*SPREAD))
            how = "completed"
            if panic.exists() and random.random() < 0.5:
                how = "failed"
                raise Panic("as an extension raises it")
        finally:
            pen.end(run, how)

    return handler


async def _note(events: EventReader, pen: Pen, write: Write) -> None:
    async for event in events:
        write(event, pen)


def run(declare: Declare, write: Write) -> None:
    """Run what the first argument, an ``Order`` as JSON, asks for, with the jobs that ``declare`` declares."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    order = Order(**json.loads(sys.argv[1]))
    try:
        with asyncio.Runner(loop_factory=lambda: LookingUp(order.hosts)) as runner:
            runner.run(work(order, declare, write))
    except DidNotStart as error:
        print(error, file=sys.stderr)
        sys.exit(GAVE_UP)


def main() -> None:
    """Run the two jobs of a chaos run."""
    run(declare_jobs, write_misfires)


if __name__ == "__main__":
    main()
