"""One worker of a soak: ``main`` runs all jobs of ``tests.soak.jobs`` until SIGTERM."""

from __future__ import annotations

import json
import os
import sys

from aioelasticjob.events import Ended, JobEvent
from tests.chaos.worker import run, write_misfires
from tests.soak.jobs import declare
from tests.soak.journal import ORDER, PROCESS
from tests.support.worker_journal import Pen


def main() -> None:
    """Run what the first argument, an ``Order`` as JSON, asks for."""
    os.environ[ORDER] = sys.argv[1]
    os.environ[PROCESS] = json.loads(sys.argv[1])["process"]
    run(lambda app, pen, order: declare(app, order), _write)


def _write(event: JobEvent, pen: Pen) -> None:
    write_misfires(event, pen)
    if isinstance(event, Ended):  # which a handler that was cut off before it began could not note
        pen.outcome(event)
