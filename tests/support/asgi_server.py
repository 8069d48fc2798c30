"""What a web server does with an application, without sockets: its lifespan, and a request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskStatus

from aioelasticjob.errors import unwrapped


class NotStarted(Exception):
    """The application refused to start."""


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[None]:
    """Drive an ASGI application's lifespan in a task of its own, as uvicorn does."""
    shutdown = anyio.Event()
    said: list[dict[str, Any]] = []

    async def live(*, task_status: TaskStatus[None]) -> None:
        asked = 0

        async def receive() -> dict[str, str]:
            nonlocal asked
            asked += 1
            if asked == 1:
                return {"type": "lifespan.startup"}
            await shutdown.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: dict[str, Any]) -> None:
            said.append(message)
            if message["type"].startswith("lifespan.startup"):
                task_status.started()

        try:
            await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
        except Exception as error:
            said.append({"type": "raised", "error": error})

    with unwrapped():  # frameworks have groups of their own
        async with anyio.create_task_group() as tasks:
            await tasks.start(live)
            if said[0]["type"] == "lifespan.startup.failed":
                raise NotStarted(said[0].get("message", ""))
            yield
            shutdown.set()
        for message in said[1:]:
            if "error" in message:
                raise message["error"]


async def get(app: Any, path: str) -> tuple[int, Any]:
    """Return status and JSON of an answer."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("10.0.0.1", 1),
        "server": ("10.0.0.2", 80),
        "state": {},
    }
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await app(scope, receive, send)
    return status, json.loads(body)
