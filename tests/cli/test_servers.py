"""Servers as tables and as JSON, from a registry where a job really runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from aioelasticjob import operations
from tests.cli.conftest import Command
from tests.cli.test_jobs import NAMESPACE, RunningReport, eventually, running_report
from tests.support.embedded import EmbeddedServer

HOST = "127.0.0.1"


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/{NAMESPACE}"


async def _paused(there: RunningReport) -> None:
    assert (await operations.pause_server(there.session, HOST)).changed


def observed(
    address: str,
    command: Command,
    *arguments: str,
    first: Callable[[RunningReport], Awaitable[None]] | None = None,
) -> tuple[int, str, str]:
    """Run a command while both jobs have got their items; return its exit code, stdout and stderr."""

    async def main() -> tuple[int, str, str]:
        async with running_report(address) as there:
            await eventually(
                lambda: operations.job(there.session, "idle", now=0), lambda idle: idle.settled and idle.items[0].holder
            )
            if first is not None:
                await first(there)
            result = await asyncio.to_thread(command, *arguments, "--registry", address)
            return result.exit_code, result.stdout, result.stderr

    return asyncio.run(main())


def test_servers_names_each_server_with_what_it_holds(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "servers")
    (row,) = (line.split() for line in said.splitlines() if line.startswith(f" {HOST}"))
    assert code == 0
    assert row[-3:] == ["2", "2", "4"]


def test_server_shows_each_job_there_and_what_runs(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "server", HOST)
    lines = said.splitlines()
    assert code == 0
    assert lines[0].startswith(HOST)
    assert lines[0].endswith("2 jobs, 2 instances, 4 items")
    idle, report = (line for line in lines if line.startswith((" idle", " report")))
    assert idle.split()[:5] == ["idle", "waiting", "1", "0", "·"]
    assert report.split()[:6] == ["report", "running", "1", "0,", "1,", "2"]
    assert "1 for " in report


def test_server_as_json_has_its_jobs_with_flags_and_since_when(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "server", HOST, "--json", first=_paused)
    printed = json.loads(said)
    assert code == 0
    assert (printed["ip"], printed["paused"], printed["items"]) == (HOST, True, 4)
    (flag,) = printed["flags"]
    assert flag["flag"] == "paused in all jobs"
    assert flag["since"].endswith("+00:00")
    idle, report = printed["jobs"]
    assert (idle["jobName"], idle["items"], idle["runs"]) == ("idle", [0], [])
    assert (report["jobName"], report["items"], report["flags"]) == ("report", [0, 1, 2], [flag])
    assert 1 in [run["item"] for run in report["runs"]]
    assert len(report["instances"]) == 1


def test_a_server_that_is_not_there_is_answered_with_those_that_are(address: str, command: Command) -> None:
    code, said, message = observed(address, command, "server", "10.0.0.9")
    assert (code, said) == (2, "")
    assert message == f"error: server = '10.0.0.9': no job knows such a server; there are: {HOST}\n"


def test_a_namespace_without_servers_is_said_to_have_none(address: str, command: Command) -> None:
    assert command("servers", "-r", address).stdout == f"no servers in {address}\n"
    assert json.loads(command("servers", "-r", address, "--json").stdout) == []
