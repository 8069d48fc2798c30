"""Prometheus metrics of the console itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from aioelasticjob.console.watching.own_health import ConsoleHealth
from aioelasticjob.observers.metrics import prometheus_library

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "aioelasticjob_console_"
HELP: Final = {
    "database_up": "1 while the console's own database can be written, else 0.",
    "live_pages": "Live pages that are open.",
    "registry_up": "1 while the registry answers the console, else 0.",
    "event_store_up": "1 while the registry's event store answers the console, else 0.",
    "jobs": "Jobs of the registry.",
    "processes_with_problems": "Processes that cannot do something at present, as they say themselves.",
    "events_not_written": "Events that wait in processes because the event store does not take them.",
}
"""Every metric without its prefix."""


def render(health: ConsoleHealth, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics as text, and its content type, in the format that the header ``Accept`` asks for.

    Raises:
        InvalidSetting: prometheus-client is not installed.
    """
    prometheus = prometheus_library()
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_Measured(health, prometheus.metrics_core))
    encode, content_type = prometheus.exposition.choose_encoder(accept)
    return encode(registry), content_type


class _Measured:
    """A Prometheus collector of one measurement."""

    def __init__(self, health: ConsoleHealth, core: Any) -> None:
        self._health = health
        self._core = core

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        health = self._health
        yield self._gauge("database_up", value=int(health.database is None))
        yield self._gauge("live_pages", value=health.live_pages)
        up = self._gauge("registry_up", "registry")
        stores = self._gauge("event_store_up", "registry")
        jobs = self._gauge("jobs", "registry")
        processes = self._gauge("processes_with_problems", "registry")
        unwritten = self._gauge("events_not_written", "registry")
        for one in health.registries:
            up.add_metric([one.name], int(one.lost is None))
            jobs.add_metric([one.name], one.jobs)
            processes.add_metric([one.name], one.processes)
            unwritten.add_metric([one.name], one.unwritten)
            if one.has_store:
                stores.add_metric([one.name], int(one.store_lost is None))
        yield from (up, stores, jobs, processes, unwritten)

    def _gauge(self, name: str, *labels: str, value: float | None = None) -> Any:
        return self._core.GaugeMetricFamily(PREFIX + name, HELP[name], value, labels or None)
