"""One durable registry for all processes of this machine, which no person has to start.

The first process that needs the server starts it as a process of its own; a process that finds it gone starts it again.
There are never two servers: the starter takes a lock in the data directory and passes it on to the server, and the
kernel releases the lock when its last holder ends.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import anyio
from anyio import CapacityLimiter, to_thread

from aioelasticjob.config.durations import as_seconds
from aioelasticjob.errors import InvalidSetting, RegistryUnreachable
from aioelasticjob.ground.credentials import hide_in_address
from aioelasticjob.host.child_python import has_interpreter, python_command

DEFAULT_LINGER: Final = 30.0
"""Seconds that the server stays after its last client left, unless the address says otherwise."""
START_TIMEOUT: Final = 20.0
"""Seconds that a server may take to start, or to end."""
POLL_INTERVAL: Final = 0.05
"""Seconds between two looks at a server that another process is starting."""
MAX_LOG_BYTES: Final = 1 << 20
"""When a server starts and its log is larger than so many bytes, a new log is begun."""
ERROR_PREFIX: Final = "error: "
"""A line of the server's log that begins with this text says why the server has ended."""
EXAMPLE: Final = "embedded://127.0.0.1:2181/namespace?data_dir=DIR&linger=30"


@dataclass(frozen=True, slots=True)
class SharedServer:
    """A shared server: its address, its data directory, and how many seconds it stays after its last client left."""

    host: str
    port: int
    data_dir: Path
    linger: float = DEFAULT_LINGER

    @classmethod
    def parse(cls, host: str, port: int, query: str) -> SharedServer:
        """Read the options that follow the ``?`` of an address.

        Raises: InvalidSetting.
        """
        options = _options(query)
        host = "127.0.0.1" if host == "localhost" else host
        if not _is_loopback(host):
            raise InvalidSetting("address", host, "a shared registry is for one machine: 127.0.0.1, or zk://… for more")
        data_dir = _directory(host, port, options.get("data_dir"))
        linger = _seconds(options.get("linger"))
        return cls(host, port, data_dir, linger)

    @property
    def address(self) -> str:
        """The server's address, as ``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerLog:
    """Reads the errors that a shared server writes into its log after this object was made."""

    def __init__(self, server: SharedServer) -> None:
        from aioelasticjob.zookeeper.lock import LOG

        self._file = server.data_dir / LOG
        self._read = 0
        self.newest_error()  # skip the older errors: they do not say why the server ends later

    def newest_error(self) -> str:
        """Return the newest error that the server has written since the last call: why it has ended; "" if none."""
        try:
            with self._file.open("rb") as log:
                if log.seek(0, os.SEEK_END) < self._read:  # a new log was begun
                    self._read = 0
                log.seek(self._read)
                lines = log.read().decode(errors="replace").splitlines()
                self._read = log.tell()
        except OSError:
            return ""
        for line in reversed(lines):
            if line.startswith(ERROR_PREFIX):
                return line.removeprefix(ERROR_PREFIX)
        return ""


async def ensure_server(server: SharedServer) -> None:
    """Return once the server accepts connections; start it if no other process has.

    Raises: InvalidSetting if another server uses the address or the directory, or they cannot be used;
        RegistryUnreachable.
    """
    # a thread of its own: all common threads may be busy with handlers that wait for the registry
    one_at_a_time = CapacityLimiter(1)
    deadline = time.monotonic() + START_TIMEOUT
    while not await to_thread.run_sync(_look, server, limiter=one_at_a_time, abandon_on_cancel=True):
        if time.monotonic() > deadline:
            reason = f"its server does not answer, see {server.data_dir}/server.log"
            raise RegistryUnreachable(server.address, START_TIMEOUT, reason)
        await anyio.sleep(POLL_INTERVAL)


def _look(server: SharedServer) -> bool:
    """Return whether the server is there; start it if no other process does."""
    served = _ask(server.host, server.port)
    if served == str(server.data_dir):
        return True
    if served:
        raise InvalidSetting("address", server.address, _held_by_another(server, served))
    if served is None:
        _start(server)
    elif not _is_locked_for(server) and _ask(server.host, server.port) == "":  # it is not a server that has just ended
        raise InvalidSetting("address", server.address, "is held by another program: choose another port")
    return False


def _held_by_another(server: SharedServer, served: str) -> str:
    """Say who holds the port for another directory, and what to do about it."""
    from aioelasticjob.zookeeper.port_holder import holder_of

    elsewhere = f"choose another port; if you mean that registry, write zk://{server.address}/…"
    holder = holder_of(served, server.address)
    if holder is None:
        return f"is held by a server that serves {served}, not {server.data_dir}: {elsewhere}"
    return f"is held by {holder}, not {server.data_dir}; {holder.advice}, or {elsewhere}"


def _ask(host: str, port: int) -> str | None:
    """Return the data directory of the server that listens there, "" if it does not tell, None if nothing listens."""
    from aioelasticjob.zookeeper.port_holder import served_directory

    return served_directory(host, port)


def _start(server: SharedServer) -> None:
    """Start the server, unless another process holds the lock.  Return when it listens or another one starts."""
    from aioelasticjob.zookeeper.lock import LockHeld, locked
    from aioelasticjob.zookeeper.store import StoreError, check_room, prepare

    if not has_interpreter():
        raise InvalidSetting("address", server.address, "no Python interpreter known to start it with: use zk://…")
    try:
        prepare(server.data_dir)
        check_room(server.data_dir)  # on a full disk the server could not say in its log why it ends
        with locked(server.data_dir) as lock:
            _spawn(server, lock)
    except LockHeld as held:
        _refuse_elsewhere(server, held.address)
    except StoreError as error:
        raise InvalidSetting("data_dir", str(server.data_dir), str(error)) from error
    except OSError as error:
        raise InvalidSetting("data_dir", str(server.data_dir), f"cannot be used: {error.strerror or error}") from error


def _spawn(server: SharedServer, lock: int) -> None:
    """Run the command of the server, which goes to the background when it listens; it inherits the lock."""
    from aioelasticjob.zookeeper.lock import LOG

    command = python_command(
        "aioelasticjob.zookeeper",
        "--detach",
        f"--lock={lock}",
        f"--host={server.host}",
        f"--port={server.port}",
        f"--data-dir={server.data_dir}",
        f"--linger={server.linger:g}",
    )
    with (server.data_dir / LOG).open("ab") as log:
        if log.tell() > MAX_LOG_BYTES:
            log.truncate(0)
        begun = log.seek(0, os.SEEK_END)
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                cwd="/",  # the server may live longer than our working directory
                start_new_session=True,  # a signal to our process group, such as Ctrl-C, must not end the registry
                timeout=START_TIMEOUT,
                check=False,
            ).returncode
        except OSError as error:
            raise InvalidSetting("address", server.address, f"cannot start {sys.executable}: {error}") from error
        except subprocess.TimeoutExpired:
            raise RegistryUnreachable(server.address, START_TIMEOUT, "it was started and does not listen") from None
    if code:
        written = (server.data_dir / LOG).read_bytes()[begun:]
        lines = written.decode(errors="replace").strip().splitlines()
        said = lines[-1] if lines else f"exit code {code}"
        reason = said.removeprefix(ERROR_PREFIX)
        if reason == said:  # it has not said what is wrong: it could not even begin, or has failed in an unknown way
            why = f"{sys.executable} could not run its server ({reason}), see {server.data_dir / LOG}"
            raise InvalidSetting("address", server.address, why)
        if reason.startswith("cannot listen"):
            raise InvalidSetting("address", server.address, reason)
        raise InvalidSetting("data_dir", str(server.data_dir), reason)


def _refuse_elsewhere(server: SharedServer, address: str) -> None:
    """Raise if a living server serves the directory at another address; what a dead server has left is ignored."""
    if not address or address == server.address:
        return
    host, _, port = address.rpartition(":")
    served = _ask(host.strip("[]"), int(port))
    if served == str(server.data_dir):
        raise InvalidSetting("data_dir", str(server.data_dir), f"is served at {address}: use that, or another data_dir")


def _is_locked_for(server: SharedServer) -> bool:
    """Whether a living server holds our directory for our address, even if it does not answer."""
    from aioelasticjob.zookeeper.lock import LockHeld, locked

    try:
        with locked(server.data_dir, create=False):
            return False
    except LockHeld as held:
        return held.address in ("", server.address)
    except OSError:
        return False


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in ("data_dir", "linger") or name in options:
            raise InvalidSetting(
                "address", hide_in_address(part), f"there are data_dir and linger, once each: {EXAMPLE}"
            )
        options[name] = unquote(value)
    return options


def _directory(host: str, port: int, given: str | None) -> Path:
    """Return the given directory, or the default one of this user for this address."""
    if given is not None and (not given or not given.isprintable()):
        raise InvalidSetting("data_dir", given, "name a directory")
    try:
        if given is not None:
            return Path(given).expanduser().resolve()
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(state, "aioelasticjob", f"{host}-{port}").expanduser().resolve()
    except (RuntimeError, OSError) as error:  # the home directory is unknown, or there is a loop of links
        raise InvalidSetting("data_dir", given, f"{error}: write {EXAMPLE}") from error


def _seconds(given: str | None) -> float:
    try:
        seconds = as_seconds(DEFAULT_LINGER if given is None else given)
    except ValueError:
        seconds = None
    if not isinstance(seconds, int | float) or not 0 < seconds <= 31_536_000:
        raise InvalidSetting("linger", given, "a number of seconds above 0, or text such as 5m, at most a year")
    return seconds


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
