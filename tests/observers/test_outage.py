"""A real PostgreSQL that stands still or dies while jobs run: runs go on, and the history is whole afterwards.

That no fire is later for it is shown in virtual time by ``test_writer``: here the machine may be busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.observers.settings import EventStoreSettings
from aioelasticjob.observers.sql import EventStore, Filter
from tests.support import real_postgres
from tests.support.processes import TIMEOUT
from tests.support.real_postgres import RealPostgres, closed_port


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.process
@pytest.mark.parametrize("harm", ["paused", "killed", "starting for long"])
def test_runs_go_on_and_the_history_is_whole_afterwards_if_the_database_is(harm: str) -> None:
    if real_postgres.binaries() is None:
        pytest.skip("Debian's postgresql is not installed")
    fires: list[float] = []

    async def main(server: RealPostgres) -> None:
        settings = EventStoreSettings(server.url(), write_timeout=1, shutdown_timeout=10)
        app = ElasticJob("embedded://", event_store=settings)

        @app.job(cron="* * * * * ?", sharding_total_count=2)
        async def work(context: ItemContext) -> None:
            fires.append(context.fire_time.timestamp())

        async with app.running():
            assert app._here.recorder is not None
            store, counts = app.event_store, lambda: app._here.recorder.counts  # type: ignore[union-attr]
            assert isinstance(store, EventStore)
            await _until(lambda: counts().written > 0)
            (server.pause if harm == "paused" else server.stop)()
            await _until(lambda: bool(counts().trouble))
            await _until(lambda: bool(app.health.as_json()["problems"]))
            assert app.health.ready  # the jobs run all the same
            if harm == "starting for long":  # it answers, but takes no connections (57P03)
                await asyncio.to_thread(server.start, only_starting=True)
                await _until(lambda: "not accepting connections" in counts().trouble or counts().rejected > 0)
            before = len(fires)
            await _until(lambda: len(fires) >= before + 4)  # a run that waited for the database would wait in vain
            if harm == "starting for long":
                server.stop()
            await asyncio.to_thread(server.resume if harm == "paused" else server.start)
            await _until(lambda: not counts().trouble)
            assert not app.health.problems
        assert counts().dropped == counts().waiting == counts().rejected == 0

    async def found(server: RealPostgres) -> int:
        from aioelasticjob.observers.sql import open_store

        async with open_store(server.url()) as store:
            assert await store.counts() == await store.counts(Filter(outcome="completed"))
            return (await store.counts())["completed"]

    with real_postgres.postgres() as server:
        asyncio.run(main(server))
        assert asyncio.run(found(server)) == len(fires)


def test_an_application_starts_and_ends_without_its_database() -> None:
    runs: list[int] = []

    async def main() -> None:
        url = f"postgresql://me:s3cret@127.0.0.1:{closed_port()}/events"
        app = ElasticJob("embedded://", event_store=EventStoreSettings(url, shutdown_timeout=0.5))

        @app.job(cron="* * * * * ?")
        async def work(context: ItemContext) -> None:
            runs.append(context.item)

        async with asyncio.timeout(TIMEOUT), app.running():
            await _until(lambda: len(runs) >= 2)
        assert app._here.recorder is not None
        assert app._here.recorder.counts is not None
        assert app._here.recorder.counts.waiting >= 6

    asyncio.run(main())
