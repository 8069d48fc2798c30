"""Members that move, on real processes: ``python -m tests.chaos.moving [--rounds N]``.

Workers run the two jobs of a chaos run on an ensemble of five ZooKeepers, which they know by name.  One after the other
each member is replaced by a new server with another number, another address and no data (dynamic reconfiguration), and
its name leads there from then on.  After a round none of the addresses that the workers started with is there any more.
Then the history is judged as that of a chaos run.  Exit code 1 on a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.chaos.acts import act, judged
from tests.chaos.moving_ensemble import MovingEnsemble, moving_ensemble
from tests.chaos.report import Played, page
from tests.chaos.stage import Stage
from tests.chaos.worker import JOBS
from tests.support.processes import workers

WORKERS: Final = 4
MEMBERS: Final = 5
BETWEEN: Final = 3.0
"""Seconds between two moves."""
KIND: Final = "move-member"


def play(directory: Path, *, rounds: int) -> Played:
    """Replace each member so many times, and judge what happened; the history stays in ``directory``."""
    with moving_ensemble(directory, MEMBERS) as members, workers(directory) as starter:
        surroundings = {"hosts": str(members.hosts)}
        journal = directory / "journal"
        stage = Stage(members, starter, journal, servers=members.names, surroundings=surroundings)
        span, unserved = asyncio.run(act(stage, WORKERS, lambda: _move(stage, members, rounds)))
    arranged, verdict = judged(stage, span, unserved)
    return Played(None, span.stop - span.start, JOBS, stage, arranged, span, verdict, "Moving members")


async def _move(stage: Stage, members: MovingEnsemble, rounds: int) -> None:
    for place in list(range(MEMBERS)) * rounds:
        stage.done[KIND] += 1
        stage.fault(KIND, detail=members.members[place].host)
        await members.move(place)
        stage.fault(KIND, over=True, detail=members.members[place].host)
        await asyncio.sleep(BETWEEN)


def main() -> None:
    """Play, print the page, and exit with 1 if a promise was broken."""
    parser = argparse.ArgumentParser("python -m tests.chaos.moving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="how often each member is replaced (2)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for logs and history")
    asked = parser.parse_args()
    directory = asked.keep or Path(mkdtemp(prefix="moving-"))
    directory.mkdir(parents=True, exist_ok=True)
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # it would tell of each member that ends
    played = play(directory, rounds=asked.rounds)
    with suppress(BrokenPipeError):
        print(page(played))
    print(f"history and logs: {directory}", file=sys.stderr)
    sys.exit(bool(played.verdict.violations))


if __name__ == "__main__":
    main()
