"""A worker whose one item beats: ``python -m tests.support.lease_worker ADDRESS JOURNAL KIND EXITS``.

Each beat is a line of the journal: the id of the worker, and the time.  On SIGUSR1 the worker blocks its event loop.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from aioelasticjob import ElasticJob, ItemContext

BEAT = 0.02
BEATS = 1_500
"""Half a minute: longer than any session here."""
BLOCKED = 15.0
"""Seconds that the event loop is blocked."""


def beat(journal: str, worker: int) -> None:
    with Path(journal).open("a") as file:
        for _ in range(BEATS):
            file.write(f"{worker} {time.monotonic()}\n")
            file.flush()
            time.sleep(BEAT)


def in_a_thread(context: ItemContext) -> None:
    beat(context.job_parameter, os.getpid())


def in_a_process(context: ItemContext) -> None:
    beat(context.job_parameter, os.getppid())


async def in_the_loop(context: ItemContext) -> None:
    beat(context.job_parameter, os.getpid())


def main(address: str, journal: str, kind: str, exits: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(BLOCKED))
    app = ElasticJob(address, session_timeout=6, exit_at_lease_end=exits == "exits")
    settings: dict[str, Any] = {"name": "beats", "cron": "* * * * * ?", "failover": True, "job_parameter": journal}
    if kind == "script":
        app.script(command=[sys.executable, "-m", "tests.support.lease_worker", "beat", journal], **settings)
    elif kind == "process":
        app.add(in_a_process, executor="process", **settings)
    elif kind == "thread":
        app.add(in_a_thread, **settings)
    else:
        app.add(in_the_loop, **settings)
    app.run()


if __name__ == "__main__":
    if sys.argv[1] == "beat":
        beat(sys.argv[2], os.getppid())
    else:
        main(*sys.argv[1:])
