"""Each rule about single transactions, and the lease, notices what it is for: a small history, right and wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.core import records
from aioelasticjob.model import End, Record
from tests.simulation.facts import Facts
from tests.simulation.judges import invariants, leases, writes
from tests.simulation.test_conduct import claimed, history_of
from tests.simulation.test_invariants import BORN, NOTE, A, B, T, begun, broken, ended, gone, made, put, record, written
from tests.simulation.written import is_as_before
from tests.support.history import Entry, Fault, Held, Stopped

MARK = made("leader/failover/items/0", '{"slot": 1, "instance": ""}')
CLAIM = claimed(10, slot=int(T + 10) * 1000, begun=7, completed=False)
CUT_OFF = records.encode(Record(int(T + 10) * 1000, instance=A, begun=7, completed=False, outcome="cancelled"))
UNLOCKED = written(12, 1, put("execution/0", CUT_OFF), gone("execution/0/running"))


def found(*entries: Entry, **settings: object) -> set[str]:
    """Return the promises that a history breaks after its beginning, in which the leader's seat has no epoch yet."""
    violations = writes.transactions_are_sound(Facts(history_of(*entries, **settings)))
    return {violation.rule for violation in violations if violation.at > T + 5}


def test_whoever_leaves_has_settled_what_it_ran() -> None:
    leaves = written(12, 1, gone(f"instances/{A}"))
    assert found(CLAIM, leaves) == {"leavers settle"}
    assert not found(CLAIM, UNLOCKED, leaves)
    assert not found(CLAIM, replace(leaves, session=9))  # somebody else has removed it: its own end is still to come
    assert not found(CLAIM, replace(leaves, ending=True))
    assert not found(CLAIM, Fault(T + 11, "drop", ("10.0.1.1",)), leaves)
    assert found(CLAIM, Fault(T + 11, "drop", ("10.0.1.2",)), leaves) == {"leavers settle"}


def test_whoever_takes_the_seat_raises_the_epoch() -> None:
    seat = made("leader/election/host", B)
    assert not found(written(10, 2, seat, put("leader/election/epoch")))
    assert found(written(10, 2, seat)) == {"epochs rise"}


def test_only_what_has_no_end_and_is_not_run_waits_for_a_rescuer() -> None:
    over = written(12, 1, gone(f"instances/{A}"), gone("execution/0/running"), ending=True)
    assert not found(CLAIM, over, written(13, 2, MARK))
    assert found(CLAIM, written(13, 2, MARK)) == {"only orphans wait"}
    assert found(written(13, 2, MARK)) == {"only orphans wait"}
    end = put("execution/0", record(A, outcome="completed"))
    assert found(CLAIM, written(11, 1, end, gone("execution/0/running")), written(13, 2, MARK)) == {"only orphans wait"}


def test_what_is_cut_off_is_handed_over_at_once() -> None:
    assert found(CLAIM, UNLOCKED, failover=True) == {"handed over"}
    assert not found(CLAIM, replace(UNLOCKED, changes=(*UNLOCKED.changes, MARK)), failover=True)
    assert not found(CLAIM, UNLOCKED, failover=False)
    assert not found(CLAIM, replace(UNLOCKED, ending=True), failover=True)
    given_back = replace(UNLOCKED, changes=(put("execution/0", records.encode(Record())), UNLOCKED.changes[1]))
    assert not found(CLAIM, given_back, failover=True)


def test_nothing_is_removed_that_runs() -> None:
    removed = written(11, 1, gone("sharding/0/instance"), gone("sharding/0"))
    assert found(CLAIM, removed) == {"nothing that runs is removed"}
    assert not found(CLAIM, UNLOCKED, replace(removed, at=T + 13))


def test_nothing_is_claimed_while_a_calendar_is_missing() -> None:
    missing = NOTE.replace(b"{", b'{"calendar": ["closed"], "contents": [""], ', 1)
    assert not found(written(1, 1, made("leader/schedule", NOTE)), claimed(10))
    assert found(written(1, 1, made("leader/schedule", missing)), claimed(10)) == {"noted schedules"}


def test_a_run_that_was_ended_by_the_leader_is_nobodys_word() -> None:
    for outcome, wrong in (("given up", False), ("stopped", False), ("failed", True)):
        settled = written(30, 2, put("execution/0", record(A, outcome=outcome)))
        assert bool(broken(invariants.no_dead_writes, [*BORN, settled])) is wrong


@pytest.mark.parametrize("end", [18.8, 19.2, 20.0])
def test_handlers_end_before_their_session_can(end: float) -> None:
    over = written(20, 1, gone(f"instances/{A}"), ending=True)
    run = [begun(1, 10), ended(1, end, "cut off")]
    late = end > 18.9
    assert bool(broken(leases.handlers_end_before_their_session, history_of(*run, over))) is late
    asleep = Held(T + 12, "10.0.1.1#1", paused=True)
    assert not broken(leases.handlers_end_before_their_session, history_of(*run, asleep, over))
    assert not broken(
        leases.handlers_end_before_their_session, history_of(*run, Stopped(T + 20, "10.0.1.1#1", "", "left"), over)
    )
    pause = Held(T + 20.1, "10.0.1.1#1", paused=True), Held(T + 40, "10.0.1.1#1", paused=False)
    left = Stopped(T + 41, "10.0.1.1#1", "", "left")
    assert not broken(leases.handlers_end_before_their_session, history_of(*run, over, *pause, left))
    assert bool(broken(leases.handlers_end_before_their_session, history_of(*run, over, left))) is late
    by_hand = Fault(T + 19.9, "expire", ("10.0.1.1",))
    assert not broken(leases.handlers_end_before_their_session, history_of(*run, by_hand, over))
    others = replace(by_hand, hosts=("10.0.1.2",))
    assert bool(broken(leases.handlers_end_before_their_session, history_of(*run, others, over))) is late


def test_a_claim_that_has_noted_missed_moments_is_seen_to_be_given_back() -> None:
    before = Record(slot=1000, begun=1000, completed=True, outcome="completed", accounted=1000)
    missed = End(2000, 3000, "missed", 3500)
    claim = replace(before, slot=4000, begun=3600, completed=False, outcome="", accounted=4000, ends=(missed,))
    back = records.given_back(before, claim)
    assert back.ends == (missed,)
    assert is_as_before(back, before)
    assert not is_as_before(claim, before)
