"""Where an operator looks: the page, the command line, health, metrics, and the messages of the alert command."""

from __future__ import annotations

import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from playwright.sync_api import Page

Look: TypeAlias = Callable[[], str]
"""Returns what a surface shows now."""
Shown: TypeAlias = Callable[[str], bool]
"""Whether a surface shows a fault."""
NO_ANSWER: Final = "no answer"
ANSWER_TIMEOUT: Final = 2.0
"""Seconds that a port has to answer: what asks for health does not wait longer."""
PAUSE: Final = 0.1
"""Seconds between two looks at a surface."""
SEEN: Final = (
    """() => ["state", "gone", "job-lanes"].map(id => document.getElementById(id)?.innerHTML || "").join(" ")"""
)
"""What a page says of what is lost, and the instances that it shows."""


def answer_of(url: str) -> Look:
    """Return a function that asks an address."""

    def look() -> str:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return NO_ANSWER

    return look


def output_of(command: Sequence[str], environment: Mapping[str, str]) -> Look:
    """Return a function that runs a command; what it writes is followed by its exit code."""

    def look() -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"

    return look


def page_of(page: Page) -> Look:
    """Return a function that looks at an open page."""
    return lambda: str(page.evaluate(SEEN))


class Webhook:
    """Receives messages on loopback."""

    def __init__(self) -> None:
        self._received = list[str]()
        received = self._received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write no log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def begun_since(self, number: int) -> str:
        """Return the messages after the first ``number``, without those that something is over."""
        return "\n".join(one for one in self._received[number:] if " is over" not in one)

    def __len__(self) -> int:
        return len(self._received)

    def close(self) -> None:
        """Receive nothing more."""
        self._server.shutdown()
        self._server.server_close()


class Watcher:
    """Looks at one surface again and again, in a thread, and notes when it shows a fault first."""

    def __init__(self, look: Look, shown: Shown, began: float, limit: float) -> None:
        self._look = look
        self._shown = shown
        self._began = began
        self._limit = limit
        self.seconds: float | None = None
        """After how many seconds the fault was shown; None if that was not within the limit."""
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while time.monotonic() < self._began + self._limit:
            if self._shown(self._look()):
                self.seconds = time.monotonic() - self._began
                return
            time.sleep(PAUSE)

    @property
    def is_over(self) -> bool:
        """Whether the fault was shown, or the time is over."""
        return not self._thread.is_alive()


def watched_here(look: Look, shown: Shown, began: float, limit: float, others: Sequence[Watcher]) -> float | None:
    """Look at a page in this thread, until it shows the fault; then wait for the watchers of the other surfaces."""
    seconds = None
    while time.monotonic() < began + limit:
        if seconds is None and shown(look()):
            seconds = time.monotonic() - began
        if seconds is not None and all(other.is_over for other in others):
            break
        time.sleep(PAUSE)
    return seconds
