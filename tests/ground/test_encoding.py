"""What somebody else has written into a node is taken for what it is."""

from __future__ import annotations

import pytest

from aioelasticjob.ground.encoding import json_object, number


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 5000, b"1e999"])
def test_what_is_no_object_says_nothing(data: bytes) -> None:
    assert json_object(data) == {}


def test_an_object_is_read_whatever_else_it_says() -> None:
    assert json_object(b'{"since": 7, "unknown": [1]}') == {"since": 7, "unknown": [1]}


def test_a_number_is_one_that_a_float_can_hold() -> None:
    said = [number(value) for value in (7, -0.5, 10**400, float("nan"), float("-inf"), True, "7", None, [])]
    assert said == [7.0, -0.5, *[None] * 7]
