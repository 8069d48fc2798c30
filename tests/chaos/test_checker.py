"""The checker of chaos runs finds what it is there to find, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from aioelasticjob import ItemContext, JobConfig
from aioelasticjob.events import Misfired
from aioelasticjob.jobs.base import item_context
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from tests.chaos.checker import Excuse, Span, Verdict, judge
from tests.chaos.history import WAKING, arrange
from tests.support.history import Begun, Entry, Finished, Held, Phase, Reported, Stopped
from tests.support.worker_journal import GAVE_WAY, HOST, Pen, TrueTime, read

T = 1_800_000_000.0
"""A moment of both schedules."""
CRON, MISFIRE, FAILOVER = FireSource.SCHEDULE, FireSource.MISFIRE, FireSource.FAILOVER
RESCUED = JobConfig.build(job_name="job", cron="0/3 * * * * ?", failover=True)
PLAIN = JobConfig.build(job_name="job", cron="0/3 * * * * ?")


def run(
    number: int,
    start: float,
    end: float | None = None,
    *,
    slot: float | None = None,
    source: FireSource = CRON,
    process: str = "a",
    fence: int | None = None,
    how: str = "completed",
) -> list[Entry]:
    """Return a run of the only item; times and moments are seconds after ``T``."""
    moment = round((T + (start if slot is None else slot)) * 1000)
    begun = Begun(T + start, number, process, HOST, process, "job", 0, moment, source, fence or number, skew=0.0)
    return [begun] if end is None else [begun, Finished(T + end, number, how)]


def misfire(at: float, slot: float, moments: int, process: str = "a", cut_off: str = "") -> Reported:
    """Return the word that as many moments up to ``slot`` were missed."""
    newest = round((T + slot) * 1000)
    first = newest - 3000 * (moments - 1)
    return Reported(T + at, process, HOST, Misfired("job", process, first, newest, (0,), moments, "late", cut_off))


def died(at: float, process: str = "a") -> Stopped:
    return Stopped(T + at, process, HOST, "crashed")


def slept(start: float, end: float, process: str = "a") -> list[Entry]:
    return [Held(T + start, process, paused=True), Held(T + end, process, paused=False)]


def verdict(config: JobConfig, *parts: list[Entry] | Entry, stop: float = 9, excuses: Sequence[Excuse] = ()) -> Verdict:
    """Judge what is to be run at 3, 6 and 9 seconds, or until ``stop``."""
    entries = [entry for part in parts for entry in (part if isinstance(part, list) else [part])]
    faults = [entry for entry in entries if isinstance(entry, Stopped | Held)]
    written = [entry for entry in entries if entry not in faults]
    arranged = arrange(written, [Phase(T, "chaos"), *faults, Phase(T + stop + 1, "end")])
    return judge(arranged.entries, [config], Span(T, T + stop), excuses)


def rules(found: Verdict) -> set[str]:
    return {violation.rule for violation in found.violations}


PEACE = [*run(1, 3, 4), *run(2, 6, 7), *run(3, 9, 9.5)]


def test_what_is_kept_is_not_complained_of() -> None:
    found = verdict(RESCUED, PEACE)
    assert not found.violations
    assert found.targets == found.met["run"] == 3


def test_a_killed_run_is_over_when_it_was_killed_and_met_by_its_rescue() -> None:
    rescue = run(2, 5, 6, slot=3, source=FAILOVER, process="b")
    parts: list[list[Entry] | Entry] = [
        run(1, 3),
        died(4),
        rescue,
        run(3, 6.5, 7, slot=6, process="b"),
        run(4, 9, 9.5, process="b"),
    ]
    assert not verdict(RESCUED, *parts).violations


def test_a_claim_whose_owner_died_before_it_began_is_met_by_the_rescue_alone() -> None:
    found = verdict(RESCUED, died(3), run(1, 5, 6, slot=3, source=FAILOVER, process="b"), *PEACE[2:])
    assert not found.violations
    assert found.met == Counter(run=2, rescue=1)


def test_a_sleeper_runs_nothing_and_may_take_a_moment_to_notice_that_it_was_cut_off() -> None:
    zombie = run(1, 3, 8 + WAKING / 2, how="cut off")
    others = [*run(2, 5, 6, slot=3, source=FAILOVER, process="b"), *run(3, 6.5, 9, slot=6, process="b")]
    parts: list[list[Entry] | Entry] = [zombie, slept(3.5, 8), others, run(4, 9.1, 9.5, slot=9, process="b")]
    assert not verdict(RESCUED, *parts).violations


def test_a_report_answers_for_the_moments_that_it_names() -> None:
    found = verdict(RESCUED, run(1, 9, 9.5), misfire(9, 6, 2))
    assert not found.violations
    assert found.met["report"] == 2
    assert rules(verdict(RESCUED, run(1, 9, 9.5), misfire(9, 6, 1))) == {"nothing lost"}


def test_what_was_missed_may_be_run_later_and_be_reported_by_the_next_holder_of_the_item() -> None:
    late = run(2, 6.5, 7, slot=6, source=MISFIRE)
    assert not verdict(RESCUED, run(1, 3, 6.4), misfire(6.4, 6, 1), late, *PEACE[4:]).violations
    assert not verdict(RESCUED, misfire(3, 3, 1), misfire(6, 6, 2, "b"), run(3, 9, 9.5, process="b")).violations


def test_where_failover_is_off_a_cut_off_run_is_reported() -> None:
    later = [*run(2, 6, 7, process="b"), *run(3, 9, 9.5, process="b")]
    assert not verdict(PLAIN, run(1, 3), died(4), misfire(5, 3, 1, "b", cut_off="a"), later).violations
    assert not verdict(PLAIN, run(1, 3, 4, how="cut off"), later).violations


@pytest.mark.parametrize(
    ("config", "parts", "rule"),
    [
        (RESCUED, [run(1, 3, 7), run(2, 6, 7, process="b"), PEACE[4:]], "one runner"),
        (RESCUED, [run(1, 3), run(2, 6, 7, process="b"), PEACE[4:], died(6.5)], "one runner"),
        (
            RESCUED,
            [run(1, 3, 8 + 2 * WAKING), slept(4, 8), run(2, 6, 9, process="b"), run(3, 9, 9.5, process="b")],
            "one runner",
        ),
        (RESCUED, [PEACE[:4], slept(4, 7.5), run(3, 8, 8.5, slot=6, process="b"), PEACE[4:]], "one run per slot"),
        (RESCUED, [run(1, 3, 4), run(2, 6, 7, fence=9), run(3, 9, 9.5, fence=8)], "fences grow"),
        (RESCUED, [run(1, 3, 4), run(3, 9, 9.5)], "nothing lost"),
        (RESCUED, [run(1, 3, 4), run(3, 9, 9.5), misfire(4, 3, 2)], "nothing lost"),
        (RESCUED, [PEACE, misfire(9.5, 9, 1)], "true reports"),
        (RESCUED, [misfire(3, 3, 1), misfire(6, 6, 2), PEACE[4:]], "true reports"),
        (RESCUED, [run(1, 2.8, 4, slot=3), PEACE[2:]], "window"),
        (RESCUED, [run(1, 4, 4.5), PEACE], "window"),
        (RESCUED, [run(1, 6, 6.5), run(2, 7, 8, slot=3, source=MISFIRE), run(3, 9, 9.5)], "window"),
        (RESCUED, [run(1, 3), died(4), run(2, 6, 7, process="b"), run(3, 9, 9.5, process="b")], "rescued"),
        (RESCUED, [run(1, 3, 4, how="cut off"), PEACE[2:]], "rescued"),
        (PLAIN, [run(1, 3), died(4), run(2, 6, 7, process="b"), run(3, 9, 9.5, process="b")], "rescued"),
        (
            PLAIN,
            [misfire(2, 3, 1), run(1, 3), died(4), *(run(n, 3 * n, 3 * n + 1, process="b") for n in (2, 3))],
            "rescued",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_broken_promise_is_found(config: JobConfig, parts: list[list[Entry] | Entry], rule: str) -> None:
    assert rule in rules(verdict(config, *parts))


def test_a_handler_that_failed_has_come_to_its_end() -> None:
    assert not verdict(RESCUED, run(1, 3, 4, how="failed"), PEACE[2:]).violations


STREAM = JobConfig.build(
    job_name="job", cron="0/3 * * * * ?", failover=True, job_type="DATAFLOW", streaming=True, max_rescues=1
)
LATER = [*run(3, 6, 7, process="b"), *run(4, 9, 9.5, process="b")]
OPEN = run(1, 3, 4, how=GAVE_WAY)
"""A stream has left its moment open."""


def test_a_stream_that_gave_way_goes_on_with_its_moment_or_a_newer_one_or_its_moment_is_reported() -> None:
    for goes_on in (run(2, 4.5, 5, slot=3, source=FAILOVER, process="b"), [], misfire(6.5, 3, 1, "b")):
        assert not verdict(STREAM, OPEN, goes_on, LATER).violations
    assert not verdict(STREAM, OPEN, misfire(6, 9, 3)).violations


def test_a_stream_that_gave_way_and_does_not_go_on_is_lost() -> None:
    assert rules(verdict(STREAM, OPEN, stop=5)) == {"rescued"}
    assert rules(verdict(STREAM, misfire(3.5, 3, 1, "b"), OPEN, stop=5)) == {"rescued"}


def test_only_streams_give_way() -> None:
    assert rules(verdict(RESCUED, OPEN, PEACE[2:])) == {"rescued"}
    assert rules(verdict(RESCUED, OPEN, misfire(6.5, 3, 1, "b"), PEACE[2:])) == {"reported, not rescued"}


@pytest.mark.parametrize(
    ("why", "accepted"),
    [
        ("given up: its run and 1 rescue in a row were cut off", True),
        ("given up: its run and 0 rescues in a row were cut off", False),
        ("the run was cut off, and failover is off", False),
    ],
)
def test_a_run_is_given_up_after_so_many_rescues_and_no_earlier(why: str, accepted: bool) -> None:
    slot = round((T + 3) * 1000)
    report = Reported(T + 5.5, "b", HOST, Misfired("job", "b", slot, slot, (0,), 1, why))
    rescue = run(2, 4.5, 5, slot=3, source=FAILOVER, process="b", how="cut off")
    found = verdict(STREAM, run(1, 3, 4, how="cut off"), rescue, report, LATER)
    assert rules(found) == (set() if accepted else {"reported, not rescued"})


LOST: list[list[Entry] | Entry] = [run(1, 3, 4), run(3, 9, 9.5)]
"""What was due at the sixth second is neither run nor reported."""


@pytest.mark.parametrize(
    ("excuse", "covered"),
    [
        (Excuse("spoilt", "job", T + 5, T + 7, frozenset({"nothing lost"})), True),
        (Excuse("spoilt", "job", T + 5, T + 7, frozenset({"nothing lost"}), item=0), True),
        (Excuse("spoilt", "job", T + 5, T + 7, frozenset({"nothing lost"}), item=1), False),
        (Excuse("spoilt", "other", T + 5, T + 7, frozenset({"nothing lost"})), False),
        (Excuse("spoilt", "job", T + 1, T + 5, frozenset({"nothing lost"})), False),
        (Excuse("spoilt", "job", T + 8, T + 9, frozenset({"nothing lost"})), True),  # it was still open
        (Excuse("spoilt", "job", T + 9, T + 9, frozenset({"nothing lost"})), False),
        (Excuse("spoilt", "job", T + 5, T + 7, frozenset({"one runner"})), False),
    ],
)
def test_an_excuse_covers_its_own_item_time_and_promises_only(excuse: Excuse, covered: bool) -> None:
    found = verdict(RESCUED, *LOST, excuses=[excuse])
    assert rules(found) == (set() if covered else {"nothing lost"})
    assert found.excused == Counter(spoilt=covered) + Counter()


def test_a_cut_off_run_is_reported_in_the_place_of_a_rescue_only_where_failover_was_switched() -> None:
    parts: list[list[Entry] | Entry] = [run(1, 3), died(4), misfire(5, 3, 1, "b", cut_off="a"), PEACE[2:]]
    switched = Excuse("switched", "job", T, T + 9, frozenset({"reported, not rescued"}))
    assert rules(verdict(RESCUED, *parts)) == {"reported, not rescued"}
    assert not verdict(RESCUED, *parts, excuses=[switched]).violations
    parts.pop(2)
    assert rules(verdict(RESCUED, *parts, excuses=[switched])) == {"rescued"}


def context(slot: int) -> ItemContext:
    claim = Claim(Fire(slot, CRON), "a-1", 7, {0: VersionedRecord(Record(), 0, 42)}, {0: Record()})
    return item_context(PLAIN, claim, 0, None)  # type: ignore[arg-type]  # no offsets here


def test_what_is_written_is_read_and_the_rest_follows_from_what_was_done(tmp_path: Path) -> None:
    clock = TrueTime.of_this_machine()
    pen, other = (Pen(tmp_path / "journal", process, clock) for process in "ab")
    first = pen.begin(context(3000))
    other.begin(context(6000))
    pen.end(first, "completed")
    pen.misfire(Misfired("job", "a-1", 3000, 6000, (0,), 2, "late"))
    written = read(tmp_path / "journal")
    begun, second, finished, reported = written
    assert isinstance(begun, Begun)
    assert (begun.run, begun.process, begun.slot, begun.fence, begun.source) == (1, "a", 3000, 42, CRON)
    assert isinstance(second, Begun)
    assert (second.run, second.process) == (2, "b")
    assert isinstance(finished, Finished)
    assert (finished.run, finished.how) == (1, "completed")
    assert isinstance(reported, Reported)
    assert reported.event == Misfired("job", "a-1", 3000, 6000, (0,), 2, "late")
    death = Stopped(clock.now(), "b", HOST, "crashed")
    assert arrange(written, [death]).entries[-1] == Finished(death.at, 2, "crashed")


def test_nothing_was_written_by_nobody(tmp_path: Path) -> None:
    assert read(tmp_path / "journal") == []
