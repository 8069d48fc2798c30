"""A worker process with a chain of jobs that write one journal.

``python -m tests.support.chain_worker '{"address": …}'``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import JobEvent, Misfired


class ChainJournal:
    """Appends what happens to the jobs of a process, each line with one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, **facts: object) -> None:
        line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def put(self, event: JobEvent) -> None:
        if isinstance(event, Misfired):
            moments = {"first": event.first / 1000, "slot": event.slot / 1000}
            self.write("misfire", job=event.job, items=list(event.items), **moments, why=event.why)


def handler(name: str, journal: ChainJournal, work: float) -> Callable[[ItemContext], Awaitable[None]]:
    async def run(context: ItemContext) -> None:
        facts = {"job": name, "item": context.item, "slot": context.fire_time.timestamp()}
        journal.write("begin", **facts)
        await anyio.sleep(work)
        journal.write("end", **facts)

    return run


def main(address: str, connection: dict[str, Any], journal: str, work: float, jobs: dict[str, dict[str, Any]]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    written = ChainJournal(Path(journal))
    app = ElasticJob(address, **connection)
    app._events.attach(written)
    for name, settings in jobs.items():
        app.add(handler(name, written, work), name=name, **settings)
    app.run()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
