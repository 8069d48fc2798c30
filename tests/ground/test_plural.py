from __future__ import annotations

import pytest

from aioelasticjob.ground.plural import counted, listed_items


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1200, "1,200 jobs"), (100_000, "100,000 jobs")]
)
def test_a_noun_has_an_s_unless_there_is_one(number: int, text: str) -> None:
    assert counted(number, "job") == text


def test_items_are_listed_by_their_numbers_the_first_ten_of_many() -> None:
    assert [listed_items(items) for items in ([3], [2, 0, 1])] == ["item 3", "items 0, 1, 2"]
    assert listed_items(range(12)) == "items 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
