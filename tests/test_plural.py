from __future__ import annotations

import pytest

from aioelasticjob.plural import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1200, "1,200 jobs"), (100_000, "100,000 jobs")]
)
def test_a_noun_has_an_s_unless_there_is_one(number: int, text: str) -> None:
    assert counted(number, "job") == text
