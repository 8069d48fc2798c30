"""The processes of a demonstration: one server and some workers.  All of them are ended at its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path

import anyio
from anyio.abc import Process

from aioelasticjob.errors import ElasticJobError
from aioelasticjob.host.child_python import python_command

STOP_TIMEOUT = 5.0
"""Seconds for a process to end by itself once it is asked to."""
START_TIMEOUT = 20.0
"""Seconds for the server to accept connections."""
LOG_LINES_SHOWN = 3
"""Lines that are shown of the log of a process that ended by itself."""


class ProcessEnded(ElasticJobError):
    """A process of the demonstration ended by itself."""

    def __init__(self, name: str, code: int, words: str, log: Path) -> None:
        super().__init__(f"{name} ended by itself with exit code {code}: {words or 'it said nothing'} (log: {log})")
        self.name = name
        self.code = code
        self.words = words
        self.log = log


class ProcessState(StrEnum):
    """The state of a process."""

    STARTED = "started"
    KILLED = "killed"
    ENDED = "ended"


class DemoProcess:
    """One process and its log."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self.state = ProcessState.STARTED
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self.state = ProcessState.KILLED
        self._signal(signal.SIGKILL)

    def look(self) -> None:
        """Check that the process has not ended by itself.

        Raises:
            ProcessEnded: it has.
        """
        code = self._process.returncode
        if self.state is not ProcessState.STARTED or code is None:
            return
        said = self.log.read_text(errors="replace").split("\n")
        lines = [line.strip() for line in said if line.strip()]
        raise ProcessEnded(self.name, code, " / ".join(lines[-LOG_LINES_SHOWN:]), self.log)

    async def end(self) -> None:
        """Ask the process to end; kill it if it does not."""
        if self.state is ProcessState.STARTED:
            self.state = ProcessState.ENDED
            self._signal(signal.SIGTERM)
            with anyio.move_on_after(STOP_TIMEOUT):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.aclose()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)


class ProcessGroup:
    """Starts processes, keeps their logs in a directory, and ends them together."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = environment
        self.children: list[DemoProcess] = []

    async def start(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> DemoProcess:
        """Start ``python -m`` with ``arguments``."""
        log = self._logs / f"{name.replace(' ', '-')}.log"
        command = python_command("aioelasticjob.demo.child_process", *arguments, unbuffered=True)
        # not cancelled in between: every started process must be in the list
        with log.open("wb") as output, anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment, **(environment or {})},
                start_new_session=True,  # Ctrl-C goes only to this process, which ends the others in order
            )
            child = DemoProcess(name, process, log)
            self.children.append(child)
        return child

    async def end(self) -> None:
        """End all processes that are left, the youngest first: workers need the server in order to leave."""
        for group in (self.children[1:], self.children[:1]):
            async with anyio.create_task_group() as tasks:
                for child in group:
                    tasks.start_soon(child.end)


@asynccontextmanager
async def process_group(logs: Path) -> AsyncIterator[ProcessGroup]:
    """Yield a starter of processes; all of them have ended when the block is left."""
    members = ProcessGroup(logs, {"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        yield members
    finally:
        with anyio.CancelScope(shield=True):
            await members.end()


async def start_server(members: ProcessGroup, tick_time: int) -> str:
    """Start the embedded server on a free port and return its ``host:port``; ticks are milliseconds.

    Raises:
        ProcessEnded: it could not start.
    """
    arguments = ("--port", "0", "--tick-time", str(tick_time))
    server = await members.start("server", "aioelasticjob.zookeeper", *arguments)
    with anyio.fail_after(START_TIMEOUT):
        while True:
            for line in server.log.read_text().splitlines(keepends=True):
                if "listening on" in line and line.endswith("\n"):
                    return line.split()[-1]
            server.look()
            await anyio.sleep(0.02)
