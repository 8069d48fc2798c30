"""A worker process: one job whose handler writes a journal.  ``python -m tests.support.journal_worker '{"address":
…}'``."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.events import JobEvent, Misfired
from tests.support.run_journal import JournalWriter


class Misfires:
    """Writes the misfires that the job reports into the journal at once; of many, the log has only some."""

    def __init__(self, pen: JournalWriter) -> None:
        self._pen = pen

    def put(self, event: JobEvent) -> None:
        if isinstance(event, Misfired):
            self._pen.write("misfire", slot=event.slot / 1000)


def facts(context: ItemContext) -> dict[str, object]:
    return {
        "instance": context.instance,
        "item": context.item,
        "slot": context.fire_time.timestamp(),
        "source": context.source.value,
        "fence": context.fence,
    }


def in_the_loop(pen: JournalWriter, work: float) -> Callable[[ItemContext], Any]:
    async def handler(context: ItemContext) -> None:
        pen.write("begin", **facts(context))
        try:
            await anyio.sleep(work)
        except BaseException:
            pen.write("cut", **facts(context))
            raise
        pen.write("end", **facts(context))

    return handler


def in_a_thread(pen: JournalWriter, work: float) -> Callable[[ItemContext], Any]:
    def handler(context: ItemContext) -> None:
        pen.write("begin", **facts(context))
        time.sleep(work)
        pen.write("end", **facts(context))

    return handler


def main(
    address: str, connection: dict[str, Any], journal: str, work: float, thread: bool, job: dict[str, Any]
) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    pen = JournalWriter(Path(journal))
    app = ElasticJob(address, **connection)
    app._events.attach(Misfires(pen))
    app.add((in_a_thread if thread else in_the_loop)(pen, work), name="job", **job)
    try:
        app.run()
    except ElasticJobError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
