"""Whole clusters under a minute of faults, seed by seed; a failing seed says how to replay it.

The seeds are fixed, so that a landing depends on no dice; ``python3 -m tests --long`` tries thousands of others.
"""

from __future__ import annotations

import pytest

from tests.simulation.simulation import live, plan, replay
from tests.support.history import Fault, Written, of_kind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

FIXED, BATCH = 8, 4
"""Each batch has every kind of operators with failover and without; batches let the seeds be shared out."""

OLD_BUGS = {
    0: "Whether membership had rested and how long to wait for it were rounded differently: the coordinator spun.",
    14: "The clocks' difference was as old as the last write: a clock set since then claimed moments of the future.",
    19: "Moments that passed while an item waited for its last runner were not reported by anybody.",
    22: "An item that changed hands lost the moments in between without a word.",
    25: "Of a session ended from outside its owner hears late: what is excused there has to be excused exactly.",
    26: "As 22, but with every process alive: one was busy with a long run when it was given the item.",
    107: "A schedule changed during a long run began when the run was over, and the moments until then were lost.",
    292: "An item was enabled during a run of others: its moments until the run's end were not reported.",
    969: "A schedule that was changed during a run: its moments until the run's end were neither run nor reported.",
    50230: "A moment of the old schedule was reported and to be run again; those of the new one before it were lost.",
}
"""Seeds that failed before their bug was mended (checked by taking the mend out again)."""


OLD_BUGS_OF_FAILOVER = {
    18: "Moments that came while an item was being rescued were neither run nor reported.",
    107: "As 18, when the schedule was changed before the rescue was over.",
    312: "An answer that took seconds was believed: the registry's clock seemed ahead, and a claim came too early.",
    1014: "An item handed over by its own runner, who thought it ran elsewhere, lost the moments of its rescue.",
    1306: "The end of a session was taken for a removal by hand, and its process never came back.",
    1440: "A process slept through the moment that its claim waited for, and began under a session that was over.",
    109486078: "A moment reported as missed was run after all where no late run was wanted: its item had come back.",
    607658225: "An item was disabled while it was being rescued: moments before that were not reported.",
    3038: "An item that ran elsewhere when it was given counted as rescued for good: a changed schedule lost moments.",
}


OLD_BUGS_OF_WILD = {
    7008: "An item that came free while the next moment was being claimed for others lost the last one without a word.",
    892725792: "An offset whose handler was cut off before the answer to its saving was not where the next run began.",
    3003: "Of the judge: an instance cannot know a setting that was written while it heard nothing.",
}


OLD_BUGS_OF_HOSTILE = {
    (
        2,
        "",
    ): "The registry's clock was an hour back: present records seemed nonsense, and were claimed again.",
    (0, "registry-clock"): "What was reported as missed was run after all, when the clock had been put right for 10 s.",
    (10, ""): "Without records, moments that came after an item was given to a busy instance were lost.",
    (13, ""): "A leader waited 5 s for its removal of records to come back through a mirror that does not have them.",
    (
        5,
        "remove-job",
    ): "A job was removed and made anew during a run, whose settlement removed the next run's lock.",
    (26, ""): "An instance asked to leave was refused that for 17 ms, gave up, and led the job without doing anything.",
    (21892, ""): "A schedule dated by a clock ahead counted only from when an instance joined, not from its items on.",
    (21899, ""): "A run of an item that had moved was cut off; its record was lowered, and another moment reported.",
    (329, "registry-clock,reconfigure,crash,remove-job"): "As 21899, with fewer kinds of faults.",
    (21920, ""): "An item that a clock ahead dated anew did not owe the moments that came shortly before that date.",
    (22255, ""): "A schedule dated by a clock ahead was trusted two seconds before that date, and lost its moments.",
    (381214, ""): "A busy instance was given an item, and reported nothing of it when records were switched off.",
    (22274, ""): "An item dated by a clock ahead counted only from when an instance joined, though it had run before.",
}
"""Seeds with faults of the surroundings, and the kinds of faults if only these were wanted."""


FALSE_ALARMS = {
    1021: "A claim was under way for seconds: its run goes by the timeout that held when it was claimed.",
}
"""Seeds of wild operators with failover in which a judge was wrong."""


FALSE_ALARMS_OF_HOSTILE = {
    (
        305,
        "registry-clock,reconfigure,crash,remove-job",
    ): "The item's claim from before the schedule changed stood until a clock ahead let it claim a later moment.",
}
"""Seeds with some faults of the surroundings in which a judge was wrong."""


def survives(seed: int, *, failover: bool = False, wild: bool = False) -> None:
    verdict = live(plan(seed, failover=failover, wild=wild))
    assert not verdict.violations, verdict.report()
    assert verdict.simulated > 90


@pytest.mark.parametrize("first", range(0, FIXED, BATCH))
def test_a_cluster_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + BATCH):
        survives(seed, failover=seed % 2 == 1, wild=seed % 4 > 1)


@pytest.mark.parametrize("seed", OLD_BUGS_OF_FAILOVER)
def test_old_bugs_of_failover_stay_mended(seed: int) -> None:
    survives(seed, failover=True)


@pytest.mark.parametrize("seed", OLD_BUGS_OF_WILD)
def test_old_bugs_of_wild_operators_stay_mended(seed: int) -> None:
    survives(seed, wild=True)


@pytest.mark.parametrize(("seed", "kinds"), OLD_BUGS_OF_HOSTILE)
def test_old_bugs_of_hostile_surroundings_stay_mended(seed: int, kinds: str) -> None:
    verdict = live(plan(seed, kinds=tuple(filter(None, kinds.split(","))), hostile=True))
    assert not verdict.violations, verdict.report()


@pytest.mark.parametrize("seed", FALSE_ALARMS)
def test_judges_do_not_raise_false_alarms_again(seed: int) -> None:
    survives(seed, failover=True, wild=True)


@pytest.mark.parametrize(("seed", "kinds"), FALSE_ALARMS_OF_HOSTILE)
def test_judges_do_not_raise_false_alarms_about_hostile_surroundings_again(seed: int, kinds: str) -> None:
    verdict = live(plan(seed, kinds=tuple(kinds.split(",")), hostile=True))
    assert not verdict.violations, verdict.report()


@pytest.mark.parametrize("seed", OLD_BUGS)
def test_old_bugs_stay_mended(seed: int) -> None:
    survives(seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_keeps_its_promises_while_pauses_end_by_themselves(seed: int) -> None:
    verdict = live(plan(seed, kinds=("pause-a-while", "crash", "leave")))
    assert not verdict.violations, verdict.report()
    written = of_kind(verdict.entries, Written)
    flags = [change.data for one in written for change in one.changes if change.path.endswith("/paused")]
    assert sum(data is not None and b"until" in data for data in flags) > 3


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_keeps_its_promises_while_programs_leave_jobs_and_add_them_again(seed: int) -> None:
    verdict = live(plan(seed, failover=True, at_run_time=True))
    assert not verdict.violations, verdict.report()
    taken_out = {one.detail for one in of_kind(verdict.entries, Fault) if one.kind == "leave" and one.detail}
    unregistered = {
        change.path.rpartition("/")[2]
        for written in of_kind(verdict.entries, Written)
        for change in written.changes
        if "/instances/" in change.path and change.data is None
    }
    assert len(taken_out & unregistered) > 3


@pytest.mark.parametrize("seed", range(3))
def test_created_jobs_are_what_operators_have_made_of_them_whatever_happens(seed: int) -> None:
    verdict = live(plan(seed, failover=True, created=True))
    assert not verdict.violations, verdict.report()
    assert verdict.created_runs > 100
    assert "--created" in replay(verdict.plan)


@pytest.mark.parametrize("failover", [False, True])
def test_clusters_keep_their_promises_with_independent_items_of_very_different_lengths(failover: bool) -> None:
    for seed in (0, 1, 2, 7):  # in 7 a claim that settles as well is refused, and its items are removed
        verdict = live(plan(seed, failover=failover, requests=True, independent=True))
        assert not verdict.violations, verdict.report()


def test_a_seed_repeats_itself_exactly() -> None:
    once, again, other = live(plan(7)), live(plan(7)), live(plan(8))
    assert once.fingerprint == again.fingerprint != other.fingerprint
    assert list(once.trace()) == list(again.trace())


def test_a_report_says_how_to_see_it_again() -> None:
    verdict = live(plan(7, minutes=0.1, kinds=("crash",)))
    assert "python -m tests.simulation --seeds 7 --minutes 0.1 --kinds crash --trace" in verdict.report()
