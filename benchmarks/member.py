"""One worker process of the takeover benchmark: ``python -m benchmarks.member ADDRESS ITEMS SESSION_TIMEOUT``."""

from __future__ import annotations

import sys

from aioelasticjob import ElasticJob, ItemContext

JOB = "taken-over"


async def handler(context: ItemContext) -> None:
    """Do nothing: what is measured is who holds the item."""


def main() -> None:
    """Run until told to stop."""
    address, items, session_timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    app = ElasticJob(address, session_timeout=session_timeout)
    app.add(handler, name=JOB, cron="* * * * * ?", sharding_total_count=items)
    app.run()


if __name__ == "__main__":
    main()
