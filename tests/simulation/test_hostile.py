"""Every fault of the surroundings happens and has its effect; whether promises survive it is what the seeds show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aioelasticjob.testing.history import Entry, Fault, Refusal, Written, of_kind
from aioelasticjob.testing.refusals import CONFLICTS, ERRORS
from aioelasticjob.testing.simulation import live, plan, replay
from aioelasticjob.zookeeper.codes import ErrorCode

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(240)]


def lived(kind: str, seed: int = 0, minutes: float = 0.4) -> Sequence[Entry]:
    """Return the history of a seed with faults of one kind alone."""
    entries = live(plan(seed, kinds=(kind,), minutes=minutes)).entries
    kinds = {fault.kind for fault in of_kind(entries, Fault)}
    assert kinds <= {kind.replace("-", " "), "leave"}
    return entries


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("error-code", set(ERRORS)),
        ("false-conflict", set(CONFLICTS)),
        ("quota", {ErrorCode.QUOTA_EXCEEDED}),
        ("write-permission", {ErrorCode.NO_AUTH}),
    ],
)
def test_the_registry_refuses_writes(kind: str, codes: set[ErrorCode]) -> None:
    entries = lived(kind)
    refusals = list(of_kind(entries, Refusal))
    written = {(one.at, one.session) for one in of_kind(entries, Written)}
    assert {one.code for one in refusals} & codes
    assert {one.code for one in refusals} <= codes | {ErrorCode.NO_AUTH}
    assert all(one.host.startswith("10.0.1.") for one in refusals)
    for one in refusals:
        assert not one.applied or (one.at, one.session) in written


def test_what_was_applied_may_be_answered_with_an_error() -> None:
    applied = [one for seed in range(4) for one in of_kind(lived("error-code", seed), Refusal) if one.applied]
    assert applied


def test_plans_without_these_faults_are_what_they_were() -> None:
    assert plan(7, kinds=("quota",)).hostile
    assert not plan(7, wild=True).hostile
    assert plan(7).jobs == plan(7, kinds=("quota",)).jobs
    assert "--hostile" in replay(plan(7, hostile=True))
