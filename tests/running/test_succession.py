"""What became of the schedule that an instance has followed."""

from __future__ import annotations

import json

import pytest

from aioelasticjob.coordination.view import read
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.running.succession import Succession
from tests.coordination.test_claims import LAYOUT as DESK
from tests.coordination.test_claims import Desk
from tests.running.cases import BEGIN, ME, OTHER, Case

EACH, FIFTH = "* * * * * ?", "0/5 * * * * ?"


def test_no_schedule_came_after_the_one_in_force_though_an_earlier_one_was_dated_by_a_clock_ahead() -> None:
    desk, told = Desk(1), {"timeZone": "UTC", "dst": "cron", "monitorExecution": True}
    former = {**told, "cron": "* * * * * ?", "since": 4_000_000}
    config = desk.config.changed(cron="0/5 * * * * ?", time_zone="UTC")
    note = {**told, "cron": config.cron, "since": 1_000_000, "former": [former]}
    desk.write(Set(DESK.config, config.to_json(), -1), Create(DESK.schedule, json.dumps(note).encode()))
    view = read(desk.registry.tree(), DESK, config)
    assert (view.schedule_dated, [one.since for one in view.former_schedules]) == (1_000, [4_000_000])
    assert not Succession(config.schedule, 1_000, view).has_changed


def test_a_schedule_is_the_same_while_it_is_in_force_whatever_else_is_changed() -> None:
    case = Case.of(cron=EACH)
    followed, since = case.config.schedule, case.view().schedule_dated
    case.now = 10
    case.configure(description="hello")
    assert not Succession(followed, since, case.view()).has_changed


@pytest.mark.parametrize("back", [False, True])
def test_a_schedule_that_was_replaced_has_ended_then_though_it_is_back_in_force(back: bool) -> None:
    case = Case.of(cron=EACH)
    followed, since = case.config.schedule, case.view().schedule_dated
    case.now = 10
    case.configure(cron=FIFTH)
    if back:
        case.now = 20
        case.configure(cron=EACH)
    found = Succession(followed, since, case.view())
    assert found.has_changed
    assert found.ended == (BEGIN + 10) * 1000
    assert [one.cron and one.cron.expression for one in found.between] == [FIFTH] * back


def test_a_schedule_that_was_written_over_before_it_was_noted_is_followed_by_those_that_are_dated_later() -> None:
    case = Case.of(cron=EACH)
    for now, cron in ((10, FIFTH), (20, EACH), (30, FIFTH)):
        case.now = now
        case.configure(cron=cron)
    found = Succession(case.config.schedule, BEGIN + 15, case.view())
    assert [one.since for one in found.between] == [(BEGIN + 20) * 1000]
    assert found.has_changed  # another was in force meanwhile


def test_who_has_an_item_when_its_schedule_ends_depends_on_which_came_first() -> None:
    case = Case.of(items=3, cron=EACH)
    followed, since = case.config.schedule, case.view().schedule_dated
    case.now = 10
    case.give(0, OTHER)
    case.now = 20
    case.configure(cron=FIFTH)
    case.now = 30
    case.give(1, OTHER)
    found = Succession(followed, since, case.view())
    assert found.given_away_since(range(3)) == {1}  # whose next holder follows the new schedule only
    assert found.handed_on(range(3), ME) == {0}  # whose next holder has seen the end of the last one
