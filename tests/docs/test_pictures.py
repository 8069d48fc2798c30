"""Pictures that are drawn from figures show the present figures; the others are made by ``tests.pictures``."""

from __future__ import annotations

import pytest

from tests.pictures import IMAGES, LOOKS, Look, figures, frames, lateness_of, plain, sharding_of


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_the_lateness_shown_is_that_of_the_page_of_the_benchmarks(look: Look) -> None:
    """If it fails, run ``python -m tests.pictures lateness``."""
    assert (IMAGES / f"lateness-{look.name}.svg").read_text() == lateness_of(figures(), look)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_the_assignments_shown_are_those_of_the_strategies(look: Look) -> None:
    """If it fails, run ``python -m tests.pictures sharding``."""
    assert (IMAGES / f"sharding-{look.name}.svg").read_text() == sharding_of(look)


def test_each_state_of_a_live_table_is_a_frame() -> None:
    written = b"one\r\n\x1b[31mtwo\x1b[0m\r\x1b[2K\x1b[1A\x1b[2Kthree\r\nfour\r\n"
    assert [plain(frame) for frame in frames(written)] == ["one\ntwo", "three\nfour\n"]
