"""The registry's clock is set more than once: each moment is run or reported."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from aioelasticjob.core.clock_skew import STEADY
from aioelasticjob.core.missed import SKIPPED
from aioelasticjob.core.state import SET_BACK
from aioelasticjob.testing import simulated
from tests.core.test_clock_skew import Setting

BORN = 3
"""Seconds after the start when every script's job has begun."""
SEEDS = (0, 1, 2, 35, 119, 130)
"""The last three found moments that were neither run nor reported."""


@pytest.mark.parametrize("monitored", [True, False])
@pytest.mark.parametrize("second_step", [10, 20, 33], ids=["before any report", "after a report", "late"])
def test_a_clock_put_right_in_two_steps_silences_no_moment(monitored: bool, second_step: int) -> None:
    @simulated
    async def test() -> None:
        here = Setting(monitor_execution=monitored)
        await here.open(off=50)
        await here.until(5.03)
        here.off = 30
        await here.until(second_step)
        here.off = 0
        await here.until(80)
        reported = here.reported()
        assert {*here.runs, *reported} >= set(range(second_step + 1, 80))
        assert all(why == [SET_BACK] for why in reported.values())
        assert not reported.keys() & here.runs.keys()
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_the_next_holder_knows_all_that_was_reported_at_both_steps() -> None:
    @simulated
    async def test() -> None:
        here = Setting()
        await here.open(off=50)
        await here.until(5.03)
        here.off = 30
        await here.until(20)
        here.off = 0
        await here.cluster.start(here.app)
        await here.until(35)
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(80)
        assert {*here.runs, *here.reported()} >= set(range(21, 80))
        assert all(why == [SET_BACK] for second, why in here.reported().items() if second <= 50)
        await here.cluster.close()

    test()


def test_what_came_in_the_last_seconds_before_the_job_began_is_reported_as_well() -> None:
    @simulated
    async def test() -> None:
        here = Setting()
        await here.open(off=8)  # the job begins at 8.5 or so, and the clock is set to a moment shortly before that
        await here.until(6.03)
        here.off = 0
        await here.until(40)
        assert {*here.runs, *here.reported()} >= set(range(7, 40))
        await here.cluster.close()

    test()


def test_a_jump_ahead_is_named_as_the_reason_for_what_it_skipped() -> None:
    @simulated
    async def test() -> None:
        here = Setting(misfire=False)
        await here.open()
        await here.until(20.5)
        here.off = 30
        await here.until(40)
        reported = here.reported()
        assert set(range(22, 50)) <= reported.keys() <= set(range(21, 53))
        assert {why for whys in reported.values() for why in whys} == {SKIPPED}
        await here.cluster.close()

    test()


@dataclass(frozen=True)
class Script:
    """How far the registry's clock is ahead at first, and to how much it is set when; in seconds."""

    first: float
    steps: tuple[tuple[float, float], ...]
    workers: int
    monitored: bool
    misfire: bool

    @classmethod
    def drawn(cls, seed: int) -> Script:
        dice, now, steps = Random(seed), 0.0, list[tuple[float, float]]()
        first = dice.choice((0.0, dice.uniform(2, 9), dice.uniform(2, 55)))
        for _ in range(dice.randint(1, 4)):
            now += dice.choice((dice.uniform(2, 9), dice.uniform(10, 40)))
            steps.append((now, dice.choice((0.0, dice.uniform(2, 9), dice.uniform(2, 55)))))
        steps.append((now + dice.uniform(2, 30), 0.0))
        return cls(first, tuple(steps), dice.randint(1, 2), dice.random() < 0.7, dice.random() < 0.7)

    def came(self, until: float) -> set[int]:
        """Return the seconds that the clock showed one after the other; what it only skipped is not among them.

        Nor is what it showed when it was set back for some seconds only: nothing is concluded from that.
        """
        found, since, off, before = set[int](), float(BORN), self.first, self.first
        for at, following in (*self.steps, (until, 0.0)):
            if not (off < before and following > off and at - since < STEADY + 2):
                found.update(range(int(since + off) + 1, int(at + off) + 1))
            since, before, off = max(at, since), off, following
        return found


@pytest.mark.parametrize("seed", SEEDS)
def test_each_moment_that_the_clock_shows_is_run_or_reported_however_it_is_set(seed: int) -> None:
    script = Script.drawn(seed)

    @simulated
    async def test() -> None:
        here = Setting(monitor_execution=script.monitored, misfire=script.misfire)
        await here.open(off=script.first, workers=script.workers)
        for at, off in script.steps:
            await here.until(at)
            here.off = off
        end = script.steps[-1][0] + 120
        await here.until(end)
        assert sorted(script.came(end - 2) - here.runs.keys() - here.reported().keys()) == [], script
        await here.cluster.close()

    test()
