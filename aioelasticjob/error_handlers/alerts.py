"""The error handlers that send alerts: by e-mail, to any web address, and to the robots of DingTalk and WeCom."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from email.message import EmailMessage
from importlib import import_module
from types import ModuleType
from typing import cast
from urllib.parse import quote_plus

from aioelasticjob.error_handlers.failure import AlertPart, Failure, Options, Undelivered
from aioelasticjob.error_handlers.options import DingTalk, Email, Robot, Webhook, parse, place
from aioelasticjob.errors import InvalidSetting, error_text

ANSWER_TIMEOUT = 20.0
"""Seconds that a server may take to answer."""
WECOM_LIMIT = 2_048
"""Bytes of a text that WeCom takes."""
DINGTALK_LIMIT = 20_000
"""Bytes of a whole request that DingTalk takes."""
MOST_ALERTS = 500
"""Alerts of one message that a webhook is sent singly."""
LONGEST_SUBJECT = 200
"""Characters of an e-mail's subject."""
_ELLIPSIS = "\n…\n"


async def email(failure: Failure, options: Options) -> None:
    """Send an e-mail.

    Raises:
        Undelivered: the server refused the message, could not be reached, or offers no encryption though it is needed.
        InvalidSetting: an option is wrong.
    """
    given = parse(Email, options)
    aiosmtplib = _extra("aiosmtplib")
    message = EmailMessage()
    message["From"] = given.sender
    message["To"] = given.to
    where = f"{failure.namespace}: " if failure.namespace else ""
    subject = _sendable(f"{given.subject} {where}{failure.subject}")
    message["Subject"] = " ".join(subject.split())[:LONGEST_SUBJECT]
    message.set_content(_sendable(failure.text))
    usual_port = 465 if given.use_tls else 25
    try:
        await aiosmtplib.send(
            message,
            hostname=given.host,
            port=given.port or usual_port,
            username=given.username,
            password=given.password,
            use_tls=given.use_tls,
            start_tls=given.upgrade,
            timeout=ANSWER_TIMEOUT,
        )
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        raise Undelivered(f"e-mail through {given.host}: {error or type(error).__name__}") from error


async def webhook(failure: Failure, options: Options) -> None:
    """Post the failure as JSON.

    Raises:
        Undelivered: no answer, or another status than 2xx.
        InvalidSetting: an option is wrong.
    """
    given = parse(Webhook, options)
    body: dict[str, object] = {
        "what": failure.what,
        "namespace": failure.namespace,
        "job": failure.job,
        "instance": failure.instance,
        "items": failure.items,
        "taskId": failure.task_id,
        "runId": failure.run_id,
        "fireTime": failure.fire_time,
        "error": error_text(failure.error),
        "stack": failure.stack,
        "note": failure.note,
        "part": failure.part,
        "runGoesOn": failure.run_goes_on,
        "link": failure.link,
        "links": dict(failure.links),
    }
    if failure.alerts:
        body["status"] = failure.alerts[0].status
        body["alerts"] = [_as_json(one) for one in failure.alerts[:MOST_ALERTS]]
        body["alertsLeftOut"] = max(0, len(failure.alerts) - MOST_ALERTS)
    await _post(given.url, json.dumps(body).encode(), given.headers)


async def call(url: str) -> None:
    """Call a web address that notices when nobody calls it any more.

    Raises:
        Undelivered: no answer, or another status than 2xx.
        InvalidSetting: aiohttp is not installed.
    """
    aiohttp = _extra("aiohttp")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT)) as client,
            client.get(url) as response,
        ):
            if response.status // 100 != 2:
                raise Undelivered(f"{place(url)} answered {response.status}")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Undelivered(f"{place(url)}: {_reason(error)}") from error


async def dingtalk(failure: Failure, options: Options) -> None:
    """Write to a DingTalk robot.

    The signature is the one of DingTalk's custom robots: HMAC-SHA256 over "timestamp, newline, secret".

    Raises:
        Undelivered: no answer, or a refusal.
        InvalidSetting: an option is wrong.
    """
    given = parse(DingTalk, options)
    url = given.webhook
    if given.secret is not None:
        now = int(failure.reported_at * 1000)
        signed = f"{now}\n{given.secret}".encode()
        digest = hmac.new(given.secret.encode(), signed, hashlib.sha256).digest()
        sign = quote_plus(base64.b64encode(digest))
        separator = "&" if "?" in url else "?"
        url += f"{separator}timestamp={now}&sign={sign}"
    text = f"{given.keyword} {failure.text}".strip()
    request = _message(text)
    while len(request) > DINGTALK_LIMIT:
        # in proportion, and perhaps once more: escaping makes some characters longer than one byte
        size = len(_sendable(text).encode())
        text = truncated(text, size * DINGTALK_LIMIT // len(request))
        request = _message(text)
    await _post_to_robot(url, request)


async def wecom(failure: Failure, options: Options) -> None:
    """Write to a WeCom robot.

    Raises:
        Undelivered: no answer, or a refusal.
        InvalidSetting: an option is wrong.
    """
    given = parse(Robot, options)
    text = truncated(failure.text, WECOM_LIMIT)
    await _post_to_robot(given.webhook, _message(text))


def _as_json(alert: AlertPart) -> dict[str, str]:
    """Return one alert, with the keys that receivers of Alertmanager's messages know."""
    return {
        "status": alert.status,
        "kind": alert.kind,
        "job": alert.job,
        "startsAt": alert.since,
        "endsAt": alert.until,
        "text": alert.text,
        "link": alert.link,
    }


def truncated(text: str, limit: int) -> str:
    """Return a text cut to so many bytes: its beginning, which says what failed, and its end, which says why."""
    whole = _sendable(text).encode()
    if len(whole) <= limit:
        return whole.decode()
    rest = limit - len(_ELLIPSIS.encode())
    half = rest // 2
    first = whole[: rest - half]
    last = whole[len(whole) - half :]
    # a character that was cut in half is left out
    return first.decode(errors="ignore") + _ELLIPSIS + last.decode(errors="ignore")


def _sendable(text: str) -> str:
    """Return a text without characters that UTF-8 cannot encode, such as half a surrogate pair in a file's name."""
    return text.encode(errors="replace").decode()


def _message(text: str) -> bytes:
    body = {"msgtype": "text", "text": {"content": text}}
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


async def _post_to_robot(url: str, request: bytes) -> None:
    answer = await _post(url, request, {})
    if isinstance(answer, Mapping) and answer.get("errcode", 0) != 0:
        raise Undelivered(f"{place(url)} refused: {answer.get('errcode')} {answer.get('errmsg', '')}")


async def _post(url: str, body: bytes, headers: Mapping[str, str]) -> object:
    """Post JSON and return the answer if it is JSON, too.

    A redirection is not followed: most redirections turn a POST into a GET, and then the alert would be lost.
    """
    aiohttp = _extra("aiohttp")
    payload = aiohttp.BytesPayload(body, content_type="application/json")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT)) as client,
            client.post(url, data=payload, headers=headers, allow_redirects=False) as response,
        ):
            if response.status // 100 != 2:
                raise Undelivered(f"{place(url)} answered {response.status}")
            try:
                return cast(object, await response.json(content_type=None))
            except ValueError:
                return None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Undelivered(f"{place(url)}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return why there was no answer; aiohttp's own text may contain the address, and so a secret key."""
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_TIMEOUT:g} s"
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    if cause is None:
        return type(error).__name__
    return f"{type(error).__name__}: {cause}"


def _extra(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise InvalidSetting("error_handler", module, "needs: pip install 'aioelasticjob[alerts]'") from None
