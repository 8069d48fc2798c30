"""Error handlers that tell somebody, against servers that really receive what they send."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from aiohttp import web
from aiosmtpd.handlers import Message as Received
from aiosmtpd.smtp import SMTP

from aioelasticjob.error_handlers import AlertPart, Failure, Undelivered, alerts, find, options
from aioelasticjob.errors import LONGEST_STACK, InvalidSetting
from tests.error_handlers.failures import failure


@asynccontextmanager
async def receiving(answer: Callable[[web.Request, Any], web.Response]) -> AsyncIterator[str]:
    async def receive(request: web.Request) -> web.Response:
        return answer(request, await request.json())

    async with serving(receive) as url:
        yield url


@asynccontextmanager
async def serving(receive: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
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


@asynccontextmanager
async def conversing(
    converse: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Serve whoever comes, and wait until all have gone."""
    over: list[asyncio.Event] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.Event())
        try:
            await converse(reader, writer)
        finally:
            writer.close()
            over[-1].set()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for one in over:
            await one.wait()


def test_messages_have_only_the_beginning_and_the_end_of_a_very_long_error() -> None:
    sizes = list[int]()

    async def receive(request: web.Request) -> web.Response:
        sizes.append(len(await request.read()))
        return web.Response(status=204)

    failed = failure("x" * 3_000_000 + " the end")

    async def main() -> None:
        async with serving(receive) as url:
            await alerts.webhook(failed, {"url": url})

    asyncio.run(main())
    assert sizes[0] < 3 * LONGEST_STACK
    assert len(failed.text) < 2 * LONGEST_STACK
    assert "the end" in failed.text


def test_a_webhook_gets_the_alerts_of_a_message_with_the_keys_of_alertmanager() -> None:
    seen: list[Any] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append(body)
        return web.Response(status=204)

    async def main() -> None:
        async with receiving(answer) as url:
            part = AlertPart("late", "report", "resolved", "2026-01-01T12:00:00", "2026-01-01T13:00:00", "text", "link")
            await alerts.webhook(replace(failure(), what="late", link="link", alerts=(part,) * 501), {"url": url})

    asyncio.run(main())
    (body,) = seen
    assert (body["what"], body["status"], body["link"], body["alertsLeftOut"]) == ("late", "resolved", "link", 1)
    assert (
        body["alerts"]
        == [
            {
                "status": "resolved",
                "kind": "late",
                "job": "report",
                "startsAt": "2026-01-01T12:00:00",
                "endsAt": "2026-01-01T13:00:00",
                "text": "text",
                "link": "link",
            }
        ]
        * 500
    )


@pytest.mark.parametrize(("status", "wrong"), [(200, ""), (500, "answered 500")])
def test_a_heartbeat_is_a_call_that_has_to_be_answered(status: int, wrong: str) -> None:
    async def receive(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async def main() -> None:
        application = web.Application()
        application.router.add_get("/beat", receive)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            await alerts.call(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/beat")  # type: ignore[union-attr]
        finally:
            await runner.cleanup()

    if wrong:
        with pytest.raises(Undelivered, match=wrong):
            asyncio.run(main())
    else:
        asyncio.run(main())


def test_a_webhook_gets_it_all_as_json() -> None:
    seen: list[tuple[Any, str | None]] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append((body, request.headers.get("X-Token")))
        return web.Response(status=204)

    async def main() -> None:
        async with receiving(answer) as url:
            task = "billing@-@3@-@READY@-@me@-@1767225600000.0"
            of_a_record = replace(
                failure(),
                part="a record",
                run_goes_on=True,
                task_id=task,
                namespace="north/production",
                links={"runbook": "https://wiki.example.org"},
                link="https://jobs.example.org/r/billing/history",
            )
            await find("webhook")(of_a_record, {"url": url, "header.X-Token": "s3cret"})

    asyncio.run(main())
    ((body, token),) = seen
    assert (body["job"], body["items"], token) == ("billing", [3], "s3cret")
    assert (body["namespace"], body["runId"]) == ("north/production", "billing@1767225600000")
    assert body["taskId"] == "billing@-@3@-@READY@-@me@-@1767225600000.0"
    assert (body["error"], body["part"], body["runGoesOn"]) == ("ValueError: no luck", "a record", True)
    assert "Traceback" in body["stack"]
    assert body["links"] == {"runbook": "https://wiki.example.org"}
    assert body["link"] == "https://jobs.example.org/r/billing/history"


def test_dingtalk_is_signed_and_refusals_are_reported() -> None:
    seen: list[tuple[dict[str, list[str]], Any]] = []

    def answer(request: web.Request, body: Any) -> web.Response:
        seen.append((parse_qs(urlparse(str(request.rel_url)).query), body))
        return web.json_response({"errcode": 0 if len(seen) == 1 else 310000, "errmsg": "sign not match"})

    async def main() -> None:
        async with receiving(answer) as url:
            options = {"webhook": f"{url}?access_token=x", "secret": "SEC", "keyword": "告警"}
            await find("dingtalk")(failure(reported_at=1.7), options)
            with pytest.raises(Undelivered, match="310000 sign not match"):
                await find("dingtalk")(failure(), options)

    asyncio.run(main())
    query, body = seen[0]
    expected = base64.b64encode(hmac.new(b"SEC", b"1700\nSEC", hashlib.sha256).digest()).decode()
    assert (query["sign"], query["timestamp"], query["access_token"]) == ([expected], ["1700"], ["x"])
    assert body["text"]["content"].startswith("告警 billing: item 3 failed: ValueError: no luck")


LONG = "甲" * 9_000 + '"\n\x01\udcff' * 3_000 + "the end"


async def received_by_robot(name: str, sent: Failure) -> tuple[bytes, str]:
    """Return a request, and the text in it."""
    requests: list[bytes] = []

    async def receive(request: web.Request) -> web.Response:
        requests.append(await request.read())
        assert request.content_type == "application/json"
        return web.json_response({"errcode": 0})

    async with serving(receive) as url:
        await find(name)(sent, {"webhook": url})
    return requests[0], json.loads(requests[0])["text"]["content"]


@pytest.mark.parametrize("text", ["short", "x" * 9_000, "告" * 9_000, "a" + "告" * 9_000, LONG])
def test_wecom_gets_as_many_bytes_as_it_takes_from_both_ends(text: str) -> None:
    _, content = asyncio.run(received_by_robot("wecom", failure(text)))
    assert len(content.encode()) <= 2048
    assert content.startswith(f"billing: item 3 failed: ValueError: {text[:5]}")
    assert content.endswith(f"{text[-5:]}\n")
    assert ("\n…\n" in content) == (text != "short")
    assert text == "short" or len(content.encode()) > 2040


@pytest.mark.parametrize("text", ["short", "x" * 90_000, "告" * 90_000, LONG, '"' * 90_000])
def test_dingtalk_gets_a_request_that_it_takes(text: str) -> None:
    request, content = asyncio.run(received_by_robot("dingtalk", failure(text)))
    assert len(request) <= 20_000
    assert content.startswith(f"billing: item 3 failed: ValueError: {text[:5]}")
    assert content.endswith(text[-5:])
    assert text == "short" or len(request) > 10_000


@pytest.mark.parametrize("name", ["webhook", "wecom", "dingtalk"])
def test_no_error_tells_what_is_secret_in_an_address(name: str, unused_tcp_port: int) -> None:
    place = f"127.0.0.1:{unused_tcp_port}"
    addresses = [f"http://{place}/robot?key=s3cret", f"http://ops:s3cret@{place}/hook", f"http://{place}/T0/s3cret"]

    async def errors() -> list[str]:
        found = []
        for address in addresses:
            with pytest.raises(Undelivered) as caught:
                await find(name)(failure(), {"url" if name == "webhook" else "webhook": address})
            found.append(str(caught.value))
        return found

    for error in asyncio.run(errors()):
        assert error.startswith(f"http://{place}/…: ClientConnectorError: [Errno 111] Connect call failed")
        assert "s3cret" not in error


@pytest.mark.parametrize("status", [302, 404, 500])
def test_any_other_status_is_reported(status: int) -> None:
    async def main() -> None:
        async with receiving(lambda *_: web.Response(status=status, headers={"Location": "/elsewhere"})) as url:
            with pytest.raises(Undelivered, match=rf"(?m)/… answered {status}$"):
                await find("webhook")(failure(), {"url": url})

    asyncio.run(main())


def test_a_server_that_never_answers_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "ANSWER_TIMEOUT", 0.05)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with conversing(listen) as port:
            with pytest.raises(Undelivered, match=r"127.0.0.1:\d+: no answer within 0.05 s"):
                await find("webhook")(failure(), {"url": f"http://127.0.0.1:{port}"})

    asyncio.run(main())


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
            await find("email")(replace(failure(), namespace="production"), options)
            with pytest.raises(Undelivered, match=r"e-mail through 127\.0\.0\.1: "):
                await find("email")(failure(), {**options, "use_tls": "True"})

    asyncio.run(main())
    mail, in_production = mails
    unfolded = " ".join(in_production["Subject"].split())
    assert unfolded == "[aioelasticjob] production: billing: item 3 failed: ValueError: no luck"
    assert "namespace production" in in_production.get_payload()
    assert mail["Subject"] == "[aioelasticjob] billing: item 3 failed: ValueError: first line second"
    assert mail["To"] == "a@example.org, b@example.org"
    assert "Traceback" in mail.get_payload()


def test_a_password_is_not_sent_to_a_server_that_does_not_encrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            lines.append(line.decode().strip())
            verb = line[:4].upper()
            writer.write(b"250-here\r\n250 AUTH PLAIN\r\n" if verb == b"EHLO" else b"250 ok\r\n")

    async def main(**more: str) -> None:
        async with conversing(serve) as port:
            given = {"host": "127.0.0.1", "port": str(port), "sender": "a@b", "to": "c@d", "username": "u", **more}
            await find("email")(failure(), {**given, "password": "s3cret"})

    monkeypatch.setattr(options, "is_loopback", lambda host: False)
    with pytest.raises(Undelivered, match="STARTTLS"):
        asyncio.run(main())
    assert lines
    assert not [line for line in lines if re.match("AUTH|MAIL", line)]
    with pytest.raises(Undelivered, match=r"."):  # this server says 250 to everything, also to AUTH
        asyncio.run(main(allow_unencrypted="true"))
    assert [line for line in lines if line.startswith("AUTH")]


def test_an_email_about_text_that_is_none_is_sent() -> None:
    assert alerts.truncated("\udcff", 100) == "?"


def test_an_answer_that_is_no_json_is_none_the_worse() -> None:
    async def main() -> None:
        async with receiving(lambda *_: web.Response(text="ok")) as url:
            await find("webhook")(failure(), {"url": url})

    asyncio.run(main())


def test_a_missing_library_is_named_with_what_brings_it() -> None:
    with pytest.raises(InvalidSetting, match=r"pip install 'aioelasticjob\[alerts\]'"):
        alerts._extra("no_such_library")
