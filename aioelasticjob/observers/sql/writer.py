"""Writes events to the event store in the background: jobs never wait for the database."""

from __future__ import annotations

import socket
from asyncio import get_running_loop
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Protocol

from anyio import CancelScope, Event, create_task_group, move_on_after, sleep
from anyio.lowlevel import checkpoint

from aioelasticjob.clock import Clock
from aioelasticjob.errors import ElasticJobError, error_text
from aioelasticjob.events import EventReader, Events
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import time_text
from aioelasticjob.logging import logger
from aioelasticjob.observers.settings import EventStoreSettings
from aioelasticjob.observers.sql.rows import Batch, described, halved
from aioelasticjob.observers.sql.store import EventStore, EventStoreUnreachable, open_store

EVENTS_PER_TURN = 100
"""Events that are made into rows between two turns of the loop."""
FIRST_PAUSE = 0.5
"""Seconds after which a database that did not answer is tried again; twice as many each time."""
LONGEST_PAUSE = 30.0
"""The most seconds between two such attempts."""
PRUNE_INTERVAL = 3600.0
"""Seconds between two removals of old rows; the first one comes at a random moment, to spread processes."""
FINAL_WRITE_TIMEOUT = 1.0
"""Seconds for writing the remaining events when the application is being cancelled."""
LATE = 3.0
"""Seconds that rows may wait.  If they wait for longer, the store counts as not written, though no write has failed."""
SILENT = "the database takes the rows too slowly, or does not answer"
"""Why the store counts as not written then."""
LOSS_SHOWN = 86_400.0
"""Seconds for which a loss of events is shown after the last one."""

log = logger(__name__)


class Table(Protocol):
    """The store that batches are written to."""

    async def write(self, batch: Batch) -> None:
        """Write all of a batch or nothing; writing it again does no harm."""
        ...


@dataclass(slots=True)
class StoreCounts:
    """How many of this process's events were written, dropped or rejected, or wait."""

    written: int = 0
    dropped: int = 0
    """Events that were lost because the database was slow or away for so long that the backlog was full."""
    rejected: int = 0
    """Events that the database has rejected because of their values."""
    waiting: int = 0
    trouble: str = ""
    """Why nothing can be written at present."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Rows that the store has not taken for long."""

    seconds: float
    """For how long the oldest of them has waited."""
    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Events that were lost one shortly after another: the store will never have them."""

    number: int
    first: datetime
    last: datetime
    """When the first and the last of them came."""
    noticed: float
    """When the newest loss was noticed, by the clock of the event loop."""


class Writer:
    """Turns events into rows, and writes the rows: two steps, so that errors with their objects need not be kept."""

    def __init__(
        self, table: Table, listener: EventReader, settings: EventStoreSettings, namespace: str | None = None
    ) -> None:
        self._table = table
        self._listener = listener
        self._settings = settings
        self._namespace = namespace
        self._batches: deque[Batch] = deque()
        self._news = Event()
        self._host = socket.gethostname()
        self._counts = StoreCounts()
        self._loop = get_running_loop()
        self._in_hand: Batch | None = None
        self._troubled_since = 0.0
        """When the oldest rows came that waited when the present trouble began, by the clock of the event loop."""
        self._lost: Lost | None = None
        self._dropped_before = 0
        """How many events had been dropped when the present trouble began."""
        self._dropped_times: tuple[datetime, ...] = ()
        """The first and the last time of what was dropped since rows were written."""
        self._pauses = Random()
        self.limited_log = LimitedLog()
        """Limits the lines that can repeat.  ``recording`` closes it."""
        kind = "the event store comes and goes"
        self._admits = partial(self.limited_log.admits, log, None, kind, each=MOST)

    @property
    def counts(self) -> StoreCounts:
        """The present counts of events."""
        counts = self._counts
        unwritten = self.unwritten
        waiting = sum(batch.events for batch in self._batches) + (self._in_hand.events if self._in_hand else 0)
        return StoreCounts(
            counts.written,
            counts.dropped + self._listener.dropped,
            counts.rejected,
            waiting + len(self._listener),
            "" if unwritten is None else unwritten.why,
        )

    @property
    def unwritten(self) -> Unwritten | None:
        """How long the oldest rows have waited if a write has failed, or takes long; None if all is well."""
        now = self._loop.time()
        if self._counts.trouble:
            return Unwritten(now - self._troubled_since, self._counts.trouble)
        oldest = self._in_hand
        if oldest is None and self._batches:
            oldest = self._batches[0]
        if oldest is None or now - oldest.since <= LATE:
            return None
        return Unwritten(now - oldest.since, SILENT)

    @property
    def lost(self) -> Lost | None:
        """The events that were lost within the last day; None if there were none."""
        lost = self._lost
        if lost is None or self._loop.time() - lost.noticed > LOSS_SHOWN:
            return None
        return lost

    async def gather(self) -> None:
        """Make rows of events, some at a time, until cancelled."""
        while True:
            await self._listener.news()
            await sleep(self._settings.batch_age)
            while len(self._listener):
                await self._gather_some()

    async def write(self) -> None:
        """Write the rows, until cancelled."""
        while True:
            while not self._batches:
                self._news = Event()
                await self._news.wait()
            self._in_hand = self._batches.popleft()
            await self._write(self._in_hand)
            self._in_hand = None

    async def flush(self) -> None:
        """Write the remaining rows; the caller sets a time limit, and has ended ``gather`` and ``write`` before."""
        if self._in_hand is not None:
            self._batches.appendleft(self._in_hand)
            self._in_hand = None
        while len(self._listener):
            await self._gather_some()
        while self._batches:
            await self._write(self._batches[0])
            self._batches.popleft()

    async def _gather_some(self) -> None:
        """Add some events to the newest batch while it is small; never to the batch that is being written."""
        if not self._batches or len(self._batches[-1]) >= self._settings.batch_size:
            self._batches.append(Batch(self._host, self._namespace, since=self._loop.time()))
        batch = self._batches[-1]
        for event in self._listener.take(EVENTS_PER_TURN):
            try:
                batch.add(event)
            except Exception:  # one bad event must not end the writing of the others
                self._counts.rejected += 1
                kind = type(event).__name__
                text = f"the event {kind} cannot be converted to rows of the event store, and is lost"
                if self.limited_log.admits(log, event.job, text):
                    log.exception("%s", text, extra={"kind": kind})
        while len(self._batches) > 1 and sum(map(len, self._batches)) > self._settings.backlog:
            self._drop(self._batches.popleft())
        self._news.set()
        await checkpoint()

    async def _write(self, batch: Batch) -> None:
        """Write a batch, however long the database takes to come back."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._table.write(batch)
            except Exception as error:
                if isinstance(error, EventStoreUnreachable) and error.refused:
                    await self._write_in_parts(batch, error.reason)
                    return
                self._report_error(error, batch)
            else:
                self._count(batch)
                return
            await sleep(pause * self._pauses.uniform(0.8, 1.2))
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _write_in_parts(self, batch: Batch, reason: str) -> None:
        """Find the rows that the database rejects, and write all others."""
        if len(batch) == 1:
            self._counts.rejected += 1
            self._note_loss(batch)
            entry = described(batch)
            text = "the event store refuses a row, which is lost"
            if self.limited_log.admits(log, None, text, each=MOST):
                log.error("%s (%s): %s", text, reason, entry, extra={"reason": reason, "entry": entry})
            return
        for half in halved(batch):
            await self._write(half)

    def _count(self, batch: Batch) -> None:
        self._counts.written += batch.events
        if self._counts.trouble:
            self._counts.trouble = ""
            dropped = self.counts.dropped - self._dropped_before
            text = f"the event store can be written again; dropped meanwhile: {counted(dropped, 'event')}"
            if self._dropped_times:
                first, last = (time_text(time, milliseconds=True) for time in self._dropped_times)
                text += f", from {first} to {last}"
            if self._admits(newest=text):
                log.warning("%s", text, extra={"dropped": dropped})
        self._dropped_times = ()

    def _drop(self, batch: Batch) -> None:
        """Drop the oldest rows; the first time until rows can be written again, a line of the log says so."""
        self._counts.dropped += batch.events
        self._note_loss(batch)
        text = "the events that wait for the event store are more than its backlog"
        if not self._dropped_times and self.limited_log.admits(log, None, text, each=MOST):
            backlog = self._settings.backlog
            log.warning("%s of %s: the oldest are dropped", text, f"{backlog:,}", extra={"backlog": backlog})
        times = [*self._dropped_times, *batch.times()]
        self._dropped_times = (min(times), max(times)) if times else ()

    def _note_loss(self, batch: Batch) -> None:
        """Remember from when to when events were lost, together with earlier losses of the last day."""
        times = [*batch.times()]
        number = max(1, batch.events)
        if (before := self.lost) is not None:
            times += [before.first, before.last]
            number += before.number
        if times:
            self._lost = Lost(number, min(times), max(times), self._loop.time())

    def _report_error(self, error: Exception, batch: Batch) -> None:
        """Log once for each reason that nothing can be written, not at every attempt."""
        trouble = str(error) if isinstance(error, ElasticJobError) else error_text(error)
        if not self._counts.trouble:
            self._dropped_before = self.counts.dropped
            self._troubled_since = batch.since
            backlog = self._settings.backlog
            wait = f"up to {counted(backlog, 'event')} wait until the event store can be written"
            text = f"{_shown(error)}: jobs go on running, and {wait}"
            if self._admits(newest=text):
                log.warning("%s", text, extra={"backlog": backlog})
        self._counts.trouble = trouble


@asynccontextmanager
async def recording(
    settings: EventStoreSettings, events: Events, clock: Clock, namespace: str | None = None
) -> AsyncIterator[tuple[EventStore, Writer]]:
    """Write the events of a namespace's jobs while the block is open; at its end, write the remaining ones."""
    async with open_store(settings, clock=clock) as store:
        listener = EventReader(settings.backlog)
        cancelled = True
        writer = Writer(store, listener, settings, namespace)
        events.attach(listener)
        try:
            async with create_task_group() as tasks:
                for work in (writer.gather, writer.write):
                    tasks.start_soon(work)
                tasks.start_soon(_prune, store)
                yield store, writer
                cancelled = False
                tasks.cancel_scope.cancel()
        finally:
            events.detach(listener)
            with (
                CancelScope(shield=True),
                move_on_after(FINAL_WRITE_TIMEOUT if cancelled else settings.shutdown_timeout),
            ):
                await writer.flush()
            writer.limited_log.close()
            if lost := writer.counts.waiting:
                text = "the application ends before all events were written to the event store: %d are lost"
                log.warning(text, lost, extra={"lost": lost})


async def _prune(store: EventStore) -> None:
    """Remove old rows again and again; if the database does not answer, the next attempt is at the usual time."""
    settings = store.settings
    if settings.retention_days is None and settings.retention_rows is None:
        return
    await sleep(Random().uniform(0.01, 0.1) * PRUNE_INTERVAL)
    while True:
        try:
            if removed := await store.prune(days=settings.retention_days, rows=settings.retention_rows):
                log.info("%d old rows of the event store were removed", removed, extra={"rows": removed})
        except Exception as error:
            text = "old rows of the event store could not be removed: %s"
            log.warning(text, _shown(error), extra={"reason": str(error)})
        await sleep(PRUNE_INTERVAL)


def _shown(error: Exception) -> str:
    return error.with_page() if isinstance(error, ElasticJobError) else error_text(error)
