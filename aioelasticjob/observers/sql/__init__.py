"""The event store: the history of runs in a database, in the two tables that Elastic-Job's users know."""

from aioelasticjob.model import RUNNING
from aioelasticjob.observers.settings import EventStoreSettings, masked
from aioelasticjob.observers.sql.history import (
    DurationCount,
    Filter,
    OutcomeCount,
    Page,
    RunDetails,
    RunEntry,
    SparklineEntry,
    StateEntry,
)
from aioelasticjob.observers.sql.store import EventStore, EventStoreUnreachable, open_store

__all__ = [
    "RUNNING",
    "DurationCount",
    "EventStore",
    "EventStoreSettings",
    "EventStoreUnreachable",
    "Filter",
    "OutcomeCount",
    "Page",
    "RunDetails",
    "RunEntry",
    "SparklineEntry",
    "StateEntry",
    "masked",
    "open_store",
]
