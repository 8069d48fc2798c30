"""A browser without eyes: speaks ASGI to a console, keeps cookies, fills in forms, listens to streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio

from aioelasticjob.console import Console
from tests.support.processes import TIMEOUT

PASSWORD = "correct horse battery"
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    text: str

    @property
    def location(self) -> str:
        return self.headers.get("location", "")

    @property
    def token(self) -> str:
        """What the page's forms carry."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found, self.text[:500]
        return found[1]

    def value(self, name: str) -> str:
        """Return the value of a field."""
        found = re.search(rf'name="{name}"[^>]*value="([^"]*)"', self.text)
        assert found, f"no field {name}"
        return unescape(found[1])


@dataclass
class Browser:
    """Somebody at a console."""

    console: Any
    root: str = ""
    agent: str = "tests/1"
    host: str = "console.test"
    address: str = "127.0.0.1"
    language: str = "en"
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, *headers: tuple[str, str]) -> Answer:
        return await self._ask("GET", path, b"", headers)

    async def post(self, path: str, form: Mapping[str, str] | bytes, *headers: tuple[str, str]) -> Answer:
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        kind = ("content-type", "application/x-www-form-urlencoded")
        own = ("origin", f"http://{self.host}")
        given = {name for name, _ in headers}
        return await self._ask("POST", path, body, (*(one for one in (kind, own) if one[0] not in given), *headers))

    async def submit(self, page: str, form: Mapping[str, str], *, to: str | None = None) -> Answer:
        """Open a page, and send a form of it."""
        opened = await self.get(page)
        return await self.post(to or page, {"csrf": opened.token, **form})

    async def sign_in(self, name: str = "ada", password: str = PASSWORD) -> Answer:
        return await self.submit("/login", {"name": name, "password": password})

    async def accept(self, invitation: str, name: str = "ada", password: str = PASSWORD) -> Answer:
        """Set a password by a one-time link."""
        return await self.submit(invitation, {"name": name, "password": password, "again": password})

    @asynccontextmanager
    async def listening(self, path: str, *headers: tuple[str, str]) -> AsyncIterator[Stream]:
        """Open a stream of events."""
        stream = Stream()
        gone = anyio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve, self._scope("GET", path, headers), receive, stream.put)
            with anyio.fail_after(TIMEOUT):
                await stream.begun.wait()
            yield stream
            gone.set()
            tasks.cancel_scope.cancel()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self.console(scope, receive, send)

    async def _ask(self, method: str, path: str, body: bytes, headers: Headers) -> Answer:
        sent, start = False, dict[str, Any]()
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await anyio.sleep_forever()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        length = () if any(name == "content-length" for name, _ in headers) else (("content-length", str(len(body))),)
        with anyio.fail_after(TIMEOUT):
            await self.console(self._scope(method, path, (*length, *headers)), receive, send)
        return self._read(start, b"".join(parts))

    def _read(self, start: Mapping[str, Any], body: bytes) -> Answer:
        pairs = [(name.decode(), value.decode()) for name, value in start["headers"]]
        set_cookies = {}
        for name, value in pairs:
            if name == "set-cookie":
                for key, morsel in SimpleCookie(value).items():
                    set_cookies[key] = value
                    if morsel["max-age"] == "0":
                        self.cookies.pop(key, None)
                    else:
                        self.cookies[key] = morsel.value
        return Answer(start["status"], dict(pairs), set_cookies, body.decode())

    def _scope(self, method: str, path: str, headers: Headers) -> dict[str, Any]:
        parts = urlsplit(path)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {
            "host": self.host,
            "user-agent": self.agent,
            "accept-language": self.language,
            **({"cookie": cookies} if cookies else {}),
            **dict(headers),
        }
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self.root + _unquoted(parts.path),
            "raw_path": (self.root + parts.path).encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": (self.address, 50_000),
            "server": (self.host, 80),
        }


def _unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


class Stream:
    """A stream of server-sent events that is being received."""

    def __init__(self) -> None:
        self.begun, self.status, self.bytes = anyio.Event(), 0, 0
        self.ended = False
        self._text, self._news = "", anyio.Event()

    async def put(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.begun.set()
            return
        self.bytes += len(message.get("body", b""))
        self._text += message.get("body", b"").decode()
        self.ended = not message.get("more_body", False)
        news, self._news = self._news, anyio.Event()
        news.set()

    async def event(self, *holding: str) -> str:
        """Wait for an event with all of these in it; it and those before it are taken."""
        with anyio.fail_after(TIMEOUT):
            while True:
                events = self._text.split("\n\n")
                for index, event in enumerate(events[:-1]):
                    if all(text in event for text in holding):
                        self._text = "\n\n".join(events[index + 1 :])
                        return event
                await self._news.wait()

    async def end(self) -> None:
        """Wait until the console ends the stream."""
        with anyio.fail_after(TIMEOUT):
            while not self.ended:
                await self._news.wait()


def invitation_of(console: Console) -> str:
    assert console.state.invitation is not None
    return console.state.invitation
