"""Every fault of the surroundings happens and has its effect; whether promises survive it is what the seeds show."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from unittest import mock

import pytest

from aioelasticjob.core.clock_skew import ClockSkewMonitor
from aioelasticjob.engine import listeners
from aioelasticjob.engine.run_barrier import RunBarrier
from aioelasticjob.events import Misfired, Refused
from aioelasticjob.zookeeper.acl import OPEN_UNSAFE
from aioelasticjob.zookeeper.codes import CreateFlag, ErrorCode, OpCode
from aioelasticjob.zookeeper.datatree import Author
from aioelasticjob.zookeeper.messages import Create, Delete, SetData
from tests.simulation.careless_operators import NONSENSE, is_nonsense
from tests.simulation.facts import REGISTRY, Facts
from tests.simulation.refusals import CONFLICTS, ERRORS
from tests.simulation.simulation import live, plan, replay
from tests.simulation.users import PLACES, Code
from tests.simulation.witness import Witness
from tests.support.history import (
    Begun,
    Called,
    ClockSet,
    Entry,
    Fault,
    Held,
    History,
    Nonsense,
    Raised,
    Refusal,
    Reported,
    Stopped,
    Written,
    of_kind,
)

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(240)]


def lived(kind: str, seed: int = 0, minutes: float = 0.4) -> Sequence[Entry]:
    """Return the history of a seed with faults of one kind alone."""
    entries = live(plan(seed, kinds=(kind,), minutes=minutes)).entries
    kinds = {fault.kind for fault in of_kind(entries, Fault)}
    assert kinds <= {kind.replace("-", " "), "leave", "operator"}
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


def test_users_code_raises_everywhere_whatever_it_likes() -> None:
    raised = [one for seed in (0, 3, 4) for one in of_kind(lived("users-code", seed, 1.0), Raised)]
    assert len({one.where for one in raised} & set(PLACES)) >= 5
    assert {one.error for one in raised} >= {"Panic", "SystemExit", "CancelledError"}


def test_a_process_whose_code_ends_the_interpreter_is_gone() -> None:
    async def handle(_self: object, _context: object) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)

    with mock.patch.object(Code, "_handle", handle):
        entries = live(plan(0, kinds=("listeners",), minutes=0.1)).entries
    (end, *_) = [one for one in of_kind(entries, Stopped) if one.how == "SystemExit: 3"]
    assert not [one for one in of_kind(entries, Called) if one.process == end.process and one.at > end.at]


def test_listeners_are_called_at_their_places() -> None:
    called = list(of_kind(lived("listeners", 1), Called))
    assert {one.which for one in called} == {"before", "after", "once before", "once after"}


def test_a_listener_that_is_called_once_and_again_is_noticed() -> None:
    async def turn(*_args: object) -> bool:
        return True

    with mock.patch.object(RunBarrier, "acquire", turn):
        verdict = live(plan(3, kinds=("listeners",), minutes=0.2))
    assert {"called once", "called in peace"} <= {one.rule for one in verdict.violations}


def test_a_handler_that_does_not_wait_for_its_listeners_is_noticed() -> None:
    async def begin(_self: object) -> None:
        pass

    with mock.patch.object(listeners._OncePerCluster, "begin", begin):
        verdict = live(plan(3, kinds=("listeners",), minutes=0.2))
    assert {"called before", "called in peace"} <= {one.rule for one in verdict.violations}


def test_the_registry_is_believed_though_its_clock_is_wrong() -> None:
    entries = [entry for seed in (0, 1) for entry in lived("registry-clock", seed, 1.0)]
    ahead = [one for one in of_kind(entries, ClockSet) if one.host == REGISTRY]
    assert max(one.ahead for one in ahead) > 5 > -3000 > min(one.ahead for one in ahead)
    early = [one for one in of_kind(entries, Begun) if one.slot / 1000 > one.at + 4]
    assert early


def test_an_instance_whose_clock_differs_too_much_runs_nothing() -> None:
    entries = lived("clock-limit", 0, 1.0)
    assert [one for one in of_kind(entries, ClockSet) if abs(one.ahead) > 3]
    events = [one.event for one in of_kind(entries, Reported)]
    assert [one for one in events if isinstance(one, Refused | Misfired) and "the registry's differ by" in one.why]


def test_a_run_in_spite_of_the_clocks_is_noticed() -> None:
    with mock.patch.object(ClockSkewMonitor, "intolerable", return_value=None):
        verdict = live(plan(0, kinds=("clock-limit",)))
    assert "clock limit" in {one.rule for one in verdict.violations}


def test_a_job_is_run_without_claims_for_a_while() -> None:
    entries = lived("unmonitored", 0, 1.0)
    unclaimed = [one for one in of_kind(entries, Begun) if not one.fence]
    assert unclaimed
    assert len(unclaimed) < len(list(of_kind(entries, Begun)))


def test_a_suspended_machine_does_nothing_and_wakes_to_a_clock_that_stood_still() -> None:
    entries = lived("suspend", 1, 1.0)
    asleep: dict[str, float] = {}
    longest = 0.0
    for entry in entries:
        if isinstance(entry, Held) and entry.suspended and entry.paused:
            asleep[entry.process] = entry.at
        elif isinstance(entry, Held):
            longest = max(longest, entry.at - asleep.pop(entry.process))
        elif isinstance(entry, Begun | Reported | Called):
            assert entry.process not in asleep
    assert longest > 3


def test_nonsense_is_written_and_mended() -> None:
    seen = [one for seed in (0, 1) for one in of_kind(lived("nonsense", seed, 1.0), Nonsense)]
    assert {one.path.split("/")[2] for one in seen} >= {"config", "execution"}
    assert {one.path for one in seen if one.gone} & {one.path for one in seen if not one.gone}


def witnessed(*steps: tuple[int, bytes | None]) -> list[str]:
    """Return how a node's data is noted that sessions write one after the other, 1 for one of ours; None removes it."""
    history = History(lambda: 0.0)
    tree = Witness(history)
    tree.is_nonsense = is_nonsense
    tree.processor = mock.Mock(connections={1: mock.Mock(host="10.0.1.1"), 2: mock.Mock(host="10.0.0.9")})
    for zxid, (session, data) in enumerate(steps, 1):
        author = Author(session, (), zxid, 0)
        if data is None:
            tree.apply_all([Delete("/node", -1)], author)
        elif "/node" in tree.nodes:
            tree.apply_all([SetData("/node", data, -1)], author)
        else:
            tree.apply_all([Create(OpCode.CREATE, "/node", data, OPEN_UNSAFE, CreateFlag.PERSISTENT)], author)
    return [type(entry).__name__ for entry in history.entries]


def test_what_takes_the_place_of_nonsense_is_noted_as_written_unless_that_was_mended() -> None:
    good, bad = b"good", NONSENSE[0]
    assert witnessed((1, good), (2, bad), (2, good)) == ["Written", "Nonsense", "Nonsense"]
    assert witnessed((1, good), (2, bad), (2, None)) == ["Written", "Nonsense", "Written"]
    assert witnessed((1, good), (2, bad), (1, good), (2, b"new")) == ["Written", "Nonsense", "Written", "Written"]


def test_a_job_is_removed_and_made_anew() -> None:
    verdict = live(plan(0, kinds=("remove-job",)))
    facts = Facts(verdict.entries)
    changes = facts.nodes.changes("/job0/config")
    gone = next(place for place, (_, data) in enumerate(changes) if data is None)
    assert changes[gone + 1][1]
    assert [run for run in facts.runs if run.begun.at > changes[gone + 1][0]]
    assert facts.job("job0").eras[0].end == changes[gone][0]


def test_plans_without_these_faults_are_what_they_were() -> None:
    assert plan(7, kinds=("quota",)).hostile
    assert not plan(7, wild=True).hostile
    assert plan(1).jobs == plan(1, kinds=("quota",)).jobs != plan(1, kinds=("listeners",)).jobs
    assert "--hostile" in replay(plan(7, hostile=True))
