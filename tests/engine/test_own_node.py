"""What an instance notes in its own node is true, and is written only if it has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from aioelasticjob.engine.own_node import CHANGE, intolerable_difference, noted_clock_difference, renewed
from aioelasticjob.engine.refusals import QUIET_FOR, Refusals, noted_refusals
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Delete, Set
from tests.engine.test_claims import CONFIG, LAYOUT, ME, MINE, ClaimedJob
from tests.support.clocks import StandingClock

NODE = LAYOUT.instance(ME)


class NotingInstance:
    """An instance of a job with a limit for the clock, and its node."""

    def __init__(self, data: bytes = b'{"host": "web"}', limit: int = 5) -> None:
        self.job, self.clock = ClaimedJob(), StandingClock(100.0)
        self.member = replace(self.job.member, refusals=Refusals("job", self.clock))
        self.job.write(Set(NODE, data, -1))
        self.configure(max_time_diff_seconds=limit)

    def configure(self, **settings: Any) -> None:
        self.job.write(Set(LAYOUT.config, CONFIG.changed(**settings).to_json(), -1))

    def tick(self, skew: float | None = 0.0) -> bool:
        """Bring the node up to date, with this host's clock ahead by so much; return whether that was a write."""
        self.job.session.clock_skew = skew
        note = renewed(self.member, self.job.view(), 2026)
        if note is not None:
            self.job.registry.commit([note], MINE)
        return note is not None

    @property
    def said(self) -> Mapping[str, object]:
        return json_object(self.job.registry.nodes[NODE].data)


def test_a_clock_that_the_job_does_not_tolerate_is_noted_until_it_does() -> None:
    here = NotingInstance()
    assert not here.tick(None)  # not known yet
    assert not here.tick(5.0)
    assert here.tick(7.24)
    assert (here.said["clockDiffers"], here.said["host"]) == (7.2, "")  # its host has no name
    assert not here.tick(7.2 + CHANGE - 0.01)  # it drifts
    assert here.said["clockDiffers"] == 7.2
    assert here.tick(7.2 + CHANGE + 0.1)
    assert here.said["clockDiffers"] == 8.3
    assert here.tick(-9.0)
    assert here.said["clockDiffers"] == -9.0
    assert not here.tick(-9.5)
    assert here.tick(4.9)
    assert "clockDiffers" not in here.said
    assert not here.tick(4.9)


def test_the_note_follows_the_limit_also_if_the_limit_is_none_at_all() -> None:
    here = NotingInstance(limit=0)
    assert here.tick(0.04)
    assert noted_clock_difference(here.said) == 0.1  # the smallest difference is noted, too
    here.configure(max_time_diff_seconds=-1)
    assert here.tick(3600.0)
    assert "clockDiffers" not in here.said
    assert not here.tick(3600.0)


def test_notes_that_change_together_or_one_by_one_do_not_lose_each_other() -> None:
    here = NotingInstance(b'{"colour": "red"}')

    def notes() -> tuple[float | None, list[str], object]:
        assert here.said["colour"] == "red"
        what = [what for what, _, _ in noted_refusals(here.said)]
        return noted_clock_difference(here.said), what, here.said.get("differs")

    here.member.refusals.refused("to settle items", failure(-125, "/job"))
    assert here.tick(7.0)
    assert notes() == (7.0, ["to settle items"], None)
    here.member = replace(here.member, declared=CONFIG)
    assert here.tick(9.0)
    assert notes() == (9.0, ["to settle items"], ["max_time_diff_seconds"])
    here.clock.time += 1
    here.member.refusals.refused("to settle items", failure(-125, "/job/execution/0"))
    assert not here.tick(9.0)  # it is the same refusal
    here.clock.time += QUIET_FOR
    assert here.tick(9.0)
    assert notes() == (9.0, [], ["max_time_diff_seconds"])
    here.member = replace(here.member, declared=None)
    here.member.refusals.refused("to settle items", failure(-125, "/job"))
    assert here.tick()
    assert notes() == (None, ["to settle items"], None)


def test_who_leaves_goes_on_to_say_so_with_each_note() -> None:
    here = NotingInstance(b'{"leaving": true, "upSince": 7}')
    assert here.tick(7.0)
    assert (here.said["leaving"], here.said["upSince"], here.said["clockDiffers"]) == (True, 7, 7.0)


def test_a_node_that_is_not_this_instances_own_is_left_alone() -> None:
    here = NotingInstance()
    here.member = replace(here.member, incarnation=MINE + 1)
    assert not here.tick(7.0)
    here.job.write(Delete(NODE))
    here.member = replace(here.member, incarnation=MINE)
    assert not here.tick(7.0)


@pytest.mark.parametrize("said", ["7", True, [], "NaN", 10**400])
def test_a_note_that_somebody_has_garbled_is_written_anew(said: object) -> None:
    text = json.dumps({"clockDiffers": said, "refused": 7}).replace('"NaN"', "NaN").encode()
    here = NotingInstance(text)
    assert noted_clock_difference(here.said) is None
    assert here.tick(7.0)
    assert (here.said["clockDiffers"], "refused" in here.said) == (7.0, False)


def test_what_is_said_of_a_clock_is_whether_the_job_runs() -> None:
    config = CONFIG.changed(max_time_diff_seconds=5)
    found = {skew: intolerable_difference(skew, config) for skew in (None, 0.0, 5.0, -5.0, 5.04, -5.04, -7.26)}
    above = {5.04: 5.1, -5.04: -5.1, -7.26: -7.3}  # rounding does not hide that it is too much
    assert found == {None: None, 0.0: None, 5.0: None, -5.0: None} | above
