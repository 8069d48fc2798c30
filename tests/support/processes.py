"""Real processes that a test starts, pauses and kills by their id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT = 90.0
"""Seconds that a test waits for an event before it fails: many, for the machine may be busy, and waiting costs nothing
where the event comes."""


class ChildProcess:
    """A running command whose output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "AIOELASTICJOB_IP": "127.0.0.1", **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative for a signal, None while it lives."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it as ``kill -9`` does, and wait until it is gone."""
        self._popen.kill()
        self._popen.wait()

    def terminate(self, patience: float = TIMEOUT) -> int:
        """Ask it to end (SIGTERM) and return its exit code."""
        self._popen.terminate()
        return self._popen.wait(patience)

    def wait(self, patience: float = TIMEOUT) -> int:
        """Return its exit code once it has ended by itself."""
        return self._popen.wait(patience)

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._popen.send_signal(signal.SIGCONT)

    def wait_for_output(self, text: str, patience: float = TIMEOUT) -> str:
        """Return the first line that contains ``text``; in a coroutine, call it through ``asyncio.to_thread``.

        Raises: AssertionError when it ends, or time passes, without that line.
        """
        deadline = time.monotonic() + patience
        while True:
            ended = self.exit_code is not None  # asked before reading, so that last words are read
            for line in self.output.splitlines():
                if text in line:
                    return line
            assert not ended, f"ended with {self.exit_code} before it wrote {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"has not written {text!r} in {patience} s:\n{self.output}"
            time.sleep(0.02)


class Workers:
    """Starts worker processes and sees to it that none is left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.children: list[ChildProcess] = []

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, below: Sequence[str] = ()
    ) -> ChildProcess:
        """Start this Python interpreter with ``arguments``, as ``("-m", "aioelasticjob", "run", "jobs:app")``.

        ``below`` is a command that starts the interpreter in its turn, such as ``("nohup",)``.
        """
        log = self._directory / f"worker-{len(self.children)}.log"
        child = ChildProcess([*below, sys.executable, "-u", *arguments], log, environment)
        self.children.append(child)
        return child


@contextmanager
def workers(directory: Path) -> Iterator[Workers]:
    """Yield a starter of worker processes; all that are left at the end are killed."""
    starter = Workers(directory)
    try:
        yield starter
    finally:
        for child in starter.children:
            with suppress(ProcessLookupError):
                child.kill()
