"""The leader notes since when the schedule has been in force, and which ones were before it."""

from __future__ import annotations

import pytest

from aioelasticjob.core.rules import MAX_AHEAD
from aioelasticjob.core.schedules import FOREVER, MAX_FORMER_SCHEDULES
from aioelasticjob.core.view import JobView
from aioelasticjob.registry.transaction import Delete, Set
from tests.core.rules.world import LACKED, LAYOUT, World, world


def test_a_new_schedule_is_in_force_from_when_the_leader_notes_it_whoever_writes_another_setting() -> None:
    here = world(2, cron="0 * * * * ?")
    assert here.settle().schedules.since == 1_000_000
    changes: tuple[tuple[float, dict[str, object], int], ...] = (
        (2_000.0, {"description": "hello"}, 1_000),
        (3_000.0, {"cron": "0 0 * * * ?"}, 3_007),
        (4_000.0, {"description": "again"}, 3_007),
        (5_000.0, {"monitor_execution": False}, 5_007),
        (6_000.0, {"time_zone": "Europe/Berlin"}, 6_007),
    )
    for now, changed, since in changes:
        before = here.view().schedules
        view = _change(here, now, **changed)
        assert view.schedules.periods == before.periods  # it is followed only when it is noted
        here.registry.now = now + 7
        assert here.settle().schedules.since == since * 1000
        assert here.view().schedules.is_noted


def test_a_job_whose_schedule_is_not_noted_yet_follows_its_configuration_from_when_it_was_made() -> None:
    here = world(1, cron="0 * * * * ?")
    (period,) = here.view().schedules.periods
    assert (period.since, period.until, here.view().schedules.since) == (1_000_000, FOREVER, 0)
    assert period.schedule is not None
    assert period.schedule.expression == "0 * * * * ?"


def test_the_first_note_says_that_the_schedule_is_in_force_since_the_job_was_made() -> None:
    here = world(0, cron="0 * * * * ?")
    here.registry.now = 9_000.0
    here.join(1)
    assert here.settle().schedules.since == 1_000_000


def test_a_schedule_that_was_noted_while_the_clock_was_far_ahead_is_noted_anew() -> None:
    here = world(1, cron="0 * * * * ?")
    here.settle()
    _change(here, 9_000.0, cron="30 * * * * ?")
    here.settle()
    here.registry.now = 9_000.0 - MAX_AHEAD
    assert here.settle().schedules.since == 9_000_000  # a clock may be ahead by a minute
    here.registry.now -= 1
    view = here.settle()
    assert view.schedules.since == round(here.registry.now * 1000)
    assert _former(view) == [("0 * * * * ?", 1_000_000, view.schedules.since)]


def test_a_schedule_ends_with_the_first_of_those_that_were_noted_after_it() -> None:
    """Otherwise two schedules would be in force together after a clock that was ahead has been put right."""
    here = world(1, cron="0 * * * * ?")
    here.settle()
    for now, cron in ((2_030.0, "30 * * * * ?"), (2_010.0, "* * * * * ?")):
        _change(here, now, cron=cron)
        here.settle()
    spans = [(one.since, one.until) for one in here.view().schedules.periods]
    assert spans == [(1_000_000, 2_010_000), (2_030_000, 2_010_000), (2_010_000, FOREVER)]


def _change(here: World, now: float, **changed: object) -> JobView:
    here.registry.now = now
    here.registry.commit([Set(LAYOUT.config, here.view().config.changed(**changed).to_json(), -1)])
    return here.view()


def _former(view: JobView) -> list[tuple[str, int, int]]:
    return [(one.schedule.expression, one.since, one.until) for one in view.schedules.periods[:-1] if one.schedule]


def test_the_leader_remembers_the_schedules_before_the_one_in_force() -> None:
    here = world(2, cron="0 * * * * ?")
    assert _former(here.settle()) == []
    first, second = ("0 * * * * ?", 1_000_000, 2_000_000), ("30 * * * * ?", 2_000_000, 3_000_000)
    assert _former(_change(here, 2_000, cron="30 * * * * ?")) == []  # the former one is followed until it is replaced
    assert _former(here.settle()) == [first]
    assert _former(_change(here, 2_500, description="hello")) == [first]
    assert _former(here.settle()) == [first]
    _change(here, 3_000, cron="0 * * * * ?")
    assert _former(here.settle()) == [first, second]
    for now in range(4_000, 24_000, 1_000):
        _change(here, now, cron=f"{now // 1000} * * * * ?")
        here.settle()
    assert len(_former(here.view())) == MAX_FORMER_SCHEDULES


def test_schedules_from_before_records_were_switched_on_or_off_have_no_moments_any_more() -> None:
    here = world(2, cron="0 * * * * ?")
    here.settle()
    _change(here, 2_000, cron="30 * * * * ?")
    here.settle()
    _change(here, 3_000, monitor_execution=False)
    assert _former(here.settle()) == []
    _change(here, 4_000, monitor_execution=True)
    view = here.settle()
    assert _former(view) == []
    assert [one.recorded for one in view.schedules.periods] == [True]
    _change(here, 5_000, cron="0 * * * * ?")
    assert [since for _, since, _ in _former(here.settle())] == [4_000_000]


def test_a_note_that_the_configuration_can_be_used_changes_neither_the_schedule_nor_the_former_ones() -> None:
    here = world(3, cron="0 * * * * ?")  # the second lacks a time zone
    here.settle()
    _change(here, 2_000, cron="30 * * * * ?", time_zone=LACKED)
    before = here.settle()
    assert before.is_accepted
    _change(here, 3_000, description="another transaction, which the second cannot use either")
    after = here.settle()
    assert after.is_accepted
    assert (after.schedules.since, _former(after)) == (before.schedules.since, _former(before))
    assert after.unable == {"10.0.0.2@-@1"}
    assert set(after.assignment.values()) == {"10.0.0.1@-@1"}


def test_a_schedule_is_not_noted_once_the_configuration_has_been_written_again() -> None:
    here = world(1, cron="0 * * * * ?")
    here.settle()
    older = _change(here, 2_000, cron="30 * * * * ?")
    newer = _change(here, 3_000, cron="0 0 * * * ?")
    assert older.leader is not None
    assert here.round(older.leader, older) == 0
    assert here.round(older.leader, newer) == 1


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"[]",
            b"\xff",
            b'{"since": true}',
            b'{"former": 7}',
            b'{"former": [7]}',
            b'{"cron": null, "since": "then"}',
        ),
        b'{"cron": ["0 * * * * ?"], "timeZone": "UTC", "dst": "cron", "monitorExecution": true, "since": 0}',
        b'{"cron": null, "timeZone": "UTC", "dst": "cron", "monitorExecution": true, "since": 1%s}' % (b"0" * 400),
        b'{"cron": null, "timeZone": "UTC", "dst": {}, "monitorExecution": true, "since": 0}',
    ],
)
def test_a_note_of_the_schedule_that_makes_no_sense_is_replaced(data: bytes) -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.schedule, data, -1)])
    assert here.view().schedules.since == 0
    settled = here.settle()
    assert settled.schedules.is_noted
    assert [one.since for one in settled.schedules.periods] == [1_000_000]  # since the job was made


def test_a_configuration_that_makes_no_sense_is_not_noted() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.config, b"nonsense", -1), Delete(LAYOUT.schedule)])
    assert LAYOUT.schedule not in here.settle().tree
