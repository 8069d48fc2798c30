"""What became of the schedule that an instance has followed."""

from __future__ import annotations

import json

from aioelasticjob.coordination.view import read
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.running.succession import Succession
from tests.coordination.test_claims import LAYOUT as DESK
from tests.coordination.test_claims import Desk


def test_no_schedule_came_after_the_one_in_force_though_an_earlier_one_was_dated_by_a_clock_ahead() -> None:
    desk, told = Desk(1), {"timeZone": "UTC", "dst": "cron", "monitorExecution": True}
    former = {**told, "cron": "* * * * * ?", "since": 4_000_000}
    config = desk.config.changed(cron="0/5 * * * * ?", time_zone="UTC")
    note = {**told, "cron": config.cron, "since": 1_000_000, "former": [former]}
    desk.write(Set(DESK.config, config.to_json(), -1), Create(DESK.schedule, json.dumps(note).encode()))
    view = read(desk.registry.tree(), DESK, config)
    assert (view.schedule_dated, [one.since for one in view.former_schedules]) == (1_000, [4_000_000])
    assert not Succession(config.schedule, 1_000, view).has_changed
