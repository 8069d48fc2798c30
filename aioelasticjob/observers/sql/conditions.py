"""Which rows a query asks for: the conditions of a filter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Table, and_, or_

from aioelasticjob.config.job import MAX_ITEMS
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import CUT_OFF, HANDED_OVER, RUNNING, Outcome
from aioelasticjob.observers.sql.history import Filter
from aioelasticjob.observers.sql.rows import MAX_CLOCK_DIFFERENCE, TAIL_CHARACTERS
from aioelasticjob.observers.sql.schema import RUNS, STATES

_LONGEST_NUMBER = 16
"""Digits of the number at the end of a ``task_id``."""
OUTCOMES = (RUNNING, *(outcome.value for outcome in Outcome), HANDED_OVER, CUT_OFF)


def run_conditions(which: Filter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for runs."""
    if which.state is not None:
        raise InvalidSetting("state", which.state, "is a filter of states, runs have an outcome")
    yield from _of_namespace(which, RUNS)
    if which.run is not None:
        yield _of_run(which.run, RUNS, RUNS.c.start_time)
    if which.job is not None:
        yield RUNS.c.job_name == which.job
    if which.jobs is not None:
        yield RUNS.c.job_name.in_(sorted(which.jobs))
    if which.item is not None:
        if not 0 <= which.item < MAX_ITEMS:
            raise InvalidSetting("item", which.item, f"a number from 0 to {MAX_ITEMS - 1}")
        yield RUNS.c.sharding_item == which.item
    if which.items is not None:
        yield RUNS.c.sharding_item.between(*which.items)
    if which.instance is not None:
        yield or_(RUNS.c.instance == which.instance, RUNS.c.ip == which.instance)
    if which.source is not None:
        yield RUNS.c.execution_source == which.source
    if which.outcome is not None:
        yield _ended_so(which.outcome)
    if which.since is not None:
        yield RUNS.c.start_time >= naive_utc(which.since)
    if which.until is not None:
        yield RUNS.c.start_time < naive_utc(which.until)
    if which.text:
        in_cause = RUNS.c.failure_cause.icontains(which.text, autoescape=True)
        in_stack = RUNS.c.failure_stack.icontains(which.text, autoescape=True)
        yield or_(in_cause, in_stack)


def _ended_so(outcome: str) -> ColumnElement[bool]:
    if outcome not in OUTCOMES:
        raise InvalidSetting("outcome", outcome, f"must be one of {', '.join(OUTCOMES)}")
    ended = RUNS.c.complete_time.is_not(None)
    if outcome == RUNNING:
        return RUNS.c.complete_time.is_(None)
    if outcome == Outcome.COMPLETED:
        return and_(ended, RUNS.c.is_success == 1)
    if outcome == Outcome.FAILED:
        has_no_other_outcome = or_(RUNS.c.outcome == outcome, RUNS.c.outcome.is_(None))
        return and_(ended, RUNS.c.is_success == 0, has_no_other_outcome)
    return and_(ended, RUNS.c.outcome == outcome)


def state_conditions(which: Filter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for states."""
    if which.outcome is not None:
        raise InvalidSetting("outcome", which.outcome, "is a filter of runs, a trace has states")
    yield from _of_namespace(which, STATES)
    if which.run is not None:
        yield _of_run(which.run, STATES, STATES.c.creation_time)
    if which.job is not None:
        yield STATES.c.job_name == which.job
    if which.jobs is not None:
        yield STATES.c.job_name.in_(sorted(which.jobs))
    if which.item is not None:
        yield STATES.c.sharding_item == str(which.item)
    if which.instance is not None:
        yield or_(STATES.c.instance == which.instance, STATES.c.slave_id == which.instance)
    if which.source is not None:
        yield STATES.c.execution_source == which.source
    if which.state is not None:
        yield STATES.c.state == which.state
    if which.since is not None:
        yield STATES.c.creation_time >= naive_utc(which.since)
    if which.until is not None:
        yield STATES.c.creation_time < naive_utc(which.until)
    if which.text:
        yield STATES.c.message.icontains(which.text, autoescape=True)


def _of_namespace(which: Filter, table: Table) -> Iterator[ColumnElement[bool]]:
    if which.namespace is not None:
        named = table.c.namespace == which.namespace
        if which.unnamed:
            yield or_(named, table.c.namespace.is_(None))
        else:
            yield named


def _of_run(run_id: str, table: Table, time: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Return the condition for the rows of a run.

    Its ``run_id`` says the job and the moment, so the index over both leads to the rows that are not older than that.
    """
    job, _, run = run_id.partition("@")
    _, _, moment = run.rpartition("-")
    with suppress(ValueError, OverflowError):
        fired = datetime.fromisoformat(moment)
        if fired.tzinfo is not None:
            at = naive_utc(fired)
            end = f"@-@{run}."[_LONGEST_NUMBER - TAIL_CHARACTERS :]  # what a shortened ``task_id`` has of it
            return and_(
                table.c.job_name == job,
                time >= at - MAX_CLOCK_DIFFERENCE,
                table.c.fire_time == at,
                table.c.task_id.contains(end, autoescape=True),
            )
    raise InvalidSetting("run", run_id, "must be the run_id of a run, such as report@20260131T080000Z")


def naive_utc(moment: datetime | None) -> datetime:
    """Return a moment as the tables hold it; None stands for the end of time."""
    if moment is None:
        return datetime.max
    if moment.tzinfo is None:
        raise InvalidSetting("time", moment.isoformat(), "must say its time zone")
    try:
        return moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise InvalidSetting("time", moment.isoformat(), "must lie in the years 1 to 9999") from None
