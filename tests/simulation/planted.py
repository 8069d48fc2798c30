"""The defects that are planted one at a time, and how many seeds it takes to notice each of them.

``python -m tests.simulation.planted`` measures them all; ``python -m tests.simulation.planted NAME …`` only those.
The numbers in the table are what it printed last: a test begins with the seed that they name.

The first seed that notices a defect depends on luck, and is another one after each change of the order of events.  So
``--of 200`` counts instead how many of the first 200 seeds notice each defect: such counts can be compared.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aioelasticjob import Retry
from tests.simulation import chains, creation_defects, defects, misaccounting, omissions, scheduling
from tests.simulation.bare import simulation as bare_simulation
from tests.simulation.cluster import Plan
from tests.simulation.defects import Defect
from tests.simulation.simulation import SimulationVerdict, live, plan

LIMIT = 50
"""Seeds within which each defect has to be noticed."""
Tweak = Callable[[Plan], Plan]


def plain(given: Plan) -> Plan:
    """Return the plan as it is."""
    return given


def dragging(given: Plan) -> Plan:
    """Return the plan with handlers that often outlast a session."""
    return replace(given, jobs=tuple(replace(job, dragging=0.5) for job in given.jobs))


def many_dragging(given: Plan) -> Plan:
    """Return the plan with eight items for each job, and with handlers that often outlast a session."""
    return replace(given, jobs=tuple(replace(job, items=8, dragging=0.5) for job in given.jobs))


def hasty(given: Plan) -> Plan:
    """Return the plan with many items that run briefly each second: an instance that is late finds nobody running."""
    jobs = (replace(job, cron="* * * * * ?", period=1.0, items=8, longest=0.3) for job in given.jobs)
    return replace(given, jobs=tuple(jobs))


def in_parts(given: Plan) -> Plan:
    """Return the plan with assignments written a few items at a time."""
    return replace(given, transaction=5)


def lonely(given: Plan) -> Plan:
    """Return the plan with two hosts: at times nobody is up."""
    return replace(given, skews=given.skews[:2])


def failing(given: Plan) -> Plan:
    """Return the plan with runs that have several attempts, with waits between them."""
    retry = ("retry", Retry(4, 2.0, longest=4.0))
    jobs = (replace(job, settings=(*job.settings, retry), failing=0.6, attempts=4) for job in given.jobs)
    return replace(given, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect, the promise that it breaks, the plans that show it, and how many seeds they took."""

    defect: Defect
    promise: str
    kinds: str
    tweak: Tweak = plain
    failover: bool = False
    wild: bool = False
    requests: bool = False
    streams: bool = False
    schedules: bool = False
    chains: bool = False
    independent: bool = False
    created: bool = False
    seeds: int = 1
    """How many seeds it took when it was measured last."""

    def live(self, seed: int, *, sound: bool = False) -> SimulationVerdict:
        """Play a seed with the defect, or ``sound`` without it."""
        kinds = tuple(filter(None, self.kinds.split(",")))
        asked = {"failover": self.failover, "wild": self.wild, "requests": self.requests}
        asked |= {"streams": self.streams, "schedules": self.schedules}
        asked |= {"independent": self.independent, "chains": self.chains, "created": self.created}
        wanted = self.tweak(plan(seed, kinds=kinds, **asked))
        if sound:
            return live(wanted)
        with self.defect():
            return live(wanted)

    def shows(self, seed: int) -> bool:
        """Say whether a seed notices the defect by the promise that it breaks."""
        return any(found.rule == self.promise for found in self.live(seed).violations)

    def is_sound(self, seed: int) -> bool:
        """Whether the same seed breaks nothing without the defect."""
        return not self.live(seed, sound=True).violations

    def needed(self) -> int | None:
        """Return how many seeds it takes to notice the defect, None if it is not noticed within the limit."""
        return next((seed + 1 for seed in range(LIMIT) if self.shows(seed)), None)


CHECKPOINTS = "drop,expire,pause"
PLANTED = (
    Planted(defects.end_together, "one runner", "", requests=True, independent=True, seeds=2),
    Planted(defects.keep_what_has_ended, "nothing lost", "", requests=True, independent=True),
    Planted(defects.settle_again, "cut off untold", "", requests=True, independent=True, seeds=2),
    Planted(
        defects.forget_what_a_claim_has_not_settled,
        "requests are answered",
        "",
        failover=True,
        requests=True,
        independent=True,
        seeds=2,
    ),
    Planted(creation_defects.remove_at_once, "removals wait", "create,remove", created=True),
    Planted(creation_defects.run_what_is_being_removed, "removals end", "create,remove", created=True),
    Planted(creation_defects.write_what_was_removed, "operators configure", "create,remove,drop", created=True),
    Planted(creation_defects.hear_of_no_new_jobs, "created jobs are joined", "create,remove", created=True, seeds=2),
    Planted(creation_defects.publish_once, "handlers are published", "create,expire", created=True),
    Planted(defects.no_deadline, "one runner", "drop", dragging, seeds=3),
    Planted(defects.claim_on_hearsay, "one run per slot", "delay,expire,leave,crash", hasty, seeds=5),
    Planted(defects.claim_without_lock, "one runner", "crash,leave,pause,reconfigure", dragging),
    Planted(defects.deaf_mirror, "convergence", "reset,leave,crash,drop", dragging, seeds=6),
    Planted(defects.settle_in_any_session, "no dead writes", "expire,drop", dragging),
    Planted(defects.commit_in_any_session, "no dead writes", "expire,drop", dragging, seeds=7),
    Planted(defects.lead_without_epoch, "leaders assign", "coup", in_parts),
    Planted(defects.claim_unsettled, "settled claims", "", dragging, seeds=2),
    Planted(defects.save_unfenced, "fenced checkpoint", CHECKPOINTS, dragging, wild=True),
    Planted(defects.begin_where_it_was_known, "newest checkpoint", CHECKPOINTS, dragging, wild=True),
    Planted(defects.forget_orphans, "orphans are rescued", "crash", many_dragging, failover=True, seeds=2),
    Planted(defects.undo_marks, "restraint", "crash", dragging, failover=True, seeds=2),
    Planted(defects.try_again_at_once, "restraint", "write-permission"),
    Planted(defects.mark_on_ticks_only, "orphans are found", "crash,reset", failover=True),
    Planted(defects.hear_no_orphans, "orphans are taken", "crash,reset", failover=True),
    Planted(defects.bury_the_cut_off, "cut off untold", "crash,pause"),
    Planted(defects.require_on_ticks_only, "assigned soon", "crash,leave,reconfigure"),
    Planted(defects.run_what_is_switched_off, "switched off", "close-item"),
    Planted(defects.run_what_is_paused, "switched off", "close-widely", wild=True),
    Planted(defects.end_pauses_early, "switched off", "pause-a-while"),
    Planted(defects.forget_the_ends_of_pauses, "nothing lost", "pause-a-while"),
    Planted(defects.give_no_grace, "cut off", "leave,dismiss"),
    Planted(defects.take_out_without_grace, "cut off", "take-out"),
    Planted(defects.take_out_and_leave_the_rest, "convergence", "take-out,drop"),
    Planted(omissions.late_run_unasked, "unwanted late run", "pause"),
    Planted(defects.ignore_timeouts, "timeout", "reset", seeds=2),
    Planted(omissions.leave_unsettled, "leavers settle", "leave,dismiss", dragging),
    Planted(omissions.elsewhere_unreported, "nothing lost", "reconfigure,leave", dragging),
    Planted(omissions.changed_schedule_unreported, "nothing lost", "reconfigure", seeds=4),
    Planted(omissions.new_schedule_unreported, "nothing lost", "reconfigure,delay", dragging),
    Planted(omissions.held_up_unreported, "nothing lost", "pause"),
    Planted(omissions.unsettled_unreported, "nothing lost", "leave,crash,delay", hasty),
    Planted(omissions.nobody_up_unreported, "nothing lost", "leave,crash", lonely),
    Planted(omissions.away_unreported, "nothing lost", "drop"),
    Planted(omissions.former_schedules_forgotten, "nothing lost", "reconfigure", dragging, seeds=6),
    Planted(omissions.lead_unfenced, "leaders assign", "coup", in_parts),
    Planted(omissions.settle_without_hand_over, "handed over", "leave,dismiss", dragging, failover=True),
    Planted(omissions.rescue_twice, "one rescue", "crash,pause", failover=True),
    Planted(omissions.mark_what_runs, "only orphans wait", "crash,leave", dragging, failover=True),
    Planted(omissions.lease_without_margin, "lease", "drop", dragging, seeds=2),
    Planted(omissions.lease_too_late, "lease", "drop", dragging, seeds=3),
    Planted(omissions.epoch_not_raised, "epochs rise", "coup"),
    Planted(omissions.prune_what_runs, "nothing that runs is removed", "reconfigure", dragging),
    Planted(omissions.try_what_is_switched_off, "no attempt when switched off", "close-item,close-server", failing),
    Planted(defects.run_requests_again, "each item of a request runs once", "trigger", requests=True),
    Planted(defects.ignore_cancellations, "cancelled runs end", "trigger", dragging, requests=True),
    Planted(
        *(defects.rescue_the_cancelled, "cancelled runs are not rescued", "crash,expire", dragging),
        failover=True,
        requests=True,
        seeds=4,
    ),
    Planted(defects.end_what_gave_way, "streams are fetched to their end", "leave,reconfigure", streams=True),
    Planted(misaccounting.claim_by_any_schedule, "noted schedules", "reconfigure,delay", seeds=5),
    Planted(misaccounting.follow_before_it_is_noted, "noted schedules", "reconfigure,delay"),
    Planted(misaccounting.report_what_is_off, "owed reports", "close-item"),
    Planted(misaccounting.keep_old_accounts, "owed reports", "reconfigure", dragging),
    Planted(misaccounting.excuse_for_ever, "nothing lost", "close-item", seeds=2),
    Planted(misaccounting.leave_the_future, "on time", "registry-clock"),
    Planted(scheduling.delays_of_their_own, "on time", "leave", schedules=True),
    Planted(scheduling.begin_undelayed, "on time", "leave", schedules=True),
    Planted(scheduling.follow_the_first_expression, "on time", "leave", schedules=True, seeds=5),
    Planted(scheduling.count_from_now, "on time", "leave", schedules=True),
    Planted(scheduling.leave_out_dates, "on time", "leave", schedules=True, seeds=3),
    Planted(scheduling.heed_no_calendar, "noted schedules", "leave", schedules=True),
    Planted(scheduling.run_without_the_calendar, "noted schedules", "leave", schedules=True),
    Planted(scheduling.missing_calendar_unreported, "nothing lost", "leave", schedules=True),
    Planted(scheduling.edits_unnoticed, "calendars are followed", "leave", schedules=True),
    Planted(chains.follow_the_fastest_item, "after its upstream", "", failover=True, chains=True),
    Planted(chains.follow_the_last_upstream, "after its upstream", "", failover=True, chains=True, seeds=2),
    Planted(chains.take_any_outcome, "only what has completed", "", failover=True, chains=True, seeds=2),
    Planted(chains.tell_only_of_runs, "only what has completed", "", failover=True, chains=True, seeds=3),
    Planted(chains.tell_of_no_run, "nothing lost", "", failover=True, chains=True),
    Planted(chains.tell_that_all_completed, "only what has completed", "", failover=True, chains=True, seeds=2),
    Planted(omissions.always_catch_up, "unwanted catch-up", "leave,crash", lonely, seeds=16),
)


@dataclass(frozen=True, slots=True)
class Covered:
    """A defect that breaks a promise only if other safeguards are missing as well.

    If only these are missing, the promise holds.  So what the defect takes out keeps the promise then.
    """

    defect: Defect
    promise: str
    safeguards: tuple[Defect, ...]
    breaks: Callable[[int], set[str]]
    """Plays a seed and returns the promises that it breaks."""
    seeds: int = 1

    def shows(self, seed: int) -> bool:
        """Say whether a seed notices the defect without the safeguards.

        Raises:
            AssertionError: it breaks the promise though only the safeguards are missing.
        """
        with omissions.all_of(*self.safeguards):
            assert self.promise not in self.breaks(seed), f"seed {seed} breaks {self.promise!r} without the defect"
        with omissions.all_of(*self.safeguards, self.defect):
            return self.promise in self.breaks(seed)

    def needed(self) -> int | None:
        """Return how many seeds it takes to notice the defect, None if it is not noticed within the limit."""
        return next((seed + 1 for seed in range(LIMIT) if self.shows(seed)), None)


def bare(seed: int) -> set[str]:
    """Return the promises that a seed breaks on the bare tree."""
    return {found.partition(":")[0] for found in bare_simulation.live(seed).broken}


def wild(seed: int) -> set[str]:
    """Return the promises that a seed breaks in which handlers outlast their sessions and all save checkpoints."""
    wanted = dragging(plan(seed, wild=True, kinds=("drop", "expire")))
    jobs = tuple(replace(job, items=8, saving=1.0) for job in wanted.jobs)
    return {found.rule for found in live(replace(wanted, jobs=jobs)).violations}


def retrying(seed: int) -> set[str]:
    """Return the promises that a seed breaks in which runs have several attempts and sessions are lost."""
    return {found.rule for found in live(failing(plan(seed, kinds=("drop", "expire")))).violations}


@dataclass(frozen=True, slots=True)
class PlantedBare:
    """A defect, the promise of the bare tree that it breaks, and how many seeds it took."""

    defect: Defect
    promise: str
    seeds: int = 1
    """How many seeds it took when it was measured last."""

    def shows(self, seed: int) -> bool:
        """Say whether a seed notices the defect by the promise that it breaks."""
        with self.defect():
            return self.promise in bare(seed)

    def is_sound(self, seed: int) -> bool:
        """Whether the same seed breaks nothing without the defect."""
        return not bare(seed)

    def needed(self) -> int | None:
        """Return how many seeds it takes to notice the defect, None if it is not noticed within the limit."""
        return next((seed + 1 for seed in range(LIMIT) if self.shows(seed)), None)


PLANTED_BARE = (
    PlantedBare(misaccounting.account_for_what_moved, "records are their runner's", seeds=19),
    PlantedBare(misaccounting.give_back_as_run, "nothing is lost", seeds=2),
    PlantedBare(misaccounting.report_before_writing, "each miss is reported once", seeds=4),
    PlantedBare(misaccounting.claim_in_silence, "nothing is lost"),
    PlantedBare(misaccounting.keep_promises_of_others, "each miss is reported once", seeds=4),
    PlantedBare(omissions.busy_unreported, "nothing is lost", seeds=9),
)


COVERED = (
    Covered(
        omissions.offsets_unfenced,
        "fenced checkpoint",
        (defects.no_deadline, defects.commit_in_any_session),
        wild,
    ),
    Covered(
        omissions.try_without_a_lock,
        "no attempt without its lock",
        (omissions.attempts_uncancelled,),
        retrying,
    ),
    Covered(
        misaccounting.break_promises,
        "nothing is lost",
        (misaccounting.killed_before_they_report,),
        bare,
    ),
    Covered(
        omissions.mark_unversioned,
        "only orphans are marked",
        (omissions.look_with_old_eyes, omissions.only_failures, omissions.eight_items_to_rescue),
        bare,
    ),
    Covered(
        omissions.rescue_the_completed,
        "one rescue",
        (omissions.marks_made_by_hand, omissions.eight_items_to_rescue),
        bare,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of how many seeds each defect needs; return how many go unnoticed, or fail without the defect."""
    given = _parser().parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # as the simulation's own command does
        again = sys.argv[1:] if arguments is None else arguments
        command = [sys.executable, "-m", "tests.simulation.planted", *again]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    chosen = [
        one for one in (*PLANTED, *PLANTED_BARE, *COVERED) if not given.names or one.defect.__name__ in given.names
    ]
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _count(chosen, given.of) if given.of else _table(chosen)
    finally:
        logging.disable(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a defect; without names all of them")
    parser.add_argument("--of", type=int, metavar="N", help="count how many of the first N seeds notice each defect")
    return parser


def _table(chosen: Sequence[Planted | PlantedBare | Covered]) -> int:
    unnoticed = 0
    print(f"{'defect':28} {'promise that it breaks':28} seeds needed")
    for one in chosen:
        needed = one.needed()
        sound = needed is not None and (isinstance(one, Covered) or one.is_sound(needed - 1))
        unnoticed += not sound
        without = " and ".join(each.__name__ for each in one.safeguards) if isinstance(one, Covered) else ""
        notes = [
            without and f"with {without}",
            "" if sound else "unnoticed" if needed is None else "the same seed fails without the defect",
            "" if needed == one.seeds else f"the table says {one.seeds}",
        ]
        count = f"> {LIMIT}" if needed is None else str(needed)
        line = f"{one.defect.__name__:28} {one.promise:28} {count:5} {', '.join(filter(None, notes))}"
        print(line.rstrip(), flush=True)
    return unnoticed


def _count(chosen: Sequence[Planted | PlantedBare | Covered], seeds: int) -> int:
    unnoticed = 0
    print(f"{'defect':28} {'promise that it breaks':28} seeds of {seeds} that notice it")
    for one in chosen:
        noticed = sum(map(one.shows, range(seeds)))
        unnoticed += not noticed
        print(f"{one.defect.__name__:28} {one.promise:28} {noticed}", flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
