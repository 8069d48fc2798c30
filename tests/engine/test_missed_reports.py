"""Missed moments are reported in the log, as events, and to the error handler of jobs that want it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.core.commands import Report
from aioelasticjob.core.reasons import Newest
from aioelasticjob.core.requests import Span
from aioelasticjob.core.timeline import Passed
from aioelasticjob.engine.missed_reports import _consequence, _moments, left_of
from aioelasticjob.error_handlers import Failure, Options, find
from aioelasticjob.error_handlers.alert_limit import INTERVAL
from aioelasticjob.events import MOMENTS_COUNTED, Began, Misfired
from aioelasticjob.model import FireSource
from aioelasticjob.testing import VirtualCluster, simulated
from tests.error_handlers.failures import delivered_by
from tests.schedules.made import schedule


class Alerts:
    """An error handler that notes what it is called for."""

    def __init__(self) -> None:
        self.sent: list[Failure] = []

    async def send(self, failure: Failure, options: Options) -> None:
        self.sent.append(failure)


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alerts]:
    noted = Alerts()
    delivered_by(monkeypatch, pager=noted.send)
    yield noted
    find.cache_clear()


async def too_slow(context: ItemContext) -> None:
    """Miss every second moment."""
    await sleep(12)


@simulated
async def _missing(cluster: VirtualCluster, seconds: float, **settings: str) -> None:
    """Run a job that misses moments, with one reason for all of them."""
    app = ElasticJob("embedded://")
    app.add(too_slow, name="slow", cron="0/10 * * * * ?", misfire=False, error_handler="pager", **settings)  # type: ignore[arg-type]
    await cluster.start(app)
    await sleep(seconds)
    assert len([event for event in cluster.events if isinstance(event, Misfired)]) > seconds / 25


def test_missed_moments_are_alerts_only_if_the_job_says_so(alerts: Alerts) -> None:
    _missing(VirtualCluster(), 65)
    assert alerts.sent == []
    _missing(VirtualCluster(), 65, alert_on="failed,missed")
    (alert,) = alerts.sent
    assert (alert.what, alert.items, alert.task_id) == ("missed", (0,), "")
    assert alert.subject.startswith("slow: item 0 missed the run of ")
    assert alert.subject.endswith(": the last run was still going on; it is not run")
    assert "Traceback" not in alert.text


def test_a_missed_moment_has_one_line_in_the_log_also_if_it_is_an_alert(
    alerts: Alerts, caplog: pytest.LogCaptureFixture
) -> None:
    _missing(VirtualCluster(), 65, alert_on="missed")
    assert len(alerts.sent) == 1
    assert len([line for line in caplog.messages if " missed the run of " in line]) == 1


def test_what_was_left_out_is_counted_in_the_next_alert(alerts: Alerts) -> None:
    _missing(VirtualCluster(), 2 * INTERVAL, alert_on="missed")
    first, second = alerts.sent
    assert first.note == ""
    assert second.note.endswith(" such alerts left out before this one.")
    assert int(second.note.split()[0]) > 20
    assert second.text.endswith(second.note)


async def failing(context: ItemContext) -> None:
    raise ValueError("no paper")


@simulated
async def _failing(cluster: VirtualCluster, **settings: str) -> None:
    app = ElasticJob("embedded://")
    app.add(failing, name="job", cron="0/10 * * * * ?", error_handler="pager", **settings)  # type: ignore[arg-type]
    await cluster.start(app)
    await cluster.next_fire()


def test_failures_that_are_no_alerts_are_logged(alerts: Alerts, caplog: pytest.LogCaptureFixture) -> None:
    _failing(VirtualCluster())
    assert [alert.what for alert in alerts.sent] == ["failed"]
    caplog.clear()
    _failing(VirtualCluster(), alert_on="missed")
    assert len(alerts.sent) == 1
    (line,) = [one for one in caplog.records if one.exc_info]
    assert line.getMessage().endswith("ValueError: no paper")


NINE = 1_767_258_000_000
"""2026-01-01 at nine, in milliseconds."""


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (Passed(NINE, NINE), "the run of 2026-01-01T09:00:00+00:00"),
        (Passed(NINE, NINE + 2000, 3), "3 runs (2026-01-01T09:00:00+00:00 to 2026-01-01T09:00:02+00:00)"),
        (
            Passed(NINE, NINE + 60_000, MOMENTS_COUNTED),
            f"at least {MOMENTS_COUNTED} runs (2026-01-01T09:00:00+00:00 to 2026-01-01T09:01:00+00:00)",
        ),
    ],
)
def test_moments_are_written_as_times(passed: Passed, words: str) -> None:
    assert _moments(passed, "UTC") == words


def test_moments_are_written_in_the_zone_of_the_job() -> None:
    assert _moments(Passed(NINE, NINE), "Asia/Shanghai") == "the run of 2026-01-01T17:00:00+08:00"


@pytest.mark.parametrize(
    ("newest", "one", "several"),
    [
        (Newest.MISSED, "it is not run", "they are not run"),
        (Newest.RUN, "it is not run, but a later moment is", "they are not run, but a later moment is"),
        (Newest.LATE, "it is not run, but a later moment is", "they are not run, but a later moment is"),
    ],
)
def test_the_consequence_is_told(newest: Newest, one: str, several: str) -> None:
    assert _consequence(Report((0,), Passed(NINE, NINE), "", newest=newest)) == one
    assert _consequence(Report((0,), Passed(NINE, NINE + 2000, 3), "", newest=newest)) == several


def test_a_run_that_was_cut_off_is_not_run_again() -> None:
    assert _consequence(Report((0,), Passed(NINE, NINE), "", "10.0.0.5@-@7-0a1b2c3d")) == "it is not run again"


@pytest.mark.parametrize(
    ("misfire", "told"), [(True, "it is not run, but a later moment is"), (False, "it is not run")]
)
def test_what_the_line_tells_is_what_happens(misfire: bool, told: str, caplog: pytest.LogCaptureFixture) -> None:
    app = ElasticJob("embedded://")
    app.add(too_slow, name="slow", cron="0/10 * * * * ?", misfire=misfire)

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        await cluster.start(app)
        await sleep(85)
        missed = next(event for event in cluster.events if isinstance(event, Misfired))
        began = {event.slot: event.source for event in cluster.events if isinstance(event, Began)}
        assert missed.slot not in began
        later = missed.slot + 10_000
        assert began[later] is (FireSource.MISFIRE if misfire else FireSource.SCHEDULE)

    scene(VirtualCluster())
    line = next(line for line in caplog.messages if " missed " in line)
    assert re.search(rf"; {told} \(reported by 10\.0\.1\.1@-@\S+\)$", line)


@pytest.mark.parametrize("streaming", [True, False])
def test_moments_that_come_while_a_stream_runs_are_neither_warnings_nor_alerts(
    streaming: bool, alerts: Alerts, caplog: pytest.LogCaptureFixture
) -> None:
    app = ElasticJob("embedded://")
    settings = {"streaming": streaming, "error_handler": "pager", "alert_on": "failed,missed"}
    batches = iter([[1], [1], []])  # the stream ends with the third one, and the moments are reported then

    @app.dataflow("records", cron="* * * * * ?", **settings)  # type: ignore[arg-type]
    async def fetch(context: ItemContext) -> list[int]:
        await sleep(5)
        return next(batches, [])

    @fetch.process
    async def process(context: ItemContext, record: int) -> None: ...

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        instance = await cluster.start(app)
        await sleep(20)
        await instance.stop()
        missed = [event for event in cluster.events if isinstance(event, Misfired)]
        assert {event.why for event in missed} == {"the last run was still going on"}

    scene(VirtualCluster())
    warned = [line for line in caplog.messages if " missed " in line]
    assert (warned == [], alerts.sent == []) == (streaming, streaming)


def test_of_a_request_one_moment_is_left_and_of_a_backfill_those_up_to_the_end_of_its_span() -> None:
    assert left_of(None, 5) == Passed(5, 5)
    span = Span(0, 10_000, schedule("* * * * * ?"))
    assert (left_of(span, 3_000), left_of(span, 9_000)) == (Passed(3_000, 9_000, 7), Passed(9_000, 9_000))
