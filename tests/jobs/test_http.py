"""Requests as they are made: to a server on a loopback port."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from aioelasticjob import ElasticJob, InvalidSetting, Outcome
from aioelasticjob.events import Ended
from aioelasticjob.jobs.http import Request, RequestFailed, _send, run
from tests.support.contexts import of_instance, of_item
from tests.support.loops import LoopKind, run_async

CONTEXT = {"jobName": "backup", "shardingItem": 4, "shardingParameter": "Beijing", "fence": 17, "source": "SCHEDULE"}


@dataclass
class Server:
    """A web server that notes what it was asked."""

    url: str = ""
    asked: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)
    """Method, path, headers and body of each request."""
    hanging: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append((request.method, request.path_qs, headers, await request.text()))
        match request.path:
            case "/moved":
                status = int(request.query.get("by", 302))
                return web.Response(status=status, headers={"Location": request.query.get("to", "/here")})
            case "/again":
                return web.Response(status=302, headers={"Location": request.path_qs})
            case "/hang":
                self.hanging.set()
                await anyio.sleep_forever()
            case "/large":
                answer = web.StreamResponse(status=500)
                await answer.prepare(request)
                for _ in range(100):
                    await answer.write(b"x" * 10_000)
                return answer
            case "/broken":
                assert request.transport is not None
                request.transport.abort()
            case "/malformed":
                transport: Any = request.transport
                transport.write(b"HTTP/9 nonsense\r\n\r\n")
        return web.Response(status=int(request.query.get("status", 200)), text="no\nroom")


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def requested(kind: LoopKind, *requests: dict[str, Any]) -> Server:
    """Make requests, one after another, and return the server as it is afterwards."""

    async def main() -> Server:
        async with serving() as server:
            for options in requests:
                await ask(server, **options)
        return server

    return run_async(kind, main)


async def ask(server: Server, path: str = "/run", **options: Any) -> None:
    context = options.pop("context", None) or of_item()
    await run(context, Request.model_validate({"url": server.url + path, **options}))


def test_a_request_carries_the_context_as_a_header(real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = requested(real_loop_kind, {"path": "/run?now=1", "headers": {"X-Port": 8080}})
    ((method, path, headers, body),) = server.asked
    assert (method, path, body, headers["x-port"]) == ("GET", "/run?now=1", "", "8080")
    assert CONTEXT.items() <= json.loads(headers["shardingcontext"]).items()
    (record,) = (record for record in caplog.records if record.name == "aioelasticjob.job")
    assert record.getMessage() == f"GET {server.url}/run answered 200"
    assert (record.__dict__["status"], record.__dict__["item"]) == (200, 4)


def test_a_request_carries_the_context_as_its_body_or_not_at_all(real_loop_kind: LoopKind) -> None:
    server = requested(
        real_loop_kind,
        {"method": "post", "pass_context": "body", "context": of_instance(1_000)},
        {"method": "PUT", "pass_context": "none", "body": {"full": True}},
        {"method": "PUT", "pass_context": "none", "body": "größer"},
        {"method": "PUT", "body": "<a/>", "headers": {"content-type": "text/xml"}, "context_header": "X-Run"},
    )
    bodies = [(method, headers["content-type"], body) for method, _, headers, body in server.asked]
    assert json.loads(bodies[0][2])["shardingItems"] == list(range(1_000))
    assert bodies[0][:2] == ("POST", "application/json")
    assert bodies[1:] == [
        ("PUT", "application/json", '{"full": true}'),
        ("PUT", "text/plain; charset=utf-8", "größer"),
        ("PUT", "text/xml", "<a/>"),
    ]
    assert ["shardingcontext" in headers for _, _, headers, _ in server.asked] == [False] * 4
    assert json.loads(server.asked[3][2]["x-run"])["fence"] == 17


def test_a_secret_comes_from_the_environment_of_the_host_that_runs(
    real_loop_kind: LoopKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILLING_TOKEN", "Bearer 123")
    options = {"environment_headers": {"Authorization": "BILLING_TOKEN"}}
    assert requested(real_loop_kind, options).asked[0][2]["authorization"] == "Bearer 123"
    monkeypatch.delenv("BILLING_TOKEN")
    with pytest.raises(InvalidSetting, match="'BILLING_TOKEN': this environment variable is not set"):
        requested(real_loop_kind, options)
    with pytest.raises(InvalidSetting, match="BILLING_TOKEN"):
        ElasticJob("embedded://").http("ping", url="http://x", **options)
    monkeypatch.setenv("BILLING_TOKEN", "Bearer 123\n")
    with pytest.raises(InvalidSetting, match="'BILLING_TOKEN': this environment variable is not one line"):
        ElasticJob("embedded://").http("ping", url="http://x", **options)


def test_the_status_is_the_outcome(real_loop_kind: LoopKind) -> None:
    requested(
        real_loop_kind,
        {"path": "/run?status=204"},
        {"path": "/run?status=503", "expected_status": 503},
        {"path": "/run?status=404", "expected_status": [200, "4XX"]},
        {"path": "/moved"},
        {"path": "/moved", "follow_redirects": False, "expected_status": "302"},
    )
    for options, status in (
        ({"path": "/run?status=503&token=secret"}, 503),
        ({"path": "/run?status=200", "expected_status": [201, "4xx"]}, 200),
        ({"path": "/moved", "follow_redirects": False}, 302),
    ):
        with pytest.raises(RequestFailed) as caught:
            requested(real_loop_kind, options)
        assert caught.value.status == status
        assert "secret" not in str(caught.value)
    with pytest.raises(RequestFailed, match=r"(?m)GET http://127\.0\.0\.1:\d+/run answered 500, .*: no room$"):
        requested(real_loop_kind, {"path": "/run?status=500"})


def test_only_the_server_that_the_job_names_gets_its_headers(
    real_loop_kind: LoopKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILLING_TOKEN", "123")
    own = {"headers": {"X-Key": "456"}, "environment_headers": {"X-Token": "BILLING_TOKEN"}}

    async def main() -> tuple[Server, Server]:
        async with serving() as server, serving() as other:
            await ask(server, "/moved?to=/here", **own)
            await ask(server, f"/moved?to={other.url}/there", **own)
            with pytest.raises(RequestFailed, match=rf"/moved, redirected to {other.url}, answered 401, expected 2xx"):
                await ask(server, f"/moved?to={other.url}/there%3Fstatus=401", **own)
        return server, other

    server, other = run_async(real_loop_kind, main)
    secrets = [{name: headers.get(name) for name in ("x-key", "x-token")} for _, _, headers, _ in server.asked]
    assert secrets == [{"x-key": "456", "x-token": "123"}] * 4
    assert [(path, headers.keys() & {"x-key", "x-token"}) for _, path, headers, _ in other.asked] == [
        ("/there", set()),
        ("/there?status=401", set()),
    ]
    assert all("shardingcontext" in headers for _, _, headers, _ in other.asked)


def test_a_redirected_request_names_the_other_server_and_still_describes_its_body(real_loop_kind: LoopKind) -> None:
    headers = {"Host": "billing.internal", "Content-Type": "application/xml"}

    async def main() -> Server:
        async with serving() as server, serving() as other:
            await ask(server, f"/moved?by=307&to={other.url}/there", method="POST", body="<run/>", headers=headers)
        assert server.asked[0][2]["host"] == "billing.internal"
        return other

    other = run_async(real_loop_kind, main)
    ((method, _, received, body),) = other.asked
    assert (method, body, received["content-type"]) == ("POST", "<run/>", "application/xml")
    assert f"http://{received['host']}" == other.url


@pytest.mark.parametrize(
    ("to", "has_own"),
    [
        ("http://billing/run", True),  # 80 is the default port
        ("http://BILLING:80/run", True),
        ("http://billing:81/run", False),
        ("https://billing:80/run", False),
        ("http://other:80/run", False),
    ],
)
def test_a_server_is_the_same_whether_its_default_port_is_written_or_not(to: str, has_own: bool) -> None:
    request = SimpleNamespace(url=URL(to), headers=CIMultiDict({"X-Key": "456"}))

    async def send(request: Any) -> Any:
        return "x-key" in request.headers

    assert anyio.run(_send, URL("http://billing:80/run"), ["x-Key"], request, send) is has_own


def test_of_a_large_answer_only_the_beginning_is_kept(real_loop_kind: LoopKind) -> None:
    with pytest.raises(RequestFailed, match=r"(?m)answered 500, expected 2xx: x{500}$"):
        requested(real_loop_kind, {"path": "/large"})


def test_a_server_that_is_not_there_or_breaks_off_is_a_failure_with_a_reason(real_loop_kind: LoopKind) -> None:
    with pytest.raises(RequestFailed, match=r"ServerDisconnectedError|ClientOSError"):
        requested(real_loop_kind, {"path": "/broken"})
    with socket.socket() as silent:  # it has the port, so that no other test takes it, and does not listen
        silent.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{silent.getsockname()[1]}/ping"
        with pytest.raises(RequestFailed, match=rf"GET http://{re.escape(at)}: ClientConnectorError") as caught:
            requested(real_loop_kind, {"url": f"http://alice:pw@{at}"})
    assert caught.value.status is None
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/malformed?token=secret", r"ClientResponseError: \w"),
        ("/again?token=secret", "TooManyRedirects"),
        ("/moved?to=ftp://alice:secret@x/", "NonHttpUrlRedirectClientError"),
        ("/moved?to=http://[::secret/", "InvalidUrlRedirectClientError"),
    ],
)
def test_no_address_but_the_shown_one_is_in_a_failure(real_loop_kind: LoopKind, path: str, reason: str) -> None:
    with pytest.raises(RequestFailed, match=rf"GET http://127\.0\.0\.1:\d+/\w+: {reason}") as caught:
        requested(real_loop_kind, {"path": path})
    assert "secret" not in str(caught.value)


def test_a_context_that_is_too_large_for_a_header_says_where_it_fits(real_loop_kind: LoopKind) -> None:
    with pytest.raises(RequestFailed, match=r"too large for a header.*'body'"):
        requested(real_loop_kind, {"context": of_instance(1_000)})


def test_a_server_that_hangs_is_cut_off_by_the_runs_timeout(real_loop_kind: LoopKind) -> None:
    async def main() -> Outcome:
        async with serving() as server:
            app = ElasticJob("embedded://")
            app.http("hang", url=f"{server.url}/hang", cron="* * * * * ?", timeout=0.05, sharding_quiet=0)
            with app.events() as events, anyio.fail_after(90):
                async with app.running():
                    async for event in events:
                        if isinstance(event, Ended) and server.hanging.is_set():  # a busy machine asks in a later run
                            return event.outcome
        raise AssertionError("it has not run")

    assert run_async(real_loop_kind, main) is Outcome.TIMED_OUT


def test_an_http_job_has_a_timeout_unless_it_is_told_that_it_has_none() -> None:
    app = ElasticJob("embedded://")
    assert app.http("one", url="http://x").timeout == 60
    assert app.http("two", url="http://x", timeout=5).timeout == 5
    assert app.http("three", url="http://x", timeout=None).timeout is None


@pytest.mark.parametrize(
    ("options", "setting", "says"),
    [
        ({"url": "ftp://x/y"}, "url", "https://host:port/path"),
        ({"url": "example.com"}, "url", "https://host:port/path"),
        ({"url": "http://"}, "url", "https://host:port/path"),
        ({"url": "http://x:99999/"}, "url", "https://host:port/path"),
        ({"url": "http://[::1/"}, "url", "https://host:port/path"),
        ({"url": "http://x/a b"}, "url", "https://host:port/path"),
        ({"method": "GO ON"}, "method", "such as GET or POST"),
        ({"headers": {"A B": "c"}}, "headers", "no name of a header"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers", "one line"),
        ({"environment_headers": {"": "HOME"}}, "environment_headers", "no name of a header"),
        ({"context_header": "a:b"}, "context_header", "no name of a header"),
        ({"expected_status": 99}, "expected_status", "no status such as 204"),
        ({"expected_status": ["2xx", "many"]}, "expected_status", "'many' is no status"),
        ({"expected_status": []}, "expected_status", "at least 1"),
        ({"pass_context": "body"}, "pass_context", "a GET has none: use method = 'POST'"),
        ({"pass_context": "body", "method": "POST", "body": "x"}, "pass_context", "the body is given already"),
        ({"method": "POST", "body": {"rate": float("nan")}}, "body", "must have no NaN and no infinity"),
        ({"pass_context": "cookie"}, "pass_context", "'header', 'body' or 'none'"),
        ({"request_timeout": 5}, "request_timeout", "no such setting"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_when_it_is_declared(
    options: dict[str, Any], setting: str, says: str
) -> None:
    with pytest.raises(InvalidSetting, match=says) as caught:
        ElasticJob("embedded://").kind("http", "ping", **{"url": "http://x", **options})
    assert caught.value.setting == setting


def test_without_aiohttp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'aioelasticjob\[http\]'"):
        ElasticJob("embedded://").http("ping", url="http://x")
