"""The nodes of a job, read as what they mean."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.view import instance_data, is_host
from aioelasticjob.registry.transaction import Create
from tests.coordination.rules.world import LAYOUT, knowing, requiring, world


def test_what_is_required_counts_though_the_rest_makes_no_sense_here() -> None:
    there = world(1, sharding_total_count=2)
    there.registry.commit([knowing(2, "x")], incarnation=2)
    there.settle()
    view = requiring(there, b'{"jobName": "job", "requires": ["x"], "dst": "new"}')
    assert view.fault is not None
    assert (view.eligible, view.config.sharding_total_count) == (("10.0.0.2@-@1",), 2)
    view = requiring(there, b'{"jobName": "job", "requires": [7], "dst": "new"}')
    assert len(view.eligible) == 2  # which says nothing, so the last word holds: it was nothing


@pytest.mark.parametrize("data", [b'{"features": "x"}', b'{"features": {"x": 1}}', b'{"features": [["x"]]}', b"x"])
def test_an_instance_that_does_not_say_what_it_knows_knows_nothing(data: bytes) -> None:
    there = world(0, requires=["x"])
    there.registry.commit([Create(LAYOUT.instance("10.0.0.1@-@1"), data, ephemeral=True)], incarnation=1)
    assert there.settle().eligible == ()


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        *[("10.0.0.1", True), ("fe80::1%eth0", True), ("web-1.example.com", True), ("größe", True), ("by_hand", True)],
        *[("", False), (".", False), ("..", False), ("a/b", False), ("a b", False), ("\ud800", False), (None, False)],
    ],
)
def test_what_can_be_a_host(name: object, fits: bool) -> None:
    assert is_host(name) is fits


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 5000, b"1e999"])
def test_what_is_no_object_says_nothing(data: bytes) -> None:
    assert instance_data(data) == {}
