"""Metrics: names as Prometheus wants them, values as the jobs made them, and an endpoint that nobody can overwhelm."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount

from aioelasticjob import ElasticJob, InvalidSetting, InvalidState, ItemContext, observers
from aioelasticjob.events import Began, Ended
from aioelasticjob.ground.rates import Rate
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers import endpoint
from aioelasticjob.observers.endpoint import (
    MAX_REQUEST_BYTES,
    MAX_REQUESTS_AT_ONCE,
    PROBES,
    serving,
    where,
)
from aioelasticjob.observers.metrics import HELP, MAX_WAITING_EVENTS, PREFIX, Metrics
from aioelasticjob.observers.sql.writer import StoreCounts
from aioelasticjob.observers.vitals import JobVitals, Vitals
from aioelasticjob.registry.session import SessionState
from tests.docs.pages import table
from tests.support.processes import TIMEOUT
from tests.support.simulated_jobs import SimulatedJobs, simulate

APP = ElasticJob("embedded://")
RATE = Rate("flow", 1, 10, 2, 1, 5.5, 3, 4, 0.25)


class Everything(ElasticJob):
    """An application of which there is everything to measure."""

    @property
    def rates(self) -> dict[str, tuple[Rate, ...]]:
        return {"flow": (RATE,)}

    @property
    def vitals(self) -> Vitals:
        jobs, calls = (JobVitals("job", 3, True),), {"thread": anyio.CapacityLimiter(2).statistics()}
        return Vitals(True, SessionState.CONNECTED, 20.0, 0.1, 7, jobs, StoreCounts(1, 2, 3, 4), calls)


def measured(app: ElasticJob) -> str:
    body, _ = asyncio.run(Metrics(app).render())
    return body.decode()


def full() -> str:
    app = Everything("embedded://")
    app.counts["job"].fires[FireSource.SCHEDULE] += 1  # type: ignore[index]
    app.counts["job"].runs[Outcome.COMPLETED] += 1
    metrics = Metrics(app)

    async def main() -> str:
        app._events.put(Began("job", "me", 0, FireSource.SCHEDULE, (0,), 0.02))
        app._events.put(Ended("job", "me", 0, FireSource.SCHEDULE, 0, Outcome.COMPLETED, 0.3))
        body, _ = await metrics.render()
        return body.decode()

    return asyncio.run(main())


def values(text: str) -> dict[str, dict[str, float]]:
    """Return the samples by name and labels."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_names_follow_prometheus_conventions() -> None:
    """The rules of promtool's linter."""
    seen = set()
    for family in text_string_to_metric_families(full()):
        if family.name.endswith("_created"):
            continue
        seen.add(family.name)
        assert re.fullmatch(r"aioelasticjob_[a-z][a-z0-9_]*[a-z]", family.name)
        assert family.documentation.endswith(".")
        name = family.name
        assert not re.search(r"(milli|micro|nano)?(seconds_|_ms$|minutes|hours|bits|kilo|percent)", name + "$"), name
        assert not re.search(r"_(count|sum|bucket|info|gauge|counter|histogram|total_total)$", name), name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert all(re.fullmatch(r"[a-z]+", label) for label in sample.labels if label != "le")
    assert seen == {PREFIX + name for name in HELP}


def test_every_metric_is_in_the_documentation_and_the_other_way_round() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("docs/how-to/metrics.md", "| metric |")}
    found = {}
    for family in text_string_to_metric_families(full()):
        if not family.name.endswith("_created"):
            name = family.name.removeprefix(PREFIX)
            found[f"{name}_total" if family.type == "counter" else name] = family.type
    assert rows == found


def test_every_metric_and_label_that_the_dashboard_names_exists() -> None:
    dashboard = json.loads((Path(observers.__path__[0]) / "grafana.json").read_text())
    known = values(full())
    named = re.compile(r"aioelasticjob_\w+")
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 25
    for expression in expressions:
        for name in named.findall(expression):
            assert name in known, name
    unused = {name for name in known if not re.search(r"_(created|sum|count)$", name)}
    unused -= set(named.findall(json.dumps(dashboard)))
    assert unused == set()
    labels = {label.split("=")[0] for samples in known.values() for one in samples for label in one.split(",") if label}
    used = {label for expression in expressions for label in re.findall(r"(\w+)=[~\"]", expression)}
    grouped = {
        label.strip() for expression in expressions for by in re.findall(r"by \(([^)]*)\)", expression)
        for label in by.split(",")
    }  # fmt: skip
    assert (used | grouped) - {"instance"} <= labels  # Prometheus adds that one
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_what_jobs_do_is_what_is_measured() -> None:
    found: dict[str, dict[str, float]] = {}

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            await anyio.sleep(2)
            if context.item == 1:
                raise ValueError("no luck")

        app = here.app(handler, cron="0/10 * * * * ?", sharding_total_count=3)
        metrics = Metrics(app)
        async with app.running():
            await here.until(35)
            metrics.look()
            from prometheus_client import generate_latest

            found.update(values(generate_latest(metrics.registry).decode()))

    simulate(scene)
    assert above_zero(found["aioelasticjob_fires_total"]) == {"job=job,source=SCHEDULE": 3}
    runs = above_zero(found["aioelasticjob_runs_total"])
    assert runs == {"job=job,outcome=completed": 6, "job=job,outcome=failed": 3}
    assert found["aioelasticjob_run_duration_seconds_count"] == runs
    assert found["aioelasticjob_run_duration_seconds_sum"]["job=job,outcome=failed"] == pytest.approx(6, abs=0.1)
    assert found["aioelasticjob_fire_lateness_seconds_count"] == {"job=job": 3}
    assert found["aioelasticjob_items_held"] == {"job=job": 3}
    assert found["aioelasticjob_leader"] == {"job=job": 1}
    assert found["aioelasticjob_session_state"]["state=connected"] == 1
    assert sum(found["aioelasticjob_session_state"].values()) == 1
    assert 0 < found["aioelasticjob_session_margin_seconds"][""] < 10
    assert found["aioelasticjob_registry_requests_total"][""] > 10
    assert 45 < found["aioelasticjob_event_loop_lag_seconds_count"][""] <= 51  # twice a second since the first event


def above_zero(samples: dict[str, float]) -> dict[str, float]:
    return {labels: value for labels, value in samples.items() if value}


def test_each_counter_of_a_job_is_there_at_zero_before_its_first_run() -> None:
    found: dict[str, dict[str, float]] = {}

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ? 2090")
        metrics = Metrics(app)
        async with app.running():
            await here.until(5)
            metrics.look()
            from prometheus_client import generate_latest

            found.update(values(generate_latest(metrics.registry).decode()))

    simulate(scene)
    counters = [name for name in found if name.endswith("_total") and "job=job" in str(found[name])]
    assert {name for name in counters if any(found[name].values())} == set()
    outcomes = ("completed", "failed", "timed out", "cancelled", "stopped")
    assert found["aioelasticjob_runs_total"] == {f"job=job,outcome={outcome}": 0 for outcome in outcomes}
    assert set(found["aioelasticjob_alerts_total"]) == {
        f"job=job,result={result}" for result in ("delivered", "failed", "dropped")
    }
    assert len(counters) == 7


def test_an_application_that_does_not_run_is_measured_too() -> None:
    app = ElasticJob("embedded://")
    found = values(measured(app))
    assert found["aioelasticjob_running"] == {"": 0}
    assert sum(found["aioelasticjob_session_state"].values()) == 0


def test_what_nobody_asks_for_is_bounded() -> None:
    app = ElasticJob("embedded://")
    metrics = Metrics(app)

    async def main() -> None:
        for _ in range(MAX_WAITING_EVENTS + 5):
            app._events.put(Ended("job", "me", 0, FireSource.SCHEDULE, 0, Outcome.COMPLETED, 0.3))
        assert len(metrics._waiting) == MAX_WAITING_EVENTS
        metrics.close()
        app._events.put(Ended("job", "me", 0, FireSource.SCHEDULE, 0, Outcome.COMPLETED, 0.3))
        assert len(metrics._waiting) == MAX_WAITING_EVENTS

    asyncio.run(main())
    assert values(measured(app))["aioelasticjob_running"] == {"": 0}


def test_metrics_go_on_in_a_new_loop() -> None:
    app = ElasticJob("embedded://")
    metrics = Metrics(app)
    for _ in range(2):
        asyncio.run(metrics.render())
    assert metrics._loop is not None


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give clients that send nothing more time than a test has."""
    monkeypatch.setattr(endpoint, "REQUEST_TIMEOUT", 10 * TIMEOUT)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    with anyio.move_on_after(TIMEOUT):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()
    raise AssertionError("no answer, and no end")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 30 * MAX_REQUEST_BYTES + b"\r\n\r\n", b""),
    ],
)
def test_the_endpoint_answers_what_it_should_and_ends_everything_else(request_: bytes, answer: bytes) -> None:
    async def render(accept: str) -> tuple[bytes, str]:
        return b"a_metric 1\n", "text/plain"

    async def main() -> None:
        async with serving(render, "127.0.0.1", 0, APP) as port:
            got = await ask(port, request_)
        assert got.startswith(answer)
        assert bool(answer) == bool(got)
        if b"200" in answer:
            body = b"" if request_.startswith(b"HEAD") else b'a_metric{process="0"} 1\n'
            assert got.endswith(b"\r\n\r\n" + body)

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), asyncio.CancelledError()])
def test_a_collector_that_fails_costs_its_own_answer_alone(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [error, error, error, None]

    async def render(accept: str) -> tuple[bytes, str]:
        if (failure := answers.pop(0)) is not None:
            raise failure
        return b"a_metric 1\n", "text/plain"

    async def main() -> None:
        async with serving(render, "127.0.0.1", 0, APP) as port:
            for _ in range(3):
                assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
            assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())
    text = "metrics could not be rendered, because a collector failed"
    assert caplog.messages == [text, f"2 more lines were left out: {text}"]


@pytest.mark.usefixtures("patient")
def test_who_never_finishes_his_question_keeps_nobody_else_from_an_answer() -> None:
    async def render(accept: str) -> tuple[bytes, str]:
        return b"a_metric 1\n", "text/plain"

    async def main() -> None:
        async with serving(render, "127.0.0.1", 0, APP) as port, AsyncExitStack() as slow:
            for _ in range(3 * MAX_REQUESTS_AT_ONCE):
                stream = await slow.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
                await stream.send(b"GET /metrics HTTP/1.1\r\n")
            async with asyncio.timeout(TIMEOUT):
                assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b" 1\n")

    asyncio.run(main())


def test_an_application_serves_its_metrics_in_the_format_asked_for() -> None:
    async def main() -> None:
        app = ElasticJob("embedded://", metrics=0)
        app.add(_nothing, name="job")
        async with app.running():
            assert app._here.endpoint is not None
            port = app._here.endpoint.port
            plain = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n"
            openmetrics = await ask(port, b"GET /metrics HTTP/1.1\r\n" + accept + b"\r\n")
            for path in PROBES:
                answer = await ask(port, f"GET {path} HTTP/1.1\r\n\r\n".encode())
                assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "up"
            app._here.phase = "leaving"
            answers = [await ask(port, f"GET {path} HTTP/1.1\r\n\r\n".encode()) for path in PROBES]
            assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"503"]
        assert b"text/plain" in plain
        assert b'aioelasticjob_running{process="0"} 1.0' in plain
        assert openmetrics.endswith(b"# EOF\n")
        with pytest.raises(OSError, match=r".*"):
            await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    asyncio.run(main())


async def _nothing(context: ItemContext) -> None: ...


def test_metrics_are_mounted_in_web_applications() -> None:
    metrics = Metrics(ElasticJob("embedded://"))
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def main() -> None:
        for method in ("GET", "HEAD", "POST"):
            await metrics.asgi({"type": "http", "method": method, "headers": [(b"Accept", b"*/*")]}, None, send)
        answer = await metrics.aiohttp(SimpleNamespace(headers={}))
        assert answer.status == 200
        assert b"aioelasticjob_running 0.0" in answer.body

    asyncio.run(main())
    assert [message["status"] for message in sent[::2]] == [200, 200, 405]
    assert b"aioelasticjob_running 0.0" in sent[1]["body"]
    assert sent[3]["body"] == b""


def test_a_mount_of_starlette_answers_at_once_below_its_path_and_redirects_there() -> None:
    web = Starlette(routes=[Mount("/metrics", Metrics(ElasticJob("embedded://")).asgi)])

    async def status(path: str) -> int:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": [], "query_string": b""}
        await web(scope, receive, send)
        return int(sent[0]["status"])

    assert [asyncio.run(status(path)) for path in ("/metrics/", "/metrics")] == [200, 307]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (9464, ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_addresses(given: int | str, expected: tuple[str, int]) -> None:
    assert where(given) == expected


HUGE = [pytest.param(given, id=f"huge {type(given).__name__}") for given in ("9" * 5000, 10**5000, -(10**5000))]


@pytest.mark.parametrize("given", ["", "here", "here:", 65536, -1, True, 1.5, "host:-1", "host:99999", *HUGE])
def test_addresses_that_make_no_sense(given: Any) -> None:
    with pytest.raises(InvalidSetting, match="metrics"):
        ElasticJob("embedded://", metrics=given)


def test_an_address_that_this_host_does_not_have_is_said_at_the_start() -> None:
    async def main() -> None:
        with pytest.raises(InvalidSetting, match="cannot listen there"):
            async with ElasticJob("embedded://", metrics="192.0.2.1:9464").running():
                pass

    asyncio.run(main())


def test_a_port_that_is_given_while_the_application_runs_is_refused_and_not_ignored() -> None:
    async def main() -> None:
        app = ElasticJob("embedded://")
        async with app.running():
            with pytest.raises(InvalidState, match=r"port for metrics before it runs"):
                app.serve_metrics(0)
        app.serve_metrics(0)

    asyncio.run(main())


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "prometheus_client.exposition", raising=False)
    with pytest.raises(InvalidSetting, match=r"pip install 'aioelasticjob\[metrics\]'"):
        ElasticJob("embedded://", metrics=0)
