"""`trigger` and `requests`: asking for runs, now or later, and seeing how far that has come."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text
from typer.core import TyperGroup

from aioelasticjob import operations
from aioelasticjob.cli.actions import Instance, Item, Yes, as_typed, print_result
from aioelasticjob.cli.jobs import AnyName, AsJson, Name
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.cli.terminal import confirm, out, print_warning, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.durations import as_seconds
from aioelasticjob.cron.zone import typed_time, zone_named
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.model import Outcome
from aioelasticjob.operations import Asked, OperationResult, RequestStatus, RunOptions, consequences
from aioelasticjob.operations.backfill import COUNTED
from aioelasticjob.registry.session import Session

_LIKE_JSON = re.compile(r"""\s*(\{|\[\s*[\[{"])""")
UNSUCCESSFUL = 1
"""The exit code of ``--wait`` if a run did not complete."""
SHOWN_ERRORS = 3
"""How many items are named that have failed."""

Id: TypeAlias = Annotated[str, typer.Argument(help="The request's id.")]
Job: TypeAlias = Annotated[str | None, typer.Option(help="The job, if several have a request of that id.")]
Parameter: TypeAlias = Annotated[
    str | None, typer.Option(help="The job's parameter for this run alone: text, or a JSON object.")
]
NewId: TypeAlias = Annotated[
    str | None, typer.Option("--id", help="A second request with the same id is the same request.")
]
Items: TypeAlias = Annotated[str | None, typer.Option(help="Only these items, such as 2,3.")]
Wait: TypeAlias = Annotated[
    bool,
    typer.Option(help="Stay until all runs have ended; those of endless streams never do. Exit with 1 if one failed."),
]


Cascade: TypeAlias = Annotated[
    bool, typer.Option("--cascade", help="Then run the moments again in the jobs that follow, too.")
]


@on_a_registry
def trigger(
    where: RegistryOptions,
    name: Name,
    instance: Instance = None,
    parameter: Parameter = None,
    items: Items = None,
    at: Annotated[
        str | None, typer.Option(help="When to run it: a date or a time, in the job's time zone; without it, at once.")
    ] = None,
    in_: Annotated[str | None, typer.Option("--in", help="Run after this delay: 90s, 10m, 2h, 1d.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="Do not run it if it cannot begin by then: a time, or 10m after it is due.")
    ] = None,
    id: NewId = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Run a job once, now or later: all its items, or some; or what one instance holds."""
    _warn_of_broken_json(parameter)
    chosen = _items(items)

    async def ask(session: Session) -> OperationResult:
        options: RunOptions = {"items": chosen, "instance": instance, "delay": in_, "expires": expires, "id": id}
        if at is not None:
            options["at"] = _local("at", at, await _zone(session, name))
        if expires is not None and not _is_duration(expires):
            options["expires"] = _local("expires", expires, await _zone(session, name), ", or a duration such as 90s")
        with as_typed(at=("at", at), delay=("in", in_), expires=("expires", expires), items=("items", items)):
            return await operations.ask(session, name, parameter=parameter, by=operator_name(), **options)

    _ask(where, name, ask, wait, as_json)


@on_a_registry
def backfill(
    where: RegistryOptions,
    name: Name,
    start: Annotated[str, typer.Option("--from", help="The first moment: a date or a time, in the job's time zone.")],
    end: Annotated[str, typer.Option("--to", help="The moments before this one: a date or a time.")],
    items: Items = None,
    items_at_once: Annotated[int | None, typer.Option(min=1, help="How many items run at a time, everywhere.")] = None,
    id: NewId = None,
    cascade: Cascade = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    wait: Wait = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run the scheduled moments of a span again: each item one after another, oldest first."""
    chosen = _items(items)

    async def span(session: Session) -> tuple[datetime, datetime]:
        zone = await _zone(session, name)
        return _local("from", start, zone), _local("to", end, zone)

    async def plan(session: Session) -> operations.BackfillPlan:
        with as_typed(start=("from", start), end=("to", end), items=("items", items)):
            return await operations.plan_backfill(session, name, *await span(session), items=chosen)

    async def ask(session: Session) -> OperationResult:
        first, last = await span(session)
        with as_typed(start=("from", start), end=("to", end), items=("items", items)):
            return await operations.backfill(
                session,
                name,
                first,
                last,
                items=chosen,
                items_at_once=items_at_once,
                id=id,
                by=operator_name(),
                cascade=cascade,
            )

    if dry_run or not yes:
        planned = where.look(plan)
        if dry_run:
            return print_result(OperationResult(f"{name}: would run {planned.summary}"), as_json=as_json)
        if planned.moments >= COUNTED:
            confirm(f"Run {planned.moments_text} of {name} again?", sure=False)
    _ask(where, name, ask, wait, as_json)


@on_a_registry
def rerun(
    where: RegistryOptions,
    name: Name,
    fire_time: Annotated[str, typer.Option(help="The scheduled moment to run again, in the job's time zone.")],
    items: Items = None,
    id: NewId = None,
    cascade: Cascade = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Run one scheduled moment again."""
    chosen = _items(items)

    async def ask(session: Session) -> OperationResult:
        at = _local("fire_time", fire_time, await _zone(session, name))
        with as_typed(fire_time=("fire_time", fire_time), items=("items", items)):
            by = operator_name()
            return await operations.rerun(session, name, at, items=chosen, id=id, by=by, cascade=cascade)

    _ask(where, name, ask, wait, as_json)


@on_a_registry
def cancel(where: RegistryOptions, name: Name, item: Item = None, as_json: AsJson = False) -> None:
    """Stop the runs of a job that are under way, or the run of one item."""
    done = where.look(lambda session: operations.cancel(session, name, item=item, by=operator_name()))
    print_result(done, as_json=as_json)


class _Listing(TyperGroup):
    """A group whose first word may be a job's name, or an option of ``list``: then requests are listed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without the name of a command, ``list`` is meant."""
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        # no word follows the name of a job, so the first of two words was meant as a command
        mistyped = len(args) > 1 and args[1][:1] != "-" and get_close_matches(args[0], self.commands)
        if not args or not (mistyped or args[0] in {*self.commands, *own}):
            args = ["list", *args]
        return super().parse_args(ctx, args)


requests = typer.Typer(
    name="requests",
    cls=_Listing,
    help="List what was asked of a job (requests NAME), or of all; cancel or pause a request.",
    add_completion=False,
)


@requests.command("list")
@on_a_registry
def list_(where: RegistryOptions, name: AnyName = None, as_json: AsJson = False) -> None:
    """List the requests of a job, or of all jobs, and how far each has come."""

    async def look(session: Session) -> list[tuple[str, RequestStatus]]:
        jobs = await operations.names(session) if name is None else [name]
        now = SystemClock().now()
        return [(job, one) for job in jobs for one in await operations.requests(session, job, now=now)]

    found = where.look(look)
    if as_json:
        write_json([{"job": job, **as_dict(one)} for job, one in found])
    elif found:
        out().print(_table(found, of_all=name is None))
    else:
        nothing = "nothing was asked of any job" if name is None else f"{name}: nothing was asked of it"
        out().print(nothing, style="dim", markup=False)


@requests.command("cancel", help=f"Cancel a request. {consequences.CANCEL_REQUEST}")
@on_a_registry
def cancel_request(where: RegistryOptions, id: Id, job: Job = None, as_json: AsJson = False) -> None:
    """Cancel a request."""
    _change(where, operations.cancel_request, id, job, as_json)


@requests.command()
@on_a_registry
def pause(where: RegistryOptions, id: Id, job: Job = None, as_json: AsJson = False) -> None:
    """Pause a request: nothing more of it is begun until it is resumed."""
    _change(where, operations.pause_request, id, job, as_json)


@requests.command()
@on_a_registry
def resume(where: RegistryOptions, id: Id, job: Job = None, as_json: AsJson = False) -> None:
    """Let a paused request go on."""
    _change(where, operations.resume_request, id, job, as_json)


def as_dict(found: RequestStatus) -> dict[str, object]:
    """Return a request as JSON."""
    request, span, local = found.request, found.request.span, found.local
    return {
        "id": request.id,
        "kind": request.source.value,
        "state": found.state,
        "items": request.items,
        "asked": local(request.asked),
        "at": local(request.at),
        "expires": local(request.expires),
        "from": None if span is None else local(span.start),
        "to": None if span is None else local(span.end),
        "parameter": request.parameter,
        "by": request.by or None,
        "outcomes": dict(found.outcomes),
        "errors": {str(item): error for item, error in found.errors.items()},
        "waitingItems": found.waiting,
        "runningItems": found.running,
    }


def _change(
    where: RegistryOptions,
    act: Callable[..., Awaitable[OperationResult]],
    id: str,
    job: str | None,
    as_json: bool,
) -> None:
    async def change(session: Session) -> OperationResult:
        return await act(session, job or await operations.job_of_request(session, id), id, by=operator_name())

    print_result(where.look(change), as_json=as_json)


def _ask(
    where: RegistryOptions,
    job: str,
    asking: Callable[[Session], Awaitable[OperationResult]],
    wait: bool,
    as_json: bool,
) -> None:
    """Ask for runs and print the result; if ``wait`` is set, follow the runs to their end."""

    followed = ""

    async def ask(session: Session) -> tuple[OperationResult, RequestStatus | None]:
        nonlocal followed
        asked = await asking(session)
        if not wait or not isinstance(asked, Asked):  # the plan of a dry run: no request was made
            return asked, None
        followed = asked.request
        if not as_json:  # with --json, stdout holds only the JSON of the end
            print_result(asked, as_json=False)
        return asked, await operations.ended(session, job, asked.request, clock=SystemClock(), warn=print_warning)

    try:
        _tell(*(where.use if wait else where.look)(ask), as_json)
    except KeyboardInterrupt:
        if followed:
            cancelling = f"aioelasticjob requests cancel {followed} --job {job}"
            print_warning(f"{job}: the request {followed} goes on, unless you cancel it: {cancelling}")
        raise


def _warn_of_broken_json(parameter: str | None) -> None:
    """Warn if a parameter looks like JSON and is none: text is allowed, so nothing else would say so."""
    if parameter is None or not _LIKE_JSON.match(parameter):
        return
    try:
        read_json(parameter)
    except ValueError as error:
        print_warning(f"the parameter looks like JSON and is none, so the job gets it as text: {error}")


async def _zone(session: Session, job: str) -> tzinfo:
    """Return a job's time zone."""
    return zone_named((await operations.job(session, job, now=0)).config.time_zone)


def _local(setting: str, given: str, zone: tzinfo, otherwise: str = "") -> datetime:
    """Return a date or a time; without a zone of its own it is meant in the job's."""
    expected = f"write a date or a time, such as 2026-01-31 or 2026-01-31T08:00{otherwise}"
    return typed_time(setting, given, zone, expected)


def _tell(asked: OperationResult, ended: RequestStatus | None, as_json: bool) -> None:
    if ended is None:
        return print_result(asked, as_json=as_json)
    if as_json:
        write_json(as_dict(ended))
    else:
        out().print(f"{ended.state}: {ended.outcomes_text}", markup=False)
        for line in _errors(ended):
            out().print(line, markup=False)
    if ended.state != "done" or ended.outcomes.keys() != {Outcome.COMPLETED.value}:
        raise typer.Exit(UNSUCCESSFUL)


def _errors(ended: RequestStatus) -> Iterator[str]:
    """Yield why the first items have failed, and how many more have."""
    failed = sorted(ended.errors.items())
    for item, error in failed[:SHOWN_ERRORS]:
        yield f"item {item}: {error}"
    if len(failed) > SHOWN_ERRORS:
        yield f"and {len(failed) - SHOWN_ERRORS:,} more items have failed"


def _table(found: Sequence[tuple[str, RequestStatus]], *, of_all: bool) -> TextTable:
    titles = *(["Job"] if of_all else []), "Id", "Kind", "State", "For"
    dates = {"Up to": [one.last_text for _, one in found], "Expires": [_expires(one) for _, one in found]}
    dates = {title: texts for title, texts in dates.items() if any(texts)}
    table = TextTable(
        *(*titles, *dates, "Items", "Ended", "Left", "By"),
        whole=("Job", "Id", "State", "For", *dates),
        spare=("By", "Kind", *dates, "Left", "Items"),
    )
    for (job, one), *texts in zip(found, *dates.values(), strict=True):
        request = one.request
        chosen = "all" if request.items is None else operations.listed(request.items, 6)
        due = one.text((request.span.following(0) or request.span.start) if request.span else request.moment)
        table.add(
            *([job] if of_all else []),
            *(Text(text) for text in (request.id, request.source.value.lower(), one.state, due)),
            *map(Text, texts),
            *(Text(text) for text in (chosen, _ended(one), str(one.left or ""), request.by)),
        )
    return table


def _ended(one: RequestStatus) -> str:
    """Return how runs have ended, and why the first item has failed."""
    first = next(_errors(one), "")
    return f"{one.outcomes_text} ({first})" if first else one.outcomes_text


def _expires(one: RequestStatus) -> str:
    return "" if one.is_over else one.text(one.request.expires)


def _items(given: str | None) -> list[int] | None:
    return None if given is None else operations.items_in(given)


def _is_duration(given: str) -> bool:
    try:
        as_seconds(given)
    except ValueError:
        return False
    return True
