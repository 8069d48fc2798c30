"""The smallest job: two items that say hello every second.  ``python hello.py``; Ctrl-C ends it."""

from aioelasticjob import ElasticJob, ItemContext

app = ElasticJob("embedded://")


@app.job(cron="* * * * * ?", sharding_total_count=2, sharding_item_parameters={0: "Beijing", 1: "Shanghai"})
async def hello(context: ItemContext) -> None:
    print(f"{context.fire_time:%H:%M:%S} hello {context.parameter}", flush=True)


if __name__ == "__main__":
    app.run()
