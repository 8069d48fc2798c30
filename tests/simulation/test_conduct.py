"""Each rule about what was asked for, and how soon, notices what it is for: a small history, right and wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.pauses import pause_data
from aioelasticjob.model import FireSource, Record
from tests.simulation.judges import assignments, checkpoints, conduct, listening, orphans
from tests.simulation.test_invariants import (
    BORN,
    CONFIG,
    A,
    B,
    T,
    begun,
    broken,
    ended,
    gone,
    made,
    missed,
    put,
    record,
    written,
)
from tests.support.history import (
    Called,
    Change,
    Entry,
    Fault,
    Nonsense,
    Phase,
    Saved,
    Started,
    Written,
)

FLAG = "sharding/0/disabled"


def born(**settings: object) -> list[Entry]:
    """Return how a job with these settings comes to be, and then nothing happens for a minute."""
    config = json.dumps(json.loads(CONFIG) | settings).encode()
    first = replace(BORN[0], changes=(made("config", config), *BORN[0].changes[1:]))
    return [first, *BORN[1:]]


def history_of(*entries: Entry, **settings: object) -> list[Entry]:
    up = [Started(T, "10.0.1.1#1", "10.0.1.1"), Started(T, "10.0.1.2#1", "10.0.1.2")]
    return [*up, *born(**settings), *sorted(entries, key=lambda entry: entry.at), Phase(T + 60, "end")]


def claimed(at: float, by: str = A, fence: int = 1, session: int = 1, **fields: object) -> Written:
    slot = record(by) if not fields else records.encode(Record(instance=by, **fields))  # type: ignore[arg-type]
    return written(at, session, put("execution/0", slot), made("execution/0/running", by), zxid=fence)


@pytest.mark.parametrize("flag", [FLAG, "servers/10.0.1.1/disabled", "servers/10.0.1.1/paused"])
def test_what_is_known_to_be_switched_off_rests(flag: str) -> None:
    run = [claimed(20), begun(1, 20), ended(1, 21)]
    off = written(19, 9, made(flag))
    assert broken(conduct.rests_when_switched_off, history_of(off, *run))
    assert not broken(conduct.rests_when_switched_off, history_of(replace(off, at=T + 19.9), *run))
    assert not broken(conduct.rests_when_switched_off, history_of(off, written(19.5, 9, gone(flag)), *run))
    assert not broken(conduct.rests_when_switched_off, history_of(Fault(T + 15, "drop", ("10.0.1.1",)), off, *run))


def test_a_pause_that_has_ended_by_itself_switches_nothing_off() -> None:
    run = [claimed(20), begun(1, 20), ended(1, 21)]
    for until, wrong in ((T + 19.9, False), (T + 25, True)):
        off = written(15, 9, made("leader/paused", pause_data(until=until)))
        assert bool(broken(conduct.rests_when_switched_off, history_of(off, *run))) is wrong
        longer = written(19, 9, put("leader/paused", pause_data(until=T + 30)))
        assert broken(conduct.rests_when_switched_off, history_of(off, longer, *run))
        gone_by_hand = written(18, 9, gone("leader/paused"))
        assert not broken(conduct.rests_when_switched_off, history_of(off, gone_by_hand, *run))


def test_a_late_run_has_to_be_wanted() -> None:
    late = begun(1, 25, slot=20, source=FireSource.MISFIRE)
    assert broken(conduct.late_runs_are_wanted, history_of(late, misfire=False))
    assert not broken(conduct.late_runs_are_wanted, history_of(late, misfire=True))
    assert not broken(conduct.late_runs_are_wanted, history_of(late, misfire=False, catchUp=60))
    given = written(24, 1, put("sharding/0/instance", B))
    assert not broken(conduct.late_runs_are_wanted, history_of(given, late, misfire=False))


def test_a_timeout_holds() -> None:
    run = [begun(1, 10), ended(1, 13)]
    assert broken(conduct.timeouts_hold, history_of(*run, timeout=2))
    assert not broken(conduct.timeouts_hold, history_of(*run, timeout=3))
    assert not broken(conduct.timeouts_hold, history_of(*run))


def test_nobody_is_cut_off_without_a_reason() -> None:
    run = [begun(1, 10), ended(1, 13, "cut off")]
    assert broken(conduct.cut_off_for_a_reason, history_of(*run))
    assert not broken(conduct.cut_off_for_a_reason, history_of(*run, timeout=3))
    assert not broken(conduct.cut_off_for_a_reason, history_of(Fault(T + 9, "drop", ("10.0.1.1",)), *run))


@pytest.mark.parametrize(
    "asked",
    [
        Fault(T + 11, "leave", ("10.0.1.1",)),
        written(11, 9, made(f"shutdown/{A}")),
        written(11, 9, gone(f"instances/{A}")),
    ],
)
def test_who_leaves_has_his_grace(asked: Entry) -> None:
    run = [asked, begun(1, 10), ended(1, 13, "cut off")]
    assert broken(conduct.cut_off_for_a_reason, history_of(*run, shutdownTimeout=5))
    assert not broken(conduct.cut_off_for_a_reason, history_of(*run, shutdownTimeout=2))


def test_a_timeout_is_the_one_that_was_known_when_the_run_was_claimed() -> None:
    shorter = written(5, 9, put("config", json.dumps(json.loads(CONFIG) | {"timeout": 2}).encode()))
    run = [claimed(10), begun(1, 10.1), ended(1, 13)]
    assert broken(conduct.timeouts_hold, history_of(shorter, *run))
    assert not broken(conduct.timeouts_hold, history_of(replace(shorter, at=T + 9.9), *run))
    cut = [Fault(T + 3, "drop", ("10.0.1.1",)), Fault(T + 9, "drop", ("10.0.1.1",), over=True)]
    assert not broken(conduct.timeouts_hold, history_of(*cut, shorter, *run))
    assert broken(conduct.timeouts_hold, history_of(*(replace(one, hosts=("10.0.1.2",)) for one in cut), shorter, *run))


def test_an_assignment_is_not_left_to_a_tick() -> None:
    joined = written(20, 3, made("instances/10.0.1.0@-@1-c", b'{"ip": "10.0.1.0"}'))
    answer = put("sharding/0/instance", "10.0.1.0@-@1-c")
    assert broken(assignments.assigned_soon, history_of(joined))
    assert broken(assignments.assigned_soon, history_of(joined, written(24, 1, answer)))
    assert not broken(assignments.assigned_soon, history_of(joined, written(21, 1, answer)))
    again = written(22, 3, made("instances/10.0.1.3@-@1-d", b'{"ip": "10.0.1.3"}'))
    assert not broken(assignments.assigned_soon, history_of(joined, again, written(24, 1, answer)))
    assert not broken(assignments.assigned_soon, history_of(Fault(T + 19, "pause", ("10.0.1.1",)), joined))
    mark = written(20, 1, made("leader/sharding/necessary"))
    assert broken(assignments.assigned_soon, history_of(mark))
    unled = written(19, 1, gone("leader/election/host"))
    assert broken(assignments.assigned_soon, history_of(unled, mark))
    disabled = written(19.1, 9, made("servers/10.0.1.1/disabled"))
    leaves = written(19.2, 2, put(f"instances/{B}", b'{"ip": "10.0.1.2", "leaving": true}'))
    assert not broken(
        assignments.assigned_soon, history_of(unled, disabled, leaves, mark)
    )  # nobody may become the leader


DEATH = [claimed(12, B, session=2, slot=int(T + 10) * 1000, begun=7, completed=False)]
DEATH += [written(20, 2, gone(f"instances/{B}"), gone("execution/0/running"), ending=True)]
ORPHAN_MARK = made("leader/failover/items/0")
RESCUE = claimed(21, A, 2, slot=int(T + 10) * 1000, begun=9, completed=False, source="FAILOVER")


def test_an_orphan_is_not_left_to_a_tick() -> None:
    assert broken(orphans.orphans_are_found, history_of(*DEATH, failover=True))
    assert not broken(orphans.orphans_are_found, history_of(*DEATH, written(20.1, 1, ORPHAN_MARK), failover=True))
    assert not broken(orphans.orphans_are_found, history_of(*DEATH))
    assert not broken(
        orphans.orphans_are_found, history_of(Fault(T + 19, "drop", ("10.0.1.1",)), *DEATH, failover=True)
    )


@pytest.mark.parametrize("excuse", [begun(3, 20), Fault(T + 19, "pause", ("10.0.1.1",)), written(16, 9, made(FLAG))])
def test_an_orphan_does_not_wait_for_who_is_idle(excuse: Entry) -> None:
    marked = [*DEATH, written(20.1, 1, ORPHAN_MARK)]
    taken = replace(RESCUE, changes=(*RESCUE.changes, Change("/job/leader/failover/items/0", None)))
    assert broken(orphans.orphans_are_taken, history_of(*marked, failover=True))
    assert not broken(orphans.orphans_are_taken, history_of(*marked, taken, failover=True))
    assert not broken(orphans.orphans_are_taken, history_of(excuse, *marked, failover=True))


def test_the_next_run_of_an_orphan_is_its_rescue() -> None:
    other = claimed(31, A, 3, slot=int(T + 30) * 1000, begun=10, completed=False)
    assert broken(orphans.orphans_are_rescued, history_of(*DEATH, other, failover=True))
    assert not broken(orphans.orphans_are_rescued, history_of(*DEATH, RESCUE, failover=True))


def test_nobody_knows_of_a_run_that_was_cut_off_when_nonsense_stands_in_the_place_of_its_record() -> None:
    other = claimed(31, A, 3, slot=int(T + 30) * 1000, begun=10, completed=False)
    for rule in (orphans.orphans_are_rescued, orphans.cut_off_is_reported):
        assert not broken(rule, history_of(*DEATH, Nonsense(T + 21, "/job/execution/0", b"{"), other, failover=True))
        assert broken(rule, history_of(*DEATH, Nonsense(T + 32, "/job/execution/0", b"{"), other, failover=True))
        assert broken(rule, history_of(*DEATH, Nonsense(T + 21, "/job/execution/1", b"{"), other, failover=True))


def test_what_was_cut_off_is_rescued_once_and_nothing_else_is() -> None:
    rescue = begun(2, 21, slot=10, fence=2, source=FireSource.FAILOVER)
    rule = orphans.rescues_follow_what_was_cut_off
    assert not broken(rule, history_of(*DEATH, RESCUE, rescue))
    assert broken(rule, history_of(*DEATH, RESCUE, rescue, replace(rescue, run=3, at=T + 22)))
    assert broken(rule, history_of(*DEATH, RESCUE, replace(rescue, slot=rescue.slot + 1)))
    again = [replace(RESCUE, at=T + 31, zxid=3), replace(rescue, run=3, at=T + 31, fence=3)]
    assert not broken(rule, history_of(*DEATH, RESCUE, rescue, *again))  # the rescuer died, too
    end = record(A, outcome="completed")
    assert broken(rule, history_of(*DEATH, RESCUE, rescue, written(30, 1, put("execution/0", end)), *again))
    assert broken(rule, history_of(RESCUE, rescue))


def test_a_run_that_was_cut_off_is_rescued_or_reported() -> None:
    other = claimed(31, A, 3, slot=int(T + 30) * 1000, begun=10, completed=False)
    assert broken(orphans.cut_off_is_reported, history_of(*DEATH, other))
    assert broken(orphans.cut_off_is_reported, history_of(*DEATH, missed(31, 10), other))
    assert not broken(orphans.cut_off_is_reported, history_of(*DEATH, missed(31, 10, cut_off=B), other))
    assert not broken(orphans.cut_off_is_reported, history_of(*DEATH, RESCUE))


OFFSET = "offset/0"


def test_a_run_begins_at_the_newest_checkpoint() -> None:
    saved = written(9, 1, made(OFFSET, "1.half"))
    for offset, wrong in [("1.half", False), ("0.done", True), (None, True)]:
        run = replace(begun(1, 10, fence=7), offset=offset)
        assert bool(broken(checkpoints.begin_at_the_newest, history_of(saved, claimed(10, fence=7), run))) is wrong
    removed = written(9.5, 9, gone(OFFSET))
    assert not broken(
        checkpoints.begin_at_the_newest, history_of(saved, removed, claimed(10, fence=7), begun(1, 10, fence=7))
    )


def test_a_run_may_begin_at_the_nonsense_that_stood_in_place_of_its_checkpoint() -> None:
    rule, path = checkpoints.begin_at_the_newest, f"/job/{OFFSET}"
    saved, claim = written(5, 1, made(OFFSET, "1.half")), claimed(10, fence=7)
    stands, mended = Nonsense(T + 8, path, b"\xffnonsense"), Nonsense(T + 9.9, path, b"1.half", gone=True)
    run = replace(begun(1, 10.1, fence=7), offset="\ufffdnonsense")
    assert broken(rule, history_of(saved, claim, run))
    assert not broken(rule, history_of(saved, stands, claim, run))
    assert not broken(rule, history_of(saved, stands, mended, claim, run))
    assert broken(rule, history_of(saved, stands, replace(mended, at=T + 9), claim, run))
    assert broken(rule, history_of(saved, stands, written(9, 1, put(OFFSET, "1.done")), claim, run))
    assert broken(rule, history_of(saved, replace(stands, path="/job/offset/1"), claim, run))
    assert broken(rule, history_of(saved, stands, claim, replace(run, offset="0.done")))
    assert broken(rule, history_of(saved, replace(stands, at=T + 10.2), claim, run))


def test_only_who_holds_an_item_saves_its_checkpoint() -> None:
    claims = [claimed(10, fence=7), written(12, 1, gone("execution/0/running")), claimed(13, B, fence=9, session=2)]
    assert not broken(checkpoints.only_runners_save, history_of(*claims, written(11, 1, made(OFFSET, "7.half"))))
    assert broken(checkpoints.only_runners_save, history_of(*claims, written(12.5, 1, made(OFFSET, "7.done"))))
    assert broken(checkpoints.only_runners_save, history_of(*claims, written(14, 1, made(OFFSET, "7.done"))))
    next_one = 3  # the process's next session, in which the job has not joined
    assert broken(checkpoints.only_runners_save, history_of(*claims, written(14, next_one, made(OFFSET, "7.done"))))


def test_what_was_confirmed_is_saved() -> None:
    run = [begun(1, 10), Saved(T + 11, 1, f"/job/{OFFSET}", "1.half")]
    assert broken(checkpoints.saved_is_saved, history_of(*run))
    assert not broken(checkpoints.saved_is_saved, history_of(*run, written(10.9, 1, made(OFFSET, "1.half"))))


RUN = str(int(T + 10) * 1000)


def called(at: float, which: str, instance: str = A) -> Called:
    host = instance.partition("@-@")[0]
    return Called(T + at, f"{host}#1", instance, "job", which, int(RUN), FireSource.SCHEDULE)


def turned(at: float, which: str, instance: str = A, states: str = f'{{"{RUN}": "begun"}}') -> list[Entry]:
    """Return how an instance takes the right to call what is called once, calls it, and notes how far the run is."""
    taken = written(at - 0.01, 1, made(f"guarantee/{RUN}", instance))
    noted = written(at + 0.01, 1, put("guarantee", states), gone(f"guarantee/{RUN}"))
    return [taken, called(at, which, instance), noted]


def test_what_is_called_once_is_called_again_only_where_nonsense_made_it_be_forgotten() -> None:
    rule, first, again = listening.called_once, turned(10, "once before"), turned(15, "once before", B)
    stands = Nonsense(T + 12, "/job/guarantee", b"nonsense")
    other = written(13, 1, put("guarantee", '{"1": "begun"}'))
    mended = Nonsense(T + 13, "/job/guarantee", f'{{"{RUN}": "begun"}}'.encode(), gone=True)
    assert broken(rule, history_of(*first, *again))
    assert broken(rule, history_of(*first, other, *again))
    assert not broken(rule, history_of(*first, stands, *again))
    assert not broken(rule, history_of(*first, stands, other, *again))
    assert broken(rule, history_of(*first, stands, mended, *again))
    assert broken(rule, history_of(*first, stands, mended, replace(other, at=T + 14), *again))
    assert broken(rule, history_of(*first, replace(stands, at=T + 9), *again))
    assert broken(rule, history_of(*first, replace(stands, path="/job/execution/0"), *again))
    assert broken(rule, history_of(*first, stands, *again, *turned(17, "once before")))


def test_what_comes_once_after_a_run_comes_again_only_if_the_run_was_begun_again() -> None:
    rule, over = listening.called_once, f'{{"{RUN}": "over"}}'
    whole = [*turned(10, "once before"), *turned(11, "once after", states=over)]
    stands = Nonsense(T + 12, "/job/guarantee", b"nonsense")
    again, after = turned(15, "once before", B), turned(17, "once after", B, over)
    assert not broken(rule, history_of(*whole, stands, *again, *after))
    assert len(broken(rule, history_of(*whole, *again, *after))) == 1
    assert broken(rule, history_of(*whole, stands, *after))
    assert broken(rule, history_of(*whole, stands, *again, *after, *turned(19, "once after", B, over)))


def test_what_comes_once_after_a_run_waits_for_the_scheduled_run_of_each_item() -> None:
    rule, calm = listening.called_in_peace, [Phase(T + 1, "calm"), Phase(T + 40, "chaos")]
    first, later = begun(1, 10), replace(begun(2, 30, fence=2), item=1)
    before, after = turned(10, "once before"), turned(31, "once after")
    backfill = replace(later, source=FireSource.BACKFILL)
    assert broken(rule, history_of(*calm, *before, first, later, shardingTotalCount=2))
    assert not broken(rule, history_of(*calm, *before, first, later, *after, shardingTotalCount=2))
    assert not broken(rule, history_of(*calm, *before, first, backfill, shardingTotalCount=2))
    again = turned(35, "once after")
    trigger = [replace(one, source=FireSource.TRIGGER) if isinstance(one, Called) else one for one in again]
    whole = *calm, *before, first, later, *after
    assert broken(rule, history_of(*whole, *again, shardingTotalCount=2))
    assert not broken(rule, history_of(*whole, *trigger, shardingTotalCount=2))
