"""The event store: queries and writes of one database.  A query raises an error if the database does not answer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from anyio import CancelScope, Lock, fail_after, move_on_after
from sqlalchemy import Table, delete, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.logging import logger
from aioelasticjob.observers.missed import MissedMoments
from aioelasticjob.observers.settings import EventStoreSettings, masked
from aioelasticjob.observers.sql import queries
from aioelasticjob.observers.sql.database_errors import explained, is_about_values, without_password
from aioelasticjob.observers.sql.engine import engine_for, widths
from aioelasticjob.observers.sql.history import (
    DurationCount,
    FailureEntry,
    Filter,
    OutcomeCount,
    Page,
    RunDetails,
    RunEntry,
    SparklineEntry,
    StateEntry,
    TimelineCount,
)
from aioelasticjob.observers.sql.rows import Batch
from aioelasticjob.observers.sql.schema import (
    RUNS,
    STATES,
    is_fit,
    is_readable,
    missing_tables,
    naive,
    upgrade,
    version,
)
from aioelasticjob.observers.sql.writes import Writes

JOBS_PER_QUERY = 50
"""At most so many jobs are in one query for sparklines."""
ROWS_PER_REMOVAL = 500
"""Rows that one transaction removes: other transactions should not wait long for it."""
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)
"""No run began before this moment."""
CLOSE_TIMEOUT = 2.0
"""Seconds that closing the connections may take."""

log = logger(__name__)


class EventStoreUnreachable(ElasticJobError):
    """The event store's database did not answer, or refused a statement."""

    def __init__(self, url: str, reason: str, *, refused: bool = False) -> None:
        super().__init__(f"event store {masked(url)}: {reason}")
        self.reason = reason
        self.refused = refused
        """Whether the database, or its driver, says that the values of the rows are wrong."""


@asynccontextmanager
async def open_store(given: str | EventStoreSettings, *, clock: Clock | None = None) -> AsyncIterator[EventStore]:
    """Open an event store: SQLite, PostgreSQL or MySQL by URL.  The database is first used at the first query.

    Raises:
        InvalidSetting: the URL makes no sense, or what serves it is not installed.
    """
    settings = EventStoreSettings.of(given)
    limited_log = LimitedLog()
    engine = engine_for(settings, limited_log)
    try:
        yield EventStore(engine, settings, clock or SystemClock(), limited_log)
    finally:
        with CancelScope(shield=True), move_on_after(CLOSE_TIMEOUT):
            await engine.dispose()
        limited_log.close()


class EventStore:
    """The history of runs in a database.  Every query takes ``write_timeout`` seconds at most.

    Raises:
        EventStoreUnreachable: by every query, if the database does not answer.
    """

    def __init__(
        self, engine: AsyncEngine, settings: EventStoreSettings, clock: Clock, limited_log: LimitedLog
    ) -> None:
        self.settings = settings
        self.scope = Filter()
        """If it has a namespace or jobs, every query finds only their rows."""
        self.widths: Mapping[str, int] = {}
        """Characters that the columns hold; known after the first use of the tables."""
        self._engine = engine
        self._clock = clock
        self._limited_log = limited_log
        self._preparing = Lock()
        self._prepared = False
        self._has_been_prepared = False
        self._named = True
        """Whether the tables have namespaces."""
        self._may_upgrade = True
        """Whether the database has never refused to upgrade the tables."""
        self._writes = Writes(engine.dialect.name)

    def of_jobs(self, jobs: frozenset[str]) -> EventStore:
        """Return this store, of which every query finds only the rows of some jobs, and only within its scope."""
        found = copy(self)
        found.scope = replace(self.scope, jobs=jobs)
        return found

    async def prepare(self, *, to_read: bool = False) -> None:
        """Make the tables, or upgrade older ones; the first query or write does this.

        Who only reads gets by without the upgrade if the database refuses it and the tables are not too old.
        """
        async with self._preparing:
            if self._prepared:
                return
            with self._asking():
                async with self._connected() as connection:
                    fit = await connection.run_sync(is_fit)
                    readable = to_read and await connection.run_sync(is_readable)
                if not fit:  # a process that only reads needs neither the right to write nor the lock
                    fit = await self._upgrade(readable)
                async with self._connected() as connection:
                    self.widths = await connection.run_sync(widths)
            self._prepared = fit
            self._named = fit
            self._has_been_prepared = True

    async def _upgrade(self, readable: bool) -> bool:
        """Upgrade the tables, and return whether that was done; it may be left to others if they are readable."""
        if readable and not self._may_upgrade:
            return False
        try:
            async with self._writing() as connection:
                lost = await connection.run_sync(missing_tables)
                is_new = not self._has_been_prepared and not await connection.run_sync(version)
                await connection.run_sync(lambda sync: upgrade(sync, self._clock))
        except DBAPIError:
            if not readable:
                raise
            self._may_upgrade = False
            return False
        if lost and not is_new:
            self._report_loss(lost)
        return True

    def _report_loss(self, tables: Sequence[str]) -> None:
        text = "had lost tables, which were made again and are empty"
        names = ", ".join(tables)
        if self._limited_log.admits(log, None, f"the event store {text}", each=MOST):
            log.warning("the event store %s %s: %s", masked(self.settings.url), text, names, extra={"tables": names})

    async def history(
        self,
        which: Filter = Filter(),  # noqa: B008  # frozen
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page[RunEntry]:
        """Return a page of runs, the newest first: after ``Page.next`` of a page, or before its ``Page.previous``.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        found = await self._ask(queries.runs(await self._within(which), after, limit, before))
        rows = found[:limit]
        has_more = len(found) > limit
        if before is None:
            has_older = has_more
            has_newer = after is not None
        else:  # the oldest came first
            rows = rows[::-1]
            has_older = True
            has_newer = has_more
        following = queries.key_of(rows[-1], "start_time") if rows and has_older else None
        previous = queries.key_of(rows[0], "start_time") if rows and has_newer else None
        return Page(tuple(map(queries.read_run, rows)), following, previous)

    async def states(self, which: Filter = Filter(), *, after: str | None = None, limit: int = 50) -> Page[StateEntry]:  # noqa: B008
        """Return a page of the status trace, the newest first; it also has misfires and rescues.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        rows = await self._ask(queries.states(await self._within(which), after, limit))
        following = queries.key_of(rows[limit - 1], "creation_time") if len(rows) > limit else None
        return Page(tuple(map(queries.read_state, rows[:limit])), following)

    async def run(self, key: str) -> RunDetails | None:
        """Return one run with its failure and its states; None if it is not in the store (any more)."""
        which = await self._within(Filter())
        found = await self._ask(queries.one_run(which, key))
        if not found:
            return None
        run = queries.read_run(found[0])
        states = await self._ask(queries.trace_of(run))
        kin = await self._ask(queries.kin_of(which, run)) if run.fire_time is not None else ()
        trace = tuple(map(queries.read_state, states))
        return RunDetails(run, found[0]["failure_stack"], trace, tuple(map(queries.read_run, kin)))

    async def failures(self, which: Filter = Filter(), *, limit: int = 500) -> Sequence[FailureEntry]:  # noqa: B008
        """Return the newest runs that have failed, the newest first."""
        rows = await self._ask(queries.failures(await self._within(which), limit))
        return [queries.read_failure(row) for row in rows]

    async def stacks(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the failures of some runs with their stacks, by the key of the run."""
        rows = await self._ask(queries.stacks(keys)) if keys else ()
        return {row["id"]: row["failure_stack"] or "" for row in rows}

    async def sparklines(self, jobs: Sequence[str], *, last: int = 30) -> Mapping[str, tuple[SparklineEntry, ...]]:
        """Return the newest runs of each job, the oldest of them first, for sparklines."""
        found: dict[str, list[SparklineEntry]] = {job: [] for job in jobs}
        names = list(found)
        which = await self._within(Filter())
        for start in range(0, len(names), JOBS_PER_QUERY):
            some = names[start : start + JOBS_PER_QUERY]
            for row in await self._ask(queries.sparklines(which, some, last)):
                found[row["job_name"]].append(queries.read_sparkline_entry(row))
        return {job: tuple(sorted(entries, key=attrgetter("began"))) for job, entries in found.items()}

    async def counts(self, which: Filter = Filter()) -> Mapping[str, int]:  # noqa: B008
        """Return how many runs there are of each outcome; without ``since`` the whole history is counted."""
        totals: dict[str, int] = {}
        by_job = await self.counts_by_job(which)
        for outcomes in by_job.values():
            for outcome, number in outcomes.items():
                totals[outcome] = totals.get(outcome, 0) + number
        return totals

    async def counts_by_job(self, which: Filter = Filter()) -> Mapping[str, Mapping[str, int]]:  # noqa: B008
        """Return how many runs there are of each outcome, by job."""
        found: dict[str, dict[str, int]] = {}
        for row in await self._ask(queries.counts(await self._within(which))):
            job, outcome, number = row.values()
            found.setdefault(job, {})[outcome] = number
        return found

    async def timeline(self, which: Filter, *, band: int = 1, column: int = 60) -> tuple[TimelineCount, ...]:
        """Return the number of runs and failures by ``band`` items and ``column`` seconds, counted by the database.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        rows = await self._ask(queries.timeline(await self._within(which), band, column))
        return tuple(TimelineCount(row["band"], row["slot"], row["runs"], int(row["failures"])) for row in rows)

    async def missed(self, which: Filter) -> Mapping[str, tuple[MissedMoments, ...]]:
        """Return the moments that were reported as missed ``since`` a time, by job, reason and minute.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        found: dict[str, list[MissedMoments]] = {}
        for row in await self._ask(queries.missed(await self._within(which))):
            found.setdefault(row["job_name"], []).append(queries.read_missed(row))
        return {job: tuple(missed) for job, missed in found.items()}

    async def histogram(self, which: Filter, *, column: int = 60) -> tuple[OutcomeCount, ...]:
        """Return the number of runs of each outcome by ``column`` seconds, counted by the database.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        rows = await self._ask(queries.histogram(await self._within(which), column))
        return tuple(OutcomeCount(row["slot"], row["result"], row["runs"]) for row in rows)

    async def durations(self, which: Filter, *, column: int = 60) -> tuple[DurationCount, ...]:
        """Return how long runs took by ``column`` seconds, the oldest first, as the database has ranked them.

        Raises:
            InvalidSetting: a filter makes no sense.
        """
        rows = await self._ask(queries.durations(await self._within(which), column))
        found = [DurationCount(*row.values()) for row in rows]
        return tuple(sorted(found, key=attrgetter("column")))

    async def first(self, which: Filter = Filter()) -> datetime | None:  # noqa: B008
        """Return when the oldest run began; None if there is none."""
        (row,) = await self._ask(queries.first(await self._within(which)))
        return queries.read_first(row)

    async def job_names(self) -> tuple[str, ...]:
        """Return the names of the jobs that have a history."""
        rows = await self._ask(queries.job_names(await self._within(Filter())))
        return tuple(row["job_name"] for row in rows)

    async def prune(self, *, days: float | None = None, rows: int | None = None) -> int:
        """Remove rows older than ``days``, and all but the newest ``rows`` of each table; return how many were removed.

        Raises:
            InvalidSetting: one of them is not above 0.
        """
        replace(self.settings, retention_days=days, retention_rows=rows)  # which looks at them
        await self.prepare()
        removed = 0
        for table, time in ((RUNS, RUNS.c.start_time), (STATES, STATES.c.creation_time)):
            if days is not None:
                oldest = naive(max(0.0, self._clock.now() - days * 86_400))
                removed += await self._remove(table, select(table.c.id).where(time < oldest))
            if rows is not None:
                newer = min(rows, sys.maxsize) - 1
                newest = await self._ask(select(time.label("time")).order_by(time.desc()).offset(newer).limit(1))
                if newest and newest[0]["time"] is not None:
                    removed += await self._remove(table, select(table.c.id).where(time < newest[0]["time"]))
        return removed

    async def write(self, batch: Batch) -> None:
        """Write all of a batch or nothing; writing it again does no harm."""
        await self.prepare()
        batch.fit(self.widths)
        with self._asking(about_rows=True):
            async with self._writing() as connection:
                await self._writes.all_of(batch, connection)

    async def _remove(self, table: Table, which: Any) -> int:
        removed = 0
        while True:
            with self._asking():
                async with self._writing() as connection:
                    found = await connection.scalars(which.limit(ROWS_PER_REMOVAL))
                    keys = found.all()
                    if keys:
                        await connection.execute(delete(table).where(table.c.id.in_(keys)))
            removed += len(keys)
            if len(keys) < ROWS_PER_REMOVAL:
                return removed

    async def _within(self, which: Filter) -> Filter:
        """Return the filter with the store's scope, for the tables as they are."""
        await self.prepare(to_read=True)
        if self.scope.jobs is not None:
            which = replace(which, jobs=self.scope.jobs)
        if self.scope.namespace is not None:
            which = replace(which, namespace=self.scope.namespace, unnamed=self.scope.unnamed)
        if self._named or which.namespace is None:
            return which
        # in tables without namespaces no row has one
        if which.unnamed:
            return replace(which, namespace=None)
        return replace(which, namespace=None, until=BEFORE_ALL)

    async def _ask(self, question: Any) -> Sequence[Any]:
        await self.prepare(to_read=True)
        if not self._named:
            question = queries.without_namespaces(question)
        with self._asking():
            async with self._connected() as connection:
                found = await connection.execute(question)
                return found.mappings().all()

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        async with self._connected() as plain:
            connection = await plain.execution_options(writing=True)
            async with connection.begin():
                yield connection

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection; whatever fails until then, as by a TypeError for an option, is not the fault of rows."""
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self._engine.connect())
            except TimeoutError:
                raise  # to the caller, who knows the time limit
            except Exception as error:
                reason = without_password(self._unreachable(error).reason, self._engine.url)
                raise EventStoreUnreachable(self.settings.url, reason) from error
            yield connection

    @contextmanager
    def _asking(self, *, about_rows: bool = False) -> Iterator[None]:
        """Give the block a time limit, and turn the errors of databases and drivers into ours.

        ``about_rows`` says that the block writes rows, so that their values may be wrong.
        """
        try:
            with fail_after(self.settings.write_timeout):
                yield
        except TimeoutError:
            reason = f"no answer within {self.settings.write_timeout:g} s"
            raise EventStoreUnreachable(self.settings.url, reason) from None
        except (SQLAlchemyError, OSError, UnicodeError, OverflowError) as error:
            raise self._unreachable(error, refused=about_rows and is_about_values(error)) from error

    def _unreachable(self, error: Exception, *, refused: bool = False) -> EventStoreUnreachable:
        cause: BaseException = error
        if isinstance(error, DBAPIError):
            cause = error.orig or error
            self._prepared = False  # the database may have been replaced, or have lost its tables
        return EventStoreUnreachable(self.settings.url, explained(cause), refused=refused)
