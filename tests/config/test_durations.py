"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aioelasticjob.config.durations import as_seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (5, 5),
        (0.25, 0.25),
        ("5", 5),
        ("5m", 300),
        ("90s", 90),
        ("1h 30m", 5400),
        ("1h30min", 5400),
        (" 2 d ", 172_800),
        ("250ms", 0.25),
        ("1.5h", 5400),
        (timedelta(minutes=5), 300),
        (None, None),
    ],
)
def test_a_duration_is_read_as_seconds(given: object, seconds: object) -> None:
    assert as_seconds(given) == seconds


@pytest.mark.parametrize("given", ["", " ", "5 apples", "m", "5m!", "-5m", "1:30", True, False])
def test_what_is_no_duration_is_refused_with_what_would_be_right(given: object) -> None:
    with pytest.raises(ValueError, match='text such as "90s", "5m" or "1h 30m", or a timedelta'):
        as_seconds(given)
