"""The nodes of instances, read as what they mean."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.instance_nodes import is_host


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        *[("10.0.0.1", True), ("fe80::1%eth0", True), ("web-1.example.com", True), ("größe", True), ("by_hand", True)],
        *[("", False), (".", False), ("..", False), ("a/b", False), ("a b", False), ("\ud800", False), (None, False)],
    ],
)
def test_what_can_be_a_host(name: object, fits: bool) -> None:
    assert is_host(name) is fits
