"""An HTTP endpoint for metrics and health, for programs without a web server; all its resources are bounded.

Several processes of a host may be given the same port, as the workers of a web server are.  One of them has the port,
and asks the others; when it ends, another one takes the port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from errno import EADDRINUSE
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from anyio import (
    BrokenResourceError,
    CancelScope,
    CapacityLimiter,
    ClosedResourceError,
    DelimiterNotFound,
    EndOfStream,
    IncompleteRead,
    create_task_group,
    create_tcp_listener,
    move_on_after,
    sleep,
)
from anyio.abc import Listener, SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.logging import logger
from aioelasticjob.observers.answers import PROBES, Answer, Answers, HasHealth, Render
from aioelasticjob.observers.siblings import Siblings

MAX_REQUEST_BYTES = 8192
REQUEST_TIMEOUT = 10.0
"""Seconds that a client may take to send its request, and to read the answer."""
MAX_SILENT = 256
"""Clients that have not sent their request yet; if one more comes, the one that has waited longest is sent away."""
MAX_REQUESTS_AT_ONCE = 16
"""Requests for metrics that are answered at the same time; probes do not wait for them."""
MAX_WAITING_REQUESTS = 64
"""Requests for metrics that wait for others; further ones are refused."""
RETRY_PAUSE = 1.0
"""Seconds before a port that another process has is tried again."""
CLIENT_GONE = (BrokenResourceError, ClosedResourceError, EndOfStream, IncompleteRead, DelimiterNotFound)
"""The errors of a client that has gone away or does not speak HTTP."""

if TYPE_CHECKING:
    from aioelasticjob.observers.metrics import Observed

    class ObservedWithHealth(Observed, HasHealth, Protocol):
        """What an endpoint serves: an ElasticJob."""


log = logger(__name__)


class Endpoint:
    """The metrics and the health of an application, served while it runs.

    Raises:
        InvalidSetting: the address makes no sense, or prometheus-client is not installed.
    """

    def __init__(self, app: ObservedWithHealth, given: object) -> None:
        from aioelasticjob.observers.metrics import Metrics

        self._app = app
        self.host, self.port = where(given)
        self.metrics = Metrics(app)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests while the block is open."""
        async with serving(self.metrics.render, self.host, self.port, self._app) as self.port:
            yield


def where(given: object) -> tuple[str, int]:
    """Return host and port of ``9464``, ``:9464``, ``host:9464`` or ``[::1]:9464``; loopback unless a host is named.

    Raises:
        InvalidSetting: it is none of these.
    """
    is_port = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 65536
    host, _, text = (str(given) if is_port or isinstance(given, str) else "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    port = whole_number(text, digits=5)
    if port is None or port > 65535:
        raise InvalidSetting("metrics", given, "write a port, or HOST:PORT with a port up to 65535")
    return host, port


@asynccontextmanager
async def serving(render: Render, host: str, port: int, app: HasHealth) -> AsyncIterator[int]:
    """Answer ``GET /metrics`` and ``GET /health`` while the block is open; yields the port.

    A port that another process has is no error: it is tried again, and the block begins at once.

    Raises:
        InvalidSetting: there can be no such address here, or this user may not listen there.
    """
    siblings = Siblings(host, port)
    limited_log = LimitedLog()
    clients = _Clients(Answers(render, app, siblings, limited_log))
    async with AsyncExitStack() as stack:
        stack.callback(limited_log.close)
        if (own := siblings.listen()) is not None:  # before the port is taken: its holder asks all who are there
            at_own = await stack.enter_async_context(await SocketListener.from_socket(own))
        listener = await _listener(host, port)
        if listener is not None:
            port = listener.extra(SocketAttribute.local_port)
        tasks = await stack.enter_async_context(create_task_group())
        if own is not None:
            tasks.start_soon(at_own.serve, clients.answer_for_one)
        tasks.start_soon(_keep_serving, listener, host, port, clients, siblings)
        yield port
        tasks.cancel_scope.cancel()


async def _keep_serving(
    listener: Listener[SocketStream] | None, host: str, port: int, clients: _Clients, siblings: Siblings
) -> None:
    """Serve at the port; while another process has it, try again and again."""
    about = {"host": host, "port": port}
    if listener is None and siblings.are_there:
        text = "metrics and health are at http://%s:%d/metrics, where another process answers for this one, too"
        log.info(text, host, port, extra=about)
    elif listener is None:
        text = "metrics and health are not served: another process has %s:%d, which is tried again every %g s"
        log.warning(text, host, port, RETRY_PAUSE, extra=about)
    while listener is None:
        await sleep(RETRY_PAUSE)
        with suppress(InvalidSetting):  # it was no mistake at the start
            listener = await _listener(host, port)
    async with listener:
        log.info("metrics are at http://%s:%d/metrics", host, port, extra=about)
        await listener.serve(clients.answer)


async def _listener(host: str, port: int) -> Listener[SocketStream] | None:
    """Listen; return None if another process has the port.

    Raises:
        InvalidSetting: the address cannot be listened at for another reason.
    """
    try:
        return await create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        if error.errno == EADDRINUSE:
            return None
        reason = error.strerror or str(error)
        raise InvalidSetting("metrics", f"{host}:{port}", f"cannot listen there: {reason}") from error


class _Clients:
    """Reads the requests of clients, and answers them.

    A client that has sent its request waits for no client that has not: otherwise idle connections would delay probes.
    There is no limit for each address, since probes may come from the same one as a flood of connections.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._limiter = CapacityLimiter(MAX_REQUESTS_AT_ONCE)
        self._silent = dict[CancelScope, None]()
        """The clients that have not sent their request yet, the one that has waited longest first."""

    async def answer(self, stream: SocketStream) -> None:
        """Answer a client of the port, for all processes that share it."""
        await self._attend(stream, alone=False)

    async def answer_for_one(self, stream: SocketStream) -> None:
        """Answer another process that shares the port, for this process alone."""
        await self._attend(stream, alone=True)

    async def _attend(self, stream: SocketStream, *, alone: bool) -> None:
        async with stream:
            head = await self._head(stream)
            if head is not None:
                await self._reply(stream, head, alone=alone)

    async def _head(self, stream: SocketStream) -> bytes | None:
        """Return the head of a request; None if it does not come in time, or the client has to give way."""
        if len(self._silent) >= MAX_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.cancel()
        with move_on_after(REQUEST_TIMEOUT) as scope, suppress(*CLIENT_GONE):
            self._silent[scope] = None
            try:
                return await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", MAX_REQUEST_BYTES)
            finally:
                self._silent.pop(scope, None)
        return None

    async def _reply(self, stream: SocketStream, head: bytes, *, alone: bool) -> None:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        fields = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        if path in PROBES:
            await _send(stream, method, await self._answers.to(method, path, "", alone=alone))
        elif self._limiter.statistics().tasks_waiting >= MAX_WAITING_REQUESTS:
            await _send(stream, method, Answer(503, b"too many requests: try again\n"))
        else:
            async with self._limiter:  # until the client has read the answer, which may be long
                answer = await self._answers.to(method, path, headers.get("accept", ""), alone=alone)
                await _send(stream, method, answer)


async def _send(stream: SocketStream, method: str, answer: Answer) -> None:
    reply = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    )
    body = b"" if method == "HEAD" else answer.body
    with move_on_after(REQUEST_TIMEOUT), suppress(*CLIENT_GONE):
        await stream.send("\r\n".join((*reply, "", "")).encode() + body)
