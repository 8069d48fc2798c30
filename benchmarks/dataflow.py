"""Dataflows beside what one would write by hand and what others offer: records per second, processor time, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from benchmarks.flows import WAYS, Cost, Plan
from benchmarks.report import Figure

NAME: Final = "dataflow"
ROOT: Final = Path(__file__).parents[1]
BARE: Final = "asyncio.Queue"
SLOW: Final = {"aiostream": 20, "anyio memory stream": 4}
"""How many times fewer records these are given: they would take minutes."""
WAIT: Final = 0.01
ROUNDS: Final = 3
"""Runs of each, in turns; the one that took the least counts."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    yield from _handlers_that_do_nothing(quick=quick)
    for concurrency, records in ((64, 1_000),) if quick else ((1, 300), (64, 20_000), (1000, 100_000)):
        yield from _handlers_that_wait(concurrency, records, quick=quick)
    yield from _memory(quick=quick)


def _handlers_that_do_nothing(*, quick: bool) -> Iterator[Figure]:
    case, records = "handler does nothing, 64 at a time", 1_000 if quick else 500_000
    plans = [Plan(way, records // SLOW.get(way, 1)) for way in WAYS]
    costs = dict(zip(WAYS, _least(plans, quick=quick), strict=True))
    bare = _each(costs[BARE], plans[0])
    peers = [plan.records / costs[plan.way].seconds for plan in plans if not plan.way.startswith("dataflow")]
    for plan in plans:
        cost = costs[plan.way]
        yield Figure(NAME, case, f"{plan.way}: records per second", plan.records / cost.seconds, "")
        yield Figure(NAME, case, f"{plan.way}: processor time per record", _each(cost, plan), "µs")
    for way in ("dataflow, unordered", "dataflow, ordered"):
        share = _each(costs[way], plans[0]) / bare
        yield Figure(NAME, case, f"{way}: processor time, of asyncio.Queue's", share, "", "≤ 1.3")
    batches = plans[0].records / costs["dataflow, batches of 100"].seconds
    yield Figure(NAME, case, "batches of 100: records, of the fastest peer's", batches / max(peers), "", "≥ 20")


def _handlers_that_wait(concurrency: int, records: int, *, quick: bool) -> Iterator[Figure]:
    case = f"handler waits 10 ms, {concurrency:,} at a time"
    ways = ("dataflow, unordered", BARE, "anyio memory stream", "aiostream")
    plans = [Plan(way, max(concurrency, records // SLOW.get(way, 1)), concurrency, WAIT) for way in ways]
    costs = _least(plans, quick=quick)
    for plan, cost in zip(plans, costs, strict=True):
        yield Figure(NAME, case, f"{plan.way}: records per second", plan.records / cost.seconds, "")
        yield Figure(NAME, case, f"{plan.way}: processor time per record", _each(cost, plan), "µs")
    share = _each(costs[0], plans[0]) / _each(costs[1], plans[1])
    yield Figure(NAME, case, "dataflow: processor time, of asyncio.Queue's", share, "", "≤ 1.03")


def _memory(*, quick: bool) -> Iterator[Figure]:
    plan = Plan("dataflow, unordered", 1_000_000, fetched=1000)
    for records in (1_000,) if quick else (10_000, 1_000_000):
        grown = _move(replace(plan, records=records)).grown / 2**20
        yield Figure(NAME, "batches of 1,000", f"memory grown over {records:,} records", grown, "MB")


def _least(plans: list[Plan], *, quick: bool) -> list[Cost]:
    """Return the cheapest run of each plan; they take turns, so that a slow minute is everybody's."""
    rounds = [[_move(plan) for plan in plans] for _ in range(1 if quick else ROUNDS)]
    return [min(costs, key=lambda cost: cost.cpu) for costs in zip(*rounds, strict=True)]


def _move(plan: Plan) -> Cost:
    command = [sys.executable, "-m", "benchmarks.flows", json.dumps(asdict(plan))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{plan}: {done.stderr}")
    return Cost(**json.loads(done.stdout))


def _each(cost: Cost, plan: Plan) -> float:
    """Return microseconds of processor time per record."""
    return 1e6 * cost.cpu / plan.records
