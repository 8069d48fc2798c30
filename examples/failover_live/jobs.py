"""A job that counts to thirty and saves how far it has come; killed midway, it goes on elsewhere."""

import os

import anyio

from aioelasticjob import ElasticJob, ItemContext

LAST = 30
app = ElasticJob(
    os.environ.get("COUNT_REGISTRY", "embedded://127.0.0.1:2181/count?data_dir=registry"), session_timeout=4
)


@app.job(cron="* * * * * ?", failover=True, misfire=False)
async def count(context: ItemContext) -> None:
    for step in range(int(context.offset or 0) % LAST + 1, LAST + 1):
        await anyio.sleep(0.1)
        await context.save_offset(str(step))
        print(f"{context.source} step {step}", flush=True)
    print(f"{context.source} done", flush=True)
