"""Debian's PostgreSQL as a child process, on loopback, with a directory of its own; it refuses to run as root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess

USER: Final = "tester"
PASSWORD: Final = "s3cret/@pässword"
SERVES, REJECTS = 0, 1
"""What ``pg_isready`` answers of a server that takes connections, and of one that rejects them."""


def binaries() -> Path | None:
    """Return where Debian's packages have put the newest server; None without one."""
    found = sorted(glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4]))
    return Path(found[-1]).parent if found else None


class RealPostgres:
    """One server, which can be killed, paused and started again on its data."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory, self._port = directory, port
        self._process: ChildProcess | None = None
        found = binaries()
        assert found is not None, "PostgreSQL is not installed"
        self._binaries = found
        secret = directory / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (directory, secret):
                shutil.chown(path, "postgres", "postgres")
        command = [f"{found}/initdb", "-D", f"{directory}/data", "-U", USER, f"--pwfile={secret}", "--no-sync"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
        subprocess.run(self._as_nobody_special(command), check=True, capture_output=True, cwd=directory)

    def url(self, database: str = "postgres", *, password: str = PASSWORD) -> str:
        """Return the URL of a database, as a user would write it."""
        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self._port}/{database}"

    def start(self, *, only_starting: bool = False) -> None:
        """Start the server and wait until it takes connections.

        With ``only_starting`` it goes on starting until it is stopped: it answers everybody that it cannot serve yet.
        """
        waits_for_another = self._directory / "data" / "standby.signal"
        if only_starting:
            waits_for_another.touch()
        else:
            waits_for_another.unlink(missing_ok=True)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": self._directory,
            "fsync": "off",  # no test pulls the plug of the machine
            "max_connections": 20,
            "shared_buffers": "16MB",
            "hot_standby": "off",  # a standby serves nobody
        }
        command = [f"{self._binaries}/postgres", "-D", f"{self._directory}/data"]
        command += [f"--{name}={value}" for name, value in settings.items()]
        self._process = ChildProcess(self._as_nobody_special(command), self._directory / "server.log")
        deadline = time.monotonic() + 90
        expected = REJECTS if only_starting else SERVES
        while self._answer() != expected:
            assert self._process.exit_code is None, f"PostgreSQL ended:\n{self._process.output}"
            assert time.monotonic() < deadline, f"PostgreSQL does not serve:\n{self._process.output}"
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, with every connection; harmless if it has ended."""
        process, self._process = self._process, None
        if process is not None and process.exit_code is None:
            self._signal(process, signal.SIGCONT)
            os.kill(process.pid, signal.SIGQUIT)
            process.wait()

    def pause(self) -> None:
        """Stop it in its tracks, with the processes that serve its clients."""
        assert self._process is not None
        self._signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._signal(self._process, signal.SIGCONT)

    def _answer(self) -> int:
        command = [f"{self._binaries}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(command).returncode

    def _signal(self, process: ChildProcess, number: int) -> None:
        serving = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, serving)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _as_nobody_special(self, command: list[str]) -> list[str]:
        if os.geteuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


@contextmanager
def postgres() -> Iterator[RealPostgres]:
    """Yield a running server of its own; it is ended with the block."""
    # Not below pytest's directory, which nobody but its owner may enter.
    directories = tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True)
    with directories as directory, reserved_ports(1) as (port,):
        server = RealPostgres(Path(directory), port)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def closed_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
