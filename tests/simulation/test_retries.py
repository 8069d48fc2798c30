"""Each rule about attempts notices what it is for, and clusters whose attempts fail keep their promises."""

from __future__ import annotations

import pytest

from aioelasticjob.events import AttemptFailed
from aioelasticjob.model import FireSource
from tests.simulation.judges import retries
from tests.simulation.simulation import live, plan, replay
from tests.simulation.test_conduct import history_of
from tests.simulation.test_invariants import CONFIG, A, T, begun, broken, gone, made, put, written
from tests.simulation.trace import describe
from tests.support.history import Attempted, AttemptOver, Entry, Fault, Held, Raised, Reported, Written

SEEDS = range(4)
"""With failover and without, with wild operators and without."""
FALSE_ALARMS = {
    112: "A pause was lifted while the server could not hear of it: the moments until then are no less excused.",
}
"""Seeds with failover in which a judge was wrong."""


def attempt(at: float, number: int, run: int = 1) -> Attempted:
    return Attempted(T + at, run, number)


def over(at: float, number: int, how: str = "failed", run: int = 1) -> AttemptOver:
    return AttemptOver(T + at, run, number, how)


def failed(at: float, number: int) -> Reported:
    event = AttemptFailed(
        *("job", A, int((T + 10) * 1000), FireSource.SCHEDULE, (0,), number, 1.0, 0.5, "task", T + at, OSError())
    )
    return Reported(T + at, "10.0.1.1#1", "10.0.1.1", event)


CLAIM = written(10, 1, made("execution/0/running", A), zxid=1)
JOIN = written(1, 1, made(f"instances/{A}"))
RUN: tuple[Entry, ...] = (JOIN, CLAIM, begun(1, 10.1, fence=1), attempt(10.1, 1), over(11, 1), failed(11, 1))


def test_attempts_count_up_one_after_another() -> None:
    rule = retries.attempts_follow_one_another
    assert not broken(rule, history_of(*RUN, attempt(12, 2), over(13, 2), attempt(14, 3)))
    assert broken(rule, history_of(*RUN, attempt(12, 3)))
    assert broken(rule, history_of(*RUN, attempt(12, 1)))
    assert broken(rule, history_of(*RUN, attempt(12, 2), attempt(13, 3)))
    raised = Raised(T + 12, "10.0.1.1#1", "10.0.1.1", "job", "provider", "ValueError")
    assert not broken(rule, history_of(*RUN, raised, attempt(13, 3)))
    assert broken(rule, history_of(*RUN, raised, attempt(13, 1)))


def test_no_attempt_begins_after_the_lock_was_given_up() -> None:
    rule = retries.no_attempt_without_its_lock
    settled = written(12, 1, gone("execution/0/running"))
    assert not broken(rule, history_of(*RUN, attempt(11.5, 2), over(11.9, 2), settled))
    assert broken(rule, history_of(*RUN, settled, attempt(12.5, 2)))
    silent = written(12, 1, gone("execution/0/running"), ending=True)
    assert broken(rule, history_of(*RUN, silent, attempt(12.5, 2)))
    assert not broken(rule, history_of(*RUN, written(12, 99, gone("execution/0/running")), attempt(12.5, 2)))


@pytest.mark.parametrize(("seconds", "wrong"), [(1.0, False), (3.0, True)])
def test_who_is_robbed_of_the_session_has_to_hear_of_it_first(seconds: float, wrong: bool) -> None:
    expired = Fault(T + 12, "expire", ("10.0.1.1",)), Fault(T + 12.1, "expire", ("10.0.1.1",), over=True)
    ending = written(12, 1, gone("execution/0/running"), ending=True)
    entries: tuple[Entry, ...] = (*RUN, expired[0], ending, expired[1], attempt(12 + seconds, 2))
    assert bool(broken(retries.no_attempt_without_its_lock, history_of(*entries))) is wrong


@pytest.mark.parametrize("flag", ["sharding/0/disabled", "leader/paused", "servers/10.0.1.1/disabled"])
def test_no_attempt_begins_of_what_is_known_to_be_switched_off(flag: str) -> None:
    rule = retries.attempts_rest_when_switched_off
    assert broken(rule, history_of(*RUN, written(11.1, 9, made(flag)), attempt(12, 2)))
    assert not broken(rule, history_of(*RUN, written(11.9, 9, made(flag)), attempt(12, 2)))
    assert not broken(rule, history_of(*RUN, written(12.1, 9, made(flag)), attempt(12, 2)))


def test_an_attempt_keeps_its_limit_unless_its_process_sleeps() -> None:
    rule = retries.attempts_keep_their_limit
    config = written(0.5, 9, put("config", CONFIG.replace(b"}", b', "attemptTimeout": 2}')))
    entries = (config, *RUN, attempt(12, 2))
    assert not broken(rule, history_of(*entries, over(14, 2)))
    assert broken(rule, history_of(*entries, over(14.5, 2)))
    assert not broken(rule, history_of(*entries, Held(T + 13, "10.0.1.1#1", True), over(14.5, 2)))
    assert not broken(rule, history_of(*RUN, attempt(12, 2), over(99, 2)))


def test_each_attempt_that_is_followed_by_another_was_reported() -> None:
    rule = retries.failed_attempts_are_reported
    assert not broken(rule, history_of(*RUN, attempt(12, 2)))
    assert broken(rule, history_of(*RUN, attempt(12, 2), over(13, 2), attempt(14, 3)))


def test_attempts_are_lines_of_a_trace() -> None:
    assert describe(attempt(12, 2), T) == "   12.000  run 1 begins its attempt 2"
    assert describe(over(13, 2), T) == "   13.000  attempt 2 of run 1 is over: failed"


@pytest.mark.simulation
@pytest.mark.timeout(600)
def test_clusters_keep_their_promises_while_attempts_fail() -> None:
    numbers: set[int] = set()
    for seed in SEEDS:
        verdict = live(plan(seed, retries=True, failover=seed % 2 == 1, wild=seed % 4 > 1))
        assert not verdict.violations, verdict.report()
        assert "--retries" in replay(verdict.plan)
        numbers |= {entry.number for entry in verdict.entries if isinstance(entry, Attempted)}
    assert {1, 2, 3} <= numbers
    assert any(isinstance(entry, Written) for entry in verdict.entries)


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", FALSE_ALARMS)
def test_judges_do_not_raise_false_alarms_again(seed: int) -> None:
    verdict = live(plan(seed, retries=True, failover=True))
    assert not verdict.violations, verdict.report()
