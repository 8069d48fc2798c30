"""The simulation notices planted defects: with any of them it fails within some seeds, and names the broken promise."""

from __future__ import annotations

import pytest

from tests.simulation import omissions, planted
from tests.simulation.planted import COVERED, LIMIT, PLANTED, PLANTED_BARE, Covered, Planted, PlantedBare

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("one", [*PLANTED, *PLANTED_BARE], ids=lambda one: one.defect.__name__)
def test_what_is_broken_is_noticed(one: Planted | PlantedBare) -> None:
    last = one.seeds - 1  # which is enough as long as a change elsewhere does not make that seed another
    if not any(one.shows(seed) for seed in (last, *(seed for seed in range(LIMIT) if seed != last))):
        pytest.fail(f"{one.defect.__doc__} In {LIMIT} seeds {one.promise!r} was not seen to be broken")


def test_a_seed_that_shows_a_defect_is_sound_without_it() -> None:
    one = next(one for one in PLANTED if one.defect is omissions.nobody_up_unreported)
    assert one.shows(one.seeds - 1)
    assert not one.live(one.seeds - 1, sound=True).violations


def test_the_command_says_how_many_seeds_each_defect_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert planted.main(["held_up_unreported"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split()[:3] == ["held_up_unreported", "nothing", "lost"]
    assert planted.main(["--of", "1", "held_up_unreported"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split() == ["held_up_unreported", "nothing", "lost", "1"]


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.defect.__name__)
def test_a_safeguard_keeps_the_promise_when_the_others_are_missing(one: Covered) -> None:
    last = one.seeds - 1
    if not any(one.shows(seed) for seed in (last, *(seed for seed in range(LIMIT) if seed != last))):
        pytest.fail(
            f"{one.defect.__doc__} In {LIMIT} seeds {one.promise!r} was not broken, even without {one.safeguards}"
        )
