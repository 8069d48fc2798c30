"""Real `aioelasticjob alert` commands, a registry that goes away, and a web address that receives what they send."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from aioelasticjob import ElasticJob, ItemContext
from tests.support.embedded import embedded_server
from tests.support.processes import TIMEOUT, ChildProcess

pytestmark = pytest.mark.process


class Receiver:
    """A web address: what was posted to it, and whether somebody has called it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.posted = SimpleQueue[dict[str, Any]]()
        self.called = threading.Event()

    def next(self) -> tuple[str, str, str]:
        """Return the status, the kind and the job of the next message."""
        body = self.posted.get(timeout=TIMEOUT)
        (alert,) = body["alerts"]
        return alert["status"], alert["kind"], alert["job"]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            receiver.posted.put(json.loads(self.rfile.read(size)))
            self._answer()

        def do_GET(self) -> None:
            receiver.called.set()
            self._answer()

        def _answer(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        receiver = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


async def run_job(address: str, told: Receiver, *, until_told: bool = True) -> tuple[str, str, str] | None:
    """Run the job, by default until the next message has come; return that message."""
    app = ElasticJob(address)

    async def work(context: ItemContext) -> None:
        pass

    options = {"url": told.url}
    app.add(
        work,
        name="report",
        cron="0 0 2 * * ?",
        error_handler="webhook",
        error_handler_options=options,
        alert_on="nobody-there",
    )
    async with app.running():
        return await asyncio.to_thread(told.next) if until_told else None


def test_two_outages_and_a_dead_registry_are_told_although_the_first_command_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        told = stack.enter_context(receiving())
        registry = ExitStack()
        address = f"zk://{registry.enter_context(embedded_server()).address}/billing"
        stack.push(registry)

        def command(name: str) -> ChildProcess:
            options = ["--after", "1", "--to", f"webhook url={told.url}", "--heartbeat", told.url]
            options += ["--state-file", str(tmp_path / f"{name}.json")]
            child = ChildProcess(
                [sys.executable, "-m", "aioelasticjob", "alert", "--registry", address, *options], tmp_path / name
            )
            stack.callback(child.kill)
            return child

        first = command("first")
        assert told.called.wait(TIMEOUT)
        asyncio.run(run_job(address, told, until_told=False))
        assert told.next() == ("firing", "nobody-there", "report")
        command("second")
        first.kill()
        assert asyncio.run(run_job(address, told)) == ("resolved", "nobody-there", "report")
        assert told.next() == ("firing", "nobody-there", "report")
        assert asyncio.run(run_job(address, told)) == ("resolved", "nobody-there", "report")
        registry.close()  # a fifth message about the job would have to wait for the limit
        assert told.next() == ("firing", "registry-away", "")
        assert told.posted.empty()
