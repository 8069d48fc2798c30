"""Whether this process is visibly one of several that run the same program, as the workers of a web server are."""

from __future__ import annotations

import multiprocessing
import sys


def what_runs_several() -> str | None:
    """Return what has started this process beside others of the same program; None if nothing shows that.

    A process that uvicorn has started to reload the program is the only one, and so is a program that is started alone.
    """
    if "gunicorn.arbiter" in sys.modules:  # its workers are forks of the process that has imported it
        return "gunicorn"
    if multiprocessing.parent_process() is None:
        return None
    # uvicorn and hypercorn pass their configuration to each process that they start
    config = getattr(multiprocessing.current_process(), "_kwargs", {}).get("config")
    workers = getattr(config, "workers", None)
    if not isinstance(workers, int):
        return "multiprocessing"
    if workers < 2 or getattr(config, "should_reload", False):
        return None
    package, _, _ = type(config).__module__.partition(".")
    return f"{package} with {workers} workers"
