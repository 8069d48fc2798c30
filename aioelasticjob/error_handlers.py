"""What happens to a run's failure besides its outcome: log, ignore, raise, or tell somebody.

A handler is an async function of a failure and its options, found by name (entry points
``aioelasticjob.error_handlers`` add more).  Failures are put and never awaited: a mail server that is down delays no
job.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import TypeAlias, cast
from urllib.parse import quote_plus

from anyio import fail_after

from aioelasticjob.clock import Clock
from aioelasticjob.errors import ElasticJobError, InvalidSetting

BACKLOG = 1000
"""Failures that may wait to be told; beyond that the oldest are dropped and counted."""
PATIENCE = 30.0
"""Seconds that telling one failure may take."""

log = logging.getLogger(__name__)

Options: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed."""

    job: str
    instance: str
    items: tuple[int, ...]
    task_id: str
    fire_time: str
    error: BaseException

    @property
    def subject(self) -> str:
        """One line for people."""
        which = "item" if len(self.items) == 1 else "items"
        items = ", ".join(map(str, self.items))
        return f"{self.job}: {which} {items} failed: {type(self.error).__name__}: {self.error}"

    @property
    def text(self) -> str:
        """All there is to know, with the stack."""
        stack = "".join(traceback.format_exception(self.error))
        return f"{self.subject}\n\nfire time {self.fire_time}\ninstance {self.instance}\ntask {self.task_id}\n\n{stack}"


ErrorHandler: TypeAlias = Callable[[Failure, Options], Awaitable[None]]


class Undelivered(ElasticJobError):
    """Nobody could be told of a failure."""


async def to_log(failure: Failure, options: Options) -> None:
    """Log the failure with its stack: what happens unless another handler is chosen."""
    fields = {"job": failure.job, "items": failure.items, "fire_time": failure.fire_time, "task_id": failure.task_id}
    log.error("item failed", exc_info=failure.error, extra=fields)


async def ignore(failure: Failure, options: Options) -> None:
    """Do nothing: the item's outcome still says that it failed."""


async def escalate(failure: Failure, options: Options) -> None:
    """Raise the error out of the application, for programs that would rather end than go on."""
    raise Escalated(failure)


class Escalated(Exception):  # a message between rooms, never seen by users
    """Carries a failure that is to end the application."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.subject)
        self.failure = failure


async def email(failure: Failure, options: Options) -> None:
    """Send an e-mail.

    Options: host, port, username, password, use_tls, start_tls, sender, to (comma separated), subject.

    Raises:
        Undelivered: the server refused or could not be reached.
    """
    aiosmtplib = _extra("aiosmtplib")
    message = EmailMessage()
    message["From"] = _option(options, "sender")
    message["To"] = _option(options, "to")
    message["Subject"] = " ".join(f"{options.get('subject', '[aioelasticjob]')} {failure.subject}".split())[:200]
    message.set_content(failure.text)
    use_tls = options.get("use_tls", "false") == "true"
    try:
        await aiosmtplib.send(
            message,
            hostname=_option(options, "host"),
            port=int(options.get("port", "465" if use_tls else "25")),
            username=options.get("username"),
            password=options.get("password"),
            use_tls=use_tls,
            start_tls={"true": True, "false": False}.get(options.get("start_tls", "")),
            timeout=PATIENCE,
        )
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        raise Undelivered(f"e-mail through {options['host']}: {error}") from error


async def webhook(failure: Failure, options: Options) -> None:
    """Post the failure as JSON.  Options: url; every ``header.NAME`` becomes a header.

    Raises:
        Undelivered: no answer, or another status than 2xx.
    """
    headers = {name.removeprefix("header."): value for name, value in options.items() if name.startswith("header.")}
    body: dict[str, object] = {
        "job": failure.job,
        "instance": failure.instance,
        "items": failure.items,
        "taskId": failure.task_id,
        "fireTime": failure.fire_time,
        "error": f"{type(failure.error).__name__}: {failure.error}",
        "stack": "".join(traceback.format_exception(failure.error)),
    }
    await _post(_option(options, "url"), body, headers)


async def dingtalk(failure: Failure, options: Options) -> None:
    """Write to a DingTalk robot.  Options: webhook, secret (signs), keyword (put in front).

    The signature is the one of DingTalk's custom robots: HMAC-SHA256 over "timestamp, newline, secret".

    Raises:
        Undelivered: no answer, or a refusal.
    """
    url = _option(options, "webhook")
    if secret := options.get("secret"):
        now = options.get("timestamp") or "0"
        digest = hmac.new(secret.encode(), f"{now}\n{secret}".encode(), hashlib.sha256).digest()
        url += f"{'&' if '?' in url else '?'}timestamp={now}&sign={quote_plus(base64.b64encode(digest))}"
    await _post_text(url, f"{options.get('keyword', '')} {failure.text}".strip())


async def wecom(failure: Failure, options: Options) -> None:
    """Write to a WeCom robot.  Options: webhook.

    Raises:
        Undelivered: no answer, or a refusal.
    """
    await _post_text(_option(options, "webhook"), failure.text)


@cache
def find(name: str) -> ErrorHandler:
    """Return the error handler of that name.

    Raises:
        InvalidSetting: no such handler.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    others = {point.name: point for point in entry_points(group="aioelasticjob.error_handlers")}
    if name not in others:
        known = ", ".join(sorted({*_BUILT_IN, *others}))
        raise InvalidSetting("error_handler", name, f"must be one of {known}")
    return cast(ErrorHandler, others[name].load())


class Complaints:
    """Failures on their way to whoever is to be told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[str, Options, Failure]] = deque()
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.dropped = 0
        """Failures nobody was told of because too many waited."""

    def put(self, handler: str, options: Options, failure: Failure) -> None:
        """Take a failure; never waits."""
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((handler, options, failure))
        self._idle.clear()
        self._news.set()

    async def told(self) -> None:
        """Wait until everybody has been told of everything."""
        await self._idle.wait()

    async def tell(self) -> None:
        """Tell one failure after the other, for ever.

        Raises:
            BaseException: the error of a failure that the handler ``raise`` lets out.
        """
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    await self._tell(*self._waiting.popleft())
                self._idle.set()
        finally:
            self._idle.set()  # whoever waits for the rest waits in vain

    async def _tell(self, name: str, options: Options, failure: Failure) -> None:
        timestamp = {"timestamp": str(int(self._clock.now() * 1000))}
        try:
            with fail_after(PATIENCE):
                await find(name)(failure, {**options, **timestamp})
        except Escalated:
            raise failure.error from None
        except Exception as error:
            log.error("error handler %s failed: %s", name, error, extra={"job": failure.job})
            await to_log(failure, {})


async def _post_text(url: str, text: str) -> None:
    answer = await _post(url, {"msgtype": "text", "text": {"content": text[:4000]}}, {})
    if isinstance(answer, Mapping) and answer.get("errcode", 0) != 0:
        raise Undelivered(f"refused: {answer.get('errcode')} {answer.get('errmsg', '')}")


async def _post(url: str, body: object, headers: Mapping[str, str]) -> object:
    aiohttp = _extra("aiohttp")
    host = url.partition("?")[0]  # the rest of a robot's address is its key
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as client,
            client.post(url, json=body, headers=headers) as response,
        ):
            if response.status // 100 != 2:
                raise Undelivered(f"{host} answered {response.status}")
            try:
                return cast(object, await response.json(content_type=None))
            except ValueError:
                return None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Undelivered(f"{host}: {type(error).__name__}") from error


def _option(options: Options, name: str) -> str:
    try:
        return options[name]
    except KeyError:
        raise InvalidSetting(f"error_handler_options.{name}", None, "this error handler needs it") from None


def _extra(module: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidSetting("error_handler", module, "needs: pip install 'aioelasticjob[alerts]'") from None


_BUILT_IN: Mapping[str, ErrorHandler] = {
    "log": to_log,
    "ignore": ignore,
    "raise": escalate,
    "email": email,
    "webhook": webhook,
    "dingtalk": dingtalk,
    "wecom": wecom,
}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "email": ("host", "sender", "to"),
    "webhook": ("url",),
    "dingtalk": ("webhook",),
    "wecom": ("webhook",),
}


def check(name: str, options: Options) -> None:
    """See to it that a handler exists and has what it needs, when it is configured rather than when something fails.

    Raises:
        InvalidSetting: it does not, or something is missing.
    """
    find(name)
    for option in _NEEDED.get(name, ()):
        _option(options, option)
