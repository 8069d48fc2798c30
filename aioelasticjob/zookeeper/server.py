"""The server on asyncio: sockets in front of the processor, its clock, and the disk behind it."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from anyio import CancelScope

from aioelasticjob.zookeeper import fourletter
from aioelasticjob.zookeeper.commits import Commits
from aioelasticjob.zookeeper.connection import Connection, Unfinished
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.jute import MalformedError
from aioelasticjob.zookeeper.listener import listening
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.repeated_warning import RepeatedWarning, log
from aioelasticjob.zookeeper.sessions import Sessions
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.statistics import Latency, Traffic
from aioelasticjob.zookeeper.store import Changes, Store, Stored, open_store, rows
from aioelasticjob.zookeeper.tls import Certificates, EncryptedTransport, TlsSettings

_BACKLOG = 256 * 1024  # bytes of output beyond which a connection's requests wait
_BURST = 256  # requests of one connection before the others get their turn
STOOD_STILL_TICKS = 0.1
"""A tick that comes later than this part of a tick: the server itself stood still, and sessions get that time back."""
_LINGER = 5  # seconds for a closing connection to take its last bytes
NUMBERS_BEGIN = 1_767_225_600_000
"""The time at which numbers by the clock begin: 2026, in ms since the epoch."""
NUMBERS_PER_MS = 4096
"""More writes than this server can make in a millisecond."""


class Server:
    """A running server."""

    def __init__(self, processor: Processor, data_dir: Path | None) -> None:
        self.host = ""
        self.port = 0
        self.tls_port: int | None = None
        self.processor = processor
        self.data_dir = data_dir
        self.commits: Commits | None = None
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()  # with an error if the disk failed
        self.statistics = Latency()
        self.started = self.now()
        self.clients: dict[Connection, Client] = {}
        self.crowded = RepeatedWarning("no address has too many connections any more")
        self.unfinished = Unfinished(processor.settings.max_unfinished)
        self._dropping = RepeatedWarning("unfinished requests fit into their limit again")
        self._logins = RepeatedWarning("no client fails to log in any more")
        processor.login_failed = self._logins.happened
        self._flushing = False
        self._next_tick = self.now()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def address(self) -> str:
        """Where clients connect to, as `host:port`."""
        return _place(self.host, self.port)

    @property
    def tls_address(self) -> str | None:
        """Where clients connect to with TLS; None where there is no such port."""
        return None if self.tls_port is None else _place(self.host, self.tls_port)

    def info(self) -> fourletter.ServerInfo:
        """Return what the four-letter words report about."""
        tls_port = -1 if self.tls_port is None else self.tls_port
        return fourletter.ServerInfo(
            processor=self.processor,
            statistics=self.statistics,
            connections=self.clients.keys(),
            ports=(self.port, tls_port),
            data_dir=self.data_dir,
            now=self.now(),
            started=self.started,
        )

    def now(self) -> int:
        """Tell the loop's time in ms."""
        return int(self.loop.time() * 1000)

    def wake(self) -> None:
        """Have the output written before the loop's next turn."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def request_stop(self) -> None:
        """Set `ended`, so that the server stops."""
        if not self.ended.done():
            self.ended.set_result(None)

    def keep(self, connection: Connection, *, fresh: bool) -> None:
        """Count what a connection keeps of an unfinished frame; beyond the limit for all, close the slowest ones."""
        for slow in self.unfinished.keep(connection, fresh=fresh):
            self._dropping.happened(
                f"unfinished requests take more than {self.unfinished.most} bytes (max-unfinished):"
                f" closed the connection from {slow.host} whose request has been unfinished for longest"
            )
            self.clients[slow].transport.abort()

    def run_clocks(self) -> None:
        """Start the timers: expiry of sessions, removal of containers."""
        self._tick()
        self._reap()

    async def stop(self) -> None:
        """End all connections and timers, once what was answered is on the disk."""
        for timer in self._timers.values():
            timer.cancel()
        self.crowded.stop()
        self._dropping.stop()
        self._logins.stop()
        self._flush()
        if self.commits is not None:
            with CancelScope(shield=True):  # it lasts as long as the disk needs for what was asked
                await self.commits.drain()
        for client in list(self.clients.values()):
            client.transport.abort()

    def fail(self, error: Exception) -> None:
        """Stop answering: what cannot be kept must not be acknowledged."""
        for client in list(self.clients.values()):
            client.transport.abort()
        if self.ended.done():  # then nobody waits any more who could be given the error
            log.error("while the server stopped: %s; the last changes are lost, and were confirmed to nobody", error)
        else:
            self.ended.set_exception(error)

    def _tick(self) -> None:
        now = self.now()
        tick = self.processor.settings.tick_time
        if now - self._next_tick > tick * STOOD_STILL_TICKS:
            self.processor.sessions.give_back(now - self._next_tick)
        self.processor.expire(now)
        self.wake()
        self._next_tick = now - now % tick + tick
        self._timers["tick"] = self.loop.call_later((self._next_tick - now) / 1000, self._tick)

    def _reap(self) -> None:
        self.processor.reap()
        self.wake()
        every = self.processor.settings.container_check_interval / 1000
        self._timers["reap"] = self.loop.call_later(every, self._reap)

    def _flush(self) -> None:
        self._flushing = False
        outbound = self.processor.outbound
        self.processor.outbound = {}
        output = list[tuple[Client, bytes, int]]()
        for connection in outbound:
            client = self.clients.get(connection)
            if client is not None:
                data, packets = connection.take_output()
                output.append((client, data, packets))

        def release() -> None:
            for client, data, packets in output:
                client.write(data, packets)

        if self.commits is None:
            release()
        elif not self.commits.failed:
            self.commits.submit(self._changes(), release)

    def _changes(self) -> Changes | None:
        zxid, dirty, sessions = self.processor.take_changes()
        if zxid is None:
            return None
        return Changes(zxid, rows(self.processor.tree, dirty), sessions)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client(asyncio.Protocol):
    """One connection's end in asyncio."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._paused = False  # the transport takes no more
        self._waiting = False  # requests are not read on
        self._timer: asyncio.TimerHandle
        self.transport: asyncio.Transport
        self.connection: Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio has switched Nagle's algorithm off already."""
        self.transport = cast("asyncio.Transport", transport)
        host, port = (transport.get_extra_info("peername") or ("127.0.0.1", 0))[:2]
        processor = self._server.processor
        self.connection = Connection(host, port, processor.settings.max_frame, Traffic(established=processor.wall()))
        self._server.clients[self.connection] = self
        limit = processor.settings.max_client_connections
        same_host = [each for each in self._server.clients if each.host == host]
        if 0 < limit < len(same_host):
            self._server.crowded.happened(
                f"{host} has more than {limit} connections (maxClientCnxns): closed the newest; no more are accepted"
            )
            self.transport.abort()
        seconds = processor.settings.sessionless_timeout / 1000
        self._timer = self._server.loop.call_later(seconds, self._close_sessionless)

    def data_received(self, data: bytes) -> None:
        """Take requests."""
        if not self.connection.closing and not self.transport.is_closing():
            self.connection.feed(data)
            self._pump()

    def eof_received(self) -> bool:
        """Close the connection after the present output was sent."""
        self._server.processor.close(self.connection)
        self._server.wake()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._timer.cancel()
        self._server.clients.pop(self.connection, None)
        self._server.unfinished.forget(self.connection)
        self._server.processor.end_connection(self.connection)

    def pause_writing(self) -> None:
        """Stop answering a client that does not read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._resume()

    def write(self, data: bytes, packets: int) -> None:
        """Hand output to the transport, and close it if that was the last."""
        connection = self.connection
        connection.backlog -= len(data)
        if packets:
            self._count(packets)
        if data and not self.transport.is_closing():
            self.transport.write(data)
            if self.transport.get_write_buffer_size() > self._server.processor.settings.max_output:
                self.transport.abort()  # it never reads; its watches would fill the memory
                return
        if connection.closing and not connection.backlog:
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self._server.loop.call_later(_LINGER, self.transport.abort)
        else:
            self._resume()

    def _count(self, packets: int) -> None:
        """Update the statistics; watch events answer no request, so they have no latency."""
        traffic = self.connection.traffic
        server = self._server
        now = server.now()
        asked = self.connection.asked
        self.connection.asked = None
        latency = None if asked is None else now - asked
        if latency is not None:
            traffic.last_response = now
            traffic.last_latency = latency
        traffic.answer(packets, latency)
        server.statistics.answer(packets, latency)

    def _pump(self) -> None:
        connection = self.connection
        server = self._server
        received = connection.traffic.received
        try:
            now = server.now()
            connection.asked = now
            if not connection.connected and self._command():
                return
            for _ in range(_BURST):
                if connection.closing:
                    return
                if self._paused or connection.backlog > _BACKLOG:
                    self._wait()
                    return
                frame = connection.next_frame()
                if frame is None:
                    return
                server.statistics.received += 1
                connection.traffic.received += 1
                server.processor.receive(connection, frame, now)
            self._wait()
            server.loop.call_soon(self._resume)
        except MalformedError:
            connection.closing = True
            self.transport.abort()
        finally:
            server.keep(connection, fresh=connection.traffic.received != received)
            server.wake()

    def _wait(self) -> None:
        """Let the client's requests queue up in its own kernel, not in our memory."""
        self._waiting = True
        self.transport.pause_reading()

    def _resume(self) -> None:
        can_answer = not self._paused and self.connection.backlog <= _BACKLOG
        if self._waiting and can_answer and not self.transport.is_closing():
            self._waiting = False
            self.transport.resume_reading()
            self._pump()

    def _command(self) -> bool:
        """Answer a four-letter word in place of the first request."""
        word = self.connection.four_letter_word()
        if word is None or not fourletter.is_known(word):
            return False
        self._server.statistics.received += 1
        self.connection.traffic.received += 1
        answer = fourletter.answer(word, self._server.info())
        self.connection.send(answer.encode())
        self._server.processor.close(self.connection)
        return True

    def _close_sessionless(self) -> None:
        if not self.connection.connected and not self.transport.is_closing():
            self.transport.abort()


@asynccontextmanager
async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    data_dir: Path | str | None = None,
    tick_time: int = 2000,
    settings: Settings | None = None,
    tls: TlsSettings | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Server]:
    """Serve ZooKeeper's protocol until the block ends.

    Port 0 picks a free one; `tick_time` (ms) counts where no `settings` are given.  With `tls` there is a second port.

    Raises: OSError if the port is taken; StoreError if the data directory cannot be used; TlsError.
    """
    settings = settings or Settings(tick_time=tick_time)
    async with _state(settings, Path(data_dir) if data_dir else None, clock) as server:
        server.host = host
        try:
            async with AsyncExitStack() as stack:
                server.port = await stack.enter_async_context(listening(lambda: Client(server), host, port))
                if tls is not None:
                    server.tls_port = await stack.enter_async_context(_listening_encrypted(server, tls))
                server.run_clocks()
                yield server
        finally:
            await server.stop()


@asynccontextmanager
async def _listening_encrypted(server: Server, tls: TlsSettings) -> AsyncIterator[int]:
    certificates = Certificates(tls)
    failed = RepeatedWarning("clients make TLS connections again")

    def accepted() -> asyncio.Protocol:
        return EncryptedTransport(Client(server), certificates.current(), failed)

    try:
        async with listening(accepted, server.host, tls.port) as port:
            yield port
    finally:
        certificates.stop()
        failed.stop()


def first_zxid(stored: int, now: int) -> int:
    """Return a number that no write before this start of the server has had; ``now`` is in ms since the epoch.

    Fences are such numbers, and stores refuse smaller ones than they have seen: also if the server kept nothing, or if
    its directory was restored from a copy.  So numbers follow the clock, as the epoch in the upper half of ZooKeeper's
    numbers follows elections.  Until 2095 they are below 2**53, so programs that read numbers of JSON as floating point
    keep them exactly.
    """
    return max(stored, (now - NUMBERS_BEGIN) * NUMBERS_PER_MS)


@asynccontextmanager
async def _state(settings: Settings, data_dir: Path | None, clock: Callable[[], float]) -> AsyncIterator[Server]:
    """Make the server without its listener: from memory, or from what the data directory holds."""

    def wall() -> int:
        return int(clock() * 1000)

    def build(stored: Stored) -> Server:
        stored.tree.zxid = first_zxid(stored.zxid, wall())
        sessions = Sessions(tick=settings.tick_time, secret=stored.secret)
        server = Server(Processor(settings, sessions, wall, stored.tree), data_dir)
        for session, timeout in stored.sessions.items():
            sessions.restore(session, timeout, server.now())
        return server

    if data_dir is None:
        tree = DataTree(extended_types=settings.extended_types)
        yield build(Stored(0, secrets.token_bytes(32), {}, tree))
        return
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "zookeeper-disk") as executor:
        opened: list[Store] = []

        def load() -> Stored:
            store = open_store(data_dir)
            opened.append(store)
            return store.load(extended_types=settings.extended_types)

        def close() -> None:  # in the same thread, so after ``load``, also if nobody waits for that any more
            for store in opened:
                store.close()

        try:
            stored = await loop.run_in_executor(executor, load)
            server = build(stored)
            server.processor.keep_changes()
            server.commits = Commits(opened[0], executor, server.fail)
            yield server
        finally:
            with CancelScope(shield=True):
                await loop.run_in_executor(executor, close)
