"""The leader notes since when the schedule has been in force, and which ones were before it."""

from __future__ import annotations

import pytest

from aioelasticjob.core.schedules import MAX_FORMER_SCHEDULES
from aioelasticjob.core.view import JobView
from aioelasticjob.registry.transaction import Delete, Set
from tests.core.rules.world import LACKED, LAYOUT, World, world


def test_the_leader_notes_since_when_the_schedule_is_in_force_whoever_writes_another_setting() -> None:
    here = world(2, cron="0 * * * * ?")
    assert here.settle().schedules.since == 1_000
    changes: tuple[tuple[float, dict[str, object], float], ...] = (
        (2_000.0, {"description": "hello"}, 1_000),
        (3_000.0, {"cron": "0 0 * * * ?"}, 3_000),
        (4_000.0, {"description": "again"}, 3_000),
        (5_000.0, {"monitor_execution": False}, 5_000),
        (6_000.0, {"time_zone": "Europe/Berlin"}, 6_000),
    )
    for now, changed, since in changes:
        here.registry.now = now
        here.registry.commit([Set(LAYOUT.config, here.view().config.changed(**changed).to_json(), -1)])
        assert here.view().schedules.since == since  # known at once, before it is noted
        assert here.settle().schedules.since == since


def _change(here: World, now: int, **changed: object) -> JobView:
    here.registry.now = float(now)
    here.registry.commit([Set(LAYOUT.config, here.view().config.changed(**changed).to_json(), -1)])
    return here.view()


def _former(view: JobView) -> list[tuple[str, int, int]]:
    return [(one.cron.expression, one.since, one.until) for one in view.schedules.since_switch if one.cron]


def test_the_leader_remembers_the_schedules_before_the_one_in_force() -> None:
    here = world(2, cron="0 * * * * ?")
    assert _former(here.settle()) == []
    first, second = ("0 * * * * ?", 1_000_000, 2_000_000), ("30 * * * * ?", 2_000_000, 3_000_000)
    assert _former(_change(here, 2_000, cron="30 * * * * ?")) == [first]  # known at once, before it is noted
    assert _former(here.settle()) == [first]
    here.settle()
    assert _former(_change(here, 2_500, description="hello")) == [first]
    assert _former(_change(here, 3_000, cron="0 * * * * ?")) == [first, second]
    assert _former(here.settle()) == [first, second]
    for now in range(4_000, 24_000, 1_000):
        _change(here, now, cron=f"{now // 1000} * * * * ?")
        here.settle()
    assert len(_former(here.view())) == MAX_FORMER_SCHEDULES
    assert _former(_change(here, 30_000, monitor_execution=False)) == []
    here.settle()
    assert _former(_change(here, 31_000, monitor_execution=True)) == []  # the records before that have been removed
    assert _former(here.settle()) == []


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
    assert here.view().schedules.since == 1_000
    settled = here.settle()
    assert settled.schedules.is_noted
    assert settled.schedules.former == ()


def test_a_configuration_that_makes_no_sense_is_not_noted() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.config, b"nonsense", -1), Delete(LAYOUT.schedule)])
    assert LAYOUT.schedule not in here.settle().tree
