"""An aiohttp application that keeps a list of prices fresh by a job of its own.

python web.py
"""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from aiohttp import web

from aioelasticjob import Depends, ElasticJob, ItemContext
from aioelasticjob.integrations import host
from aioelasticjob.integrations.aiohttp import elastic_job, health

REGISTRY = os.environ.get("PRICES_REGISTRY", "embedded://127.0.0.1:2181/prices?data_dir=registry")
PRICES = web.AppKey("prices", dict[str, int])

jobs = ElasticJob(REGISTRY)


def prices(app: Annotated[web.Application, Depends(host)]) -> dict[str, int]:
    return app[PRICES]


@jobs.job(cron="* * * * * ?", sharding_total_count=2, sharding_item_parameters={0: "tea", 1: "coffee"})
async def refresh(context: ItemContext, prices: Annotated[dict[str, int], Depends(prices)]) -> None:
    assert context.parameter is not None
    prices[context.parameter] = prices.get(context.parameter, 0) + 1  # a shop would ask somebody here


async def open_prices(app: web.Application) -> AsyncIterator[None]:
    app[PRICES] = {}
    yield


async def show(request: web.Request) -> web.Response:
    return web.json_response(request.app[PRICES])


app = web.Application()
app.cleanup_ctx.extend([open_prices, elastic_job(jobs)])
app.router.add_get("/prices", show)
app.router.add_get("/health", health(jobs))

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
