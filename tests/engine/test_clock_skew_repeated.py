"""The registry's clock is set more than once: what it has yet to show again is lost, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from aioelasticjob.core.clock_skew import STEADY, ClockSkewMonitor
from aioelasticjob.core.reasons import SKIPPED
from aioelasticjob.registry.client import ClockReading
from aioelasticjob.testing import simulated
from tests.core.test_clock_skew import Setting

SEEDS = (0, 1, 2, 35, 119, 130)
BEGIN = 1_000_000_000


@pytest.mark.parametrize("monitored", [True, False])
@pytest.mark.parametrize("second_step", [10, 20, 33])
def test_a_clock_put_right_in_two_steps_loses_what_it_had_shown_and_no_moment_after_that(
    monitored: bool, second_step: int
) -> None:
    @simulated
    async def test() -> None:
        here = Setting(monitor_execution=monitored)
        await here.open(off=50)
        await here.until(5.03)
        here.off = 30
        await here.until(second_step)
        here.off = 0
        await here.until(80)
        assert {*here.runs, *here.reported()} >= set(range(max(56, second_step + 31), 80))
        assert not here.reported().keys() & here.runs.keys()
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_the_next_holder_runs_nothing_again_that_a_clock_ahead_had_shown() -> None:
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
        assert {*here.runs, *here.reported()} >= set(range(56, 80))
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_after_a_clock_that_was_two_minutes_ahead_moments_are_run_again_when_it_has_been_right_for_a_while() -> None:
    @simulated
    async def test() -> None:
        here = Setting()
        await here.open(off=120)
        await here.until(6.03)
        here.off = 0
        await here.until(60)
        right_again = 6 + int(STEADY) + 3
        assert set(range(right_again, 60)) <= here.runs.keys()
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


def test_moments_that_come_again_were_not_skipped() -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN, 0.0))
    clock.take(ClockReading(BEGIN + 3601.0, 1.0))
    assert len(clock.skipped) == 1
    clock.take(ClockReading(BEGIN + 2.0, 2.0))
    assert clock.skipped == ()


def test_what_a_jump_has_skipped_is_known_to_the_millisecond() -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN + 0.0007, 0.0))
    clock.take(ClockReading(BEGIN + 1.0007 + 5.0008, 1.0))
    assert clock.skipped == (((BEGIN + 1) * 1000, (BEGIN + 6) * 1000 + 1),)


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

    def latest(self) -> float:
        """Return the latest second that the clock showed before it was right for good."""
        ahead = (self.first, *(off for _, off in self.steps))
        return max(at + off for (at, _), off in zip(self.steps, ahead, strict=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_moment_after_the_latest_that_the_clock_had_shown_is_run_or_reported_however_it_was_set(
    seed: int,
) -> None:
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
        came = set(range(int(script.latest()) + 1, int(end - 2)))
        assert sorted(came - here.runs.keys() - here.reported().keys()) == [], script
        assert not here.reported().keys() & here.runs.keys()
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()
