"""What holds for every answer and every request: security headers, and a limit to what anybody may send."""

from __future__ import annotations

import math
from typing import Final

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aioelasticjob.ground.whole_numbers import whole_number

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


BODY_TIMEOUT: Final = 15.0
"""Seconds in which the whole body of a request must have come."""


class TooLarge(HTTPException):
    """The body has more bytes than may be sent."""

    def __init__(self) -> None:
        super().__init__(413, "that is more than this console takes in one request")


class TooSlow(HTTPException):
    """The body does not come."""

    def __init__(self) -> None:
        super().__init__(408, "the request did not come within the time limit", {"Connection": "close"})


class HeadersAndLimits:
    """The outermost layer of the console: it adds security headers to every answer, and limits every body."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _announced_size(scope) > self._largest:
            await _refuse(send)
            return
        received = 0
        complete = False
        deadline = anyio.current_time() + BODY_TIMEOUT

        async def limited_receive() -> Message:
            nonlocal received, complete
            with anyio.CancelScope(deadline=math.inf if complete else deadline) as scope:
                message = await receive()
            if scope.cancelled_caught:
                raise TooSlow
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._largest:
                raise TooLarge
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        await self._app(scope, limited_receive, send_with_headers)


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")


def _announced_size(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "0")
    return whole_number(length, digits=20) or 0


async def _refuse(send: Send) -> None:
    """Answer without reading any of it."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    start: Message = {"type": "http.response.start", "status": 413, "headers": headers}
    _add_headers(start)
    await send(start)
    await send({"type": "http.response.body", "body": f"413: {TooLarge().detail}\n".encode()})
