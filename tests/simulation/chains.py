"""Jobs that follow each other in a simulated cluster, and ways to break that on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from unittest import mock

from aioelasticjob.core import account, records
from aioelasticjob.core.upstreams import Upstream, Upstreams
from aioelasticjob.model import End, Record
from tests.simulation.cluster import JobPlan

KINDS = ("crash", "pause", "drop", "delay", "reset", "expire", "restart-registry", "leave", "depose")
"""The faults of a cluster with chains: no operator changes what a job follows, or switches it off."""
LENGTHS = (3, 4, 5)


def chained(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[JobPlan, ...]:
    """Return a chain of jobs: the first has a schedule, each other one follows the one before it, some a second one."""
    dice = Random(f"chains {seed}")
    first = replace(jobs[0], failing=dice.choice([0.0, 0.1]), longest=dice.choice([0.3, 0.6, 1.5]))
    chain = [first]
    for number in range(1, dice.choice(LENGTHS)):
        after = [chain[-1].name]
        if number > 1 and dice.random() < 0.3:
            after.append(first.name)
        settings = dict(first.settings) | {
            "cron": None,
            "after": after,
            "after_outcome": "any" if dice.random() < 0.2 else "completed",
            "misfire": dice.random() < 0.7,
            "catch_up": dice.choice([0, 0, 20]),
        }
        name = f"follower{number}"
        items = dice.randint(1, 5)
        chain.append(replace(first, name=name, items=items, settings=tuple(settings.items()), failing=0.0))
    return tuple(chain)


# Defects.


def follow_the_fastest_item() -> AbstractContextManager[object]:
    """Take a moment as ended once one item of an upstream has ended it."""

    def ended(self: Upstream) -> int:
        return 0 if self.problem else max((told[-1].last if told else 0 for told in self.ends.values()), default=0)

    return mock.patch.object(Upstream, "ended", property(ended))


def follow_the_last_upstream() -> AbstractContextManager[object]:
    """Wait for the last of several upstreams only."""
    original = Upstreams.__init__

    def init(self: Upstreams, found: Sequence[Upstream], since: int, *, takes_any: bool, agrees: bool) -> None:
        original(self, found[-1:], since, takes_any=takes_any, agrees=agrees)

    return mock.patch.object(Upstreams, "__init__", init)


def take_any_outcome() -> AbstractContextManager[object]:
    """Run a moment whatever its outcome upstream."""
    return mock.patch.object(Upstreams, "hindrance", return_value="")


def tell_only_of_runs() -> AbstractContextManager[object]:
    """Do not tell followers of moments that were missed."""
    return mock.patch.object(account, "_missed_ends", side_effect=lambda _missed, _now: [])


def tell_of_no_run() -> AbstractContextManager[object]:
    """Do not tell followers how runs have ended."""

    def unchanged(run: Record, _outcome: str, _now: int) -> tuple[End, ...]:
        return run.ends

    return mock.patch.object(records, "_with_outcome", unchanged)


def tell_that_all_completed() -> AbstractContextManager[object]:
    """Tell followers of each run that it has completed."""
    original = records._with_outcome

    def completed(run: Record, _outcome: str, now: int) -> tuple[End, ...]:
        return original(run, "completed", now)

    return mock.patch.object(records, "_with_outcome", completed)
