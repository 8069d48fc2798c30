"""The simulation bites: with any load-bearing wall missing it fails within a few seeds and names the broken promise."""

from __future__ import annotations

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


def in_parts(given: Plan) -> Plan:
    """Return the plan with assignments written a few items at a time."""
    return replace(given, transaction=5)


@pytest.mark.parametrize(
    ("defect", "promises", "kinds", "seeds"),
    [
        (defects.no_deadline, {"one runner"}, "drop", range(8)),
        (defects.claim_on_hearsay, {"one run per slot"}, "coup,leave,delay", range(12)),
        (defects.claim_without_lock, {"one runner"}, "crash,leave,pause,reconfigure", range(6)),
        (defects.deaf_mirror, {"convergence", "on time"}, "reset,leave,crash,drop", range(12)),
        (defects.settle_in_any_session, {"no dead writes"}, "expire,drop", range(4)),
        (defects.commit_in_any_session, {"no dead writes"}, "expire,delay,coup", range(12)),
        (defects.lead_without_epoch, {"leaders assign"}, "coup", range(12)),
        (defects.claim_unsettled, {"settled claims"}, "", range(4)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_missing_wall_is_noticed(defect: Defect, promises: set[str], kinds: str, seeds: range) -> None:
    broken: set[str] = set()
    for seed in seeds:
        with defect():
            verdict = live(in_parts(dragging(plan(seed, kinds=tuple(filter(None, kinds.split(",")))))))
        broken |= {violation.rule for violation in verdict.violations}
        if broken & promises:
            return
    pytest.fail(f"{defect.__doc__} In {len(seeds)} seeds only {broken or 'nothing'} was noticed")
