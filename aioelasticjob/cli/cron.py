"""`aioelasticjob cron`: prints when a schedule fires, and describes it in words."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from aioelasticjob.cli import stdout
from aioelasticjob.clock import SystemClock
from aioelasticjob.cron import Cron
from aioelasticjob.ground.times import moment, time_text


class Dst(StrEnum):
    """The rules for schedules on the days when the clocks change."""

    CRON = "cron"
    QUARTZ = "quartz"


def cron(
    expression: Annotated[str, typer.Argument(help="Quartz (6 or 7 fields) or crontab (5 fields, @daily), quoted.")],
    time_zone: Annotated[str, typer.Option("--time-zone", "-z", help="Such as Europe/Berlin.")] = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many fires to show.")] = 5,
    dst: Annotated[Dst, typer.Option(help="What happens when the clocks change: as in cron, or as in Quartz.")] = (
        Dst.CRON
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show when a schedule fires next, and describe it in words: "0 0 2 ? * MON-FRI"."""
    schedule = Cron.parse(expression, time_zone, dst.value)
    now = moment(SystemClock().now())
    fires = schedule.times_after(now, count)
    if as_json:
        from aioelasticjob.cli.terminal import write_json  # here, so that the rest does not wait for Rich

        write_json(
            {
                "cron": expression,
                "timeZone": time_zone,
                "dst": dst.value,
                "sentence": schedule.describe(),
                "fires": fires,
            }
        )
        return
    print(schedule.describe(), file=stdout())
    for fire in fires:
        print(f"{fire:%a}   {time_text(fire)}   in {duration_text((fire - now).total_seconds())}")
    if len(fires) < count:
        over = "It never fires." if schedule.never_fires else "All its moments are over."
        print("That is the last one." if fires else over)


def duration_text(seconds: float) -> str:
    """Return a duration as text, in its two largest units."""
    rest, parts = round(seconds), list[str]()
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount:,} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"
