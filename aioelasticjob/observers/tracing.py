"""OpenTelemetry spans of runs and of their batches, if the program has set OpenTelemetry up; otherwise nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, cast

from aioelasticjob.errors import error_text
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.context import Context
from aioelasticjob.logging import logger
from aioelasticjob.model import Outcome

if TYPE_CHECKING:
    import opentelemetry.context
    from opentelemetry import trace
    from opentelemetry.util.types import AttributeValue

PREFIX = "aioelasticjob."

log = logger(__name__)


def find_tracer(limited_log: LimitedLog) -> Spans | None:
    """Return an object that makes spans; None unless a tracer provider has been set in this process before.

    ``limited_log`` limits the lines about spans that cannot be recorded.
    """
    if "opentelemetry.trace" not in sys.modules:  # then no tracer provider can have been set
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Spans(trace.get_tracer("aioelasticjob", tracer_provider=provider), limited_log)


class Spans:
    """Makes the spans of an application."""

    def __init__(self, tracer: trace.Tracer, limited_log: LimitedLog) -> None:
        self._tracer = tracer
        self._limited_log = limited_log

    @contextmanager
    def run(self, context: Context, job_type: str) -> Iterator[Callable[[Outcome], None]]:
        """Make the span of one run, of one item or of all items; this yields a function that takes the outcome."""
        from opentelemetry.context import Context as Nothing
        from opentelemetry.trace import StatusCode

        # the run gets a trace of its own: its task may have inherited the span in which the application was started
        span = self._start(f"run {context.job_name}", _attributes(context, job_type), Nothing())
        with _entered(span):
            outcome = Outcome.CANCELLED

            def ended(how: Outcome) -> None:
                nonlocal outcome
                outcome = how

            try:
                yield ended
            finally:
                with _harmless(self._limited_log):
                    span.set_attribute(PREFIX + "outcome", outcome.value)
                    if outcome is not Outcome.COMPLETED:
                        span.set_status(StatusCode.ERROR, outcome.value)
                    span.end()

    def batch(self, context: Context, records: int) -> BatchSpan:
        """Begin the span of a batch, below the present one; it ends when it is told to."""
        attributes: dict[str, AttributeValue] = {PREFIX + "job": context.job_name, PREFIX + "records": records}
        return BatchSpan(self._start(f"batch {context.job_name}", attributes), self._limited_log)

    def failed(self, error: BaseException) -> None:
        """Note a failure on the present span."""
        from opentelemetry.trace import get_current_span

        with _harmless(self._limited_log):
            get_current_span().record_exception(error)

    def _start(
        self, name: str, attributes: Mapping[str, AttributeValue], context: opentelemetry.context.Context | None = None
    ) -> trace.Span:
        from opentelemetry.trace import INVALID_SPAN

        span: trace.Span = INVALID_SPAN
        with _harmless(self._limited_log):
            span = self._tracer.start_span(name, context=context, attributes=attributes)
        return span


class BatchSpan:
    """The span of a batch, whose records are processed by several tasks."""

    __slots__ = ("_limited_log", "_span")

    def __init__(self, span: trace.Span, limited_log: LimitedLog) -> None:
        self._span = span
        self._limited_log = limited_log

    def entered(self) -> AbstractContextManager[object]:
        """Make spans that are opened within the block children of the batch's span."""
        return _entered(self._span)

    def end(self, failed: int) -> None:
        """End the span, with the number of records that have failed for good."""
        with _harmless(self._limited_log):
            self._span.set_attribute(PREFIX + "failed", failed)
            self._span.end()


def _entered(span: trace.Span) -> AbstractContextManager[object]:
    """Make spans that are opened within the block children of ``span``."""
    from opentelemetry.trace import use_span

    kept = use_span(span, record_exception=False, set_status_on_exception=False)
    return cast("AbstractContextManager[object]", kept)


@contextmanager
def _harmless(limited_log: LimitedLog) -> Iterator[None]:
    """Log an error of a span processor, which is users' code, and go on."""
    try:
        with UserCode("the tracer"):
            yield
    except Exception as error:
        text = "a span could not be recorded, and runs go on without it"
        if limited_log.admits(log, None, f"{text}: {type(error).__name__}"):
            log.error("%s: %s", text, error_text(error), extra={"reason": error_text(error)})


def _attributes(context: Context, job_type: str) -> dict[str, AttributeValue]:
    return {
        PREFIX + "job": context.job_name,
        PREFIX + "job_type": job_type,
        PREFIX + "instance": context.instance,
        PREFIX + "items": context.claimed,
        PREFIX + "task_id": context.task_id,
        PREFIX + "source": context.source.value,
        PREFIX + "fire_time": context.fire_time.isoformat(),
    }
