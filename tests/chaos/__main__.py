"""A chaos run on real processes: ``python -m tests.chaos [--minutes M] [--seed N] [--kinds KIND]``.

Workers run two jobs on an ensemble of three ZooKeepers and write down every begin and end, while workers, members and
the network between them are killed, paused, restarted, cut, delayed and swallowed, and while operators change the
registry and spoil it.  Then the history is judged; the
page that is printed says what happened.  Exit code 1 on a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.chaos.actions import KINDS, rage
from tests.chaos.acts import act, judged
from tests.chaos.report import Played, page
from tests.chaos.stage import Stage
from tests.chaos.worker import JOBS
from tests.simulation.trace import describe
from tests.support.history import Entry
from tests.support.processes import workers
from tests.support.real_zookeeper import ensemble

WORKERS: Final = 4


def play(directory: Path, *, seconds: float, seed: int, kinds: Collection[str] = ()) -> Played:
    """Let chaos reign for so long, mend everything, and judge what happened; the history stays in ``directory``."""
    with ensemble(directory) as members, workers(directory) as starter:
        stage = Stage(members, starter, directory / "journal")
        span, unserved = asyncio.run(act(stage, WORKERS, lambda: rage(stage, random.Random(seed), seconds, kinds)))
    arranged, verdict = judged(stage, span, unserved)
    return Played(seed, seconds, JOBS, stage, arranged, span, verdict)


def main() -> None:
    """Play, print the page, and exit with 1 if a promise was broken."""
    asked = asked_for(sys.argv[1:])
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    directory = asked.keep or Path(mkdtemp(prefix="chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # it would tell of each member that is killed
    played = play(directory, seconds=60 * asked.minutes, seed=seed, kinds=asked.kinds)
    with suppress(BrokenPipeError):
        print(page(played))
    (directory / "history").write_text(trace(played.arranged.entries, played.span.start))
    print(f"history and logs: {directory}", file=sys.stderr)
    sys.exit(bool(played.verdict.violations))


def asked_for(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for; exit with 2 if it makes no sense."""
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long chaos reigns (10)")
    parser.add_argument("--seed", type=int, help="of the choice of actions; by default another one each time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for logs and history")
    parser.add_argument("--kinds", default="", metavar="KIND,…", help=f"only these: {', '.join(KINDS)}")
    asked = parser.parse_args(arguments)
    named = tuple(filter(None, asked.kinds.split(",")))
    if unknown := [kind for kind in named if kind not in KINDS]:
        parser.error(f"--kinds: no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    asked.kinds = named or KINDS
    return asked


def trace(entries: Sequence[Entry], origin: float) -> str:
    """Return a history as lines, with seconds since ``origin``."""
    return "".join(describe(entry, origin) + "\n" for entry in entries)


if __name__ == "__main__":
    main()
