"""Error handlers against servers that really receive what they send, and their place in a job."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, urlparse

import anyio
import pytest
from aiohttp import web
from aiosmtpd.handlers import Message as Received
from aiosmtpd.smtp import SMTP

from aioelasticjob import ElasticJob, ItemContext, error_handlers
from aioelasticjob.error_handlers import Complaints, Failure, Options, Undelivered, check, find
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.txn import Set
from aioelasticjob.testing import VirtualClock, run
from tests.running.office import LAYOUT, Office, play


def failure(text: str = "no luck") -> Failure:
    try:
        raise ValueError(text)
    except ValueError as error:
        return Failure("billing", "me", (3,), "task-7", "2026-01-01T00:00:00+00:00", error)


@asynccontextmanager
async def receiving(answer: Callable[[web.Request, Any], web.Response]) -> AsyncIterator[str]:
    async def receive(request: web.Request) -> web.Response:
        return answer(request, await request.json())

    application = web.Application()
    application.router.add_post("/hook", receive)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/hook"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


def test_a_webhook_gets_it_all_as_json() -> None:
    seen: list[tuple[Any, str | None]] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append((body, request.headers.get("X-Token")))
        return web.Response(status=204)

    async def main() -> None:
        async with receiving(answer) as url:
            await find("webhook")(failure(), {"url": url, "header.X-Token": "s3cret"})

    asyncio.run(main())
    ((body, token),) = seen
    assert (body["job"], body["items"], body["taskId"], token) == ("billing", [3], "task-7", "s3cret")
    assert body["error"] == "ValueError: no luck"
    assert "Traceback" in body["stack"]


def test_dingtalk_is_signed_and_refusals_are_told() -> None:
    seen: list[tuple[dict[str, list[str]], Any]] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append((parse_qs(urlparse(str(request.rel_url)).query), body))
        return web.json_response({"errcode": 0 if len(seen) == 1 else 310000, "errmsg": "sign not match"})

    async def main() -> None:
        async with receiving(answer) as url:
            options = {"webhook": f"{url}?access_token=x", "secret": "SEC", "keyword": "告警", "timestamp": "1700"}
            await find("dingtalk")(failure(), options)
            with pytest.raises(Undelivered, match="310000 sign not match"):
                await find("dingtalk")(failure(), options)

    asyncio.run(main())
    query, body = seen[0]
    expected = base64.b64encode(hmac.new(b"SEC", b"1700\nSEC", hashlib.sha256).digest()).decode()
    assert (query["sign"], query["timestamp"], query["access_token"]) == ([expected], ["1700"], ["x"])
    assert body["text"]["content"].startswith("告警 billing: item 3 failed: ValueError: no luck")


def test_wecom_gets_text_that_it_takes() -> None:
    seen: list[Any] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append(body)
        return web.json_response({"errcode": 0})

    async def main() -> None:
        async with receiving(answer) as url:
            await find("wecom")(failure("x" * 9000), {"webhook": url})

    asyncio.run(main())
    assert seen[0]["msgtype"] == "text"
    assert len(seen[0]["text"]["content"]) == 4000


@pytest.mark.parametrize("name", ["webhook", "wecom", "dingtalk"])
def test_an_address_that_does_not_answer_is_told_without_its_key(name: str, unused_tcp_port: int) -> None:
    address = f"http://127.0.0.1:{unused_tcp_port}/robot?key=secret"

    async def main() -> None:
        await find(name)(failure(), {"url": address, "webhook": address})

    with pytest.raises(Undelivered, match=r"127\.0\.0\.1") as caught:
        asyncio.run(main())
    assert "secret" not in str(caught.value)


@pytest.fixture
def unused_tcp_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_email_is_sent_with_a_subject_of_one_line() -> None:
    mails: list[Message] = []

    class Box(Received):  # type: ignore[misc]
        def handle_message(self, message: Message) -> None:
            mails.append(message)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: SMTP(Box()), "127.0.0.1", 0)
        async with server:
            port = str(server.sockets[0].getsockname()[1])
            options = {
                "host": "127.0.0.1",
                "port": port,
                "sender": "jobs@example.org",
                "to": "a@example.org, b@example.org",
            }
            await find("email")(failure("first line\nsecond"), options)
            with pytest.raises(Undelivered):
                await find("email")(failure(), {**options, "port": "nonsense"})

    asyncio.run(main())
    (mail,) = mails
    assert mail["Subject"] == "[aioelasticjob] billing: item 3 failed: ValueError: first line second"
    assert mail["To"] == "a@example.org, b@example.org"
    assert "Traceback" in mail.get_payload()


@pytest.mark.parametrize(
    ("name", "options", "setting"),
    [
        ("carrier-pigeon", {}, "error_handler"),
        ("email", {"host": "x", "sender": "y"}, "error_handler_options.to"),
        ("webhook", {}, "error_handler_options.url"),
    ],
)
def test_what_is_missing_is_said_when_the_job_is_declared(name: str, options: Options, setting: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        check(name, options)
    assert caught.value.setting == setting
    app = ElasticJob("embedded://")
    with pytest.raises(InvalidSetting):
        app.add(lambda context: None, name="job", error_handler=name, error_handler_options=options)


def told_by(monkeypatch: pytest.MonkeyPatch, handler: Callable[[Failure, Options], Awaitable[None]]) -> None:
    find.cache_clear()
    monkeypatch.setattr(error_handlers, "_BUILT_IN", {**error_handlers._BUILT_IN, "mine": handler})


def test_the_handler_is_changed_while_the_job_runs_and_a_slow_one_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    async def slow(failed: Failure, options: Options) -> None:
        await anyio.sleep(20)
        told.append(f"{failed.items} {options['to']}")

    told_by(monkeypatch, slow)

    async def scene(here: Office) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), 0, "", 0))
            raise ValueError("no luck")

        app = here.app(handler, cron="0/10 * * * * ?", error_handler="ignore")
        async with app.running():
            await here.until(15)
            chosen = app.jobs[0].changed(error_handler="mine", error_handler_options={"to": "ops"})
            await here.write(Set(LAYOUT.config, chosen.to_json(), -1))
            await here.until(65)

    here = play(scene)
    assert [round(at) for at, *_ in here.runs] == [10, 20, 30, 40, 50, 60]
    assert told == ["(0,) ops"] * 2
    find.cache_clear()


def test_raise_ends_the_application_with_the_error() -> None:
    async def scene(here: Office) -> None:
        async def handler(context: ItemContext) -> None:
            raise ZeroDivisionError("enough")

        with pytest.raises(ZeroDivisionError, match="enough"):
            async with here.app(handler, cron="0/10 * * * * ?", error_handler="raise").running():
                await here.until(60)
        assert round(here.now()) == 10

    play(scene)


def test_a_handler_that_fails_itself_leaves_both_errors_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(failed: Failure, options: Options) -> None:
        raise OSError("line is dead")

    told_by(monkeypatch, broken)

    async def main() -> None:
        complaints = Complaints(VirtualClock())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(complaints.tell)
            complaints.put("mine", {}, failure())
            await complaints.told()
            tasks.cancel_scope.cancel()

    with caplog.at_level(logging.ERROR):
        run(main)
    assert "error handler mine failed: line is dead" in caplog.text
    assert "ValueError: no luck" in caplog.text
    find.cache_clear()


def test_too_many_failures_drop_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_handlers, "BACKLOG", 2)

    async def main() -> int:
        complaints = Complaints(VirtualClock())
        for _ in range(5):
            complaints.put("log", {}, failure())
        return complaints.dropped

    assert run(main) == 3
