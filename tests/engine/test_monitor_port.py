"""The monitor port of a job: what it answers, to whom, and when it cannot be had."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import sleep
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from anyio import create_task_group

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.monitor_port import HERE, MonitorPort
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.testing import run
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.support.ports import reserved_ports
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


async def ask(port: int, question: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def port_of_member(limited_log: LimitedLog) -> MonitorPort:
    """Return the port of a job of which nobody reads anything."""
    nothing = cast(Any, None)
    return MonitorPort(Member(nothing, Layout("job"), "", "", "", 0, 0, limited_log=limited_log), nothing)


def port_of(caplog: pytest.LogCaptureFixture) -> int:
    return next(int(record.port) for record in reversed(caplog.records) if hasattr(record, "port"))


@asynccontextmanager
async def monitored(here: SimulatedJobs, caplog: pytest.LogCaptureFixture) -> AsyncIterator[int]:
    caplog.set_level("INFO")
    async with here.app(cron="0/10 * * * * ?", monitor_port=0, sharding_total_count=2).running():
        await here.until(12)
        yield port_of(caplog)


def test_the_port_tells_the_whole_job(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            text = await ask(port, b"dump\n")
            for path in await here.observer.subtree([LAYOUT.root]):
                assert f"{path} | " in text
            assert LAYOUT.item(1).execution in text
            assert "127.0.0.1" in text
            assert "127.0.0.1" not in await ask(port, b"dump@masked\r\n")
            assert await ask(port, b"DUMP\n") == await ask(port, b"dump\n")
            assert await ask(port, b"Dump@Masked\n") == await ask(port, b"dump@masked\n")
        with pytest.raises(OSError, match=r"refused|111"):
            await ask(port, b"dump\n")

    simulate(scene)


@pytest.mark.parametrize("question", [b"reboot\n", b"\n", b"", b"\xff\n", b"x" * 9000 + b"\n", b"dump@all\n"])
def test_nonsense_gets_one_line(question: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(question)
            writer.write_eof()
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.count("\n") == 1
            assert answer.startswith("unknown command")
            assert (await ask(port, b"dump\n")).startswith("/job | ")

    simulate(scene)


def test_silent_clients_are_sent_away_and_too_many_get_an_answer_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            await anyio.sleep(1)
            assert await ask(port, b"dump\n") == "busy: try again\n"
            await anyio.sleep(10)
            for reader, writer in silent:
                assert await _rest(reader) == b""
                writer.close()
            assert (await ask(port, b"dump\n")).startswith("/job | ")
        assert len(here.starts()) == 2

    simulate(scene)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_a_port_in_use_ends_nothing_and_is_logged_also_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scene(here: SimulatedJobs) -> None:
        async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        taken = await asyncio.start_server(nothing, "127.0.0.1", 4711)
        async with here.app(cron="0/10 * * * * ?", monitor_port=4711).running():
            (warning,) = (one for one in caplog.records if one.levelno == logging.WARNING)
            text = "the monitor port 4711 is not open, and is tried again every 10 s: another process has it"
            assert warning.getMessage() == f"job: {text}"
            taken.close()
            await here.until(12)
            assert (await ask(4711, b"dump\n")).startswith("/job | ")
        taken = await asyncio.start_server(nothing, "127.0.0.1", 4711)
        caplog.clear()
        async with here.app(cron="0/10 * * * * ?", monitor_port=4712, overwrite=True).running():
            good = (await here.observer.get(LAYOUT.config)).data
            assert (await ask(4712, b"dump\n")).startswith("/job | ")
            await here.write(Set(LAYOUT.config, good.replace(b"4712", b"4711"), -1))
            await here.until(25)
            assert sum("monitor port 4711 is not open" in one.getMessage() for one in caplog.records) == 1
            await here.write(Set(LAYOUT.config, good.replace(b"4712", b"4713"), -1))
            await anyio.sleep(0.05)
            assert (await ask(4713, b"dump\n")).startswith("/job | ")
            with pytest.raises(OSError, match=r"refused|111"):
                await ask(4712, b"dump\n")
        assert len(here.starts()) == 2
        taken.close()

    simulate(scene)


def test_a_port_set_by_an_operator_keeps_no_process_from_starting_and_is_had_once_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", cron="0/10 * * * * ?", monitor_port=4711)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()))
        taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 4711)
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(35)
            assert sum("monitor port 4711 is not open" in text for text in caplog.messages) == 1
            taken.close()
            await anyio.sleep(11)
            assert (await ask(4711, b"dump\n")).startswith("/job | ")
        assert len(here.starts()) >= 3

    simulate(scene)


@pytest.mark.parametrize("port", [-2, 65_536])
def test_a_port_that_cannot_be_is_no_setting(port: int) -> None:
    with pytest.raises(InvalidSetting, match="monitor_port"):
        ElasticJob("embedded://").add(lambda context: None, name="job", monitor_port=port)


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.anyio
async def test_a_port_is_free_again_if_its_job_is_cancelled_in_the_midst_of_taking_it(steps: int) -> None:
    with reserved_ports(1) as (port,):
        monitor = port_of_member(LimitedLog())
        async with create_task_group() as tasks:
            tasks.start_soon(monitor.move, port)
            for _ in range(steps):
                await sleep(0)
            tasks.cancel_scope.cancel()
        monitor.close()
        with socket.socket() as client:
            assert client.connect_ex((HERE, port))


def test_a_job_that_joins_again_and_again_fills_no_log_with_its_port(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limited_log = LimitedLog()
        taken = await asyncio.start_server(lambda *_: None, HERE, 7000)
        for port in (7001, 7000):
            for _ in range(MOST + 5):
                monitor = port_of_member(limited_log)
                await monitor.move(port)
                monitor.close()
        taken.close()
        limited_log.close()

    with caplog.at_level(logging.INFO, "aioelasticjob.engine.monitor_port"):
        run(main)
    assert [line.partition(",")[0] for line in caplog.messages] == [
        *["job: the monitor port is 7001"] * MOST,
        *["job: the monitor port 7000 is not open"] * MOST,
        "5 more lines were left out",
        "5 more lines were left out",
    ]
