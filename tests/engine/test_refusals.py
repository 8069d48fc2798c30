"""What the registry refuses is shown while it is refused, noted in the instance's node, and logged in moderation."""

from __future__ import annotations

import json

import pytest
from anyio import sleep

from aioelasticjob.engine.refusals import (
    CLAIM,
    KEY,
    LONGEST_REASON,
    MAX_SPANS,
    QUIET_FOR,
    REFUSAL_DELAY,
    SETTLE,
    Refusals,
    noted_refusals,
)
from aioelasticjob.ground.limited_log import INTERVAL, MOST, LimitedLog
from aioelasticjob.registry.codec import failure
from aioelasticjob.testing import VirtualClock, run
from tests.support.clocks import StandingClock


def test_a_refusal_is_logged_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = StandingClock(100.0)
    refusals = Refusals("report", clock)
    for _ in range(5):
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        clock.time += 1
    (one,) = refusals.present
    assert (one.what, one.since, one.times) == ("to settle items", 100.0, 5)
    refusals.accepted("to claim items")
    refusals.accepted("to settle items")
    assert refusals.present == ()
    for _ in range(3):  # it goes on and off
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        refusals.accepted("to settle items")
    said = [entry.getMessage() for entry in caplog.records]
    assert said == [
        "report: the registry refuses to settle items: /job/execution/0: the quota that somebody set in the registry is"
        " used up: raise it (setquota), or remove nodes (-125) (docs: errors/RegistryError)",
        "report: the registry accepts to settle items again; it had refused that 5 times in 5.0 s",
    ]
    refusals.refused("to leave", failure(-102, "/job"))
    clock.time += 61  # nobody asks for it any more
    assert refusals.present == ()


def test_spans_in_which_a_refusal_kept_items_from_running_are_remembered() -> None:
    clock = StandingClock(100.0)
    refusals, error = Refusals("report", clock), failure(-125, "/job")
    assert refusals.ages(100.0) == ()
    refusals.refused("to publish counts", error)  # this keeps no item from running
    refusals.refused(CLAIM, failure(-125, "/job"))
    clock.time = 103.0
    assert refusals.ages(103.0) == ((3.0 + REFUSAL_DELAY, 0.0),)  # the claim was sent before it was refused
    refusals.accepted(CLAIM)
    refusals.refused(SETTLE, failure(-125, "/job"))
    refusals.accepted("to publish counts")
    clock.time = 110.0 + QUIET_FOR  # the request was not sent again
    assert refusals.ages(clock.time)[1:] == ((7.0 + QUIET_FOR, 7.0 + QUIET_FOR),)
    refusals.refused(SETTLE, failure(-125, "/job"))
    began = [round(clock.time - age, 1) for age, _ in refusals.ages(clock.time)]
    assert began == [100.0 - REFUSAL_DELAY, 103.0, 110.0 + QUIET_FOR]


def test_only_the_last_spans_of_refusals_are_remembered() -> None:
    clock = StandingClock(100.0)
    refusals = Refusals("report", clock)
    for second in range(MAX_SPANS + 8):
        clock.time = 100.0 + second
        refusals.refused(SETTLE, failure(-125, "/job"))
        refusals.accepted(SETTLE)
    assert [age for age, _ in refusals.ages(clock.time)] == list(map(float, reversed(range(MAX_SPANS))))


def test_the_end_of_a_refusal_that_was_logged_more_than_once_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = StandingClock(100.0)
    refusals = Refusals("report", clock)
    for _ in range(70):
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        clock.time += 1
    refusals.accepted("to settle items")
    said = [entry.getMessage() for entry in caplog.records]
    assert [text.split()[3] for text in said] == ["refuses", "refuses", "accepts"]
    assert said[-1].endswith("it had refused that 70 times in 70.0 s")


def test_of_the_refusals_of_many_jobs_some_are_logged_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        limited_log, clock = LimitedLog(), VirtualClock()
        jobs = [Refusals(f"job-{number}", clock, limited_log) for number in range(MOST + 30)]
        for refusals in jobs:
            refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        await sleep(INTERVAL + 1)
        for refusals in jobs:
            refusals.accepted("to settle items")

    run(main)
    kind = "the registry refuses to settle items"
    assert all(f": {kind}: " in line for line in caplog.messages[:MOST])
    assert caplog.messages[MOST] == f"30 more lines were left out, about 30 jobs: {kind}"
    assert len(caplog.messages[MOST + 1 :]) == MOST  # those accept again whose refusal is in the log


def test_what_is_refused_is_noted_once_and_taken_back_when_it_is_over() -> None:
    clock, said = StandingClock(100.0), dict[str, object]()
    refusals = Refusals("job", clock)
    assert refusals.note(said) is None
    refusals.refused("to settle items", failure(-125, "/job/" + "x" * 1000))
    said[KEY] = refusals.note(said)
    ((what, why, since),) = noted_refusals(said)
    assert (what, len(why), since) == ("to settle items", LONGEST_REASON, 100.0)
    clock.time += 1
    refusals.refused("to settle items", failure(-125, "/job/execution/0"))
    assert refusals.note(said) == said[KEY]  # it is the same refusal
    refusals.refused("to leave", failure(-102, "/job"))
    assert [what for what, _, _ in noted_refusals({KEY: refusals.note(said)})] == ["to settle items", "to leave"]
    clock.time += QUIET_FOR
    assert refusals.note(said) is None


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        "x",
        [7],
        [{"what": 1, "why": "x", "since": 1}],
        [{"what": "x"}],
        [{"what": "x", "why": "x", "since": 10**400}],
    ],
)
def test_a_note_that_somebody_has_garbled_is_left_out(said: object) -> None:
    assert noted_refusals(json.loads(json.dumps({KEY: said}))) == ()
