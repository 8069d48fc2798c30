"""Ten jobs that a team with APScheduler or Celery has.  ``python jobs.py``; Ctrl-C ends it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import anyio
from pydantic import BaseModel

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.registry.session import Session
from aioelasticjob.schedules.calendars import Calendar

REGISTRY = os.environ.get("AIOELASTICJOB_REGISTRY", "embedded://")
SERVICE = os.environ.get("SERVICE", "http://127.0.0.1:8080")
HOLIDAYS = Calendar.of({"2026-12-25": "Christmas Day", "2027-01-01": "New Year's Day"}, weekdays="sat, sun")
TENANTS = {"lotus": "Asia/Shanghai", "peony": "Europe/Berlin"}

app = ElasticJob(REGISTRY)


# 1. At an interval.
@app.job(every="45s")
async def poll(context: ItemContext) -> None:
    print(f"poll what is new at {context.fire_time:%H:%M:%S}")


# 2. On weekdays, at a time of day in New York.
@app.job(cron="0 9 * * MON-FRI", time_zone="America/New_York")
async def greet(context: ItemContext) -> None:
    print(f"good morning, New York: it is {context.fire_time:%H:%M}")


# 3. Once, at a date.
@app.job(at="2027-01-01T00:00", time_zone="Europe/Berlin")
async def raise_prices(context: ItemContext) -> None:
    print(f"the prices of {context.fire_time:%Y} apply")


# 4. Once, some seconds after the start: it has no schedule, and ``prepare`` asks for it.
@app.job()
async def warm_up(context: ItemContext) -> None:
    print("the caches are warm")


# 5. A plain function, which runs in a thread.
@app.job(cron="30 * * * *")
def tidy_up(context: ItemContext) -> None:
    print(f"remove files that are older than {context.fire_time:%H:%M}")


# 6. A program.
app.script("disk_usage", command="df -h /", pass_context=False, cron="0 * * * *")


# 7. A request.
app.http("ping", url=f"{SERVICE}/health", cron="*/5 * * * *")


# 8. On business days.
@app.job(cron="0 17 * * *", time_zone="America/New_York", calendar="holidays")
async def close_the_books(context: ItemContext) -> None:
    print(f"close the books of {context.fire_time:%A}")


# 9. One job for each tenant: ``prepare`` creates them.
class Tenant(BaseModel):
    name: str


@app.handler("report", parameter=Tenant)
async def report(context: ItemContext) -> None:
    tenant: Tenant = context.parameters
    print(f"report for {tenant.name}")


# 10. After another job.
@app.job(after="close_the_books")
async def send_invoices(context: ItemContext) -> None:
    print(f"send the invoices of {context.fire_time:%A}")


async def prepare(app: ElasticJob, session: Session) -> None:
    """Write the calendar and the tenants' jobs, which are data, into the registry, and ask for the warm-up."""
    await operations.set_calendar(session, "holidays", HOLIDAYS)
    for name, time_zone in TENANTS.items():
        await app.create(
            f"report-{name}", handler="report", cron="0 22 * * *", time_zone=time_zone, job_parameter={"name": name}
        )
    await app.trigger("warm_up", delay="5s")


async def main() -> None:
    """Run the jobs until somebody ends the program."""
    async with app.running() as session:
        await prepare(app, session)
        await anyio.sleep_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
