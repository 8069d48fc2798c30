"""One process of a crew: ``python -m benchmarks.crew_member ORDER`` runs one job every second until SIGTERM.

Its handler writes down that it was called.  The item that the job's parameter names is held until its process dies.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from anyio import sleep_forever

from aioelasticjob import ElasticJob, FireSource, ItemContext
from tests.support.worker_journal import Pen, TrueTime

JOB: Final = "crew"
HELD: Final = "held"
"""Written at once of a run that is not going to end."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a member is told."""

    address: str
    items: int
    session_timeout: float
    journal: str
    epoch: float

    def to_json(self) -> str:
        """Return the member's argument."""
        return json.dumps(asdict(self))


def main() -> None:
    """Run until told to stop."""
    order = Order(**json.loads(sys.argv[1]))
    pen = Pen(Path(order.journal), str(os.getpid()), TrueTime(order.epoch))
    app = ElasticJob(order.address, session_timeout=order.session_timeout)

    async def handler(context: ItemContext) -> None:
        run = pen.begin(context)
        if context.job_parameter == str(context.item) and context.source is not FireSource.FAILOVER:
            pen.end(run, HELD)
            await sleep_forever()

    app.add(handler, name=JOB, cron="* * * * * ?", sharding_total_count=order.items, failover=True)
    app.run()


if __name__ == "__main__":
    main()
