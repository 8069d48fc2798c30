"""`aioelasticjob schedule`: prints the moments of a schedule, and describes it in words."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from aioelasticjob.cli import stdout
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.schedules import Schedule, ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.schedules.schedule import SEPARATOR, SHORTEST, ClosedDay

if TYPE_CHECKING:
    from aioelasticjob.registry.session import Session


class Dst(StrEnum):
    """The rules for schedules on the days when the clocks change."""

    CRON = "cron"
    QUARTZ = "quartz"


class Mode(StrEnum):
    """What becomes of moments on closed days."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


@on_a_registry
def schedule(
    where: RegistryOptions,
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPRESSION",
            help="Quartz (6 or 7 fields) or crontab (5 fields, @daily), quoted; or several. Or the name of a job.",
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
    calendar: Annotated[
        list[str] | None, typer.Option(help="A calendar of the registry, on whose days there is no moment; or several.")
    ] = None,
    calendar_mode: Annotated[Mode, typer.Option(help="What becomes of moments on such days.")] = Mode.SKIP,
    time_zone: Annotated[str, typer.Option("--time-zone", "-z", help="Such as Europe/Berlin.")] = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many moments to show.")] = 5,
    dst: Annotated[Dst, typer.Option(help="What happens when the clocks change: as in cron, or as in Quartz.")] = (
        Dst.CRON
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the next moments of a job's schedule, or of another one, and describe it in words.

    With calendars it shows the days in between that they close, and what becomes of their moments.
    """
    if expressions and len(expressions) == 1 and _can_be_a_job(expressions[0]):
        found = _of_job(where, expressions[0])
    else:
        names = tuple(calendar or ())
        known = where.look(_calendars) if names else {}
        settings = ScheduleSettings(
            cron=f"{SEPARATOR} ".join(expressions) if expressions else None,
            every=every,
            at=tuple(at or ()),
            time_zone=time_zone,
            dst=dst.value,
            start_at=start_at,
            end_at=end_at,
            jitter=jitter,
            calendar=names,
            calendar_mode=calendar_mode.value,
            contents=tuple([known[name].hash if name in known else "" for name in names]),
        )
        found = schedule_of(settings, job, {one.hash: one for one in known.values()})
    if found is None:
        raise InvalidSetting(
            "schedule", "", "give an expression, --every, --at, or the name of a job that has a schedule"
        )
    _show(found, count, as_json=as_json)


def _show(found: Schedule, count: int, *, as_json: bool) -> None:
    now = moment(SystemClock().now())
    fires = found.times_after(now, count)
    closed = found.closed_between(now, fires[-1], count) if fires else []
    if as_json:
        from aioelasticjob.cli.terminal import write_json  # here, so that the rest does not wait for Rich

        left_out = [{"day": one.first.date(), "closedBy": one.closed_by, "movedTo": one.moved} for one in closed]
        said = {"sentence": found.describe(), "fires": fires, "closedDays": left_out}
        write_json({**found.settings.as_json(), **said})
        return
    print(found.describe(), file=stdout())
    lines = [(fire, _line(found, fire, now)) for fire in fires]
    lines += [(one.first, _closed_line(one)) for one in closed]
    for _, line in sorted(lines):
        print(line, file=stdout())
    if missing := found.missing_calendars:
        print(
            f"There is no calendar {', '.join(missing)}: a job that names it runs nothing until there is one.",
            file=stdout(),
        )
    if len(fires) < count:
        over = "It never fires." if found.never_fires else "All its moments are over."
        print("That is the last one." if fires else over, file=stdout())


def _can_be_a_job(text: str) -> bool:
    """Whether a text is rather the name of a job than an expression, which has several fields or begins with ``@``."""
    return not text.startswith("@") and len(text.split()) == 1


def _of_job(where: RegistryOptions, name: str) -> Schedule | None:
    from aioelasticjob import operations  # here, so that expressions do not wait for it

    now = SystemClock().now()
    return where.look(lambda session: operations.job(session, name, now=now)).config.schedule


async def _calendars(session: Session) -> dict[str, Calendar]:
    from aioelasticjob import operations

    return {one.name: one.calendar for one in await operations.calendars(session) if one.calendar is not None}


def _line(schedule: Schedule, fire: datetime, now: datetime) -> str:
    when = time_text(fire, milliseconds=bool(fire.microsecond))
    jitter = schedule.settings.jitter
    begins = f"   begins {time_text(schedule.start_of(fire), milliseconds=True)}" if jitter else ""
    return f"{fire:%a}   {when}   in {duration_text((fire - now).total_seconds())}{begins}"


def _closed_line(day: ClosedDay) -> str:
    moves = "left out" if day.moved is None else f"moved to {day.moved:%a} {day.moved.date()}"
    return f"{day.first:%a}   {day.first.date()}   {moves}: {', '.join(day.closed_by)}"


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
