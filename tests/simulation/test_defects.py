"""The simulation bites: with any load-bearing wall missing it fails within a few seeds and names the broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aioelasticjob.testing.cluster import Plan
from aioelasticjob.testing.simulation import live, plan
from tests.simulation import defects
from tests.simulation.defects import Defect

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(240)]


def dragging(given: Plan) -> Plan:
    """Return the plan with handlers that often outlast a session."""
    return replace(given, jobs=tuple(replace(job, dragging=0.5) for job in given.jobs))


def hasty(given: Plan) -> Plan:
    """Return the plan with many items that run each second, and quickly: whoever comes late finds nobody running."""
    jobs = (replace(job, cron="* * * * * ?", period=1.0, items=8, longest=0.3) for job in given.jobs)
    return replace(given, jobs=tuple(jobs))


def in_parts(given: Plan) -> Plan:
    """Return the plan with assignments written a few items at a time."""
    return replace(given, transaction=5)


@pytest.mark.parametrize(
    ("defect", "promises", "tweak", "kinds", "seeds"),
    [
        (defects.no_deadline, {"one runner"}, dragging, "drop", range(8)),
        (defects.claim_on_hearsay, {"one run per slot"}, hasty, "delay,expire,leave,crash", range(20)),
        (defects.claim_without_lock, {"one runner"}, dragging, "crash,leave,pause,reconfigure", range(6)),
        (defects.deaf_mirror, {"convergence", "on time"}, dragging, "reset,leave,crash,drop", range(20)),
        (defects.settle_in_any_session, {"no dead writes"}, dragging, "expire,drop", range(4)),
        (defects.commit_in_any_session, {"no dead writes"}, dragging, "expire,delay,coup", range(12)),
        (defects.lead_without_epoch, {"leaders assign"}, in_parts, "coup", range(12)),
        (defects.claim_unsettled, {"settled claims"}, dragging, "", range(4)),
    ],
    ids=lambda value: getattr(value, "__name__", "") if value not in (dragging, hasty, in_parts) else "",
)
def test_a_missing_wall_is_noticed(
    defect: Defect, promises: set[str], tweak: Callable[[Plan], Plan], kinds: str, seeds: range
) -> None:
    broken: set[str] = set()
    for seed in seeds:
        with defect():
            verdict = live(tweak(plan(seed, kinds=tuple(filter(None, kinds.split(","))))))
        broken |= {violation.rule for violation in verdict.violations}
        if broken & promises:
            return
    pytest.fail(f"{defect.__doc__} In {len(seeds)} seeds only {broken or 'nothing'} was noticed")


@pytest.mark.parametrize(
    ("defect", "promise"),
    [
        (defects.save_unfenced, "fenced checkpoint"),
        (defects.begin_where_it_was_known, "newest checkpoint"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_checkpoint_out_of_turn_is_noticed(defect: Defect, promise: str) -> None:
    broken: set[str] = set()
    for seed in range(8):
        with defect():
            verdict = live(dragging(plan(seed, wild=True, kinds=("drop", "expire", "pause"))))
        broken |= {violation.rule for violation in verdict.violations}
        if promise in broken:
            return
    pytest.fail(f"{defect.__doc__} In 8 seeds only {broken or 'nothing'} was noticed")


@pytest.mark.parametrize(
    ("defect", "promise", "kinds", "failover"),
    [
        (defects.forget_orphans, "orphans are rescued", "crash,pause", True),
        (defects.mourn_on_ticks_only, "orphans are found", "crash,reset", True),
        (defects.hear_no_orphans, "orphans are taken", "crash,reset", True),
        (defects.bury_the_cut_off, "cut off untold", "crash,pause", False),
        (defects.require_on_ticks_only, "assigned soon", "crash,leave,reconfigure", False),
        (defects.swallow_triggers, "triggers", "trigger,reset", False),
        (defects.trigger_twice, "triggers", "trigger,reset", False),
        (defects.run_what_is_switched_off, "switched off", "close-item", False),
        (defects.give_no_grace, "cut off", "leave,dismiss", False),
        (defects.rerun_unasked, "unwanted rerun", "pause", False),
        (defects.ignore_timeouts, "timeout", "reset", False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_word_is_noticed(defect: Defect, promise: str, kinds: str, failover: bool) -> None:
    broken: set[str] = set()
    for seed in range(12):
        with defect():
            verdict = live(plan(seed, failover=failover, kinds=tuple(kinds.split(","))))
        broken |= {violation.rule for violation in verdict.violations}
        if promise in broken:
            return
    pytest.fail(f"{defect.__doc__} In 12 seeds only {broken or 'nothing'} was noticed")
