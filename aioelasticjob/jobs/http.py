"""HTTP jobs: each run makes one request, and its status decides the outcome."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from aioelasticjob.errors import ElasticJobError, InvalidSetting, error_text
from aioelasticjob.ground.credentials import SECRET
from aioelasticjob.ground.web_addresses import is_web_address
from aioelasticjob.jobs.context import AnyContext, described
from aioelasticjob.jobs.kinds import Kind, Options

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

CONNECT_TIMEOUT = 30.0
"""Seconds that connecting may take, even if the run has no time limit."""
DEFAULT_TIMEOUT = 60.0
"""Seconds a run may take unless the job's ``timeout`` says otherwise: a server that hangs must not hold its item."""
MAX_HEADER_CHARACTERS = 8_000
"""Characters that a header may have: most servers refuse more than 8 KiB."""
QUOTED_CHARACTERS = 500
"""Characters of an unexpected answer that the failure quotes."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STATUS = re.compile(r"[1-5](\d\d|xx)")
_BODILESS = ("GET", "HEAD", "OPTIONS", "TRACE")
_OF_THE_BODY = ("content-type", "content-length", "content-encoding", "transfer-encoding")
"""Headers that say how the body is to be read; they go wherever it goes."""


class RequestFailed(ElasticJobError):
    """A request could not be made, or its answer was not the expected one."""

    explains_itself = True

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        """The status of the answer; None if there was no answer."""


def _statuses(given: object) -> object:
    """Return statuses as a tuple; one status is accepted as well as several, and numbers as well as ``2xx``."""
    several = given if isinstance(given, list | tuple) else [given]
    statuses = [str(one).lower() for one in several]
    for status in statuses:
        if not _STATUS.fullmatch(status):
            raise ValueError(f"{status!r} is no status such as 204, nor a class of them such as '2xx'")
    return statuses


class Request(Options):
    """The settings that only HTTP jobs have."""

    # after a change of settings or of texts below them: python -m tests.generate
    url: Annotated[str, SECRET]
    """The address, `http://…` or `https://…`."""
    method: str = "GET"
    """The method of the request."""
    headers: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """The headers of the request."""
    environment_headers: dict[str, str] = Field(default_factory=dict)
    """Maps a header to the environment variable with its value. The variable is read where the job runs, so a secret is
    not stored in the registry."""
    body: JsonValue = None
    """The body; a string is sent as it is, anything else as JSON."""
    pass_context: Literal["header", "body", "none"] = "header"
    """Where the context is sent, as the JSON that a script gets: `"header"`, `"body"` or `"none"`."""
    context_header: str = "shardingContext"
    """The name of the header with the context; the default is that of ElasticJob 3."""
    expected_status: Annotated[list[str], BeforeValidator(_statuses), Field(min_length=1)] = Field(default=["2xx"])
    """The statuses that mean success: `204`, `"2xx"`, or a list of these."""
    follow_redirects: bool = True
    """Whether redirects are followed."""
    verify_tls: bool = True
    """Whether the server's certificate is checked; with `False`, any certificate is accepted."""

    @field_validator("url")
    @classmethod
    def _leads_somewhere(cls, url: str) -> str:
        if not is_web_address(url):
            raise ValueError("must be an address like https://host:port/path")
        return url

    @field_validator("method")
    @classmethod
    def _is_a_method(cls, method: str) -> str:
        if not _TOKEN.fullmatch(method):
            raise ValueError("must be a method such as GET or POST")
        return method.upper()

    @field_validator("body")
    @classmethod
    def _is_json(cls, body: JsonValue) -> JsonValue:
        try:
            json.dumps(body, allow_nan=False)
        except ValueError:  # the registry would have null in its place
            raise ValueError("must have no NaN and no infinity, which JSON cannot spell") from None
        return body

    @field_validator("headers", "environment_headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")
            if not set("\r\n\0").isdisjoint(value):
                raise ValueError(f"the value of {name} must be one line")
        return headers

    @field_validator("context_header")
    @classmethod
    def _is_a_header(cls, name: str) -> str:
        if not _TOKEN.fullmatch(name):
            raise ValueError("is no name of a header")
        return name

    @model_validator(mode="after")
    def _can_be_sent(self) -> Request:
        if self.pass_context == "body":
            if self.body is not None:
                raise InvalidSetting("pass_context", "body", "the body is given already: pass it as 'header'")
            if self.method in _BODILESS:
                raise InvalidSetting("pass_context", "body", f"a {self.method} has none: use method = 'POST'")
        return self

    def expects(self, status: int) -> bool:
        """Return whether a status means success."""
        status_class = f"{status // 100}xx"
        return str(status) in self.expected_status or status_class in self.expected_status

    @property
    def shown(self) -> str:
        """The request as text for people, without user, password and query, which may be secret."""
        parts = urlsplit(self.url)
        _, _, host = parts.netloc.rpartition("@")
        return f"{self.method} {parts.scheme}://{host}{parts.path}"


def check(options: Request) -> None:
    """Check that this process can make the requests.

    Raises:
        InvalidSetting: aiohttp is not installed, or a variable that a header comes from is not set, or not one line.
    """
    try:
        import aiohttp  # noqa: F401  # whether it is there
    except ImportError:
        raise InvalidSetting("kind", "http", "needs: pip install 'aioelasticjob[http]'") from None
    _secrets(options)


async def run(context: AnyContext, options: Request) -> None:
    """Make the request once and wait for the whole answer.

    Raises:
        RequestFailed: it could not be made, or its status is not an expected one.
    """
    check(options)
    import aiohttp
    from yarl import URL

    headers, body = _message(context, options)
    # the run's timeout limits the whole request
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
    given = (*options.headers, *options.environment_headers)
    own = [name for name in given if name.lower() not in _OF_THE_BODY]
    try:
        send = partial(_send, URL(options.url), own)
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.request(
                options.method,
                options.url,
                headers=headers,
                data=body,
                allow_redirects=options.follow_redirects,
                ssl=True if options.verify_tls else _anybody(),
                middlewares=(send,),
            ) as answer,
        ):
            said = await _read(answer)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise RequestFailed(f"{options.shown}: {_reason(error)}") from error
    if not options.expects(answer.status):
        expected = ", ".join(options.expected_status)
        asked = options.shown
        if answer.history:
            asked += f", redirected to {answer.url.origin()},"
        raise RequestFailed(f"{asked} answered {answer.status}, expected {expected}: {said}", answer.status)
    context.log.info("%s answered %d", options.shown, answer.status, extra={"status": answer.status})


async def _send(
    url: URL, own: Iterable[str], request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request; one that is redirected to another host, port or scheme has none of the job's ``own`` headers.

    They may be secret, and are meant for the server in ``url``.  The port may be given there, or be the default.
    """
    to = request.url
    if (to.scheme, to.host, to.port) != (url.scheme, url.host, url.port):
        for name in own:
            request.headers.popall(name, None)
        request.headers.setdefault("Host", to.host_port_subcomponent or "")  # the job may have had its own
    return await send(request)


def _reason(error: Exception) -> str:
    """Return why there was no answer, without the addresses that aiohttp's texts contain: these may be secret."""
    import aiohttp

    if isinstance(error, aiohttp.ClientResponseError):
        message = " ".join(error.message.split())
        return ": ".join(filter(None, (type(error).__name__, message)))
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):  # where a redirection leads
        return type(error).__name__
    return error_text(error)


def _message(context: AnyContext, options: Request) -> tuple[dict[str, str], bytes | None]:
    """Return the headers and the body of a request; configured headers override ours."""
    headers = {**options.headers, **_secrets(options)}
    named = {name.lower() for name in headers}
    body = options.body
    description = described(context)
    if options.pass_context == "header" and options.context_header.lower() not in named:
        if len(description) > MAX_HEADER_CHARACTERS:
            raise RequestFailed(
                f"the context is too large for a header ({len(description)} characters): pass it as 'body'"
            )
        headers[options.context_header] = description
    if options.pass_context == "body":
        text = description
    elif body is None:
        return headers, None
    else:
        text = body if isinstance(body, str) else json.dumps(body)
    if "content-type" not in named:
        headers["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    return headers, text.encode()


def _secrets(options: Request) -> dict[str, str]:
    found = dict[str, str]()
    for header, variable in options.environment_headers.items():
        value = os.environ.get(variable)
        if value is None:
            raise InvalidSetting("environment_headers", variable, "this environment variable is not set on this host")
        if not set("\r\n").isdisjoint(value):
            raise InvalidSetting("environment_headers", variable, "this environment variable is not one line")
        found[header] = value
    return found


def _anybody() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _read(answer: aiohttp.ClientResponse) -> str:
    """Read the answer to its end, which may be far, and return only its beginning."""
    most = 4 * QUOTED_CHARACTERS  # bytes: no character takes more than four
    beginning = b""
    async for chunk in answer.content.iter_chunked(65_536):
        missing = most - len(beginning)
        beginning += chunk[:missing]
    words = beginning.decode("utf-8", "replace").split()
    return " ".join(words)[:QUOTED_CHARACTERS]


KIND = Kind(Request, run, check, {"timeout": DEFAULT_TIMEOUT})
