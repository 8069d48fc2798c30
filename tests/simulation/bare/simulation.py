"""Rules, claims and effects under fire, without wire and loop: ``python -m tests.simulation.bare``.

A seed decides which process takes the next step, what it sees, what is broken and what operators do.  So thousands of
orders of the same few transactions are tried in a minute; what wires and clocks do is left to the simulation of whole
clusters (``tests.simulation``).
"""

from __future__ import annotations

import argparse
import gc
import logging
import secrets
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from unittest import mock

from aioelasticjob.core import effects
from aioelasticjob.core.commands import ClaimItems
from aioelasticjob.engine import claims
from aioelasticjob.engine.claims import Claims, SentClaim
from aioelasticjob.testing.loop import run_on
from tests.simulation.bare.faults import happen
from tests.simulation.bare.loop import SteppedLoop
from tests.simulation.bare.world import World

START = 1_000_000_000.0
"""Where the clocks begin, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class BareVerdict:
    """What came of a seed; ``cost`` in seconds of CPU."""

    seed: int
    broken: tuple[str, ...]
    trace: tuple[str, ...]
    steps: int
    runs: int
    rescues: int
    cost: float

    def report(self) -> str:
        """Return what went wrong, and how to see it again."""
        lines = [f"seed {self.seed} breaks {len(self.broken)} promises:", *(f"  {one}" for one in self.broken[:10])]
        replay = f"replay: python -m tests.simulation.bare --seeds {self.seed} --trace"
        return "\n".join([*lines, replay])


def live(seed: int, *, traced: bool = False) -> BareVerdict:
    """Play a seed and judge it; of its world nothing is left afterwards."""
    try:
        return _live(seed, traced=traced)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a task was to do that was cancelled before its first step
            gc.collect()
            gc.collect()  # what the first one finalized, and so could not remove: nothing else looks at it again


def _live(seed: int, *, traced: bool) -> BareVerdict:
    began, dice = time.process_time(), Random(f"bare {seed}")
    small = dice.random() < 0.3
    loop = SteppedLoop(dice, start=START + dice.random())
    worlds, broken = list[World](), list[str]()

    async def happening() -> None:
        worlds.append(World(loop, dice, traced=traced))
        await worlds[0].live(happen)

    with (
        mock.patch.object(effects, "MAX_OPERATIONS", 6 if small else effects.MAX_OPERATIONS),
        mock.patch.object(claims, "ITEMS_AT_ONCE", 2 if small else claims.ITEMS_AT_ONCE),
        mock.patch.object(Claims, "send", _noting(worlds, Claims.send)),
    ):
        try:
            run_on(loop, happening, seed)
        except Exception:
            broken.append(f"the world goes on: {traceback.format_exc()}")
    judge, cost = worlds[0].judge, time.process_time() - began
    trace, broken = tuple(worlds[0].trace or ()), judge.broken + broken
    return BareVerdict(seed, tuple(broken), trace, loop.steps, judge.runs, judge.rescues, cost)


def _noting(worlds: list[World], send: Callable[..., SentClaim]) -> Callable[..., SentClaim]:
    """Return what sends claims, and shows the judge which view they are decided on."""

    def noted(self: Claims, command: ClaimItems, *settling: object) -> SentClaim:
        worlds[0].judge.decided_on[self._member.incarnation] = command.view
        return send(self, command, *settling)

    return noted


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds as the command line asks and return the exit code."""
    given = _parser().parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    if given.seeds == "random":
        start = secrets.randbelow(10**9)
        print(f"seeds {start}:{start + given.count}")
        seeds = range(start, start + given.count)
    else:
        seeds = range(int(first), int(last) if last else int(first) + 1)
    logging.disable(logging.CRITICAL)  # instances under fire have much to say
    gc.freeze()  # so that the collections at the end of each seed look at its world only
    began, failed, verdicts = time.perf_counter(), 0, []
    with ProcessPoolExecutor(given.jobs) as pool:
        play = partial(live, traced=given.trace)
        for verdict in map(play, seeds) if given.jobs == 1 else pool.map(play, seeds, chunksize=20):
            verdicts.append((verdict.cost, verdict.steps, verdict.runs, verdict.rescues))
            sys.stdout.writelines(f"{line}\n" for line in verdict.trace)
            if verdict.broken:
                failed += 1
                print(verdict.report(), flush=True)
    costs, steps, runs, rescues = map(sum, zip(*verdicts, strict=True))
    print(
        f"{len(seeds)} seeds, {failed} failed; {steps} steps, {runs} runs, {rescues} rescues in"
        f" {time.perf_counter() - began:.1f} s; {1000 * costs / len(seeds):.1f} ms of CPU per seed"
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.bare", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", metavar="A[:B]", help="the seeds A to B-1, or 'random'")
    parser.add_argument("--count", type=int, default=1000, help="how many random seeds")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes to use")
    parser.add_argument("--trace", action="store_true", help="print every step")
    return parser
