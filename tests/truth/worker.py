"""``python tests/truth/worker.py SETTINGS``: a worker whose job fires every second.  SETTINGS is a JSON object.

It is run by its path, and imports nothing of the tests: the package may be that of another directory.
"""

from __future__ import annotations

import json
import logging
import sys

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.clock import SystemClock


class OtherClock:
    """The clock of a host that is ahead of ours by so many seconds."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return SystemClock().now() + self._ahead


def main(given: str) -> None:
    """Run until killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    settings = json.loads(given)
    app = ElasticJob(
        settings["address"],
        event_store=settings["event_store"],
        metrics=settings["metrics"],
        clock=OtherClock(settings["ahead"]),
        session_timeout=settings["session_timeout"],
    )

    @app.job(
        "tick",
        cron="* * * * * ?",
        sharding_total_count=4,
        error_handler="webhook",
        error_handler_options={"url": settings["webhook"], "allow_unencrypted": "true"},
        alert_on=["failed", "nobody-there"],
    )
    async def tick(context: ItemContext) -> None:
        pass

    app.run()


if __name__ == "__main__":
    main(sys.argv[1])
