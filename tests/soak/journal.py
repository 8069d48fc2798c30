"""A journal's lines from what a run tells other programs of itself; scripts import this, so it needs nothing else."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

ORDER: Final = "SOAK_ORDER"
"""The variable that holds the worker's ``Order``, for itself and all processes that it starts."""
PROCESS: Final = "SOAK_PROCESS"
"""The variable, and the header, that hold the name of the worker process."""
_numbers: Final = itertools.count()


@contextmanager
def noted(context: Mapping[str, Any], process: str = "", order: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Note when an attempt of a run begins and how it ends: ``completed``, ``failed``, ``gave way`` or ``cut off``."""
    order = order or json.loads(os.environ[ORDER])
    process = process or os.environ[PROCESS]
    run, how = f"{os.getpid()}.{next(_numbers)}", "cut off"
    items = context["shardingItems"] if "shardingItems" in context else [context["shardingItem"]]
    fences = context.get("fences", {})
    common: dict[str, object] = {
        "job": context["jobName"],
        "instance": context["instance"],
        "source": context["source"],
    }
    common["slot"] = round(datetime.fromisoformat(context["fireTime"]).timestamp() * 1000)
    file = os.open(order["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(what: str, of: int, **facts: object) -> None:
        at = time.monotonic() + order["epoch"]
        line = {"what": what, "at": at, "process": process, "run": f"{run}.{of}", **facts}
        os.write(file, json.dumps(line).encode() + b"\n")

    try:
        for item in items:
            fence = fences.get(str(item), context["fence"])
            write("begin", item, item=item, fence=fence, attempt=context["attempt"], **common)
        try:
            yield
            how = "completed"
        except GeneratorExit:  # a stream that is asked for no more
            how = "gave way"
            raise
        except Exception:
            how = "failed"
            raise
        finally:
            for item in items:
                write("end", item, how=how)
    finally:
        os.close(file)
