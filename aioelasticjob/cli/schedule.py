"""`aioelasticjob schedule`: prints the moments of a schedule, and describes it in words."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from aioelasticjob.cli import stdout
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.schedules import ScheduleSettings, schedule_of
from aioelasticjob.schedules.schedule import SEPARATOR, SHORTEST


class Dst(StrEnum):
    """The rules for schedules on the days when the clocks change."""

    CRON = "cron"
    QUARTZ = "quartz"


def schedule(
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPRESSION", help="Quartz (6 or 7 fields) or crontab (5 fields, @daily), quoted; or several."
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=seconds_from(SHORTEST), metavar="DURATION", help="In place of expressions: an interval, such as 45s."
        ),
    ] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="In place of expressions: a moment, such as 2026-12-24T18:00; or several.")
    ] = None,
    start_at: Annotated[str | None, typer.Option(help="No moment is before this time.")] = None,
    end_at: Annotated[str | None, typer.Option(help="No moment is after this time.")] = None,
    jitter: Annotated[
        float,
        typer.Option(parser=seconds_from(0), metavar="DURATION", help="By how much each moment may be delayed."),
    ] = 0.0,
    job: Annotated[str, typer.Option(help="The job whose delays are shown: they follow from its name.")] = "job",
    time_zone: Annotated[str, typer.Option("--time-zone", "-z", help="Such as Europe/Berlin.")] = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many moments to show.")] = 5,
    dst: Annotated[Dst, typer.Option(help="What happens when the clocks change: as in cron, or as in Quartz.")] = (
        Dst.CRON
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the next moments of a schedule, and describe it in words: "0 0 2 ? * MON-FRI", or --every 45s."""
    settings = ScheduleSettings(
        cron=f"{SEPARATOR} ".join(expressions) if expressions else None,
        every=every,
        at=tuple(at or ()),
        time_zone=time_zone,
        dst=dst.value,
        start_at=start_at,
        end_at=end_at,
        jitter=jitter,
    )
    found = schedule_of(settings, job)
    if found is None:
        raise InvalidSetting("schedule", "", "give an expression, --every or --at")
    now = moment(SystemClock().now())
    fires = found.times_after(now, count)
    if as_json:
        from aioelasticjob.cli.terminal import write_json  # here, so that the rest does not wait for Rich

        write_json({**settings.as_json(), "sentence": found.describe(), "fires": fires})
        return
    print(found.describe(), file=stdout())
    for fire in fires:
        when = time_text(fire, milliseconds=bool(fire.microsecond))
        begins = f"   begins {time_text(found.start_of(fire), milliseconds=True)}" if jitter else ""
        print(f"{fire:%a}   {when}   in {duration_text((fire - now).total_seconds())}{begins}")
    if len(fires) < count:
        over = "It never fires." if found.never_fires else "All its moments are over."
        print("That is the last one." if fires else over)


def duration_text(seconds: float) -> str:
    """Return a duration as text, in its two largest units."""
    rest = round(seconds)
    parts = list[str]()
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount:,} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"
