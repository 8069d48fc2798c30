"""Prometheus metrics of an application's jobs.  A fire only adds an entry to a queue, which is worked off later.

Counters and gauges are read when a collector asks for them, from counts that the application keeps anyway.  Histograms
are filled from the queued events, some at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Began, Counts, Ended, Events, JobEvent
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers.vitals import Vitals
from aioelasticjob.registry.session_keeper import SessionState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Histogram
    from prometheus_client.metrics_core import Metric

    from aioelasticjob.ground.rates import Rate

PREFIX = "aioelasticjob_"
TICK_SECONDS = 0.5
"""Seconds between two looks at the queue, and between two measurements of the loop's lag."""
EVENTS_PER_TURN = 200
"""Events that are counted between two turns of the loop."""
MAX_WAITING_EVENTS = 50_000
"""Events that may wait; beyond that the oldest are not counted in histograms."""
LATENESS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
DURATIONS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)
RESULTS = ("delivered", "failed", "dropped")
"""What becomes of failures for error handlers."""
LAG = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
HELP = {
    "fires": "Claims of items, by source: SCHEDULE, TRIGGER, MISFIRE (late runs), FAILOVER (rescues), BACKFILL.",
    "runs": "Items' runs that ended, by outcome.",
    "failed_attempts": "Attempts that failed of jobs with a retry, the last one of a failed run among them.",
    "misfires": "Scheduled moments that passed without a run, added up over the items concerned.",
    "catch_ups": "Fires for a moment at which no instance was up.",
    "rescues": "Items taken over that were cut off elsewhere.",
    "alerts": "Failures for error handlers that send messages, by result; dropped ones are only in the log.",
    "fire_lateness_seconds": "From the scheduled moment of a fire by cron to the call of its handlers.",
    "run_duration_seconds": "How long the runs of items took.",
    "items_held": "Items assigned to this instance.",
    "leader": "1 if this instance leads the job, else 0.",
    "executor_calls_running": "Calls of plain functions that run, by executor: thread, process.",
    "executor_calls_waiting": "Calls of plain functions that wait for a free thread or process, by executor.",
    "running": "1 while the application runs, else 0.",
    "session_state": "1 for the present state of the session with the registry, 0 for the others.",
    "session_margin_seconds": "Until handlers would be cancelled if the registry did not answer any more.",
    "registry_requests": "Requests sent to the registry since the application was started, heartbeats among them.",
    "clock_skew_seconds": "This host's clock minus the registry's.",
    "event_loop_lag_seconds": "By how much the event loop was late.",
    "dataflow_records": "Records that are done, by result: succeeded, failed, dead (of the failed).",
    "dataflow_records_per_second": "Records through per second, over the last ten seconds of the run.",
    "dataflow_records_in_flight": "Records in process.",
    "dataflow_records_waiting": "Records fetched and not yet begun.",
    "dataflow_lag_seconds": "Since the oldest record that is not through was fetched.",
    "event_store_written": "Events written to the event store.",
    "event_store_dropped": "Events lost because the database was slow or absent for too long.",
    "event_store_rejected": "Events that the database did not take.",
    "event_store_waiting": "Events that wait to be written.",
    "event_store_up": "1 while the event store takes events, else 0.",
    "event_store_unwritten_seconds": "For how long the oldest events have waited that the event store does not take.",
    "requests_refused": "Kinds of requests that the registry refuses at present, by job.",
}
"""Every metric without its prefix and the suffixes that Prometheus' libraries add."""


class Observed(Protocol):
    """What is measured: an ElasticJob."""

    @property
    def _events(self) -> Events: ...

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What has happened to each job."""
        ...

    @property
    def rates(self) -> Mapping[str, tuple[Rate, ...]]:
        """How records flow, by job."""
        ...

    @property
    def vitals(self) -> Vitals:
        """The present state of the process."""
        ...


class Metrics:
    """The metrics of one application, in a Prometheus registry of their own unless one is given.

    Raises:
        InvalidSetting: prometheus-client is not installed.
    """

    def __init__(self, app: Observed, *, registry: CollectorRegistry | None = None) -> None:
        self._prometheus = prometheus_library()
        self.registry: CollectorRegistry = registry or self._prometheus.CollectorRegistry(auto_describe=False)
        self._app = app
        self._late = self._histogram("fire_lateness_seconds", LATENESS, ["job"])
        self._took = self._histogram("run_duration_seconds", DURATIONS, ["job", "outcome"])
        self._lag = self._histogram("event_loop_lag_seconds", LAG, [])
        self._waiting: deque[JobEvent] = deque(maxlen=MAX_WAITING_EVENTS)
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the next tick is scheduled."""
        self._seen: tuple[Metric, ...] = ()
        self.registry.register(_LastMeasurement(self))
        app._events.attach(self)

    def put(self, event: JobEvent) -> None:
        """Take an event; it is counted later, when the loop is not busy with a burst of fires."""
        if isinstance(event, Began | Ended):
            self._waiting.append(event)
        if self._loop is None:
            self._wind_up()

    def take_in(self, most: int | float = inf) -> None:
        """Count the waiting events in the histograms."""
        waiting = self._waiting
        while waiting and most > 0:
            event = waiting.popleft()
            most -= 1
            if isinstance(event, Ended):
                self._took.labels(event.job, event.outcome.value).observe(max(0.0, event.seconds))
            elif isinstance(event, Began) and event.source == "SCHEDULE":
                self._late.labels(event.job).observe(max(0.0, event.late))

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text, and its content type, in the format that the header ``Accept`` asks for.

        Writing the text of a thousand jobs takes a tenth of a second: a thread does that, so the loop is not blocked.
        """
        self.look()
        encode, content_type = self._prometheus.exposition.choose_encoder(accept)
        return await to_thread.run_sync(encode, self.registry), content_type

    def look(self) -> None:
        """Note the present state, in the event loop that it belongs to; ``render`` calls this."""
        self.take_in()
        self._seen = tuple(_standing(self._app, self._prometheus.metrics_core))
        if self._loop is None or self._loop.is_closed():  # a loop may have ended before its tick was due
            self._wind_up()

    def close(self) -> None:
        """Take no more events, and end the ticks."""
        self._app._events.detach(self)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as an ASGI application, to be mounted: ``Mount("/metrics", metrics.asgi)``."""
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if allowed := scope["method"] in ("GET", "HEAD"):
            body, content_type = await self.render(headers.get(b"accept", b"").decode("latin-1"))
        else:
            body = b"GET or HEAD\n"
            content_type = "text/plain"
        answer = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200 if allowed else 405, "headers": answer})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def aiohttp(self, request: Any) -> Any:
        """Answer as an aiohttp handler: ``application.router.add_get("/metrics", metrics.aiohttp)``."""
        from aiohttp import web

        body, content_type = await self.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _histogram(self, name: str, buckets: tuple[float, ...], labels: list[str]) -> Histogram:
        made: Histogram = self._prometheus.Histogram(
            PREFIX + name, HELP[name], labels, buckets=buckets, registry=self.registry
        )
        return made

    def _wind_up(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        due = loop.time() + TICK_SECONDS
        loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lag.observe(max(0.0, loop.time() - due))
        self._loop = None
        self._take_turns(loop)
        if self._app.vitals.running:  # otherwise the next event, or the next call of ``render``, starts the ticks again
            self._wind_up()

    def _take_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        self.take_in(EVENTS_PER_TURN)
        if self._waiting:
            loop.call_soon(self._take_turns, loop)


class _LastMeasurement:
    """A Prometheus collector: gives the state that was noted in the event loop to a collector in any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics._seen


def _standing(app: Observed, core: Any) -> Iterator[Metric]:
    """Return the metrics that are read from the application rather than counted here."""
    vitals = app.vitals
    yield from _of_counts(app.counts, [job.name for job in vitals.jobs], core)
    held = _gauge(core, "items_held", "job")
    leads = _gauge(core, "leader", "job")
    for job in vitals.jobs:
        held.add_metric([job.name], job.held)
        leads.add_metric([job.name], int(job.leads))
    refused = _gauge(core, "requests_refused", "job")
    for job in vitals.jobs:
        refused.add_metric([job.name], vitals.refused.get(job.name, 0))
    busy, waiting = (_gauge(core, f"executor_calls_{state}", "executor") for state in ("running", "waiting"))
    for executor, calls in vitals.calls.items():
        busy.add_metric([executor], calls.borrowed_tokens)
        waiting.add_metric([executor], calls.tasks_waiting)
    states = _gauge(core, "session_state", "state")
    for state in SessionState:
        states.add_metric([state.value], int(vitals.state is state))
    yield from (held, leads, refused, busy, waiting, states)
    yield _gauge(core, "running", value=int(vitals.running))
    yield _gauge(core, "session_margin_seconds", value=vitals.margin)
    yield _counter(core, "registry_requests", value=vitals.requests)
    if vitals.skew is not None:
        yield _gauge(core, "clock_skew_seconds", value=vitals.skew)
    yield from _of_rates(app.rates, core)
    if (store := vitals.store) is not None:
        yield _counter(core, "event_store_written", value=store.written)
        yield _counter(core, "event_store_dropped", value=store.dropped)
        yield _counter(core, "event_store_rejected", value=store.rejected)
        yield _gauge(core, "event_store_waiting", value=store.waiting)
        yield _gauge(core, "event_store_up", value=int(not store.trouble))
        yield _gauge(core, "event_store_unwritten_seconds", value=vitals.unwritten)


def _of_counts(counts: Mapping[str, Counts], jobs: Iterable[str], core: Any) -> Iterator[Metric]:
    """Return the counters of jobs.  Each is there from the start, at 0: Prometheus cannot see a rise to the first 1."""
    fires = _counter(core, "fires", "job", "source")
    runs = _counter(core, "runs", "job", "outcome")
    misfires = _counter(core, "misfires", "job")
    catch_ups = _counter(core, "catch_ups", "job")
    rescues = _counter(core, "rescues", "job")
    alerts = _counter(core, "alerts", "job", "result")
    failed_attempts = _counter(core, "failed_attempts", "job")
    for job in dict.fromkeys((*jobs, *counts)):
        count = counts.get(job) or Counts()
        for source in FireSource:
            fires.add_metric([job, source.value], count.fires[source])
        for outcome in Outcome:
            runs.add_metric([job, outcome.value], count.runs[outcome])
        for result in RESULTS:
            alerts.add_metric([job, result], count.alerts[result])
        failed_attempts.add_metric([job], count.failed_attempts)
        misfires.add_metric([job], count.misfired)
        catch_ups.add_metric([job], count.caught_up)
        rescues.add_metric([job], count.fires[FireSource.FAILOVER])
    yield from (fires, runs, failed_attempts, misfires, catch_ups, rescues, alerts)


def _of_rates(rates: Mapping[str, tuple[Rate, ...]], core: Any) -> Iterator[Metric]:
    through = _counter(core, "dataflow_records", "job", "item", "result")
    gauges = {
        "per_second": _gauge(core, "dataflow_records_per_second", "job", "item"),
        "in_flight": _gauge(core, "dataflow_records_in_flight", "job", "item"),
        "waiting": _gauge(core, "dataflow_records_waiting", "job", "item"),
        "lag": _gauge(core, "dataflow_lag_seconds", "job", "item"),
    }
    for job, items in rates.items():
        for rate in items:
            labels = [job, "all" if rate.item is None else str(rate.item)]
            for result in ("succeeded", "failed", "dead"):
                through.add_metric([*labels, result], getattr(rate, result))
            for name, gauge in gauges.items():
                gauge.add_metric(labels, getattr(rate, name))
    yield from (through, *gauges.values())


def _counter(core: Any, name: str, *labels: str, value: float | None = None) -> Any:
    return core.CounterMetricFamily(PREFIX + name, HELP[name], value, labels or None)


def _gauge(core: Any, name: str, *labels: str, value: float | None = None) -> Any:
    return core.GaugeMetricFamily(PREFIX + name, HELP[name], value, labels or None)


def prometheus_library() -> Any:
    """Return prometheus-client with the modules that are needed of it.

    Raises:
        InvalidSetting: it is not installed.
    """
    try:
        for module in ("prometheus_client.exposition", "prometheus_client.metrics_core"):
            import_module(module)
        return import_module("prometheus_client")
    except ImportError:
        raise InvalidSetting(
            "metrics", "on", "needs prometheus-client, which is not installed: pip install 'aioelasticjob[metrics]'"
        ) from None
