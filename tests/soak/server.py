"""The server of a soak's HTTP jobs: ``python -m tests.soak.server PORT ORDER``."""

from __future__ import annotations

import asyncio
import json
import random
import sys

from aiohttp import web

from tests.soak.journal import PROCESS, noted


class OnPurpose(Exception):
    """A request that is to fail."""


def application(order: dict[str, object]) -> web.Application:
    """Return a server that works for a moment at each request, and notes that in the order's journal."""

    async def work(request: web.Request) -> web.Response:
        context = json.loads(request.headers["shardingContext"])
        try:
            with noted(context, request.headers[PROCESS.replace("_", "-")], order):
                await asyncio.sleep(random.uniform(0.1, 0.8))
                if request.path == "/flaky" and context["attempt"] < 3 and random.random() < 0.5:
                    raise OnPurpose
        except OnPurpose:
            return web.Response(status=503, text="failed on purpose")
        return web.Response(text="done")

    found = web.Application()
    found.router.add_get("/{path}", work)
    return found


if __name__ == "__main__":
    web.run_app(
        application(json.loads(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        handler_cancellation=True,
        access_log=None,
    )
