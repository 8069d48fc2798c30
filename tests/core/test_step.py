"""What an instance owes, decided without waiting: facts go in, and commands come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.core.clock_skew import STEADY
from aioelasticjob.core.commands import (
    Command,
    FollowReleases,
    MarkMissed,
    ReadAccounted,
    ReadItems,
    Report,
    WriteAccounted,
)
from aioelasticjob.core.entries import MARKS_PER_TRANSACTION, AccountedMoment, MissedMark
from aioelasticjob.core.state import AWAY, BLOCKED, BUSY, ENDED, REFUSED, SET_BACK, UNKNOWN, Came, Item
from aioelasticjob.core.step import JobState
from aioelasticjob.core.unattended import NO_INSTANCE_UP, RETRY_PAUSE
from aioelasticjob.errors import Suspended
from aioelasticjob.model import Fire, FireSource, Record
from aioelasticjob.registry.tree import Node
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.support.stats import changed, stat


def slot(second: int) -> int:
    return (BEGIN + second) * 1000


def running_item_0(case: Case) -> JobState:
    """Return the state of an instance that has just begun to run item 0, for the moment 1."""
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    case.claim(state, frozenset([0]), slot(1))
    return state


def test_an_item_is_read_before_anything_is_owed_of_it() -> None:
    case = Case.of(items=2)
    state = case.state()
    assert next(state.see(case.view())) == ReadItems(frozenset({0, 1}), frozenset({0, 1}))
    assert not state.held
    case.see(state)
    assert state.held == {0, 1}


def test_a_view_whose_items_could_not_be_read_is_seen_again() -> None:
    case = Case.of()
    state = case.state()
    case.refused.append(ReadItems)
    case.see(state)
    assert not state.held
    case.now = 2.5
    case.see(state)
    assert state.claimable() == {0}
    assert case.reported() == [(1, 1, Came.HELD_UP.value.why)]


def test_what_nobody_was_up_for_is_marked_before_it_is_reported() -> None:
    case = Case.of()
    case.records[0] = Record(slot(-20), "CRON", OTHER)
    state = case.state(up_since=0.5)
    for name in (OTHER, ME):
        case.put(LAYOUT.instance(name), b"", owner=1)  # who were not up before
    for path in (LAYOUT.config, LAYOUT.item(0).sharding):  # which were there long before that
        node = case.nodes[path]
        case.nodes[path] = Node.of(node.data, changed(node.stat, ctime=BEGIN - 60, mtime=BEGIN - 60))
    mine = case.nodes[LAYOUT.instance(ME)]
    case.nodes[LAYOUT.instance(ME)] = Node.of(mine.data, changed(mine.stat, ctime=BEGIN))
    state = case.state(up_since=0.5)
    case.see(state)
    marking = next(command for command in case.done if isinstance(command, MarkMissed))
    reports = [command for command in case.done if isinstance(command, Report)]
    assert case.done.index(marking) < case.done.index(reports[0])
    assert marking.said == {0: MissedMark(slot(0))}
    assert case.reported() == [(-19, 0, NO_INSTANCE_UP)]


def test_an_instance_that_was_removed_marks_nothing_and_leaves_its_items_to_the_next_holder() -> None:
    case = Case.of()
    case.records[0] = Record(slot(-20), "CRON", OTHER)
    for path in (LAYOUT.config, LAYOUT.item(0).sharding):
        node = case.nodes[path]
        case.nodes[path] = Node.of(node.data, changed(node.stat, ctime=BEGIN - 60, mtime=BEGIN - 60))
    state = case.state(up_since=0.5)
    case.drop(LAYOUT.instance(OTHER))
    case.put(LAYOUT.instance(OTHER), b"", owner=1)  # who was not up before
    case.drop(LAYOUT.instance(ME))
    case.see(state)
    assert not any(isinstance(command, MarkMissed) for command in case.done)
    assert not state.held
    case.put(LAYOUT.instance(ME), b"", owner=1)
    case.see(state)
    assert state.held == {0}
    assert case.reported() == [(-19, 0, NO_INSTANCE_UP)]


def test_if_the_view_is_old_the_item_is_not_held_until_the_next_one() -> None:
    case = Case.of()
    case.records[0] = Record(slot(-20), "CRON", OTHER)
    for path in (LAYOUT.config, LAYOUT.item(0).sharding):
        node = case.nodes[path]
        case.nodes[path] = Node.of(node.data, changed(node.stat, ctime=BEGIN - 60, mtime=BEGIN - 60))
    state = case.state(up_since=0.5)
    for name in (OTHER, ME):
        case.drop(LAYOUT.instance(name))
        case.put(LAYOUT.instance(name), b"", owner=1)
    view = case.view()
    case.give(0, ME)  # again, which the view does not show
    case.see(state, view)
    assert not state.held
    assert not case.reports
    case.see(state)
    assert state.held == {0}
    assert case.reported() == [(-19, 0, NO_INSTANCE_UP)]


def test_an_item_that_nobody_has_run_yet_is_blamed_on_no_instance_that_is_gone() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = case.state()
    case.now = 3.0
    case.see(state)
    case.give(0, ME)
    case.see(state)
    assert case.reported() == [(1, 2, BLOCKED)]
    assert state.claimable() == {0}


def test_of_the_moments_that_come_during_a_run_all_are_reported_and_the_newest_is_run_again() -> None:
    case = Case.of()
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    assert (state.claimable(), state.source({0})) == ({0}, FireSource.CRON)
    case.claim(state, frozenset([0]), slot(1))
    case.now = 4.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    assert case.reported() == [(2, 4, BUSY)]
    assert (state.claimable(), state.timetable.newest, state.source({0})) == ({0}, slot(4), FireSource.MISFIRE)
    case.now = 7.5
    case.claim(state, frozenset([0]), slot(4))
    case.settle(state, frozenset([0]))
    case.configure(misfire=False)
    case.tell(state, lambda: state.run_ended(case.view()))
    assert case.reported()[1:] == [(5, 7, BUSY)]
    assert not state.claimable()


def test_the_registrys_absence_is_the_reason_for_what_came_in_it() -> None:
    case = Case.of(misfire=False)
    state = case.state()
    case.see(state)
    case.outages.append((0.6, 3.2))
    case.now = 3.4
    case.see(state)
    assert case.reported() == [(1, 2, AWAY), (3, 3, AWAY)]
    assert not state.claimable()


def test_a_refusal_of_the_registry_is_the_reason_for_what_came_in_it() -> None:
    case = Case.of(misfire=False)
    state = case.state()
    case.see(state)
    case.refusals.append((1.6, 5.2))
    case.outages.append((2.8, 3.1))  # an outage goes before a refusal
    case.now = 7.4
    case.see(state)
    held_up = Came.HELD_UP.value.why
    reports = [(1, 1, held_up), (2, 2, REFUSED), (3, 3, AWAY), (4, 5, REFUSED), (6, 6, held_up)]
    assert case.reported() == reports
    assert state.claimable() == {0}


def test_an_item_that_another_instance_runs_is_taken_back_when_that_run_is_over() -> None:
    case = Case.of(misfire=True)
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    fire = Fire(state.timetable.newest, FireSource.CRON)
    case.tell(state, lambda: state.note_running_elsewhere([0], fire))
    case.now = 3.5
    case.see(state)
    assert not state.claimable()
    case.tell(state, lambda: state.released(0))
    assert (state.claimable(), state.source({0})) == ({0}, FireSource.MISFIRE)
    assert case.reported() == [
        (1, 1, Came.FOUND_RUNNING.value.why),
        (2, 2, BLOCKED),
    ]


def test_items_that_are_taken_back_one_by_one_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a thousand items is reported by itself: to go through all of them each time would hold up the loop."""
    case, asked, is_due = Case.of(items=200), list[int](), Item.is_due
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    case.tell(state, lambda: state.note_running_elsewhere(range(200), Fire(state.timetable.newest, FireSource.CRON)))

    def note(item: Item, moment: int) -> bool:
        asked.append(moment)
        return is_due(item, moment)

    monkeypatch.setattr(Item, "is_due", note)
    for number in range(200):
        case.tell(state, lambda number=number: state.released(number))  # type: ignore[misc]
    assert len(asked) <= 2 * 200
    assert state.claimable() == set(range(200))


def test_a_schedule_that_was_noted_again_with_records_switched_has_not_been_replaced_then() -> None:
    case = Case.of()
    state = case.state()
    case.see(state)
    case.now = 2.5
    case.configure(monitor_execution=False)
    case.see(state)
    case.tell(state, lambda: state.note_running_elsewhere([0], Fire(slot(2), FireSource.CRON)))
    case.now = 6.5
    case.put(LAYOUT.servers)
    case.put(LAYOUT.server_disabled("10.0.0.1"))
    case.configure(cron="0/5 * * * * ?")
    case.see(state)
    assert case.reported()[-1] == (3, 6, ENDED)


def test_what_the_former_holder_ran_without_records_is_not_reported_when_they_are_switched_on() -> None:
    case = Case.of(monitor_execution=False)
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now = 9.5  # the other instance has run all moments so far, and nothing shows it
    case.configure(monitor_execution=True)
    case.give(0, ME)
    case.see(state)
    assert (case.reported(), state.claimable()) == ([], frozenset())
    case.now = 10.0
    case.see(state)
    assert (case.reported(), state.claimable()) == ([], {0})


@pytest.mark.parametrize("misfire", [True, False])
def test_moments_of_an_item_given_during_a_run_are_reported_if_records_are_switched_on_before_its_end(
    misfire: bool,
) -> None:
    case = Case.of(items=2, monitor_execution=False, misfire=misfire)
    case.give(1, OTHER)
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    case.claim(state, frozenset([0]), slot(1))  # a run of item 0 until 6.2
    case.now = 2.5
    case.give(1, ME)  # by its former holder 1 and 2 were run
    case.now = 4.5
    case.configure(monitor_execution=True)
    case.now = 6.2
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    reported = {second for first, last, _ in case.reported(1) for second in range(first, last + 1)}
    assert (reported, state.claimable() - {0}) == ({3, 4, 5}, {1})


def test_moments_of_an_item_given_during_a_run_are_reported_if_records_are_switched_off_and_on_before_its_end() -> None:
    case = Case.of(items=2)
    case.give(1, OTHER)
    state = running_item_0(case)
    case.now = 2.5
    case.give(1, ME)
    case.now = 4.5
    case.configure(cron="0/2 * * * * ?")
    case.now = 7.5
    case.configure(monitor_execution=False)
    case.now = 8.5
    case.configure(monitor_execution=True)
    case.now = 9.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert [report[:2] for report in case.reported(1)] == [(3, 4), (6, 6), (8, 8)]


@pytest.mark.parametrize("cron", ["* * * * * ?", "* * * ? * *"])
@pytest.mark.parametrize("given", [5.5, 6.7])
def test_what_the_former_holder_ran_without_records_is_not_reported_if_a_run_hid_that_they_were_off(
    given: float, cron: str
) -> None:
    case = Case.of(items=2)
    case.give(1, OTHER)
    case.records[1] = Record(slot(4), "CRON", OTHER, begun=slot(4), completed_at=slot(4), completed=True)
    state = running_item_0(case)
    case.now = 4.5
    case.configure(monitor_execution=False)
    for now in (5.5, 6.6, 6.7):
        case.now = now
        if now == given:
            case.give(1, ME)
        elif now == 6.6:
            case.configure(monitor_execution=True, cron=cron)
    case.now = 8.2
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    reported = {second for first, last, _ in case.reported(1) for second in range(first, last + 1)}
    assert reported | {8} == set(range(int(given) + 1, 9))
    assert 1 in state.claimable()


def test_nothing_runs_again_if_the_first_look_at_records_that_are_switched_on_is_cut_off_half_way() -> None:
    case = Case.of(monitor_execution=False, cron="0/20 * * * * ?")
    state = case.state()
    case.see(state)
    case.now = 20.5
    case.see(state)
    state.items[0].assume(slot(20))  # it has run here, and nothing shows it
    case.now = 25
    case.configure(monitor_execution=True)
    steps = state.see(case.view())
    assert next(steps) == ReadItems(frozenset({0}), frozenset({0}))
    case.learn(state, 0)
    with pytest.raises(Suspended):  # the record was read, but not the offset
        steps.throw(Suspended())
    case.see(state)
    assert (state.held, state.claimable()) == ({0}, frozenset())


def test_records_count_since_they_were_switched_on_even_if_the_schedule_was_replaced_after_that() -> None:
    case = Case.of(items=2, cron="0/2 * * * * ?")
    case.give(1, OTHER)
    state = case.state()
    case.see(state)
    case.now = 2.0
    case.see(state)
    case.claim(state, frozenset([0]), slot(2))
    case.now = 2.5
    case.configure(monitor_execution=False)
    case.now = 3.0
    case.configure(monitor_execution=True)
    case.now = 4.5
    case.records[1] = Record(slot(4), "CRON", OTHER, begun=slot(4), completed_at=slot(4), completed=True)
    case.give(1, ME)
    case.now = 9.5
    case.configure(cron="1/4 * * * * ?")
    case.now = 10.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert [report[:2] for report in case.reported(1)] == [(6, 8)]


def test_an_item_given_during_a_run_that_hid_the_switching_on_of_records_owes_what_its_record_does_not_show() -> None:
    case = Case.of(items=2, monitor_execution=False, misfire=False)
    case.give(1, OTHER)
    state = running_item_0(case)
    case.now = 1.5
    case.configure(monitor_execution=True)
    case.records[1] = Record(slot(3), "CRON", OTHER, begun=slot(3), completed_at=slot(3), completed=True)
    case.now = 4.5  # when the other instance has left, before it has run 4
    case.give(1, ME)
    case.now = 4.7
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert (case.reported(1), state.timetable.newest, 1 in state.claimable()) == ([], slot(4), True)


def test_moments_that_other_instances_ran_before_records_were_switched_on_are_not_reported_later() -> None:
    case = Case.of(2, "0 * * * * ?", monitor_execution=False)
    case.put(LAYOUT.item(1).instance, OTHER.encode())
    state = case.state()
    case.see(state)
    case.now = 190.0
    case.configure(monitor_execution=True)
    case.see(state)
    case.now = 195.0
    case.give(1, ME)
    case.see(state)
    assert (case.reported(1), 1 in state.claimable()) == ([], False)


def test_moments_that_came_during_a_pause_are_not_reported_if_the_process_is_slow_afterwards() -> None:
    case = Case.of()
    state = case.state()
    case.put(LAYOUT.paused)
    case.see(state)
    for case.now in range(1, 10):
        case.see(state)
    case.drop(LAYOUT.paused)
    case.see(state)
    case.now = 11.5
    case.see(state)
    assert (case.reported(), state.claimable()) == ([(10, 10, Came.HELD_UP.value.why)], {0})


def test_the_former_holder_reports_moments_until_it_lost_the_item_if_records_are_switched_on_after_that() -> None:
    case = Case.of(items=2, monitor_execution=False)
    state = running_item_0(case)
    case.now = 2.5
    case.give(1, OTHER)
    case.now = 4.5
    case.configure(monitor_execution=True)
    case.see(state)
    assert case.reported(1) == [(1, 2, Came.UNRECORDED.value.why)]


@pytest.mark.parametrize("failover", [True, False])
def test_what_was_cut_off_is_reported_as_lost_when_records_are_switched_off(failover: bool) -> None:
    case = Case.of(items=4, failover=failover)
    lost = Record(slot(0), "CRON", OTHER, begun=slot(0), completed=False)
    case.records, case.running = {0: lost, 1: lost, 3: replace(lost, instance=ME)}, set() if failover else {0, 1}
    case.put(LAYOUT.orphans)
    case.put(LAYOUT.item(0).orphan)
    case.put(LAYOUT.item(1).failover, OTHER.encode(), owner=2)  # whose end nothing will show
    state = case.state()
    case.see(state)
    case.reports.clear()
    state.items[3].lost_run = 0
    case.configure(failover=False, monitor_execution=False)
    case.see(state)
    found = [(report.items, report.passed.first, report.cut_off) for report in case.reports if report.cut_off]
    assert found == ([((0,), slot(0), OTHER)] if failover else [((3,), slot(0), ME)])


def test_an_item_that_is_not_to_be_run_by_the_newest_view_has_missed_what_came_during_the_run() -> None:
    case = Case.of(items=2)
    state = case.state()
    case.see(state)
    case.now = 1.0
    case.see(state)
    case.claim(state, frozenset([0, 1]), slot(1))
    case.now = 4.2
    case.settle(state, frozenset([0, 1]))
    case.configure(cron="0/5 * * * * ?", sharding_total_count=1)
    case.drop(LAYOUT.item(1).instance)  # the item goes with the lower count
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert case.reported(1) == [(2, 3, BUSY), (4, 4, ENDED)]


def test_moments_of_a_schedule_changed_during_a_run_are_missed_because_that_run_was_going_on() -> None:
    case = Case.of()
    state = running_item_0(case)
    case.now = 3.5
    case.configure(cron="*/2 * * * * ?")
    case.now = 9.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.now = 14.5
    case.see(state)
    assert case.reported() == [(2, 2, BUSY), (3, 3, ENDED), (4, 8, BUSY), (10, 12, UNKNOWN)]
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(14))
    case.claim(state, frozenset([0]), slot(14))
    case.now = 15.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.configure(cron="* * * * * ?")
    case.now = 17.5
    case.see(state)  # no run was going on when the schedule was changed
    assert case.reported()[4:] == [(16, 16, UNKNOWN)]


def test_a_run_during_which_the_schedule_was_changed_explains_no_later_change_after_the_time_was_set_back() -> None:
    case = Case.of(ahead=100)
    state = running_item_0(case)
    case.configure(cron="*/2 * * * * ?")
    case.now = 9.5
    case.settle(state, frozenset([0]))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    case.ahead = 0
    for case.now in (9.6, 9.6 + STEADY, 30):
        case.see(state)
    case.claim(state, frozenset([0]), slot(30))
    case.settle(state, frozenset([0]))
    case.reports.clear()
    case.configure(cron="* * * * * ?")
    case.now = 34.5
    case.see(state)
    assert case.reported() == [(31, 33, UNKNOWN)]


def ran_another_item(case: Case, *, is_switched_on: bool) -> JobState:
    """Return the state of an instance that has run item 0 for 3.2 s, in which item 1 was switched on, or not."""
    case.put(LAYOUT.item(1).disabled)
    state = running_item_0(case)
    if is_switched_on:
        case.drop(LAYOUT.item(1).disabled)
    case.now = 4.2
    case.settle(state, frozenset([0]))
    return state


@pytest.mark.parametrize("is_switched_on", [True, False])
@pytest.mark.parametrize(
    ("settings", "came"), [({"cron": "0/5 * * * * ?"}, Came.REPLACED), ({"monitor_execution": False}, Came.UNRECORDED)]
)
def test_an_orphan_that_was_switched_on_during_a_run_has_missed_what_came_before_the_job_was_changed(
    is_switched_on: bool, settings: dict[str, object], came: Came
) -> None:
    case = Case.of(items=2, failover=True)
    case.records[1] = Record(slot(0), "CRON", OTHER, begun=slot(0), completed=False)
    for path in (LAYOUT.orphans, LAYOUT.item(1).orphan):
        case.put(path)
    state = ran_another_item(case, is_switched_on=is_switched_on)
    case.configure(failover=came is Came.REPLACED, **settings)
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert ((2, 4, came.value.why) in case.reported(1)) is is_switched_on


@pytest.mark.parametrize("is_switched_on", [True, False])
@pytest.mark.parametrize(
    ("settings", "behind"),
    [({"cron": "0/5 * * * * ?"}, 0.0), ({"cron": "0/5 * * * * ?"}, 0.5), ({"monitor_execution": False}, 0.0)],
)
def test_an_item_that_was_switched_on_during_a_run_has_missed_what_came_before_the_job_was_changed(
    is_switched_on: bool, settings: dict[str, object], behind: float
) -> None:
    case = Case.of(items=2)
    state = ran_another_item(case, is_switched_on=is_switched_on)
    case.configure(**settings)
    case.now -= behind  # this host's clock is behind, so the newest moment has yet to come by it
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    came = [moment for first, last, _ in case.reported(1) for moment in range(first, last + 1)]
    assert came == ([2, 3, 4] if is_switched_on else [])


@pytest.mark.parametrize("flag", [LAYOUT.paused, LAYOUT.server_paused("10.0.0.1"), LAYOUT.item(0).disabled])
def test_what_came_during_a_run_before_the_item_was_switched_off_is_missed_and_the_rest_is_excused(flag: str) -> None:
    case = Case.of(misfire=False)
    state = running_item_0(case)
    case.now = 3.5
    case.put(flag)
    case.now = 5.2
    case.settle(state, frozenset([0]))
    view = case.view()
    case.tell(state, lambda: state.run_ended(view))
    case.see(state, view)
    case.now = 7.2
    case.see(state)
    case.now = 7.5
    case.drop(flag)
    case.see(state, case.view())
    assert case.reported() == [(2, 3, BUSY)]
    assert not state.claimable()
    case.now = 8.0
    case.see(state)
    assert (case.reported(), state.claimable()) == ([(2, 3, BUSY)], {0})


def test_an_item_that_is_gained_while_the_job_is_paused_owes_nothing_that_came_before() -> None:
    case = Case.of()
    case.put(LAYOUT.leader)
    case.put(LAYOUT.paused)
    case.now = 60.5
    state = case.state()
    case.see(state)
    case.drop(LAYOUT.paused)
    case.now = 61.0
    case.see(state)
    assert (state.held, state.claimable(), case.reported()) == ({0}, {0}, [])
    assert state.timetable.newest == slot(61)


def test_an_item_that_was_taken_from_a_paused_instance_owes_nothing_that_came_before() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now = 60.5
    case.give(0, ME)
    case.put(LAYOUT.item(0).sharding)  # as the leader does
    case.see(state)
    assert (state.claimable(), case.reported()) == (frozenset(), [])
    case.now = 61.0
    case.see(state)
    assert (state.claimable(), case.reported()) == ({0}, [])


def test_an_item_made_while_the_clock_was_ahead_owes_what_has_come_since_the_clock_was_set_back() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now, case.ahead = 5.0, 30.0
    case.drop(LAYOUT.item(0).sharding)
    case.put(LAYOUT.item(0).sharding)  # dated 35
    case.see(state)
    case.now, case.ahead = 8.5, 0.0
    case.see(state)
    case.now = 20.5  # so it is certain that the clock is right
    case.give(0, ME)
    case.see(state)
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(20))
    assert [report[:2] for report in case.reported()] == [(9, 19)]


@pytest.mark.parametrize(("ahead", "missed"), [(1.5, []), (2.9, []), (5.0, [(5, 5, BLOCKED), (6, 6, SET_BACK)])])
def test_an_item_gained_just_after_the_time_went_back_runs_or_reports_each_moment_and_none_before_it_comes(
    ahead: float, missed: list[tuple[int, int, str]]
) -> None:
    case, ran = Case.of(), set[int]()
    case.give(0, OTHER)
    case.ahead = ahead
    state = case.state()
    case.now = 5.0
    case.see(state)
    assert state.timetable.newest == slot(int(5 + ahead))
    case.now, case.ahead = 5.1, 0.0
    case.records[0] = Record(slot(4), "CRON", OTHER)
    case.give(0, ME)
    while case.now < 9:
        case.see(state)
        if owed := state.claimable():
            ran.add(state.timetable.newest // 1000 - BEGIN)
            assert max(ran) <= case.now
            case.claim(state, owed, state.timetable.newest)
            case.settle(state, owed)
        case.now += 0.25
    assert ran == {5, 6, 7, 8} - {second for second, _, _ in missed}
    assert case.reported() == missed


def test_the_schedule_follows_a_time_that_went_back_a_little_even_if_nothing_else_has_changed() -> None:
    case = Case.of()
    state = case.state()
    case.see(state)
    case.now, case.ahead = 5.0, 1.5
    case.tell(state, lambda: state.see_what_is_due(state.view))
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(6))
    case.now, case.ahead = 5.1, 0.0
    case.tell(state, lambda: state.see_what_is_due(state.view))
    assert (state.claimable(), state.timetable.newest, state.timetable.upcoming) == ({0}, slot(5), slot(6))


def test_a_clock_that_was_set_back_before_an_outage_is_not_believed_until_it_has_been_heard_after_it() -> None:
    case = Case.of()
    state = case.state()
    case.records[0] = Record(slot(2), "CRON", OTHER)
    case.see(state)
    case.now, case.ahead = 3.2, -3600.0
    case.see(state)
    case.outages = [(4.0, 20.0)]
    case.now = 20.5  # connected again, and not told yet that the clock has been put right meanwhile
    case.see(state)
    assert state.claimable() == frozenset()
    case.now, case.ahead = 21.2, 0.0
    case.see(state)
    assert (state.timetable.newest, state.claimable(), state.source({0})) == (slot(21), {0}, FireSource.CRON)


def test_a_clock_that_was_set_back_before_an_outage_and_stays_there_is_followed_afterwards() -> None:
    case = Case.of()
    state = case.state()
    case.records[0] = Record(slot(2), "CRON", OTHER)
    case.see(state)
    case.now, case.ahead = 3.2, -3600.0
    case.see(state)
    case.outages = [(4.0, 20.0)]
    for now in (20.5, 20.0 + STEADY + 0.5):
        case.now = now
        case.see(state)
    assert (state.timetable.newest, state.claimable()) == (slot(30 - 3600), {0})


@pytest.mark.parametrize("misfire", [False, True])
def test_a_moment_that_a_clock_ahead_reported_is_run_when_it_comes_only_if_misfire_is_on(misfire: bool) -> None:
    case = Case.of(cron="1/10 * * * * ?", misfire=misfire)
    case.give(0, OTHER)
    case.ahead = 20.0
    state = case.state()
    case.see(state)
    case.now = 11.5
    case.give(0, ME)  # at 31.5
    case.see(state)
    assert [report[:2] for report in case.reported()] == [(1, 1), (11, 21)]
    case.now, case.ahead = 12.0, 0.0
    case.see(state)
    case.now = 25.0  # so it is certain that the clock is right
    case.see(state)
    assert (state.claimable(), state.timetable.newest) == ({0} if misfire else frozenset(), slot(21))
    case.now = 31.5
    case.see(state)
    assert (state.claimable(), len(case.reported())) == ({0}, 2)


@pytest.mark.parametrize("gained", [20.5, 58.5, 65.5], ids=["before", "just before", "after"])
def test_an_item_made_before_this_instance_came_by_a_clock_ahead_owes_what_has_come_since_then(gained: float) -> None:
    """The item is gained before or after the date that the clock has given to it and to its schedule."""
    case = Case.of(ahead=60)
    case.give(0, OTHER)
    case.now, case.ahead = 10.5, 0.0
    state = case.state()
    case.see(state)
    case.now = gained
    case.give(0, ME)
    case.see(state)
    assert (state.claimable(), [report[:2] for report in case.reported()]) == ({0}, [(11, int(gained) - 1)])


def test_a_schedule_of_a_clock_ahead_is_in_force_since_this_instance_came_and_its_successor_since_its_own_date() -> (
    None
):
    case = Case.of(cron="0/40 * * * * ?", ahead=30)  # dated 30.5
    case.give(0, OTHER)
    case.now, case.ahead = 10.5, 0.0
    state = case.state()
    case.see(state)
    case.now = 35.5
    case.configure(cron="* * * * * ?")
    case.see(state)
    case.now = 38.5
    case.give(0, ME)
    case.see(state)
    assert (state.claimable(), [report[:2] for report in case.reported()]) == ({0}, [(36, 37)])


def test_what_nobody_was_up_for_is_owed_although_item_and_schedule_were_dated_later_by_a_clock_ahead() -> None:
    """The item has run at the right time since, so it and its schedule were made before that."""
    case = Case.of(ahead=30)  # dated 30.5
    case.now, case.ahead = 40.5, 0.0
    case.records[0], case.stats[0] = Record(slot(20), "CRON", OTHER), stat(mzxid=case.zxid + 1, mtime=BEGIN + 20)
    for name in (OTHER, ME):
        case.drop(LAYOUT.instance(name))
    case.put(LAYOUT.instance(ME), owner=1)
    state = case.state(up_since=40.5)
    case.see(state)
    assert case.reported() == [(21, 40, NO_INSTANCE_UP)]


def came_back(case: Case) -> JobState:
    """Return the state of an instance that has just come up, when nobody was up for 20 seconds."""
    for name in (OTHER, ME):
        case.drop(LAYOUT.instance(name))
    case.now += 20
    case.put(LAYOUT.instance(ME), owner=1)
    for item in range(case.config.sharding_total_count):
        case.give(item, ME)
    return case.state(up_since=case.now)


@pytest.mark.parametrize("refused", [(ReadItems,), (MarkMissed,), (ReadItems, MarkMissed, MarkMissed)])
def test_what_nobody_was_up_for_is_reported_once_although_the_registry_refuses_commands(
    refused: tuple[type[Command], ...],
) -> None:
    case = Case.of(items=MARKS_PER_TRANSACTION + 1)
    state = came_back(case)
    for command in refused:
        case.refused = [command]
        case.see(state)
        assert (state.held, case.reports) == (frozenset(), [])
    case.see(state)
    assert state.held == set(range(MARKS_PER_TRANSACTION + 1))
    assert [report.items for report in case.reports] == [tuple(range(MARKS_PER_TRANSACTION)), (MARKS_PER_TRANSACTION,)]
    assert case.reported() == case.reported(MARKS_PER_TRANSACTION) == [(1, 20, NO_INSTANCE_UP)]


def test_items_whose_marks_are_refused_after_the_view_was_outdated_are_gained_again() -> None:
    case = Case.of(items=2)
    state, old = came_back(case), case.view()
    case.put(LAYOUT.sharding)  # the next part of the assignment is written
    case.see(state, old)
    case.refused = [MarkMissed]
    case.see(state)
    assert (state.held, case.reports) == (frozenset(), [])
    case.see(state)
    assert [case.reported(item) for item in (0, 1)] == [[(1, 20, NO_INSTANCE_UP)]] * 2


def test_items_that_were_marked_before_the_registry_refused_the_next_marks_are_not_reported_again() -> None:
    case = Case.of(items=MARKS_PER_TRANSACTION + 1)
    state = came_back(case)
    view = case.view()
    state.clock.take(case.reading())
    steps = state.see(view)
    case.answer(state, next(steps))
    marking = steps.send(frozenset())
    assert isinstance(marking, MarkMissed)
    assert len(marking.said) == MARKS_PER_TRANSACTION
    assert steps.send(case.answer(state, marking)) == MarkMissed(view, {MARKS_PER_TRANSACTION: MissedMark(slot(20))})
    steps.close()  # that one is refused
    case.take_reports(state)
    case.see(state)
    assert state.held == set(range(MARKS_PER_TRANSACTION + 1))
    assert case.reported() == case.reported(MARKS_PER_TRANSACTION) == [(1, 20, NO_INSTANCE_UP)]


@pytest.mark.parametrize("refused", [ReadAccounted, WriteAccounted])
def test_what_nobody_was_up_for_without_records_is_reported_once_although_the_registry_refuses_commands(
    refused: type[Command],
) -> None:
    case = Case.of(monitor_execution=False, cron="0/20 * * * * ?")
    case.accounted = AccountedMoment(slot(0), 7)
    state = came_back(case)
    case.put(LAYOUT.host, ME.encode(), owner=1)
    case.refused = [refused]
    case.see(state)
    assert (state.held, case.reports) == ({0}, [])
    case.see(state)
    assert not case.reports  # it tries again after a pause
    case.now += RETRY_PAUSE
    for _ in range(2):
        case.see(state)
    assert case.reported() == [(20, 20, NO_INSTANCE_UP)]
    assert case.accounted == (slot(20), 8)


def made_by_a_clock_ahead(record: Record) -> tuple[Case, JobState]:
    """Return a job whose items were made by a clock 30 seconds ahead, and the state of the holder of the first one."""
    case = Case.of(items=2, ahead=30, failover=True)
    case.give(1, OTHER)
    case.ahead, case.records[0] = 0.0, record
    state = case.state()
    case.see(state)
    for seconds in (STEADY - 0.5, 0.5):  # so it is certain now that the clock is right
        case.see(state)
        case.now += seconds
    return case, state


def test_a_run_elsewhere_is_waited_for_although_the_marks_of_another_item_are_refused() -> None:
    case, state = made_by_a_clock_ahead(Record(slot(31), "CRON", OTHER))
    case.records[1] = Record(slot(1), "CRON", OTHER, begun=slot(1), completed=False)
    case.give(1, ME)
    case.refused = [MarkMissed]
    case.see(state)
    assert not case.refused
    case.see(state)
    assert FollowReleases(frozenset({1})) in case.done
    assert case.reported() == [(1, 30, SET_BACK)]


def test_what_a_lowered_record_has_claimed_is_reported_although_the_marks_of_another_item_are_refused() -> None:
    case, state = made_by_a_clock_ahead(Record(slot(31), "CRON", OTHER))
    case.records[1] = Record(slot(600), "CRON", OTHER)
    case.give(1, ME)
    case.refused = [MarkMissed]
    for _ in range(2):
        case.see(state)
    assert state.claimable() == {1}
    assert case.reported(1) == [(1, 9, SET_BACK)]
    assert case.reported(0) == [(1, 30, SET_BACK)]


def test_what_nobody_ran_of_a_job_made_by_a_clock_ahead_is_reported_although_it_has_no_record_yet() -> None:
    case = Case.of(ahead=30)
    state = case.state()
    case.see(state)
    case.now = 3.5
    case.see(state)  # which reports 31 and 32, at 33.5
    case.now, case.ahead = 5.5, 0.0
    for _ in range(3):
        case.see(state)
        case.now += STEADY / 2
    assert case.reported()[1:] == [(6, 30, SET_BACK)]


@pytest.mark.parametrize("misfire", [True, False])
def test_what_was_reported_before_the_time_went_back_a_little_is_run_only_with_misfire(misfire: bool) -> None:
    case = Case.of(misfire=misfire)
    state = case.state()
    case.see(state)
    case.now = 2.1
    case.see(state)
    assert case.reported() == [(1, 1, Came.HELD_UP.value.why)]
    assert state.claimable() == {0}
    case.now = 1.3
    case.see(state)
    assert state.claimable() == ({0} if misfire else frozenset())
    assert not misfire or state.source({0}) is FireSource.MISFIRE
    case.now = 2.2
    case.see(state)
    assert state.claimable() == {0}
    assert state.timetable.newest == slot(2)
    assert state.source({0}) is FireSource.CRON


def test_an_item_made_by_a_clock_ahead_and_gained_just_after_a_step_back_owes_what_came_since_its_record() -> None:
    case = Case.of(ahead=30)
    case.give(0, OTHER)
    case.now, case.ahead = 1.5, 0.0
    state = case.state()
    case.see(state)
    case.now = 15.5
    case.zxid += 1
    case.records[0], case.stats[0] = Record(slot(15), "CRON", OTHER), stat(mzxid=case.zxid, mtime=BEGIN + 15)
    case.see(state)
    case.now, case.ahead = 20.1, 5.0
    case.see(state)
    case.now, case.ahead = 20.2, 0.0
    case.give(0, ME)
    case.see(state)
    assert [report[:2] for report in case.reported()] == [(16, 20)]
