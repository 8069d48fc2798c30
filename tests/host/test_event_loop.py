"""Jobs run on asyncio's own loop and on uvloop; an application on trio is told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest
import trio

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.host.event_loop import require_asyncio
from aioelasticjob.integrations import guest
from aioelasticjob.registry.session import ConnectionSettings, open_session
from tests.support.embedded import EmbeddedServer
from tests.support.local_applications import EVERY_SECOND, HandlerRuns
from tests.support.loops import LoopKind, run_async

REFUSED = (
    r"^event loop = 'not asyncio': jobs run on asyncio or uvloop, not on trio: begin with asyncio\.run\(main\(\)\)"
)


def test_a_job_runs_on_either_loop(embedded: EmbeddedServer, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        async with diary.app(f"zk://{embedded.address}/shop", cron=EVERY_SECOND, sharding_total_count=2).running():
            await diary.fires(1, range(2))

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("start", [trio.run, lambda main: anyio.run(main, backend="trio")], ids=["trio", "anyio"])
def test_an_application_says_that_it_does_not_run_on_trio(start: Callable[..., object]) -> None:
    async def main() -> None:
        async with ElasticJob("embedded://").running():
            raise AssertionError("it runs")

    with pytest.raises(InvalidSetting, match=REFUSED):
        start(main)


def test_a_guest_says_that_it_does_not_run_on_trio() -> None:
    async def main() -> None:
        async with guest(ElasticJob("embedded://")):
            raise AssertionError("it runs")

    with pytest.raises(InvalidSetting, match=REFUSED):
        trio.run(main)


def test_a_session_is_not_opened_on_trio() -> None:
    async def main() -> None:
        async with open_session(ConnectionSettings.parse("zk://127.0.0.1:1/shop")):
            raise AssertionError("it is open")

    with pytest.raises(InvalidSetting, match=REFUSED):
        trio.run(main)


def test_trio_as_a_guest_on_asyncios_loop_is_still_trio() -> None:
    async def on_trio() -> None:
        require_asyncio()

    async def host() -> object:
        done = asyncio.get_running_loop().create_future()
        trio.lowlevel.start_guest_run(
            on_trio,
            run_sync_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe,
            done_callback=done.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return (await done).unwrap()

    with pytest.raises(InvalidSetting, match=REFUSED):
        asyncio.run(host())
