"""The list of how an item has ended its newest moments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core import records
from aioelasticjob.core.ends import BEGINS, FORGOTTEN, MOST, SINGLE, up_to, with_end
from aioelasticjob.model import End, Record


def single(moment: int, outcome: str = "completed") -> End:
    return End(moment, moment, outcome, moment + 5)


def outcome(ends: tuple[End, ...], moment: int) -> str:
    return next((end.outcome for end in ends if end.first <= moment <= end.last), "")


def test_the_newest_ends_stand_each_by_itself_and_older_equal_ones_together() -> None:
    ends = with_end([], *map(single, range(1, 101)))
    assert ends == (End(1, 92, "completed", 97), *map(single, range(93, 101)))
    assert len(ends) == SINGLE + 1


def test_a_failure_long_ago_is_still_known_while_others_complete() -> None:
    ends = with_end([], single(1), single(2, "failed"), *map(single, range(3, 1000)))
    assert [outcome(ends, moment) for moment in (1, 2, 3, 999)] == ["completed", "failed", "completed", "completed"]


@given(st.lists(st.sampled_from(["completed", "failed", "missed"]), max_size=60))
def test_a_list_is_short_in_order_and_says_of_each_moment_how_it_ended_or_that_this_is_forgotten(
    outcomes: list[str],
) -> None:
    ends = with_end([], *(single(10 * n, one) for n, one in enumerate(outcomes)))
    assert len(ends) <= MOST
    assert [(end.first, end.last) for end in ends] == sorted((end.first, end.last) for end in ends)
    told = [outcome(ends, 10 * n) for n in range(len(outcomes))]
    assert all(one in (known, FORGOTTEN) for one, known in zip(told, outcomes, strict=True))
    assert told[-SINGLE:] == outcomes[-SINGLE:]


def test_a_list_that_is_lowered_says_that_the_item_has_ended_what_came_up_to_then() -> None:
    ends = with_end([], *map(single, (10, 20, 30)))
    assert up_to(ends, 30) == ends
    assert up_to(ends, 25) == (single(10), single(20), End(25, 25, BEGINS, 25))


def test_a_record_and_the_node_for_followers_keep_the_list() -> None:
    ends = with_end([], single(10), single(20, "timed out"))
    record = Record(slot=20, begun=21, ends=ends, accounted=20)
    found = records.decode(records.encode(record))
    assert found is not None
    assert found.ends == ends
    assert records.decode_ends(records.encode_ends(ends).encode()) == ends


def test_what_somebody_has_written_by_hand_is_no_list() -> None:
    for data in (b"", b"{}", b"[[1, 2]]", b'[["a", 2, "x", 3]]', b"[7]", b"\xff"):
        assert records.decode_ends(data) == ()
