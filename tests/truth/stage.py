"""The processes of one measurement: a registry, workers, an event store, the console with a page, the alert command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from playwright.sync_api import Browser, Page

from tests.support.ports import reserved_ports
from tests.support.processes import ROOT, ChildProcess
from tests.support.proxy import Proxy, proxy_to
from tests.support.real_zookeeper import Ensemble
from tests.truth.surfaces import Webhook

T = TypeVar("T")
SESSION_TIMEOUT: Final = 6
PASSWORD: Final = "correct horse battery"
WORKER: Final = ROOT / "tests" / "truth" / "worker.py"


class Proxies:
    """Proxies in an event loop of their own, in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def to(self, host: str, port: int) -> Proxy:
        """Return a new proxy in front of an address."""
        return self._run(self._stack.enter_async_context(proxy_to(host, port)))

    def silence(self, *proxies: Proxy) -> None:
        """Let everything disappear that goes through some proxies."""
        for one in proxies:
            self._loop.call_soon_threadsafe(one.swallow, "up", "down")

    def heal(self, *proxies: Proxy) -> None:
        """Break the connections through some proxies, and let everything through from now on."""

        def heal() -> None:
            for one in proxies:
                one.reset()
                one.heal()

        self._loop.call_soon_threadsafe(heal)

    def close(self) -> None:
        """Break all connections, and end the loop."""
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@dataclass(frozen=True)
class Program:
    """The package under test: that of this checkout, or of another directory."""

    code: Path
    directory: Path
    """Where logs and data go."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of its processes."""
        return {**os.environ, "PYTHONPATH": str(self.code), "AIOELASTICJOB_IP": "127.0.0.1", "COLUMNS": "200"}

    def command(self, *arguments: str) -> list[str]:
        """Return its command line with these arguments."""
        return [sys.executable, "-P", "-u", "-m", "aioelasticjob", *arguments]

    def takes(self, command: str, option: str) -> bool:
        """Whether one of its commands takes an option."""
        told = subprocess.run(
            self.command(command, "--help"), capture_output=True, text=True, env=self.environment, check=False
        )
        return option in told.stdout

    def start(self, name: str, command: list[str]) -> ChildProcess:
        """Start a process; its output goes to a file of that name."""
        return ChildProcess(command, self.directory / f"{name}.log", self.environment)


@dataclass
class Stage:
    """One console with its page, and workers that share a registry and an event store."""

    program: Program
    ensemble: Ensemble
    namespace: str
    event_store: str
    webhook: Webhook
    ports: tuple[int, ...]
    """Free ports: of the console, of its metrics, and of the metrics of up to four workers."""
    children: list[ChildProcess] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The registry's address."""
        return f"zk://{self.ensemble.addresses}/{self.namespace}"

    def start_worker(
        self, number: int, *, address: str = "", event_store: str = "", ahead: float = 0.0
    ) -> ChildProcess:
        """Start a worker, and wait until its job has joined."""
        given = {
            "address": address or self.address,
            "event_store": event_store or self.event_store,
            "metrics": self.ports[2 + number],
            "ahead": ahead,
            "session_timeout": SESSION_TIMEOUT,
            "webhook": self.webhook.url,
        }
        command = [sys.executable, "-P", "-u", str(WORKER), json.dumps(given)]
        child = self.program.start(f"{self.namespace}-worker-{number}-{len(self.children)}", command)
        self.children.append(child)
        child.wait_for_output("running 1 job")
        return child

    def start_console(self) -> ChildProcess:
        """Start the console."""
        arguments = ["console", "-r", f"truth={self.address}", "--event-store", self.event_store]
        arguments += [
            "--port",
            str(self.ports[0]),
            "--data-dir",
            str(self.program.directory / f"{self.namespace}-data"),
        ]
        if self.program.takes("console", "--metrics"):
            arguments += ["--metrics", str(self.ports[1])]
        child = self.program.start(f"{self.namespace}-console", self.program.command(*arguments))
        self.children.append(child)
        child.wait_for_output("The console is at")
        return child

    def start_alert(self) -> ChildProcess:
        """Start the alert command; what belongs to no job goes to the webhook, if the command can send it."""
        arguments = ["alert", "-r", self.address]
        if self.program.takes("alert", "--to"):
            arguments += ["--to", f"webhook url={self.webhook.url} allow_unencrypted=true"]
            arguments += ["--state-file", str(self.program.directory / f"{self.namespace}-alert.json")]
        child = self.program.start(f"{self.namespace}-alert", self.program.command(*arguments))
        self.children.append(child)
        return child

    def open_page(self, browser: Browser, console: ChildProcess) -> Page:
        """Set the first password, and open the job's page."""
        link = re.search(r"http\S+/welcome/\S+", console.output)
        assert link is not None, console.output
        page = browser.new_context().new_page()
        page.set_default_timeout(90_000)
        page.goto(link[0])
        page.get_by_label("Name").fill("ada")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_label("The same again").fill(PASSWORD)
        page.get_by_role("button", name="Set the password").click()
        page.wait_for_url(re.compile("/jobs$"))
        page.goto(f"http://127.0.0.1:{self.ports[0]}/r/truth/job/tick")
        page.locator("#job-lanes").wait_for()
        return page


@contextmanager
def stage(program: Program, ensemble: Ensemble, namespace: str, event_store: str, webhook: Webhook) -> Iterator[Stage]:
    """Yield a stage on which nothing runs yet; what runs at the end is killed."""
    with reserved_ports(6) as ports, ExitStack() as stack:
        made = Stage(program, ensemble, namespace, event_store, webhook, tuple(ports))

        def end_all() -> None:
            for child in made.children:
                if child.exit_code is None:
                    child.resume()
                    child.kill()

        stack.callback(end_all)
        yield made
