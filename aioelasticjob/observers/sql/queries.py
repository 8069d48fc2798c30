"""Queries of the two tables.  Pages are found by key, so the last page of a long history costs as much as the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    RowMapping,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import NO_FAILURE, RUNNING, Outcome
from aioelasticjob.observers.missed import MISSED, MissedMoments, count_of, read_message
from aioelasticjob.observers.sql.conditions import naive_utc, run_conditions, state_conditions
from aioelasticjob.observers.sql.history import (
    FailureEntry,
    Filter,
    RunEntry,
    SparklineEntry,
    StateEntry,
)
from aioelasticjob.observers.sql.schema import RUNS, STATES, Moment

MAX_PAGE_ROWS = 1000
GOOD = sorted(NO_FAILURE)
MISSED_COLUMN = 60
"""Reports of missed moments are counted by so many seconds."""
OUTCOME = case(
    (RUNS.c.complete_time.is_(None), RUNNING),
    (RUNS.c.outcome.is_not(None), RUNS.c.outcome),
    (RUNS.c.is_success == 1, Outcome.COMPLETED.value),
    else_=Outcome.FAILED.value,
).label("result")
"""The outcome of a row; rows that Elastic-Job wrote do not have our column, so it is derived from theirs."""
_RUN = [column for column in RUNS.columns if column.name not in ("failure_stack", "is_success")]


def runs(which: Filter, after: str | None, limit: int, before: str | None = None) -> Select[Any]:
    """Return the query for a page of runs, plus one row, which tells whether there is another page.

    With ``before`` the oldest comes first.
    """
    asked = select(*_RUN, OUTCOME).where(*run_conditions(which))
    return _page(asked, RUNS, RUNS.c.start_time, after, limit, before)


def states(which: Filter, after: str | None, limit: int) -> Select[Any]:
    """Return the query for a page of the status trace, plus one row."""
    asked = select(STATES).where(*state_conditions(which))
    return _page(asked, STATES, STATES.c.creation_time, after, limit)


def one_run(which: Filter, key: str) -> Select[Any]:
    """Return the query for a run with its stack."""
    return select(*_RUN, OUTCOME, RUNS.c.failure_stack).where(*run_conditions(which), RUNS.c.id == key)


def job_names(which: Filter) -> Select[Any]:
    """Return the query for the names of the jobs that have a history."""
    return select(RUNS.c.job_name).where(*run_conditions(which)).distinct().order_by(RUNS.c.job_name)


def trace_of(run: RunEntry) -> Select[Any]:
    """Return the query for the states of a run."""
    query = select(STATES).where(STATES.c.task_id == run.task_id, STATES.c.sharding_item == str(run.item))
    return query.order_by(STATES.c.creation_time, STATES.c.id).limit(MAX_PAGE_ROWS)


def kin_of(which: Filter, run: RunEntry) -> Select[Any]:
    """Return the query for the other runs of the same item for the same moment."""
    if which.namespace is None:  # a job of the same name in another namespace is another job
        which = replace(which, namespace=run.namespace, unnamed=True)
    same = and_(
        RUNS.c.job_name == run.job,
        RUNS.c.sharding_item == run.item,
        RUNS.c.fire_time == naive_utc(run.fire_time),
    )
    began = RUNS.c.start_time >= naive_utc(run.fire_time) if run.fire_time is not None else false()
    return (
        select(*_RUN, OUTCOME)
        .where(*run_conditions(which), same, began, RUNS.c.id != run.id)
        .order_by(RUNS.c.start_time)
        .limit(100)
    )


def failures(which: Filter, limit: int) -> Select[Any]:
    """Return the query for the newest runs that have failed, without their stacks."""
    wanted = (RUNS.c.id, RUNS.c.job_name, RUNS.c.sharding_item, RUNS.c.start_time, RUNS.c.failure_cause, OUTCOME)
    failed = (RUNS.c.complete_time.is_not(None), RUNS.c.start_time.is_not(None), OUTCOME.element.not_in(GOOD))
    return select(*wanted).where(*run_conditions(which), *failed).order_by(RUNS.c.start_time.desc()).limit(limit)


def stacks(keys: Sequence[str]) -> Select[Any]:
    """Return the query for the stacks of some runs."""
    return select(RUNS.c.id, RUNS.c.failure_stack).where(RUNS.c.id.in_(keys))


def sparklines(which: Filter, jobs: Sequence[str], last: int) -> CompoundSelect[Any]:
    """Return the query for the newest runs of each of some jobs: it reads a short piece of the index for each job."""
    wanted = (RUNS.c.id, RUNS.c.job_name, RUNS.c.sharding_item, RUNS.c.start_time, RUNS.c.seconds, OUTCOME)
    conditions = tuple(run_conditions(which))
    pieces = list[Select[Any]]()
    for job in jobs:
        newest = (
            select(*wanted)
            .where(*conditions, RUNS.c.job_name == job, RUNS.c.start_time.is_not(None))
            .order_by(RUNS.c.start_time.desc())
            .limit(last)
            .subquery()
        )
        pieces.append(select(newest))
    return union_all(*pieces)


def counts(which: Filter) -> Select[Any]:
    """Return the query for the number of runs of each job and outcome."""
    found = select(RUNS.c.job_name, OUTCOME).where(*run_conditions(which)).subquery()
    return select(found.c.job_name, found.c.result, func.count()).group_by(found.c.job_name, found.c.result)


class _SecondsBetween(FunctionElement[int]):
    """The whole seconds from the first moment to the second one; each database writes it in its own way."""

    inherit_cache = True
    type = Integer()


@compiles(_SecondsBetween)
def _seconds_in_sqlite(element: _SecondsBetween, compiler: SQLCompiler, **options: Any) -> str:
    first, second = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST((julianday({second}) - julianday({first})) * 86400 + 0.0005 AS INTEGER)"


@compiles(_SecondsBetween, "postgresql")
def _seconds_in_postgresql(element: _SecondsBetween, compiler: SQLCompiler, **options: Any) -> str:
    first, second = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(FLOOR(EXTRACT(EPOCH FROM ({second} - {first}))) AS BIGINT)"


@compiles(_SecondsBetween, "mysql", "mariadb")
def _seconds_in_mysql(element: _SecondsBetween, compiler: SQLCompiler, **options: Any) -> str:
    first, second = (compiler.process(clause, **options) for clause in element.clauses)
    return f"TIMESTAMPDIFF(SECOND, {first}, {second})"


def timeline(which: Filter, band: int, column: int) -> Select[Any]:
    """Return the query for the number of runs by items and time: ``band`` items and ``column`` seconds each."""
    first = which.items[0] if which.items else 0
    has_failed = and_(RUNS.c.complete_time.is_not(None), OUTCOME.element.not_in(GOOD))
    failed = case((has_failed, 1), else_=0)
    cells = select(
        ((RUNS.c.sharding_item - first) // band).label("band"),
        _slot(which, RUNS.c.start_time, column),
        failed.label("failed"),
    ).where(*run_conditions(which))
    found = cells.subquery()
    counts = (func.count().label("runs"), func.sum(found.c.failed).label("failures"))
    return select(found.c.band, found.c.slot, *counts).group_by(found.c.band, found.c.slot)


def missed(which: Filter) -> Select[Any]:
    """Return the query for the reports of missed moments, by job, message and minute."""
    time = STATES.c.creation_time
    wanted = (STATES.c.job_name, STATES.c.message, time, _slot(which, time, MISSED_COLUMN))
    found = select(*wanted).where(*state_conditions(replace(which, state=MISSED))).subquery()
    counts = (
        func.count().label("reports"),
        func.min(found.c.creation_time).label("first"),
        func.max(found.c.creation_time).label("last"),
    )
    return select(found.c.job_name, found.c.message, *counts).group_by(found.c.job_name, found.c.message, found.c.slot)


def read_missed(row: RowMapping) -> MissedMoments:
    """Return a row as moments that were missed for one reason."""
    moments, why = read_message(row["message"] or "")
    first, last = (_utc(row[name]).timestamp() for name in ("first", "last"))
    return MissedMoments(count_of(moments, row["reports"]), why, first, last)


def histogram(which: Filter, column: int) -> Select[Any]:
    """Return the query for the number of runs by time and outcome: ``column`` seconds each."""
    found = select(_slot(which, RUNS.c.start_time, column), OUTCOME).where(*run_conditions(which)).subquery()
    return select(found.c.slot, found.c.result, func.count().label("runs")).group_by(found.c.slot, found.c.result)


def first(which: Filter) -> Select[Any]:
    """Return the query for the moment at which the oldest run began."""
    return select(func.min(RUNS.c.start_time).label("began")).where(*run_conditions(which))


def durations(which: Filter, column: int) -> Select[Any]:
    """Return the query for what the runs of each ``column`` seconds took: those of which that is known.

    A percentile is the smallest duration that so many of a hundred runs did not exceed.
    """
    of_java = case((RUNS.c.outcome.is_(None), _java_seconds()))
    took = func.coalesce(RUNS.c.seconds, of_java)
    conditions = (*run_conditions(which), took.is_not(None))
    known = select(_slot(which, RUNS.c.start_time, column), took.label("took")).where(*conditions).subquery()
    place = func.row_number().over(partition_by=known.c.slot, order_by=known.c.took).label("place")
    number = func.count().over(partition_by=known.c.slot).label("number")
    ranked = select(known, place, number).subquery()

    def percentile(part: int) -> ColumnElement[float]:
        place = (ranked.c.number * part + 99) // 100
        return func.max(case((ranked.c.place == place, ranked.c.took)))

    return select(
        ranked.c.slot,
        func.count().label("runs"),
        percentile(50).label("median"),
        percentile(95).label("p95"),
        func.max(ranked.c.took).label("longest"),
    ).group_by(ranked.c.slot)


def _slot(which: Filter, time: ColumnElement[datetime], column: int) -> ColumnElement[int]:
    """Return in which piece of ``column`` seconds a time is, counted from the filter's ``since``."""
    if which.since is None:
        raise InvalidSetting("since", None, "a timeline begins at a moment")
    start = bindparam("timeline_start", naive_utc(which.since), Moment)
    return (_SecondsBetween(start, time) // column).label("slot")


def _java_seconds() -> ColumnElement[int]:
    """Return what a run of Elastic-Job's took, which wrote no duration."""
    return _SecondsBetween(RUNS.c.start_time, RUNS.c.complete_time)


def read_run(row: RowMapping) -> RunEntry:
    """Return a row as a run."""
    ip = row["ip"]
    return RunEntry(
        id=row["id"],
        job=row["job_name"],
        task_id=row["task_id"],
        item=row["sharding_item"],
        source=row["execution_source"],
        host=row["hostname"],
        ip=ip,
        instance=row["instance"] or ip,
        fire_time=_aware(row["fire_time"]),
        began=_aware(row["start_time"]),
        ended=_aware(row["complete_time"]),
        outcome=row["result"],
        seconds=_seconds(row),
        failure=row["failure_cause"],
        attempts=row["attempts"],
        namespace=row.get("namespace"),
    )


def read_state(row: RowMapping) -> StateEntry:
    """Return a row as a state."""
    return StateEntry(
        id=row["id"],
        job=row["job_name"],
        task_id=row["task_id"],
        item=row["sharding_item"],
        source=row["execution_source"] or "",
        ip=row["slave_id"],
        instance=row["instance"] or row["slave_id"],
        state=row["state"],
        message=row["message"] or None,
        at=_aware(row["creation_time"]),
        fire_time=_aware(row["fire_time"]),
    )


def read_failure(row: RowMapping) -> FailureEntry:
    """Return a row as a run that has failed."""
    began = _utc(row["start_time"])
    return FailureEntry(row["id"], row["job_name"], row["sharding_item"], began, row["result"], row["failure_cause"])


def read_sparkline_entry(row: RowMapping) -> SparklineEntry:
    """Return a row as a bar of a sparkline."""
    return SparklineEntry(row["id"], row["sharding_item"], _utc(row["start_time"]), row["result"], row["seconds"])


def read_first(row: RowMapping) -> datetime | None:
    """Return when the oldest run began."""
    return _aware(row["began"])


def without_namespaces(question: Any) -> Any:
    """Return the query for tables that have no namespaces yet, and so none of its rows has one."""
    if "namespace" not in question.selected_columns:
        return question
    others = [one for one in question.selected_columns if one.key != "namespace"]
    return question.with_only_columns(*others)


def key_of(row: RowMapping, time: str) -> str:
    """Return the key after which the next page begins."""
    moment = row[time]
    return f"{moment.isoformat()}~{row['id']}"


def _page(
    asked: Select[Any],
    table: FromClause,
    time: ColumnElement[datetime],
    after: str | None,
    limit: int,
    before: str | None = None,
) -> Select[Any]:
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise InvalidSetting("limit", limit, f"a number of rows from 1 to {MAX_PAGE_ROWS}")
    if after is not None:
        moment, key = _place("after", after)
        asked = asked.where(time <= moment, or_(time < moment, table.c.id < key))
    if before is not None:
        moment, key = _place("before", before)
        asked = asked.where(time >= moment, or_(time > moment, table.c.id > key))
    order = (time.desc(), table.c.id.desc()) if before is None else (time, table.c.id)
    return asked.where(time.is_not(None)).order_by(*order).limit(limit + 1)


def _place(setting: str, text: str) -> tuple[datetime, str]:
    moment, _, key = text.partition("~")
    try:
        when = datetime.fromisoformat(moment)
        return naive_utc(when.replace(tzinfo=UTC)), key
    except ValueError:
        raise InvalidSetting(setting, text, "must be the key that the previous page gave") from None


def _seconds(row: RowMapping) -> float | None:
    seconds: float | None = row["seconds"]
    began: datetime | None = row["start_time"]
    ended: datetime | None = row["complete_time"]
    is_of_java = row["outcome"] is None  # which writes no duration
    if seconds is None and is_of_java and began is not None and ended is not None:
        return (ended - began).total_seconds()
    return seconds


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _aware(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    return _utc(moment)
