"""An application's event store; SQLAlchemy is imported only if there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioelasticjob.clock import Clock
from aioelasticjob.events import Events
from aioelasticjob.observers.settings import EventStoreSettings

if TYPE_CHECKING:
    from aioelasticjob.observers.sql.store import EventStore
    from aioelasticjob.observers.sql.writer import Lost, StoreCounts, Unwritten, Writer


class Recorder:
    """An event store that is open while the application runs.

    Raises:
        InvalidSetting: the URL makes no sense, or what serves it is not installed.
    """

    def __init__(self, given: str | EventStoreSettings) -> None:
        self.settings = EventStoreSettings.of(given)
        self.store: EventStore | None = None
        self._writer: Writer | None = None

    @property
    def counts(self) -> StoreCounts | None:
        """How many events were written, dropped and rejected; None before the first."""
        return None if self._writer is None else self._writer.counts

    @property
    def unwritten(self) -> Unwritten | None:
        """What the store has not taken for long; None if all is well, and while the application does not run."""
        return None if self._writer is None or self.store is None else self._writer.unwritten

    @property
    def lost(self) -> Lost | None:
        """The events that were lost within the last day; None without any, and while the application does not run."""
        return None if self._writer is None or self.store is None else self._writer.lost

    @asynccontextmanager
    async def open(self, events: Events, clock: Clock, namespace: str) -> AsyncIterator[None]:
        """Write the events of a namespace's jobs to the store while the block is open."""
        from aioelasticjob.observers.sql.writer import recording

        async with recording(self.settings, events, clock, namespace) as (self.store, self._writer):
            try:
                yield
            finally:
                self.store = None
