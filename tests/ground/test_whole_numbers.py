from __future__ import annotations

import pytest

from aioelasticjob.ground.whole_numbers import whole_number


def test_a_text_of_decimal_digits_is_a_whole_number() -> None:
    assert [whole_number(text) for text in ("0", "7", "007", "123456789012345")] == [0, 7, 7, 123456789012345]


@pytest.mark.parametrize("text", ["", " 7", "-7", "+7", "7.0", "1_000", "٧", "²", "1e3", "seven"])
def test_any_other_text_is_none(text: str) -> None:
    assert whole_number(text) is None


def test_a_number_with_more_digits_than_are_allowed_is_none() -> None:
    assert whole_number("9999", 4) == 9999
    assert whole_number("10000", 4) is None
    assert whole_number("9" * 5000) is None
