"""What other hosts read of a host whose clock is wrong carries the registry's time: events, history, health."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob.events import Began, Ended, Misfired, Started
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import SimulatedJobs, listening, simulate

AHEAD = 300.0


class OtherClock:
    """The clock of a host that is ahead of the registry by so many seconds, or behind."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> float:
        return VirtualClock().now() + self._ahead


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD])
def test_events_of_a_host_whose_clock_is_wrong_carry_the_registrys_time(ahead: float) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=12.0, max_time_diff_seconds=-1)
        app._here.clock = OtherClock(ahead)
        async with listening(here, app), app.running():
            await here.until(60)
        begun = [event for event in here.events if isinstance(event, Began)]
        assert len(begun) >= 2
        for event in begun:
            assert abs(event.late) < 15  # the second moment comes while the first runs
        times = [event.at for event in here.events if isinstance(event, Started | Ended | Misfired)]
        assert len(times) >= 4
        for at in times:
            assert 0 <= at - here.start <= 75

    simulate(scene)


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD])
def test_the_health_of_a_host_whose_clock_is_wrong_tells_the_next_fire(ahead: float) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 * * * * ?", max_time_diff_seconds=-1)
        app._here.clock = OtherClock(ahead)
        async with app.running():
            await anyio.sleep(5)
            (job,) = app.health.jobs
            assert job.next_fire is not None
            assert job.next_fire.timestamp() == here.start + 60
            assert app.health.problems.clock_differs == pytest.approx(ahead, abs=0.1)
            assert app.health.ready

    simulate(scene)
