"""The service that the HTTP job calls: it prints what it is told.  python service.py [PORT]"""

import sys

from aiohttp import web


async def hourly(request: web.Request) -> web.Response:
    context = await request.json()
    print(f"asked by {context['jobName']}, item {context['shardingItem']}, for {context['fireTime']}", flush=True)
    return web.Response(status=204)


async def listening(app: web.Application) -> None:
    print(f"serving on http://127.0.0.1:{port}", flush=True)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    app = web.Application()
    app.router.add_post("/hourly", hourly)
    app.on_startup.append(listening)
    web.run_app(app, host="127.0.0.1", port=port, print=None)
