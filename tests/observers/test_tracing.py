"""Spans of runs: one trace each, with what the handler opens below, and nothing at all unless it was set up."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, Outcome
from aioelasticjob.engine.executors import Executors
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.observers.tracing import PREFIX, find_tracer
from aioelasticjob.testing import VirtualClock
from tests.engine.dataflow_runs import DataflowRun, dataflow, run_dataflow
from tests.support.simulated_jobs import Handler, SimulatedJobs, simulate


@pytest.fixture
def provider() -> TracerProvider:
    return TracerProvider()


@pytest.fixture
def spans(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A program that has set up OpenTelemetry, and what it exports."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def runs(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == "run job"]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return {name.removeprefix(PREFIX): value for name, value in (span.attributes or {}).items()}


def played(handler: Handler, until: float = 15, **settings: object) -> SimulatedJobs:
    async def scene(here: SimulatedJobs) -> None:
        with trace.get_tracer("host").start_as_current_span("start of the host"):
            app = here.app(handler, **{"cron": "10 * * * * ?", **settings})
            async with app.running():
                await here.until(until)

    return simulate(scene)


async def writes(context: ItemContext) -> None:
    with trace.get_tracer("handler").start_as_current_span("write"):
        await anyio.sleep(2)


def test_each_run_of_an_item_is_a_trace_and_what_its_handler_does_is_below(spans: InMemorySpanExporter) -> None:
    played(writes, sharding_total_count=2)
    found = runs(spans)
    assert sorted(attributes(span)["items"] for span in found) == [(0,), (1,)]  # type: ignore[type-var]
    for span in found:
        fields = attributes(span)
        assert (fields["job"], fields["job_type"], fields["source"], fields["outcome"]) == (
            "job",
            "SIMPLE",
            "SCHEDULE",
            "completed",
        )
        assert fields["fire_time"] == "2026-01-01T00:00:10+00:00"
        assert str(fields["task_id"]).startswith(f"job@-@{fields['items'][0]}@-@READY@-@{fields['instance']}")  # type: ignore[index]
        assert span.parent is None
        assert span.status.status_code is StatusCode.UNSET
    below = [span for span in spans.get_finished_spans() if span.name == "write"]
    assert {span.parent.span_id for span in below if span.parent} == {span.context.span_id for span in found}


async def all_at_once(context: InstanceContext) -> None: ...


def test_a_run_of_all_items_is_one_trace(spans: InMemorySpanExporter) -> None:
    played(all_at_once, per="instance", sharding_total_count=3)
    (span,) = runs(spans)
    assert attributes(span)["items"] == (0, 1, 2)


async def fails(context: ItemContext) -> None:
    raise ValueError("bad record")


async def hangs(context: ItemContext) -> None:
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("handler", "settings", "outcome", "exceptions"),
    [
        (fails, {}, "failed", ["ValueError"]),
        (hangs, {"timeout": 1}, "timed out", ["TimeoutError"]),
        (hangs, {"shutdown_timeout": 1}, "cancelled", []),
    ],
)
def test_a_run_that_does_not_come_to_its_end_is_an_error(
    spans: InMemorySpanExporter, handler: Handler, settings: dict[str, object], outcome: str, exceptions: list[str]
) -> None:
    played(handler, **settings)
    (span,) = runs(spans)
    assert attributes(span)["outcome"] == outcome
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, outcome)
    assert [(event.attributes or {})["exception.type"] for event in span.events] == exceptions


@pytest.mark.parametrize("failing", [False, True])
def test_a_batch_is_below_its_run_and_its_records_are_below_the_batch(
    spans: InMemorySpanExporter, failing: bool
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = ElasticJob(here.address, clock=VirtualClock())

        @app.dataflow("job", cron="10 * * * * ?", concurrency=2)
        async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
            yield [1, 2, 3]
            yield [4]

        @fetch.process
        async def process(context: ItemContext, record: int) -> bool:
            with trace.get_tracer("handler").start_as_current_span(f"write {record}"):
                await anyio.sleep(1)
            if failing and record == 4:
                raise ValueError("bad record")
            return True

        async with app.running():
            await here.until(20)

    simulate(scene)
    (run,) = runs(spans)
    assert (attributes(run)["job_type"], attributes(run)["outcome"]) == ("DATAFLOW", "completed")
    below = {span.name: span for span in spans.get_finished_spans() if span.name.startswith("write")}
    batches = [span for span in spans.get_finished_spans() if span.name == "batch job"]
    assert [(attributes(one)["records"], attributes(one)["failed"]) for one in batches] == [(3, 0), (1, int(failing))]
    assert {one.parent and one.parent.span_id for one in batches} == {run.context.span_id}
    assert [len(one.events) for one in batches] == [0, int(failing)]
    for batch, records in zip(batches, ((1, 2, 3), (4,)), strict=True):
        for record in records:
            assert (parent := below[f"write {record}"].parent) is not None
            assert parent.span_id == batch.context.span_id


def test_the_span_of_a_batch_that_was_cut_off_ends_with_the_run(spans: InMemorySpanExporter) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = ElasticJob(here.address, clock=VirtualClock())

        @app.dataflow("job", cron="10 * * * * ?", timeout=2)
        async def fetch(context: ItemContext) -> list[int]:
            return [1]

        @fetch.process
        async def process(context: ItemContext, record: int) -> None:
            await anyio.sleep_forever()

        async with app.running():
            await here.until(20)

    simulate(scene)
    assert [span.name for span in spans.get_finished_spans()] == ["batch job", "run job"]
    (run,) = runs(spans)
    assert attributes(run)["outcome"] == "timed out"


def test_the_span_of_a_dataflow_that_somebody_has_cancelled_says_so(spans: InMemorySpanExporter) -> None:
    async def fetch(context: ItemContext) -> list[int]:
        return [1]

    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep_forever()

    async def stop() -> None:
        await anyio.sleep(1)
        cancelled.execution.stop({0})

    executors = Executors(tracer=find_tracer(LimitedLog()))
    cancelled = DataflowRun(dataflow(), fetch, process, executors=executors)
    assert run_dataflow(cancelled, stop).outcomes == {0: Outcome.STOPPED}
    assert attributes(spans.get_finished_spans()[-1])["outcome"] == "stopped"


@pytest.mark.parametrize("provider", [trace.ProxyTracerProvider(), trace.NoOpTracerProvider()])
def test_without_a_provider_there_are_no_spans(provider: trace.TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    assert find_tracer(LimitedLog()) is None


def test_what_nobody_has_imported_is_not_imported_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert find_tracer(LimitedLog()) is None
    assert "opentelemetry.trace" not in sys.modules


@pytest.mark.parametrize("begins", [True, False])
def test_a_span_processor_that_fails_ends_no_run(
    provider: TracerProvider, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, *, begins: bool
) -> None:
    class Bad(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            if begins:
                raise SystemExit(3)

        def on_end(self, span: object) -> None:
            if not begins:
                raise SystemExit(3)

    ran: list[int] = []

    async def handler(context: ItemContext) -> None:
        ran.append(context.item)

    async def scene(here: SimulatedJobs) -> None:
        provider.add_span_processor(Bad())
        async with here.app(handler, cron="* * * * * ?").running():
            await here.until(20.5)

    simulate(scene)
    assert ran == [0] * 20
    text = "a span could not be recorded, and runs go on without it"
    line, count = [line for line in caplog.messages if text in line]
    assert line.startswith(f"{text}: ")
    assert count.startswith("19 more lines were left out: ")
