"""Every rule notices what it is for: small histories, once right and once with a violation planted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aioelasticjob.core import records
from aioelasticjob.engine.missed_reports import OF_REQUESTS
from aioelasticjob.events import Misfired, Refused
from aioelasticjob.model import GIVEN_UP, SCHEDULED, FireSource, Record
from aioelasticjob.schedules.calendars import Calendar
from tests.simulation.facts import REGISTRY, Facts
from tests.simulation.judges import excuses, invariants
from tests.simulation.judges.invariants import Rule, check
from tests.simulation.judges.reports import cut_off_is_reported_once, reports_are_true, what_is_off_is_excused
from tests.simulation.judges.timeliness import (
    calendars_are_followed,
    catches_up_only_if_asked,
    nothing_lost,
    on_time,
)
from tests.simulation.trace import describe
from tests.support.history import (
    Begun,
    Change,
    ClockSet,
    Entry,
    Fault,
    Finished,
    Held,
    History,
    Nonsense,
    Phase,
    Reported,
    Started,
    Stopped,
    Written,
)

T = 1_767_225_600.0
A, B, C = "10.0.1.1@-@1-a", "10.0.1.2@-@1-b", "10.0.1.3@-@1-c"
CONFIG = b'{"jobName": "job", "cron": "0/10 * * * * ?", "shardingTotalCount": 1}'
UNRECORDED = CONFIG.replace(b"}", b', "monitorExecution": false}')
NOTE = b'{"cron": "0/10 * * * * ?", "timeZone": "UTC", "dst": "cron", "monitorExecution": true, "since": 0}'


def begun(
    run: int,
    at: float,
    instance: str = A,
    *,
    slot: float = 10,
    fence: int = 0,
    skew: float = 0,
    source: FireSource = FireSource.SCHEDULE,
) -> Begun:
    host = instance.partition("@-@")[0]
    slot_ms = int((T + slot) * 1000)
    return Begun(T + at, run, f"{host}#1", host, instance, "job", 0, slot_ms, source, fence or run, skew)


def ended(run: int, at: float, how: str = "completed") -> Finished:
    return Finished(T + at, run, how)


def written(at: float, session: int, *changes: Change, zxid: int = 0, ending: bool = False) -> Written:
    return Written(T + at, zxid or int(at * 1000), session, changes, ending)


def made(path: str, data: str | bytes = b"") -> Change:
    return Change(f"/job/{path}", data if isinstance(data, bytes) else data.encode(), created=True)


def put(path: str, data: str | bytes = b"") -> Change:
    return replace(made(path, data), created=False)


def gone(path: str) -> Change:
    return Change(f"/job/{path}", None)


def record(instance: str, slot: float = 10, outcome: str = "") -> bytes:
    slot_ms = int((T + slot) * 1000)
    done = bool(outcome)
    found = Record(slot_ms, FireSource.SCHEDULE, instance, completed=done, outcome=outcome, accounted=slot_ms)
    return records.encode(found)


def broken(rule: Rule, entries: Sequence[Entry]) -> list[str]:
    return [violation.text for violation in check(entries, [rule])]


BORN = (
    written(0, 1, made("config", CONFIG), made("sharding"), made("leader/election/host", A)),
    written(0.1, 1, made(f"instances/{A}", json.dumps({"ip": "10.0.1.1"}))),
    written(0.2, 2, made(f"instances/{B}", json.dumps({"ip": "10.0.1.2"}))),
    written(0.3, 1, made("sharding/0"), made("sharding/0/instance", A), put("sharding")),
)
"""A job of one item with two instances, of which the first leads and holds it."""


def test_one_runner_notices_two() -> None:
    apart = [begun(1, 10), ended(1, 12), begun(2, 12, B), ended(2, 13)]
    assert not broken(invariants.one_runner, apart)
    assert broken(invariants.one_runner, [begun(1, 10), begun(2, 11, B), ended(1, 12), ended(2, 13)])


def test_one_runner_lets_a_sleeper_lie_but_not_go_on() -> None:
    process = begun(1, 10).process
    asleep = [begun(1, 10), Held(T + 11, process, paused=True), begun(2, 20, B), ended(2, 25)]
    awake = [Held(T + 30, process, paused=False), ended(1, 30, "cut off")]
    assert not broken(invariants.one_runner, [*asleep, *awake])
    assert broken(invariants.one_runner, [*asleep[:-1], *awake[:1], ended(1, 32), ended(2, 33)])


def test_one_runner_does_not_ask_who_was_cut_off_by_a_stranger_to_know_it() -> None:
    runs = [*BORN, begun(1, 10), begun(2, 11, B), ended(1, 12, "cut off"), ended(2, 13)]
    over = [Fault(T + 10.8, "expire", ("10.0.1.1",)), written(10.9, 1, gone(f"instances/{A}"), ending=True)]
    assert broken(invariants.one_runner, runs)
    assert not broken(invariants.one_runner, [*runs[:5], *over, *runs[5:]])
    assert broken(invariants.one_runner, [*runs[:5], replace(over[0], hosts=("10.0.1.2",)), over[1], *runs[5:]])
    assert broken(invariants.one_runner, [*runs[:5], over[0], replace(over[1], session=2), *runs[5:]])


def test_one_runner_wants_the_news_of_a_sessions_end_to_be_heeded() -> None:
    over = [Fault(T + 10.8, "expire", ("10.0.1.1",)), written(10.9, 1, gone(f"instances/{A}"), ending=True)]
    runs = [*BORN, begun(1, 10), *over, begun(2, 12, B), ended(1, 14), ended(2, 15)]
    assert broken(invariants.one_runner, runs)
    assert not broken(invariants.one_runner, [Fault(T + 9, "drop", ("10.0.1.1",)), *runs])


def test_one_run_per_slot_notices_a_second() -> None:
    first = [begun(1, 10), ended(1, 11)]
    assert not broken(invariants.one_run_per_slot, [*first, begun(2, 20, slot=20)])
    assert not broken(invariants.one_run_per_slot, [*first, replace(begun(2, 20), source=FireSource.TRIGGER)])
    assert broken(invariants.one_run_per_slot, [*first, begun(2, 20, B)])


def test_a_second_run_is_excused_where_a_record_far_in_the_future_was_lowered() -> None:
    for slot, excused in ((3610, True), (50, False), (10, False)):
        far = written(15, 1, put("execution/0", record(A, slot)))
        runs = [*BORN, begun(1, 10), ended(1, 11), far, begun(2, 20)]
        assert bool(broken(invariants.one_run_per_slot, runs)) is not excused


@pytest.mark.parametrize("at", [6, 12])
def test_a_second_run_is_excused_where_the_record_of_an_early_one_was_lost_before_its_moment(at: float) -> None:
    early = [*BORN, written(3, 1, put("execution/0", record(A, 10))), begun(1, 3, slot=10), ended(1, 4)]
    again = begun(2, 20, B, slot=10)
    assert broken(invariants.one_run_per_slot, [*early, again])
    for lost in (written(at, 1, gone("execution/0")), Nonsense(T + at, "/job/execution/0", b"x")):
        assert bool(broken(invariants.one_run_per_slot, [*early, lost, again])) is (at > 10)


def test_fences_have_to_grow() -> None:
    assert not broken(invariants.fences_grow, [begun(1, 10, fence=5), begun(2, 20, fence=6)])
    assert broken(invariants.fences_grow, [begun(1, 10, fence=6), begun(2, 20, fence=6)])


def test_fences_grow_lets_a_process_that_slept_begin_before_the_news_of_its_sessions_end() -> None:
    over = [Fault(T + 10.8, "expire", ("10.0.1.1",)), written(10.9, 1, gone(f"instances/{A}"), ending=True)]
    first, second = begun(1, 12, B, fence=9), begun(2, 20, fence=5)
    asleep = [Held(T + 10, second.process, paused=True), Held(T + 19.5, second.process, paused=False)]
    assert broken(invariants.fences_grow, [*BORN, *over, first, second])
    assert not broken(invariants.fences_grow, [*BORN, asleep[0], *over, first, asleep[1], second])
    assert not broken(invariants.fences_grow, [*BORN, *over, Fault(T + 11, "drop", ("10.0.1.1",)), first, second])
    late = replace(second, at=T + 22)
    assert broken(invariants.fences_grow, [*BORN, asleep[0], *over, first, asleep[1], late])


@pytest.mark.parametrize(
    "change",
    [
        put("execution/0", record(A)),
        made("execution/0/running", A),
        made("leader/election/host", A),
    ],
)
def test_no_dead_writes_notices_another_sessions_word(change: Change) -> None:
    assert not broken(invariants.no_dead_writes, [*BORN, written(5, 1, change)])
    assert broken(invariants.no_dead_writes, [*BORN, written(5, 3, change)])


def test_of_an_item_that_moves_at_the_same_time_its_former_holder_may_have_written_the_record_before() -> None:
    accounts = written(5, 1, put("execution/0", record(B, outcome="completed")))
    moved = written(5, 1, put("sharding/0/instance", B))
    assert not broken(invariants.no_dead_writes, [*BORN, accounts, moved])
    assert broken(invariants.no_dead_writes, [*BORN, moved, accounts])


@pytest.mark.parametrize("change", [put("sharding"), put("sharding/0/instance", B)])
def test_only_the_last_to_take_the_seat_assigns(change: Change) -> None:
    assert not broken(invariants.leaders_assign, [*BORN, written(5, 1, change)])
    assert broken(
        invariants.leaders_assign, [*BORN, written(5, 2, made("leader/election/host", B)), written(6, 1, change)]
    )


def test_claims_wait_for_an_assignment_that_is_due() -> None:
    marked = [*BORN, written(5, 1, made("leader/sharding/necessary"))]
    claim = made("execution/0/running", A)
    assert not broken(invariants.claims_are_settled, [*marked, written(5.1, 1, claim)])
    assert broken(invariants.claims_are_settled, [*marked, written(6, 1, claim)])
    assert not broken(
        invariants.claims_are_settled,
        [*marked, written(5.5, 1, gone("leader/sharding/necessary")), written(6, 1, claim)],
    )
    slow = Fault(T + 4.5, "delay", ("10.0.1.1",))
    assert not broken(invariants.claims_are_settled, [*marked[:-1], slow, marked[-1], written(6, 1, claim)])


def test_no_moment_is_claimed_before_it_comes() -> None:
    claim, lock = put("execution/0", record(A)), made("execution/0/running", A)
    assert not broken(invariants.claims_are_settled, [*BORN, written(9, 1, claim, lock)])
    assert broken(invariants.claims_are_settled, [*BORN, written(5, 1, claim, lock)])
    assert not broken(invariants.claims_are_settled, [*BORN, written(5, 1, claim)])  # it settles what was claimed


@pytest.mark.parametrize("source", sorted(frozenset(FireSource) - SCHEDULED))
def test_only_the_claim_of_a_scheduled_moment_can_be_ahead_because_others_keep_the_slot_of_the_record(
    source: FireSource,
) -> None:
    lock = made("execution/0/running", A)
    asked = records.encode(replace(records.decode(record(A)), source=source))
    assert not broken(invariants.claims_are_settled, [*BORN, written(5, 1, put("execution/0", asked), lock)])


def test_a_claim_ahead_is_excused_while_its_host_cannot_be_sure_that_the_clock_was_put_right() -> None:
    claim, lock = put("execution/0", record(A, 60)), made("execution/0/running", A)
    clock = [ClockSet(T + 1, REGISTRY, 45), ClockSet(T + 8, REGISTRY, 0)]

    def judged(at: float, *others: Entry) -> list[str]:
        entries = [*BORN, *clock, *others, written(at, 1, claim, lock)]
        return broken(invariants.claims_are_settled, sorted(entries, key=lambda entry: entry.at))

    def deaf(kind: str, host: str, until: float = 14) -> list[Entry]:
        return [Fault(T + 7, kind, (host,)), Fault(T + until, kind, (host,), over=True)]

    assert not judged(17)
    assert judged(20)
    assert not judged(20, *deaf("registry down", REGISTRY))
    assert judged(20, *deaf("registry down", REGISTRY), Started(T + 9, "10.0.1.1#2", "10.0.1.1"))  # with the right time
    assert not judged(20, *deaf("pause", "10.0.1.1"))
    assert judged(20, *deaf("pause", "10.0.1.2"))  # the other one
    assert judged(27, *deaf("registry down", REGISTRY))  # it has been sure since 24


def test_records_have_to_say_how_it_was() -> None:
    claim = written(10, 1, made("execution/0", record(A)), made("execution/0/running", A), zxid=7)
    run = [*BORN, claim, begun(1, 10, fence=7), ended(1, 11, "failed")]

    def settled(outcome: str) -> Written:
        return written(11, 1, put("execution/0", record(A, outcome=outcome)), gone("execution/0/running"))

    assert not broken(invariants.records_tell_the_truth, [*run, settled("failed")])
    assert broken(invariants.records_tell_the_truth, [*run, settled("completed")])
    assert not broken(invariants.records_tell_the_truth, [*run[:-1], ended(1, 11, "crashed"), settled("given up")])
    assert not broken(invariants.records_tell_the_truth, [*run[:-1], ended(1, 11, "crashed"), settled("stopped")])


def test_only_a_run_without_an_end_is_given_up() -> None:
    claim = written(10, 1, made("execution/0", record(A)), made("execution/0/running", A), zxid=7)
    given_up = written(30, 2, put("execution/0", record(A, outcome=GIVEN_UP)), gone("execution/0/running"))

    def run(how: str) -> list[Entry]:
        return [*BORN, claim, begun(1, 10, fence=7), ended(1, 11, how), given_up]

    assert not broken(invariants.records_tell_the_truth, run("crashed"))
    assert not broken(invariants.records_tell_the_truth, run("cut off"))
    assert broken(invariants.records_tell_the_truth, run("completed"))
    assert not broken(invariants.records_tell_the_truth, [Fault(T + 9, "drop", ("10.0.1.1",)), *run("completed")])


def test_processes_end_for_a_reason() -> None:
    assert not broken(invariants.nobody_dies, [Stopped(T, "a#1", "a", "left"), Stopped(T, "b#1", "b", "crashed")])
    assert broken(invariants.nobody_dies, [Stopped(T, "a#1", "a", "KeyError: 3")])
    gave_up = Stopped(T + 9, "a#1", "a", "gave up: Suspended")
    assert broken(invariants.nobody_dies, [gave_up])
    assert not broken(invariants.nobody_dies, [Fault(T + 5, "drop", ("a",)), gave_up])


def calm(*entries: Entry, until: float = 60) -> list[Entry]:
    return [*BORN, Phase(T + 0.5, "calm"), *entries, Phase(T + until, "end")]


def test_in_peace_every_moment_is_run_once_and_on_time() -> None:
    right = [begun(n, 10 * n, slot=10 * n) for n in range(1, 6)]
    assert not broken(on_time, calm(*right))
    assert broken(on_time, calm(*right[:2], *right[3:]))
    assert broken(on_time, calm(*right, begun(9, 30.1, B, slot=30)))
    assert broken(on_time, calm(*right[:2], begun(3, 31, slot=30), *right[3:]))
    assert not broken(on_time, calm(*right[:2], begun(3, 31, slot=30, skew=-1), *right[3:]))
    ahead, early = [ClockSet(T + 0.3, REGISTRY, 29), ClockSet(T + 0.5, REGISTRY, 0)], begun(3, 0.4, slot=30)
    assert not broken(on_time, [*ahead, early, *calm(*right[:2], *right[3:])])
    assert broken(on_time, [early, *calm(*right[:2], *right[3:])])


@pytest.mark.parametrize(
    ("request_id", "by", "is_excused"),
    [("r", A, True), ("", A, False), ("r", B, False)],
    ids=["request", "none", "other"],
)
def test_a_moment_that_comes_while_its_holder_runs_items_for_a_request_need_not_be_run(
    request_id: str, by: str, is_excused: bool
) -> None:
    others = [begun(n, 10 * n, slot=10 * n) for n in (1, 2, 4, 5)]
    record = records.encode(Record(int((T + 20) * 1000), "BACKFILL", by, asked=int((T + 5) * 1000), request=request_id))
    claim = written(29.999, 1, made("execution/1", record), made("execution/1/running", by), zxid=7)
    backfill = replace(begun(9, 30.001, by, slot=5, fence=7, source=FireSource.BACKFILL), item=1)
    history = calm(*others[:2], claim, backfill, ended(9, 30.1), *others[2:])
    assert bool(broken(on_time, history)) is not is_excused


@pytest.mark.parametrize(("end", "skew", "is_excused"), [(29.95, 0.0, True), (29.85, 0.0, False), (29.85, 0.1, True)])
def test_a_run_for_a_request_goes_on_until_it_is_settled_by_the_clock_of_its_host(
    end: float, skew: float, is_excused: bool
) -> None:
    others = [begun(n, 10 * n, slot=10 * n) for n in (1, 2, 4, 5)]
    record = records.encode(Record(int((T + 20) * 1000), "BACKFILL", A, asked=int((T + 5) * 1000), request="r"))
    claim = written(29.699, 1, made("execution/1", record), made("execution/1/running", A), zxid=7)
    backfill = replace(begun(9, 29.7, slot=5, fence=7, source=FireSource.BACKFILL, skew=skew), item=1)
    history = calm(*others[:2], claim, backfill, ended(9, end), *others[2:])
    assert bool(broken(on_time, history)) is not is_excused


def test_who_has_written_nothing_cannot_know_that_the_registrys_clock_was_set() -> None:
    set_right = [ClockSet(T + 0.05, REGISTRY, -1.2), ClockSet(T + 0.4, REGISTRY, 0)]
    late = [begun(n, 10 * n + 1.15, slot=10 * n, skew=-1.15) for n in range(1, 6)]
    assert not broken(on_time, [*set_right, *calm(*late)])
    assert broken(on_time, calm(*late))
    assert broken(on_time, [*set_right, *calm(written(5, 1, put("systemTime/current")), *late)])
    assert not broken(on_time, [*set_right, *calm(written(5, 2, put("systemTime/current")), *late)])
    without_time = [written(5, 1, gone("shutdown/x")), written(6, 1, made("leader/sharding/necessary"))]
    assert not broken(on_time, [*set_right, *calm(*without_time, *late)])
    astray = [ClockSet(T + 0.05, REGISTRY, -2.3), set_right[1]]  # then it asks
    assert broken(on_time, [*astray, *calm(*late)])


def missed(at: float, slot: float, *, item: int = 0, moments: int = 1, by: str = A, cut_off: str = "") -> Reported:
    """Return the word that as many moments up to ``slot`` were missed."""
    first, newest = round((T + slot - 10 * (moments - 1)) * 1000), round((T + slot) * 1000)
    ip = by.partition("@-@")[0]
    return Reported(T + at, f"{ip}#1", ip, Misfired("job", by, first, newest, (item,), moments, "busy", cut_off))


LOST = [begun(1, 10), begun(2, 20, slot=20), begun(4, 40, slot=40), begun(5, 50, slot=50)]
"""A history in which nobody ran the moment 30."""


def test_nothing_lost_notices_a_moment_without_a_word() -> None:
    assert broken(nothing_lost, calm(*LOST))
    assert not broken(nothing_lost, calm(*LOST, begun(3, 33, slot=30)))


@pytest.mark.parametrize(
    "excuse",
    [
        missed(41, 30),
        missed(41, 40, moments=2),
        Reported(T + 30, "10.0.1.1#1", "10.0.1.1", Refused("job", A, "clock")),
        written(29, 9, made("sharding/0/disabled")),
        written(29, 9, gone("sharding/0/instance")),
        written(29, 9, made("servers/10.0.1.1/disabled"), made("servers/10.0.1.2/paused")),
    ],
)
def test_nothing_lost_takes_a_word_or_a_reason(excuse: Entry) -> None:
    assert not broken(nothing_lost, sorted(calm(*LOST, excuse), key=lambda entry: entry.at))


@pytest.mark.parametrize(
    "word",
    [
        missed(51, 50),
        missed(41, 40),
        missed(41, 30, item=1),
        Fault(T + 29, "pause", ("10.0.1.1",)),
        Reported(T + 30, "10.0.1.2#1", "10.0.1.2", Refused("job", B, "clock")),
        Reported(T + 48, "10.0.1.1#1", "10.0.1.1", Refused("job", A, "clock")),
        written(49, 9, made("sharding/0/disabled")),
        written(29, 9, made("sharding/1/disabled")),
        written(29, 9, made("servers/10.0.1.2/paused")),
    ],
)
def test_nothing_lost_does_not_take_any_word(word: Entry) -> None:
    assert broken(nothing_lost, sorted(calm(*LOST, word), key=lambda entry: entry.at))


def test_nothing_lost_waits_for_who_may_still_say_so() -> None:
    asleep = Fault(T + 29, "pause", ("10.0.1.1",))
    assert broken(nothing_lost, calm(*LOST[:2]))
    assert not broken(nothing_lost, calm(*LOST[:2], asleep))
    assert broken(nothing_lost, calm(*LOST[:2], asleep, begun(5, 50, B, slot=50)))  # whose word it would have been


def test_nothing_lost_waits_for_the_next_run_not_for_an_earlier_one_of_a_later_moment() -> None:
    early, asleep = begun(5, 9, slot=3610), Fault(T + 35, "pause", ("10.0.1.1",))  # by a clock that was ahead
    gone_by, later = written(32, 1, gone("sharding/0/instance")), begun(6, 50, B, slot=50)
    story = [early, *LOST[:2], asleep]
    assert not broken(nothing_lost, calm(*story))
    assert not broken(nothing_lost, calm(*story, gone_by, later))
    assert broken(nothing_lost, calm(*story, later))


def test_nothing_lost_excuses_who_is_given_an_item_anew_without_records_as_its_holder_was_garbled() -> None:
    unrecorded = written(1, 9, put("config", CONFIG.replace(b"}", b', "monitorExecution": false}')))
    garbled = Nonsense(T + 29, "/job/sharding/0/instance", b"{")

    def judged(*others: Entry) -> list[str]:
        return broken(nothing_lost, sorted(calm(*LOST, *others), key=lambda entry: entry.at))

    assert not judged(unrecorded, garbled)
    assert judged(unrecorded)
    assert judged(garbled)
    assert judged(unrecorded, replace(garbled, at=T + 42))  # somebody should have said so before that
    assert judged(unrecorded, replace(garbled, path="/job/sharding/1/instance"))


@pytest.mark.parametrize("is_noted", [True, False])
def test_nothing_lost_excuses_who_is_given_an_item_before_the_leader_has_noted_that_runs_are_recorded(
    is_noted: bool,
) -> None:
    noted = written(1, 1, made("leader/schedule", NOTE if is_noted else NOTE.replace(b"true", b"false")))
    moved = written(29, 1, put("sharding/0/instance", B), put("sharding"))
    history = sorted(calm(noted, moved, *LOST), key=lambda entry: entry.at)
    assert bool(broken(nothing_lost, history)) is is_noted


def test_nothing_lost_excuses_who_could_not_hear_that_an_item_had_been_switched_on() -> None:
    switched = [written(15, 9, made("sharding/0/disabled")), written(26, 9, gone("sharding/0/disabled"))]

    def judged(host: str) -> list[str]:
        asleep = [Fault(T + 25, "pause", (host,)), Fault(T + 31, "pause", (host,), over=True)]
        return broken(nothing_lost, sorted(calm(*LOST[1:], *asleep, *switched), key=lambda entry: entry.at))

    assert not judged("10.0.1.1")
    assert judged("10.0.1.2")  # another host's sleep is no reason


@pytest.mark.parametrize(("woken", "is_excused"), [(27.5, True), (25.0, False)])
def test_nothing_lost_takes_two_troubles_for_one_if_nobody_could_connect_between_them(
    woken: float, is_excused: bool
) -> None:
    switched = [written(15, 9, made("sharding/0/disabled")), written(26, 9, gone("sharding/0/disabled"))]
    asleep = [Fault(T + 22, "pause", ("10.0.1.1",)), Fault(T + woken, "pause", ("10.0.1.1",), over=True)]
    down = [Fault(T + 28, "registry down", (REGISTRY,)), Fault(T + 31, "registry down", (REGISTRY,), over=True)]
    entries = sorted(calm(*LOST[1:], *asleep, *down, *switched), key=lambda entry: entry.at)
    assert bool(broken(nothing_lost, entries)) is not is_excused


def test_nothing_lost_wants_to_hear_of_the_schedule_before_from_whoever_gains_an_item() -> None:
    noted = written(1, 1, made("leader/schedule", NOTE))
    changed = written(33, 3, put("leader/schedule", NOTE.replace(b"0/10", b"5/10")))
    moved, later = written(41, 1, put("sharding/0/instance", B), put("sharding")), begun(5, 45, B, slot=45)
    story = [noted, *LOST[:2], Fault(T + 31, "pause", ("10.0.1.1",)), changed, moved]
    assert broken(nothing_lost, calm(*story, later))
    assert not broken(nothing_lost, calm(*story, missed(42, 30), missed(42, 35), later))


def test_nothing_lost_wants_to_hear_of_what_nobody_was_up_for() -> None:
    nobody = [written(28, one, gone(f"instances/{name}"), ending=True) for one, name in ((1, A), (2, B))]
    assert broken(nothing_lost, calm(*LOST[:2], *nobody, *LOST[2:]))
    assert not broken(nothing_lost, calm(*LOST[:2], *nobody, missed(39, 30), *LOST[2:]))


def test_nothing_lost_excuses_who_found_nonsense_in_the_place_of_a_record() -> None:
    def judged(moved: float, garbled: float, *others: Entry, item: int = 0) -> list[str]:
        claimed = written(20, 1, made("execution/0", record(A, 20)), made("execution/1"))
        nonsense = Nonsense(T + garbled, f"/job/execution/{item}", b"{nonsense")
        given = written(moved, 1, put("sharding/0/instance", B), put("sharding"))
        entries = [*LOST[:2], claimed, nonsense, given, *others, *LOST[2:]]
        return broken(nothing_lost, sorted(calm(*entries), key=lambda entry: entry.at))

    assert not judged(moved=30.9, garbled=31)
    assert not judged(moved=32, garbled=31)
    assert judged(moved=15, garbled=31)  # the holder had claimed what came before
    assert judged(moved=25, garbled=31)  # there was time to read
    assert not judged(25, 31, begun(7, 24, B, slot=24), ended(7, 33))  # but not in a run
    assert judged(25, 31, begun(7, 24, B, slot=24), ended(7, 29))
    assert not judged(25, 31, Fault(T + 24, "delay", ("10.0.1.2",)))  # it may not have heard of the item yet
    assert judged(25, 31, Fault(T + 24, "delay", ("10.0.1.1",)))  # that is not who holds it
    assert judged(15, 31, Fault(T + 24, "delay", ("10.0.1.2",)))  # it had heard of it before
    assert judged(moved=29.9, garbled=29.95)  # the moment came afterwards
    assert judged(moved=30.9, garbled=31, item=1)
    assert judged(32, 31, Nonsense(T + 31.5, "/job/execution/0", record(A, 20), gone=True))  # it was mended


@pytest.mark.parametrize(
    ("claimed", "at", "is_excused"),
    [(40, 5, True), (30, 5, True), (20, 5, False), (40, 31, False), (40, 29, False)],
)
def test_nothing_lost_excuses_what_a_record_had_accounted_for_before_it_came(
    claimed: float, at: float, is_excused: bool
) -> None:
    """A clock was ahead when the record was written: up to a minute ahead, it stands."""
    claim = written(at, 1, put("execution/0", record(A, claimed)))
    history = sorted(calm(claim, *LOST), key=lambda entry: entry.at)
    assert bool(broken(nothing_lost, history)) is not is_excused


@pytest.mark.parametrize("path", ["sharding/0", "leader/schedule"])
@pytest.mark.parametrize(
    ("ahead", "at", "is_excused"), [(26, 5, True), (24, 5, False), (-9, 5, False), (26, 29.9, True), (26, 32, False)]
)
def test_nothing_lost_excuses_what_came_before_its_item_or_schedule_began_by_a_clock_that_was_ahead(
    path: str, ahead: float, at: float, is_excused: bool
) -> None:
    clock = [ClockSet(T + at - 0.1, REGISTRY, ahead), ClockSet(T + at + 0.1, REGISTRY, 0)]
    dated = written(at, 1, made(path, NOTE if path == "leader/schedule" else b""))
    history = sorted(calm(*clock, dated, *LOST), key=lambda entry: entry.at)
    known = excuses.owes_nothing(Facts(history).job("job"), int(T + 30) * 1000)
    assert known or bool(broken(nothing_lost, history)) is not is_excused


def test_nothing_lost_wants_the_moments_of_the_schedule_that_the_leader_has_noted() -> None:
    other = written(33, 9, put("config", CONFIG.replace(b"0/10", b"0/20")))
    runs = [begun(1, 10), begun(2, 20, slot=20), begun(4, 40, slot=40)]  # nobody ran the moments 30 and 50
    noted = written(1, 1, made("leader/schedule", NOTE))

    def lost(*entries: Entry) -> list[str]:
        found = broken(nothing_lost, sorted(calm(noted, *entries), key=lambda entry: entry.at))
        return [slot for slot in ("30", "50") if any(f" {int(T) + int(slot)}000 " in text for text in found)]

    assert lost(*runs[:2], other, runs[2]) == ["30", "50"]
    followed = written(45, 1, put("leader/schedule", NOTE.replace(b"0/10", b"0/20")))
    assert lost(*runs[:2], other, followed, runs[2]) == ["30"]
    assert lost(*runs[:2], other, replace(followed, at=T + 55), runs[2]) == ["30", "50"]


def test_calendars_are_followed_notices_a_leader_that_has_not_noted_an_edit_or_a_removal() -> None:
    days = Calendar.of(["2026-12-25"])
    note = NOTE.replace(b"{", b'{"calendar": ["closed"], "contents": ["%s"], ' % days.hash.encode(), 1)
    kept = made(f"leader/schedule/{days.hash}", days.text)
    noted = written(0.2, 1, made("leader/schedule", note), kept)
    calendar = "/~calendars/closed"

    def found(*edits: Change) -> list[str]:
        entries = [written(0.3 + n / 10, 9, edit) for n, edit in enumerate(edits)]
        return broken(calendars_are_followed, sorted([noted, *entries, *calm()], key=lambda entry: entry.at))

    there = Change(calendar, days.text.encode(), created=True)
    assert not found(there)
    assert found()
    assert found(there, Change(calendar, b"2026-12-26"))
    assert found(there, Change(calendar, None))


def test_a_moment_that_nobody_was_up_for_is_run_only_if_that_is_wanted() -> None:
    nobody = [written(28, one, gone(f"instances/{name}"), ending=True) for one, name in ((1, A), (2, B))]
    again = [*nobody, written(39, 3, made("instances/10.0.1.1@-@1-c"))]
    ends = [Stopped(T + 28, f"10.0.1.{n}#1", f"10.0.1.{n}", "left") for n in (1, 2)]
    late = [begun(3, 40, "10.0.1.1@-@1-c", slot=30)]
    up = [Started(T, f"10.0.1.{n}#1", f"10.0.1.{n}") for n in (1, 2)]
    story = [*up, *calm(*LOST[:2]), *ends, *again[:2], Started(T + 38, "10.0.1.1#2", "10.0.1.1"), *again[2:]]
    assert broken(catches_up_only_if_asked, [*story, *late])
    assert not broken(catches_up_only_if_asked, [*story, begun(3, 40, slot=40)])
    asked = [replace(one, changes=(put("config", CONFIG.replace(b"}", b', "catchUp": 60}')),)) for one in again[2:]]
    assert not broken(catches_up_only_if_asked, [*story, *asked, *late])
    assert not broken(catches_up_only_if_asked, [*up, *calm(*LOST[:2]), *ends[:1], *again, *late])  # B lives on
    back = [ClockSet(T + 5, REGISTRY, -10)]  # so that the moment comes at 40
    assert not broken(catches_up_only_if_asked, [*back, *story, *late])
    assert broken(catches_up_only_if_asked, [*back, *story, begun(3, 40, "10.0.1.1@-@1-c", slot=20)])
    assert broken(catches_up_only_if_asked, [*back, *story, begun(3, 39.5, "10.0.1.1@-@1-c", slot=30)])
    assert broken(catches_up_only_if_asked, [*back, ClockSet(T + 25, REGISTRY, 0), *story, *late])  # put right in time


def history_of(*entries: Entry) -> list[Entry]:
    born = [*BORN, Phase(T + 0.5, "chaos")]
    return sorted([*born, *entries, Phase(T + 60, "end")], key=lambda entry: entry.at)


def test_what_an_instance_reports_it_has_not_run_on_time_nor_reported_before() -> None:
    late = begun(2, 35, slot=30, source=FireSource.MISFIRE)
    assert not broken(reports_are_true, history_of(begun(1, 10), missed(35, 20), late, missed(51, 50, moments=2)))
    assert broken(reports_are_true, history_of(begun(1, 10), missed(35, 30, moments=2), late))
    assert broken(reports_are_true, history_of(begun(1, 10), begun(2, 20, slot=20), missed(25, 20)))
    assert broken(reports_are_true, history_of(begun(1, 10), missed(25, 20), missed(31, 30, moments=2)))


@pytest.mark.parametrize("why", sorted(OF_REQUESTS))
def test_a_request_that_was_not_run_is_no_report_of_the_scheduled_moment(why: str) -> None:
    again, expired = missed(43, 30), missed(41, 30)
    assert broken(reports_are_true, history_of(expired, again))
    assert isinstance(expired.event, Misfired)
    expired = replace(expired, event=replace(expired.event, why=why))
    assert not broken(reports_are_true, history_of(expired, again))


def test_nobody_reports_what_another_has_run_or_reported() -> None:
    assert broken(reports_are_true, history_of(begun(2, 20, B, slot=20), missed(25, 20)))
    late = begun(2, 25, B, slot=20, source=FireSource.MISFIRE)
    assert broken(reports_are_true, history_of(late, missed(26, 20)))
    assert broken(reports_are_true, history_of(missed(25, 20), missed(31, 20, by=B)))


@pytest.mark.parametrize(
    ("at", "session", "ending", "is_excused"),
    [(26, 1, True, True), (24, 1, True, True), (26, 9, False, True), (89, 1, True, False), (26, 1, False, False)],
)
def test_a_report_may_come_twice_if_who_made_it_was_gone_within_a_minute(
    at: float, session: int, ending: bool, is_excused: bool
) -> None:
    """Its session ended, or its node was removed.  Who leaves by itself says in the record what it has reported."""
    over = written(at, session, gone(f"instances/{A}"), ending=ending)
    moved = written(24.5, 1, put("sharding/0/instance", B))

    def judged(twice: Reported, *others: Entry) -> list[str]:
        again = replace(missed(91, 20, by=B), event=replace(twice.event, instance=B))
        history = sorted([*BORN, twice, over, again, *others, Phase(T + 99, "end")], key=lambda entry: entry.at)
        return broken(cut_off_is_reported_once if twice.event.cut_off else reports_are_true, history)

    for twice in (missed(23, 20), missed(23, 20, cut_off=B)):
        assert bool(judged(twice)) is not is_excused
        assert bool(judged(twice, moved)) is (at > 80)  # its record is the next holder's by then
        runs_elsewhere = written(24.5, 2, made("execution/0/running", B))
        assert bool(judged(twice, runs_elsewhere)) is (at > 80)  # its record is the runner's until the run ends


def test_a_report_may_come_twice_if_a_clock_was_lowered_by_more_than_a_minute() -> None:
    twice = [missed(25, 20), missed(31, 20, by=B)]
    for ahead in (59, 61):
        clock = [ClockSet(T - ahead + 21, REGISTRY, ahead), ClockSet(T + 22, REGISTRY, 0)]
        assert bool(broken(reports_are_true, [*clock, *history_of(*twice)])) is (ahead < 60)


def test_without_records_only_what_an_instance_has_run_or_reported_itself_counts() -> None:
    unrecorded = written(1, 9, put("config", UNRECORDED))
    assert not broken(reports_are_true, history_of(unrecorded, missed(25, 20), missed(31, 20, by=B)))
    assert broken(reports_are_true, history_of(unrecorded, missed(25, 20), missed(31, 20)))
    assert not broken(reports_are_true, history_of(unrecorded, begun(1, 20, B, slot=20), missed(31, 20)))


def test_what_another_instance_ran_without_records_may_be_reported_once_there_are_records() -> None:
    switched = [written(at, 9, put("config", data)) for at, data in ((1, UNRECORDED), (12, CONFIG))]
    early = begun(1, 5, B, slot=20)  # by a clock ahead
    assert not broken(reports_are_true, history_of(*switched, early, ended(1, 6), missed(31, 20)))
    assert broken(reports_are_true, history_of(*switched, early, ended(1, 6), missed(31, 20, by=B)))
    assert broken(reports_are_true, history_of(early, ended(1, 6), missed(31, 20)))


@pytest.mark.parametrize(("path", "at", "is_excused"), [("0", 12, True), ("0", 22, False), ("1", 12, False)])
def test_what_was_run_by_a_clock_ahead_may_be_reported_if_its_record_was_lost_before_the_moment_came(
    path: str, at: float, is_excused: bool
) -> None:
    lost = Nonsense(T + at, f"/job/execution/{path}", b"{nonsense")
    history = history_of(begun(1, 5, slot=20), ended(1, 6), lost, missed(31, 20))
    assert bool(broken(reports_are_true, history)) is not is_excused


def test_what_was_run_or_reported_before_its_job_was_removed_may_be_reported_again() -> None:
    removed = [written(12, 9, gone("config")), written(13, 9, made("config", CONFIG))]
    for first in ([begun(1, 5, slot=20)], [missed(11, 10)]):
        again = missed(31, 20 if first[0].at == T + 5 else 10)
        assert broken(reports_are_true, history_of(*first, again))
        assert not broken(reports_are_true, history_of(*first, *removed, again))


@pytest.mark.parametrize(("left_at", "is_excused"), [(84, True), (90, False)])
def test_clocks_may_disagree_whether_who_made_a_report_was_gone_within_a_minute(
    left_at: float, is_excused: bool
) -> None:
    moved, over = written(24.5, 1, put("sharding/0/instance", B)), written(left_at, 1, gone(f"instances/{A}"))
    history = [*BORN, missed(23, 20), moved, over, missed(91, 20, by=B), Phase(T + 99, "end")]
    assert bool(broken(reports_are_true, history)) is not is_excused


@pytest.mark.parametrize("flag", ["sharding/0/disabled", "leader/paused", "servers/10.0.1.1/paused"])
def test_what_came_while_an_item_was_off_is_not_reported(flag: str) -> None:
    off = [written(14, 9, made(flag)), written(26, 9, gone(flag))]
    assert not broken(what_is_off_is_excused, history_of(missed(31, 20)))
    assert broken(what_is_off_is_excused, history_of(*off, missed(31, 20)))
    assert not broken(what_is_off_is_excused, history_of(*off, missed(31, 30)))
    assert not broken(what_is_off_is_excused, history_of(*off, missed(31, 20, cut_off=B)))
    moved = written(27, 1, put("sharding/0/instance", B))
    assert not broken(what_is_off_is_excused, history_of(*off, moved, missed(31, 20, by=B)))  # it has not seen that


def test_what_came_before_there_was_an_item_is_not_reported() -> None:
    new = written(26, 1, made("sharding/1"), made("sharding/1/instance", A))
    assert broken(what_is_off_is_excused, history_of(new, missed(31, 20, item=1)))
    assert not broken(what_is_off_is_excused, history_of(new, missed(31, 30, item=1)))


def test_that_a_run_was_cut_off_is_reported_of_on_top() -> None:
    assert not broken(reports_are_true, history_of(begun(1, 10), missed(25, 10, by=B, cut_off=A)))


def test_a_report_means_the_moments_of_the_schedule_that_has_as_many() -> None:
    changed, both = written(36, 3, put("config", CONFIG.replace(b"0/10", b"5/10"))), missed(45, 40, moments=2)
    assert not broken(reports_are_true, calm(changed, both, missed(46, 35)))
    assert broken(reports_are_true, calm(changed, both, missed(46, 40)))
    assert broken(reports_are_true, calm(changed, missed(45, 35), missed(46, 35)))


UP = [Started(T, "10.0.1.1#1", "10.0.1.1"), Started(T, "10.0.1.2#1", "10.0.1.2")]


def test_a_settled_cluster_is_converged() -> None:
    assert not broken(invariants.converged, [*UP, *calm()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (made("leader/sharding/necessary"), "still there"),
        (made("leader/sharding/processing"), "still there"),
        (made(f"shutdown/{B}"), "still there"),
        (made("execution/3"), "still there"),
        (made("execution/0/running", B), "does not hold it"),
        (put("sharding/0/instance", B), "average-by-name says"),
        (made("sharding/1"), "average-by-name says"),
        (put("leader/election/host", "nobody"), "the leader is"),
        (gone("leader/election/host"), "the leader is"),
        (gone(f"instances/{B}"), "instances at"),
        (made("instances/10.0.1.1@-@1-c", '{"ip": "10.0.1.1"}'), "instances at"),
    ],
)
def test_convergence_notices_what_is_left(change: Change, message: str) -> None:
    found = broken(invariants.converged, [*UP, *calm(written(30, 9, change))])
    assert any(message in text for text in found), found


def test_a_history_hears_nothing_twice_and_nothing_after_the_end() -> None:
    history = History(lambda: T)
    run = history.begin(lambda at, number: replace(begun(number, 0), at=at))
    history.crash("10.0.1.1#1", "10.0.1.1")
    history.finish(run, "completed")
    history.stop("10.0.1.1#1", "10.0.1.1", "left")
    history.seal()
    history.note(Phase(T, "later"))
    kinds = [type(entry).__name__ for entry in history.entries]
    assert kinds == ["Begun", "Stopped", "Finished"]
    assert history.entries[-1] == Finished(T, run, "crashed")


def test_a_trace_has_a_line_for_everything() -> None:
    entries = calm(*LOST, *UP, Held(T + 1, "p", paused=True), Fault(T + 2, "drop", ("h",)), ended(1, 11))
    lines = [describe(entry, T) for entry in entries]
    assert all(line and "\n" not in line for line in lines)
