"""One worker of a soak: ``main`` runs all jobs of ``benchmarks.soak_jobs`` until SIGTERM."""

from __future__ import annotations

import json
import os
import sys

from benchmarks.chaos_worker import run
from benchmarks.soak_jobs import declare
from benchmarks.soak_journal import ORDER, PROCESS


def main() -> None:
    """Run what the first argument, an ``Order`` as JSON, asks for."""
    os.environ[ORDER] = sys.argv[1]
    os.environ[PROCESS] = json.loads(sys.argv[1])["process"]
    run(lambda app, pen, order: declare(app, order))
