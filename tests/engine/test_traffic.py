"""What a cluster at work makes its instances hear: nothing, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.registry.watches import Watches
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


@pytest.mark.parametrize("instances", [2, 8])
def test_neither_fires_nor_published_counts_are_heard_of(instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    dispatch = Watches.dispatch

    def noted(self: Watches, kind: int, path: str) -> None:
        heard.append(path)
        dispatch(self, kind, path)

    monkeypatch.setattr(Watches, "dispatch", noted)

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None: ...

        def worker() -> Callable[[], Coroutine[object, object, None]]:
            async def main() -> None:
                app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=10)
                settings = {"sharding_total_count": instances, "reconcile_interval": 15, "statistics_interval": 15}
                app.add(handler, name="job", cron="0/5 * * * * ?", **settings)
                async with app.running():
                    await anyio.sleep_forever()

            return main

        hosts = [f"10.0.0.{number}" for number in range(1, instances + 1)]
        people = [here.faults.start(host, host, worker()) for host in hosts]
        await here.until(32)
        assert len(await here.names(LAYOUT.servers)) == instances
        heard.clear()
        await here.until(92)
        for host in hosts:
            assert (await here.observer.get(LAYOUT.success_count(host))).data == b"3"  # published again and again
        assert heard == []
        for one in people:
            one.terminate()

    simulate(scene)
