"""Addresses of registries, and how applications, commands and the console open a session from one.

zk://host:port,host:port/namespace                     a ZooKeeper ensemble
zks://host:port,host:port/namespace                    the same, with TLS
embedded:// or embedded:///namespace                   a private server in memory, inside this process
embedded://127.0.0.1:2181/namespace?data_dir=DIR       one durable server for all processes of this machine
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Unpack

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.errors import ElasticJobError, InvalidSetting, RegistryUnreachable
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.host.web_workers import what_runs_several
from aioelasticjob.logging import logger
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.settings import ConnectionOptions, wrong_address
from aioelasticjob.registry.shared import EXAMPLE, ServerLog, SharedServer, ensure_server
from aioelasticjob.registry.tls import TlsSettings

EMBEDDED = "embedded://"
PRIVATE = (
    "the registry is private, in memory: another process has a registry of its own and runs every job as well"
    f" (an address that they share: {EXAMPLE})"
)
PRIVATE_OF_SEVERAL = (
    "the registry is private, in memory, and this process is one of several: %s; each of them has a registry of its own"
    f" and runs every job; give all of them an address that they share: {EXAMPLE}"
)

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """One registry: how to reach it, and which process starts its server."""

    text: str
    settings: ConnectionSettings
    private: bool = False
    """Whether the server runs inside this process, on a free port that it picks itself."""
    shared: SharedServer | None = None
    """The server of this machine that its clients start; None for other kinds of registries."""

    @classmethod
    def parse(cls, text: str, **options: Unpack[ConnectionOptions]) -> Address:
        """Read an address as a person writes it.

        Raises: InvalidSetting, which names the setting, its value and what would be right.
        """
        if not isinstance(text, str):
            raise InvalidSetting("address", text, "write zk://host:port,host:port/namespace, or embedded://")
        if not text.startswith(EMBEDDED):
            return cls(text, ConnectionSettings.parse(text, **options))
        TlsSettings.of(options.pop("tls", None))  # checked, and not used: such a registry is on this machine
        place, question, query = text.removeprefix(EMBEDDED).partition("?")
        if "@" in place:
            raise wrong_address(text, "must have no credentials")
        if place[:1] in ("", "/"):
            if question:
                raise wrong_address(text, f"a registry to share names its host and port: {EXAMPLE}")
            settings = ConnectionSettings.parse(f"zk://127.0.0.1/{place.strip('/')}", **options)
            return cls(text, settings, private=True)
        host, _, _ = place.partition("/")
        if re.fullmatch(r"[\w-]+", host) and host != "localhost":
            namespace = place.strip("/")
            private = f"embedded:///{namespace} for a registry in this process"
            shared = f"embedded://127.0.0.1:2181/{namespace} for one that this machine's processes share"
            why = f"{host!r} stands in the place of a host; if it is the namespace, write {private}, or {shared}"
            raise wrong_address(text, why)
        try:
            settings = ConnectionSettings.parse(f"zk://{place}", **options)
        except InvalidSetting as error:
            if error.setting == "address":
                raise wrong_address(text, error.expected) from None
            raise
        if len(settings.hosts) > 1:
            raise wrong_address(text, f"a shared registry is one server: {EXAMPLE}")
        if settings.sasl is not None or settings.sasl_file is not None:
            raise InvalidSetting("sasl", "…", "a registry that this machine's processes share knows digest only")
        server = SharedServer.parse(*settings.hosts[0], query)
        return cls(text, replace(settings, hosts=((server.host, server.port),)), shared=server)

    def changed(self, text: str | None = None, **options: Unpack[ConnectionOptions]) -> Address:
        """Return a copy with another address, or with other options.

        Raises: InvalidSetting, as `parse` does.
        """
        kept = {name: getattr(self.settings, name) for name in ConnectionOptions.__optional_keys__}
        if text is None:
            text = self.text
        return Address.parse(text, **{**kept, **options})


@asynccontextmanager
async def open_registry(
    address: str | Address,
    *,
    clock: Clock | None = None,
    creates: bool = True,
    tells_of_waiting: bool = True,
    **options: Unpack[ConnectionOptions],
) -> AsyncIterator[Session]:
    """Open a session with the registry at ``address``; an embedded or shared server is started first.

    ``creates`` says whether the namespace is created if it is missing.  A caller that tries again and again, and logs
    why, leaves out ``tells_of_waiting``.  ``options`` may be given only if ``address`` is text.

    Raises: InvalidSetting, RegistryUnreachable, AuthenticationFailed, NotPermitted.
    """
    where = Address.parse(address, **options) if isinstance(address, str) else address
    clock = clock or SystemClock()
    settings = where.settings
    async with AsyncExitStack() as stack:
        start_again: _ServerRestarter | None = None
        if where.private:
            from aioelasticjob.zookeeper.server import serve

            server = await stack.enter_async_context(serve("127.0.0.1", 0, clock=clock.now))
            settings = replace(settings, hosts=((server.host, server.port),), private=True, sasl=None, sasl_file=None)
            about = {"host": server.host, "port": server.port}
            if several := what_runs_several():
                log.warning(PRIVATE_OF_SEVERAL, several, extra=about)
            else:
                log.info(PRIVATE, extra=about)
        elif where.shared is not None:
            await ensure_server(where.shared)
            limited_log = LimitedLog()
            stack.callback(limited_log.close)
            start_again = _ServerRestarter(where.shared, limited_log)
        given = {"creates": creates, "tells_of_waiting": tells_of_waiting}
        opening = open_session(settings, clock=clock, ensure_server=start_again, **given)
        with nullcontext() if start_again is None else start_again.naming_reason():
            session = await stack.enter_async_context(opening)
        yield session


class _ServerRestarter:
    """Starts a shared server again.  If that fails, it only logs why, and the session goes on.

    It also logs why the server had ended, if the server's own log says so.  Few people know that log, so before,
    nobody learned that the disk was full.
    """

    def __init__(self, server: SharedServer, limited_log: LimitedLog) -> None:
        self._server = server
        self._limited_log = limited_log
        self._server_log = ServerLog(server)
        self._start_failure = ""
        """Why the last start has failed, if it has."""
        self._server_error = ""
        """The last error with which the server has ended."""

    @contextmanager
    def naming_reason(self) -> Iterator[None]:
        """Let RegistryUnreachable say why the server has ended, if the server's log says so."""
        try:
            yield
        except RegistryUnreachable as error:
            reason = self._server_log.newest_error() or self._server_error
            if not reason:
                raise
            raise RegistryUnreachable(error.hosts, error.seconds, f"its server has ended: {reason}") from error

    async def __call__(self) -> str:
        """Start the server unless it is there; return why that is impossible, or an empty text."""
        try:
            await ensure_server(self._server)
        except ElasticJobError as error:
            self._server_log.newest_error()  # the server's log says the same as this error
            if str(error) != self._start_failure:  # the reason is logged once, however often the start is tried
                self._start_failure = str(error)
                self._warn("the embedded registry cannot be started again", self._start_failure, each=MOST)
            return self._start_failure
        self._start_failure = ""
        if reason := self._server_log.newest_error():
            self._server_error = reason
            self._warn("the embedded registry was started again after it had ended", reason)
        return ""

    def _warn(self, text: str, reason: str, *, each: int = 1) -> None:
        if self._limited_log.admits(log, None, text, each=each):
            log.warning("%s: %s", text, reason, extra={"reason": reason})
