"""A dataflow of plain functions, declared at the top of a module as users do; processes of its own import this."""

from __future__ import annotations

import multiprocessing
import os

from aioelasticjob import ElasticJob, ItemContext

app = ElasticJob("embedded://")


@app.dataflow(cron="* * * * * ?", executor="process")
def pids(context: ItemContext) -> list[int]:
    """Hand out our process and its parent; here, too, our own name means the whole dataflow."""
    return [os.getpid(), os.getppid()]


@pids.process
def is_a_child(context: ItemContext, record: int) -> bool:
    return multiprocessing.parent_process() is not None and record in (os.getpid(), os.getppid())
