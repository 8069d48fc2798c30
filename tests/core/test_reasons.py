"""Why moments were missed: each is told once, with the first reason that holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core.reasons import AWAY, BUSY, HELD_UP, NO_INSTANCE_UP, Cause, explained, of_last_run
from aioelasticjob.core.schedules import FOREVER, InForce
from aioelasticjob.core.timeline import Timeline
from aioelasticjob.events import MOMENTS_COUNTED
from aioelasticjob.model import Record
from tests.schedules.made import schedule


def timeline(*schedules: tuple[str, int]) -> Timeline:
    ends = [*(since for _, since in schedules[1:]), FOREVER]
    found = zip(schedules, ends, strict=True)
    return Timeline([InForce(schedule(cron), since, until, recorded=True) for (cron, since), until in found], 60_000)


EACH = timeline(("* * * * * ?", 0))
Span = tuple[int, int, str]


def told(
    causes: list[Cause], after: int = 10_000, until: int = 20_000, leave_out: int = 0, table: Timeline = EACH
) -> list[Span]:
    """Return the first and the last moment of each report in seconds, and its reason."""
    found = explained(table, after, until, causes, HELD_UP, leave_out)
    return [(one.passed.first // 1000, one.passed.last // 1000, one.why) for one in found]


def test_what_no_cause_explains_has_the_reason_of_all_others() -> None:
    assert told([]) == [(11, 20, HELD_UP)]


def test_no_moment_has_no_report() -> None:
    assert told([Cause(0, FOREVER, AWAY)], 10_000, 10_999) == []
    assert told([], 20_000, 10_000) == []


def test_reports_are_in_the_order_of_their_moments_whatever_the_order_of_the_causes() -> None:
    assert told([Cause(17_500, 18_500, BUSY), Cause(12_500, 13_500, AWAY)]) == [
        (11, 12, HELD_UP),
        (13, 13, AWAY),
        (14, 17, HELD_UP),
        (18, 18, BUSY),
        (19, 20, HELD_UP),
    ]


def test_the_first_cause_of_a_moment_is_its_reason() -> None:
    causes = [Cause(14_000, 16_000, AWAY), Cause(12_000, 18_000, BUSY)]
    assert told(causes) == [(11, 11, HELD_UP), (12, 13, BUSY), (14, 16, AWAY), (17, 18, BUSY), (19, 20, HELD_UP)]
    assert told(causes[::-1]) == [(11, 11, HELD_UP), (12, 18, BUSY), (19, 20, HELD_UP)]


def test_spans_that_meet_and_have_the_same_reason_are_told_together() -> None:
    assert told([Cause(11_000, 13_000, AWAY), Cause(13_001, 20_000, AWAY)]) == [(11, 20, AWAY)]
    assert told([Cause(11_000, 13_400, AWAY), Cause(13_600, 20_000, AWAY)]) == [(11, 13, AWAY), (14, 20, AWAY)]


def test_a_cause_begins_and_ends_with_its_milliseconds() -> None:
    assert told([Cause(12_000, 13_000, AWAY)]) == [(11, 11, HELD_UP), (12, 13, AWAY), (14, 20, HELD_UP)]
    assert told([Cause(12_001, 12_999, AWAY)]) == [(11, 12, HELD_UP), (13, 20, HELD_UP)]


def test_a_moment_that_was_run_is_left_out() -> None:
    assert told([], leave_out=15_000) == [(11, 14, HELD_UP), (16, 20, HELD_UP)]
    assert told([], leave_out=11_000) == [(12, 20, HELD_UP)]
    assert told([], leave_out=20_000) == [(11, 19, HELD_UP)]
    assert told([], leave_out=9_000) == [(11, 20, HELD_UP)]
    assert told([], 14_999, 15_000, leave_out=15_000) == []


def test_moments_of_two_schedules_are_told_apart() -> None:
    table = timeline(("* * * * * ?", 0), ("0/2 * * * * ?", 14_500))
    assert told([], table=table) == [(11, 14, HELD_UP), (16, 20, HELD_UP)]
    assert told([Cause(0, 12_900, NO_INSTANCE_UP)], table=table) == [
        (11, 12, NO_INSTANCE_UP),
        (13, 14, HELD_UP),
        (16, 20, HELD_UP),
    ]


def test_an_item_was_busy_from_the_moment_of_its_last_run_until_its_end() -> None:
    run = Record(slot=5_000, begun=5_300, completed_at=9_200)
    assert list(of_last_run(run)) == [Cause(5_000, 9_200, BUSY)]
    late = Record(slot=5_000, begun=4_900, completed_at=9_200)  # by another clock, before its moment
    assert list(of_last_run(late)) == [Cause(4_900, 9_200, BUSY)]
    assert list(of_last_run(Record())) == []
    assert list(of_last_run(Record(slot=5_000, begun=5_300, completed=False))) == []


CAUSES = st.builds(
    lambda began, length, why: Cause(began, began + length, why),
    st.integers(0, 40_000),
    st.integers(0, 15_000),
    st.sampled_from([AWAY, BUSY, NO_INSTANCE_UP]),
)


@given(
    st.lists(CAUSES, max_size=6),
    st.integers(0, 30_000),
    st.integers(0, 15_000),
    st.integers(0, 40).map(lambda second: second * 1000),
)
def test_each_moment_is_told_once_with_the_first_reason_that_holds(
    causes: list[Cause], after: int, length: int, leave_out: int
) -> None:
    found = explained(EACH, after, after + length, causes, HELD_UP, leave_out)
    assert all(one.passed.count == (one.passed.last - one.passed.first) // 1000 + 1 for one in found)
    assert length < MOMENTS_COUNTED * 1000  # so that the counts are exact
    said = [(moment, one.why) for one in found for moment in range(one.passed.first, one.passed.last + 1, 1000)]
    moments = [one for one in range(0, after + length + 1, 1000) if after < one != leave_out]
    assert said == [
        (moment, next((one.why for one in causes if one.began <= moment <= one.ended), HELD_UP)) for moment in moments
    ]
