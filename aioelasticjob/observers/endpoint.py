"""An HTTP endpoint for metrics and health, for programs without a web server; all its resources are bounded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from anyio import (
    BrokenResourceError,
    CapacityLimiter,
    ClosedResourceError,
    DelimiterNotFound,
    EndOfStream,
    IncompleteRead,
    create_task_group,
    create_tcp_listener,
    move_on_after,
)
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.logging import logger
from aioelasticjob.user_code import UserCode

MAX_REQUEST_BYTES = 8192
REQUEST_TIMEOUT = 10.0
"""Seconds that a client may take to send its request, and to read the answer."""
MAX_CONNECTIONS = 256
"""Connections that are served at the same time; further ones wait."""
MAX_REQUESTS_AT_ONCE = 16
"""Requests that are answered at the same time; connections that are still sending theirs do not count."""
CLIENT_GONE = (BrokenResourceError, ClosedResourceError, EndOfStream, IncompleteRead, DelimiterNotFound)
"""The errors of a client that has gone away or does not speak HTTP."""

METRICS: Final = "/metrics"
PROBES: Final[Mapping[str, Literal["health", "live", "ready"]]] = {
    "/health": "health",
    "/health/live": "live",
    "/health/ready": "ready",
}

Render: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]


class Health(Protocol):
    """The health of a process, such as ``ElasticJob.health``."""

    def status_code(self, asked: Literal["health", "live", "ready"]) -> int:
        """Return the status code of an answer by HTTP."""
        ...

    def as_json(self) -> Mapping[str, object]:
        """Return the body of the answer."""
        ...


class HasHealth(Protocol):
    """An application that can be asked for its health."""

    @property
    def health(self) -> Health:
        """Its health at present."""
        ...


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
    host, _, port = (str(given) if is_port or isinstance(given, str) else "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise InvalidSetting("metrics", given, "write a port, or HOST:PORT with a port up to 65535")
    return host, int(port)


@asynccontextmanager
async def serving(render: Render, host: str, port: int, app: HasHealth) -> AsyncIterator[int]:
    """Answer ``GET /metrics`` and ``GET /health`` while the block is open; yields the port.

    Raises:
        InvalidSetting: the address cannot be listened at.
    """
    try:
        listener = await create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidSetting("metrics", f"{host}:{port}", f"cannot listen there: {reason}") from error
    visitors, answers = CapacityLimiter(MAX_CONNECTIONS), CapacityLimiter(MAX_REQUESTS_AT_ONCE)
    limited_log = LimitedLog()

    async def answer(stream: SocketStream) -> None:
        async with stream, visitors:
            head: bytes | None = None
            with move_on_after(REQUEST_TIMEOUT), suppress(*CLIENT_GONE):
                head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", MAX_REQUEST_BYTES)
            if head is not None:
                async with answers:
                    with move_on_after(REQUEST_TIMEOUT), suppress(*CLIENT_GONE):
                        await _answer(stream, head, render, app, limited_log)

    async with AsyncExitStack() as stack:
        stack.callback(limited_log.close)
        await stack.enter_async_context(listener)
        tasks = await stack.enter_async_context(create_task_group())
        tasks.start_soon(listener.serve, answer)
        bound = listener.extra(SocketAttribute.local_port)
        log.info("metrics are at http://%s:%d/metrics", host, bound, extra={"host": host, "port": bound})
        yield bound
        tasks.cancel_scope.cancel()


async def _answer(stream: SocketStream, head: bytes, render: Render, app: HasHealth, limited_log: LimitedLog) -> None:
    lines = head.decode("latin-1").split("\r\n")
    method, _, rest = lines[0].partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    fields = (line.partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    status, body, content_type = 200, b"", "text/plain; charset=utf-8"
    if method not in ("GET", "HEAD"):
        status, body = 405, b"GET or HEAD\n"
    elif path in PROBES:
        health = app.health
        status, content_type = health.status_code(PROBES[path]), "application/json"
        body = json.dumps(health.as_json()).encode()
    elif path != METRICS:
        status, body = 404, f"there is {METRICS}, {', '.join(PROBES)}\n".encode()
    else:
        try:
            async with UserCode("a collector of metrics"):
                body, content_type = await render(headers.get("accept", ""))
        except Exception:
            text = "metrics could not be rendered, because a collector failed"
            if limited_log.admits(log, None, text):
                log.exception("%s", text, extra={"reason": "a collector failed"})
            status, body = 500, b"the metrics could not be rendered: see the log of the process\n"
    answer = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    await stream.send("\r\n".join((*answer, "", "")).encode() + (b"" if method == "HEAD" else body))
