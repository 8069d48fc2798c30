"""The monitor port of a job: clients on this machine can read the job's nodes there.

A client sends ``dump`` or ``dump@masked`` and a newline, as with Elastic-Job, and reads until the end.  Commands in
upper case are the same.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from errno import EADDRINUSE
from math import inf

from anyio import CancelScope, move_on_after

from aioelasticjob.core.view import JobView
from aioelasticjob.engine.dump import render
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import RegistryError
from aioelasticjob.ground.latest import Latest
from aioelasticjob.logging import logger

HERE = "127.0.0.1"
OFF = -1
RETRY_PAUSE = 10.0
"""Seconds before a port that another process uses is tried again."""
REQUEST_TIMEOUT = 10.0
"""Seconds in which a client must have sent its command, and then in which it must have read the answer."""
MAX_COMMAND_BYTES = 256
"""The largest command that is read, in bytes."""
MAX_DUMP_CHARACTERS = 8 * 1024 * 1024
"""The largest answer, in characters.  ``aioelasticjob dump`` has no such limit."""
MAX_CONNECTIONS = 8
"""How many clients may be connected at a time."""
COMMANDS = {"dump": False, "dump@masked": True}
"""The commands, and whether each one masks addresses and credentials."""

log = logger(__name__)


class MonitorPort:
    """A job's monitor port, which follows the newest view, and its clients."""

    def __init__(self, member: Member, views: Latest[JobView]) -> None:
        self._member = member
        self._views = views
        self._wanted = OFF
        self._server: asyncio.Server | None = None
        self._clients: set[StreamWriter] = set()

    def turn(self) -> float | Callable[[], Awaitable[float]]:
        """Listen on the port of the newest view; try again if that failed."""
        if self._views.value.config.monitor_port == self._wanted and not self.missing:
            return inf
        return self._follow

    async def _follow(self) -> float:
        await self.move(self._views.value.config.monitor_port)
        return RETRY_PAUSE if self.missing else inf

    @property
    def missing(self) -> bool:
        """Whether the configured port could not be opened."""
        return self._wanted != OFF and self._server is None

    async def move(self, port: int) -> None:
        """Listen on another port, or stop listening if it is ``OFF``; try again if that failed before.

        A port that cannot be opened is logged.  It ends nothing: several processes of this host may run the same code,
        and the one that has the port may end.
        """
        self.close()
        is_new = port != self._wanted
        self._wanted = port
        if port == OFF:
            return
        job = self._member.layout.job
        try:
            with CancelScope(shield=True):  # a cancelled start_server would leave a listening server
                server = await asyncio.start_server(self._attend, HERE, port, limit=MAX_COMMAND_BYTES)
        except OSError as error:
            if is_new and self._member.admits(log, "monitor ports cannot be opened"):
                why = "another process has it" if error.errno == EADDRINUSE else error.strerror or str(error)
                text = "%s: the monitor port %d is not open, and is tried again every %g s: %s"
                log.warning(text, job, port, RETRY_PAUSE, why, extra={"job": job, "port": port})
            return
        self._server = server
        found = server.sockets[0].getsockname()[1]
        text = f"the monitor port is {found}"
        self._member.log_limited(log, "monitor ports are opened", text, logging.INFO, port=found)

    def close(self) -> None:
        """Stop listening, and disconnect all clients."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for client in tuple(self._clients):
            client.transport.abort()

    async def _attend(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._clients) >= MAX_CONNECTIONS:
            writer.write(b"busy: try again\n")
            writer.close()
            return
        self._clients.add(writer)
        try:
            with suppress(OSError):
                answer = await self._answer(reader)
                with move_on_after(REQUEST_TIMEOUT):
                    writer.write(answer.encode())
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._clients.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: StreamReader) -> str:
        """Return the answer; empty if the client has not asked in time.  To render a large job may take longer."""
        layout = self._member.layout
        with move_on_after(REQUEST_TIMEOUT) as limit:
            try:
                asked = (await reader.readline()).decode("utf-8", "replace").strip()
                command = asked.lower()
            except ValueError:  # longer than any command
                asked = "…"
                command = asked
            if command not in COMMANDS:
                known = " or ".join(COMMANDS)
                return f"unknown command {asked[:40]!r}: send {known}\n"
            try:
                tree = await self._member.session.subtree([layout.root])
            except RegistryError as error:
                return f"error: {error}\n"
        if limit.cancelled_caught:
            return ""
        return await render(tree, layout, masked=COMMANDS[command], limit=MAX_DUMP_CHARACTERS) + "\n"
