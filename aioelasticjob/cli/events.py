"""`aioelasticjob events list|show|prune`: the history of runs, read from an event store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer
from pydantic.alias_generators import to_camel
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.schedule import duration_text
from aioelasticjob.cli.terminal import confirm, out, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.durations import as_seconds
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.events import run_id_of
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.observers.missed import MISSED, count_of, read_message
from aioelasticjob.observers.settings import EventStoreSettings, file_of, masked
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.open_runs import RUNNING, judged
from aioelasticjob.registry.session import Session

if TYPE_CHECKING:
    from aioelasticjob.observers.sql import EventStore, Page, RunDetails, RunEntry, StateEntry

MAX_SHOWN = 100
"""Runs of items that ``show`` shows of one run of a job."""
T = TypeVar("T")

Store: TypeAlias = Annotated[
    str,
    typer.Option(
        "--event-store",
        "-s",
        envvar="AIOELASTICJOB_EVENT_STORE",
        help="The database: sqlite:///events.db, postgresql://…",
    ),
]
Namespace: TypeAlias = Annotated[
    str | None, typer.Option(help="Only runs of jobs in this namespace of a registry, such as billing.")
]
RunId: TypeAlias = Annotated[
    str | None, typer.Option(help="Only the run with this run_id, as log records have it: all its items.")
]
Since: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Only runs since then: 90s, 30m, 1h30m or 7d ago, or a time in ISO 8601 with its zone."),
]
Missed: TypeAlias = Annotated[
    bool,
    typer.Option("--missed", help="Missed moments in place of runs; --since and --until are when each was reported."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

events = typer.Typer(
    name="events", help="The history of runs, from an event store.", no_args_is_help=True, add_completion=False
)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the registry knows of the jobs of runs that the history calls running; nothing if it was not asked."""

    namespace: str | None = None
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)

    def judged(self, runs: Iterable[RunEntry]) -> tuple[RunEntry, ...]:
        """Return runs with the outcomes that are shown: one that the registry knows to have ended is not running."""
        return tuple(map(self._judged, runs))

    def _judged(self, run: RunEntry) -> RunEntry:
        return judged(run, self.jobs) if self._has_job_of(run) else run

    def goes_on(self, run: RunEntry) -> bool | None:
        """Whether a run goes on; None if that is not known."""
        if run.outcome != RUNNING:
            return False
        return True if self._has_job_of(run) else None

    def _has_job_of(self, run: RunEntry) -> bool:
        """Whether the job of a run is the registry's: others may have written into the same event store."""
        return self.namespace is not None and run.namespace == self.namespace


_STYLES = {"completed": "green", "running": "cyan", "cancelled": "yellow", "stopped": "yellow", "handed over": "yellow"}


@events.command("list")
@on_a_registry
def list_(
    where: RegistryOptions,
    store: Store,
    namespace: Namespace = None,
    job: Annotated[str | None, typer.Option(help="Only runs of this job.")] = None,
    item: Annotated[int | None, typer.Option(help="Only runs of this item.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only runs on this instance, or at this address.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only runs with this outcome: completed, failed, timed out, …, or running.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Only runs with this source: SCHEDULE, TRIGGER, MISFIRE, FAILOVER or BACKFILL.")
    ] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="Only runs before then, given in the same way.")] = None,
    run: RunId = None,
    text: Annotated[str | None, typer.Option(help="Only runs whose failure or stack contains this text.")] = None,
    missed: Missed = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many runs are shown, the newest ones.")] = 20,
    after: Annotated[str | None, typer.Option(help="Show the page after this key of the previous page.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, or missed moments, the newest first.

    With a registry, a run that it knows to have ended is not shown as running, though the history lacks its end.
    """
    begun = _when("since", since)
    over = _when("until", until)
    within = namespace and namespace.strip("/")
    state = _state_of_missed(outcome=outcome, source=source, run=run) if missed else None

    def question(store: EventStore) -> Awaitable[Page[Any]]:
        from aioelasticjob.observers.sql import Filter

        which = Filter(job, item, instance, outcome, source, state, begun, over, text, namespace=within, run=run)
        return (store.states if missed else store.history)(which, after=after, limit=limit)

    page = _ask(store, question)
    if missed:
        _print_missed(store, page, as_json)
    else:
        _print_runs(store, page, _asked(where, page.rows), as_json)


@events.command()
@on_a_registry
def show(
    where: RegistryOptions,
    store: Store,
    run: Annotated[str, typer.Argument(help="The run's id, or the run_id of the log: each item is shown.")],
    as_json: AsJson = False,
) -> None:
    """Show one run: its states, its failure with the stack, and other runs of the same item for the same moment."""
    found = _ask(store, lambda store: _details(store, run))
    if not found:
        advice = "aioelasticjob events list shows the ids; the run_id that the log has is taken as well"
        raise InvalidSetting("run", run, f"is not in {masked(store)}: {advice}")
    shown: list[RunEntry] = []
    for details in found:
        shown += [details.run, *details.kin]
    known = _asked(where, shown)
    if as_json:
        rows = [_details_as_json(one, known) for one in found]
        write_json(rows[0] if found[0].run.id == run else {"runs": rows})
        return
    for number, details in enumerate(found):
        out().print("\n" if number else "", end="")
        _show(details, known)
    if len(found) == MAX_SHOWN:
        out().print(f"\nthe newest {MAX_SHOWN}: aioelasticjob events list --run '{run}' has all", style="dim")


async def _details(store: EventStore, run: str) -> list[RunDetails]:
    """Return the run with this id, or the runs of items, the oldest first, that have this ``run_id``."""
    from aioelasticjob.observers.sql import Filter

    keys = [run]
    if "@" in run:
        keys = [one.id for one in reversed((await store.history(Filter(run=run), limit=MAX_SHOWN)).rows)]
    return [details for key in keys if (details := await store.run(key)) is not None]


def _show(details: RunDetails, known: _Known) -> None:
    _list((details.run,), known)
    out().print(f"run of the job: {details.run.run_id}", style="dim", markup=False)
    for state in details.states:
        out().print(f"{_time(state.at)}  {state.state}  {state.message or ''}".rstrip(), markup=False)
    if details.stack:
        out().print(f"\n{details.stack}", markup=False)
    if details.kin:
        out().print("\nthe same moment of the same item:", style="dim")
        _list(details.kin, known)


@events.command()
def prune(
    store: Store,
    days: Annotated[float | None, typer.Option(min=0.001, help="Remove rows that are older.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="How many of the newest rows of each table are kept.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove old events."""
    if days is None and rows is None:
        raise InvalidSetting("days", None, "say what to keep: --days, --rows, or both")
    confirm(f"Remove old events from {masked(store)}?", sure=yes)
    removed = _ask(store, lambda store: store.prune(days=days, rows=rows))
    out().print(f"{counted(removed, 'row')} removed")


def _state_of_missed(**filters: str | None) -> str:
    """Return the state of missed moments; filters that only runs have are refused."""
    for setting, given in filters.items():
        if given is not None:
            raise InvalidSetting(setting, given, "is a filter of runs: leave it out, or --missed")
    return MISSED


def _asked(where: RegistryOptions, runs: Iterable[RunEntry]) -> _Known:
    """Return what the registry knows of the jobs of which a run has no end in the history; nothing if none is named."""
    names = {run.job for run in runs if run.outcome == RUNNING}
    if not names or not where.is_given:
        return _Known()
    try:
        return where.look(partial(_read, names=names))
    except ElasticJobError as error:
        typer.echo(f"the registry cannot say which runs go on: {error}", err=True)
        return _Known()


async def _read(session: Session, *, names: Iterable[str]) -> _Known:
    found = dict[str, JobStatus]()
    for name in names:
        with suppress(InvalidSetting):  # it was removed
            found[name] = await operations.job(session, name, now=SystemClock().now())
    return _Known(session.settings.namespace, found)


def _print_runs(store: str, page: Page[RunEntry], known: _Known, as_json: bool) -> None:
    if as_json:
        rows = [_run_as_json(run, known) for run in page.rows]
        write_json({"runs": rows, "next": page.next})
    elif page.rows:
        _list(page.rows, known)
        _name_next(page)
    else:
        out().print(f"no such runs in {masked(store)}", style="dim", markup=False)


def _print_missed(store: str, page: Page[StateEntry], as_json: bool) -> None:
    if as_json:
        write_json({"missed": [_missed_as_json(row) for row in page.rows], "next": page.next})
    elif page.rows:
        _list_missed(page.rows)
        _name_next(page)
    else:
        out().print(f"no such missed moments in {masked(store)}", style="dim", markup=False)


def _name_next(page: Page[Any]) -> None:
    if page.next is not None:
        out().print(f"more: --after '{page.next}'", style="dim", markup=False)


def _ask(url: str, question: Callable[[EventStore], Awaitable[T]]) -> T:
    settings = EventStoreSettings.of(url)
    if (file := file_of(url)) is not None and not file.exists():
        raise InvalidSetting(
            "store", masked(url), f"there is no file {str(file)!r}: it is made by the jobs that use it"
        )

    async def main() -> T:
        from aioelasticjob.observers.sql import open_store

        async with open_store(settings) as store:
            return await question(store)

    return asyncio.run(main())


def _when(setting: str, given: str | None) -> datetime | None:
    if given is None:
        return None
    with suppress(ValueError, OverflowError):  # OverflowError: a date before the first year of the calendar
        if (found := datetime.fromisoformat(given)).tzinfo is not None:
            return found
    with suppress(ValueError, OverflowError):
        ago = as_seconds(given) if given[-1:].isalpha() else None  # a number alone may be meant as a date
        if isinstance(ago, float):
            return moment(SystemClock().now()) - timedelta(seconds=ago)
    raise InvalidSetting(setting, given, "write an age such as 30m, 1h30m or 7d, or 2026-01-31T08:00:00+00:00")


def _list(runs: Sequence[RunEntry], known: _Known) -> None:
    """Write a line for each run, and one more for its failure; long lines are not cut, so that they can be copied."""
    now = SystemClock().now()
    has_unknown = False
    width = max(len("Job, item"), *(len(f"{run.job} {run.item}") for run in runs))
    head = f"{'Began':25}  {'Job, item':{width}}  {'Source':8}  {'Outcome':11}  {'Took':>10}"
    head = f"{head}  {'Address':15}  {'Id':32}"
    out().print(Text(head, style="dim"), soft_wrap=True)
    out().print("─" * len(head), soft_wrap=True)
    for run in known.judged(runs):
        seconds = "" if run.seconds is None else f"{run.seconds:.3f} s"
        line = Text(f"{_time(run.began)}  {f'{run.job} {run.item}':{width}}  {run.source:8}  ")
        line.append(f"{run.outcome:11}", style=_STYLES.get(run.outcome, "red"))
        line.append(f"  {seconds:>10}  {run.ip:15}  ").append(run.id, style="dim")
        if (run.attempts or 1) > 1:
            line.append(f"  {run.attempts} attempts", style="yellow")
        if known.goes_on(run) is None and run.began is not None:
            has_unknown = True
            age = duration_text(max(0.0, now - run.began.timestamp()))
            line.append(f"  no end in the history {age} after it began", style="yellow")
        out().print(line, soft_wrap=True)
        if run.failure:
            out().print(Text(f"    {run.failure}", style="red"), soft_wrap=True)
    if has_unknown:
        text = "running is what the history says; with --registry, the registry of these jobs is asked as well"
        out().print(text, style="dim")


def _list_missed(moments: Sequence[StateEntry]) -> None:
    """Write a line for each report of missed moments of an item: the newest of them, and why they were missed."""
    width = max(len("Job, item"), *(len(f"{one.job} {one.item}") for one in moments))
    head = f"{'Moment':25}  {'Job, item':{width}}  {'Reported':25}  {'Address':15}  Why"
    out().print(Text(head, style="dim"), soft_wrap=True)
    out().print("─" * len(head), soft_wrap=True)
    for one in moments:
        where = f"{_time(one.fire_time):25}  {f'{one.job} {one.item}':{width}}  {_time(one.at):25}  {one.ip:15}"
        out().print(Text(f"{where}  {one.message or ''}".rstrip()), soft_wrap=True)


def _missed_as_json(one: StateEntry) -> dict[str, object]:
    moments, why = read_message(one.message or "")
    count = count_of(moments)
    return {
        "id": one.id,
        "job": one.job,
        "item": int(one.item),
        "fireTime": one.fire_time,
        "at": one.at,
        "ip": one.ip,
        "instance": one.instance,
        "moments": count.number,
        "atLeast": count.is_least,
        "why": why,
    }


def _time(when: datetime | None) -> str:
    return "" if when is None else time_text(when)


def _as_json(value: RunEntry | RunDetails) -> dict[str, object]:
    """Return a value for JSON, with keys in camel case as in every command."""

    def spelt(fields: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(fields)
        if (task := found.get("task_id")) is not None:
            found["run_id"] = run_id_of(str(found["job"]), str(task))
        return {to_camel(name): field for name, field in found.items()}

    return asdict(value, dict_factory=spelt)


def _run_as_json(run: RunEntry, known: _Known) -> dict[str, object]:
    (shown,) = known.judged((run,))
    return {**_as_json(shown), "goesOn": known.goes_on(shown)}


def _details_as_json(details: RunDetails, known: _Known) -> dict[str, object]:
    kin = [_run_as_json(one, known) for one in details.kin]
    return {**_as_json(details), "run": _run_as_json(details.run, known), "kin": kin}
