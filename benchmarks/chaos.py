"""A chaos run on real processes: ``python -m benchmarks.chaos [--minutes M] [--seed N] [--kinds KIND] [--beside DIR]``.

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
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from benchmarks.chaos_actions import GENTLE_KINDS, KINDS, rage
from benchmarks.chaos_checker import Span, judge
from benchmarks.chaos_history import arrange, read
from benchmarks.chaos_report import Played, page
from benchmarks.chaos_stage import LOOK_EVERY, Stage
from benchmarks.chaos_worker import JOBS
from tests.simulation.facts import Violation
from tests.simulation.history import Begun, Entry, Finished, Phase, describe, of_kind
from tests.support.processes import workers
from tests.support.real_zookeeper import ensemble

WORKERS: Final = 4
TIMEOUT: Final = 60.0
"""Seconds within which every item has to run again when everything is mended."""
ROUNDS: Final = 2
"""Runs of every item that show that it is served."""


def play(
    directory: Path, *, seconds: float, seed: int, kinds: Collection[str] = (), beside: Path | None = None
) -> Played:
    """Let chaos reign for so long, mend everything, and judge what happened; the history stays in ``directory``.

    With ``beside``, every other worker process runs the package of that checkout.
    """
    with ensemble(directory) as members, workers(directory) as starter:
        stage = Stage(members, starter, directory / "journal", beside)
        span, unserved = asyncio.run(_acts(stage, random.Random(seed), seconds, kinds))
    arranged = arrange(read(stage.journal), stage.deeds)
    verdict = judge(arranged.entries, JOBS, span, stage.excuses)
    verdict.violations += unserved
    verdict.violations += [Violation("nobody dies", span.stop, told) for told in stage.deaths]
    return Played(seed, seconds, JOBS, stage, arranged, span, verdict)


async def _acts(
    stage: Stage, rng: random.Random, seconds: float, kinds: Collection[str]
) -> tuple[Span, list[Violation]]:
    """Wait for calm, rage, wait for calm, leave; return what is to be judged, and what was not served in the end."""
    unserved: list[Violation] = []
    async with stage.seated(WORKERS), asyncio.TaskGroup() as tasks:
        replacing = tasks.create_task(stage.replace_the_dead())
        await _served(stage)
        start = stage.clock.now()
        stage.deeds.append(Phase(start, "chaos"))
        await rage(stage, rng, seconds, kinds)
        stop = stage.clock.now()
        stage.deeds.append(Phase(stop, "recovery"))
        try:
            await _served(stage)
        except TimeoutError:
            text = f"after {TIMEOUT:g} s of peace these have not run {ROUNDS} times: {_unserved(stage, stop)}"
            unserved.append(Violation("convergence", stop, text))
        replacing.cancel()
        async with asyncio.TaskGroup() as leaving:
            for seat in stage.seats:
                leaving.create_task(stage.leave(seat))
        stage.deeds.append(Phase(stage.clock.now(), "end"))
    return Span(start, stop), unserved


async def _served(stage: Stage) -> None:
    """Return when every item of every job has ended some runs that began from now on."""
    since = stage.clock.now()
    async with asyncio.timeout(TIMEOUT):
        while _unserved(stage, since):
            await asyncio.sleep(10 * LOOK_EVERY)


def _unserved(stage: Stage, since: float) -> list[str]:
    entries = read(stage.journal)
    ended = {one.run for one in of_kind(entries, Finished) if one.how == "completed"}
    runs = Counter((one.job, one.item) for one in of_kind(entries, Begun) if one.at >= since and one.run in ended)
    items = [(config.job_name, item) for config in JOBS for item in range(config.sharding_total_count)]
    return [f"{job}/{item}" for job, item in items if runs[job, item] < ROUNDS]


def main() -> None:
    """Play, print the page, and exit with 1 if a promise was broken."""
    asked = asked_for(sys.argv[1:])
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    directory = asked.keep or Path(mkdtemp(prefix="chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # it would tell of each member that is killed
    played = play(directory, seconds=60 * asked.minutes, seed=seed, kinds=asked.kinds, beside=asked.beside)
    with suppress(BrokenPipeError):
        print(page(played))
    (directory / "history").write_text(trace(played.arranged.entries, played.span.start))
    print(f"history and logs: {directory}", file=sys.stderr)
    sys.exit(bool(played.verdict.violations))


def asked_for(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for; exit with 2 if it makes no sense."""
    parser = argparse.ArgumentParser("python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long chaos reigns (10)")
    parser.add_argument("--seed", type=int, help="of the choice of deeds; by default another one each time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for logs and history")
    parser.add_argument("--kinds", default="", metavar="KIND,…", help=f"only these: {', '.join(KINDS)}")
    spared = ", ".join(kind for kind in KINDS if kind not in GENTLE_KINDS)
    beside_help = f"run every other worker from another checkout; without --kinds none of these happen: {spared}"
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help=beside_help)
    asked = parser.parse_args(arguments)
    named = tuple(filter(None, asked.kinds.split(",")))
    if unknown := [kind for kind in named if kind not in KINDS]:
        parser.error(f"--kinds: no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if asked.beside is not None and not (asked.beside / "aioelasticjob").is_dir():
        parser.error(f"--beside: {asked.beside} is no checkout: it has no folder aioelasticjob")
    asked.kinds = named or (KINDS if asked.beside is None else GENTLE_KINDS)
    asked.beside = asked.beside and asked.beside.resolve()
    return asked


def trace(entries: Sequence[Entry], origin: float) -> str:
    """Return a history as lines, with seconds since ``origin``."""
    return "".join(describe(entry, origin) + "\n" for entry in entries)


if __name__ == "__main__":
    main()
