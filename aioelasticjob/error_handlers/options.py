"""The options of the error handlers that send alerts: text in the configuration, checked when they are configured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import getaddresses
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from aioelasticjob.config.mistakes import mistakes, unknown_setting
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.web_addresses import is_web_address
from aioelasticjob.ground.whole_numbers import whole_number

HEADER = "header."
"""The names of options that become headers begin with this."""
HIDDEN = "…"
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = re.compile(r"pass|secret|token|key|auth|credential|cookie", re.IGNORECASE)
_SHOWN = ("allow_unencrypted", "host", "keyword", "port", "sender", "start_tls", "subject", "to", "use_tls", "username")
"""Options whose values may appear in an error's text, and so in a log."""


def _switch(given: object) -> object:
    try:
        return _SWITCHES[str(given).lower()]
    except KeyError:
        raise ValueError('must be "true" or "false"') from None


def _port(given: object) -> object:
    port = whole_number(str(given), digits=5)
    if port is None or not 1 <= port <= 65_535:
        raise ValueError("must be a port from 1 to 65535")
    return port


def _line(given: str) -> str:
    if not given.strip() or not given.isprintable():
        raise ValueError("must be text, on one line")
    return given


def _addresses(given: str) -> str:
    found = [address for _, address in getaddresses([_line(given)])]
    if not found or not all(_ADDRESS.fullmatch(address) for address in found):
        raise ValueError("must be addresses like ops@example.org, with commas between them")
    return given


def _url(given: str) -> str:
    if not is_web_address(given):
        raise ValueError("must be an address like https://host/path")
    return given


Switch = Annotated[bool, BeforeValidator(_switch)]
Port = Annotated[int, BeforeValidator(_port)]
Line = Annotated[str, AfterValidator(_line)]
Addresses = Annotated[str, AfterValidator(_addresses)]
Url = Annotated[str, AfterValidator(_url)]


class AlertOptions(BaseModel):
    """The options that all of these handlers have."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    allow_unencrypted: Switch = False
    """Whether secrets may cross the network unencrypted."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(cls.model_fields)


class Email(AlertOptions):
    """Options of ``email``."""

    host: Line
    port: Port | None = None
    username: Line | None = None
    password: Annotated[str, Field(min_length=1)] | None = None
    use_tls: Switch = False
    """Encrypt the connection from the first byte, as on port 465."""
    start_tls: Switch | None = None
    """Encrypt with STARTTLS; by default if the server offers it, and always before a password is sent."""
    sender: Addresses
    to: Addresses
    subject: str = "[aioelasticjob]"

    @model_validator(mode="after")
    def _options_agree(self) -> Email:
        if (self.username is None) != (self.password is None):
            alone = "password" if self.username is None else "username"
            raise InvalidSetting(alone, None, "username and password are given together or not at all")
        if self.use_tls and self.start_tls:
            raise InvalidSetting("start_tls", None, "use_tls encrypts from the beginning: one of the two is enough")
        if self.start_tls is False and self._needs_encryption:
            raise InvalidSetting(
                "start_tls",
                None,
                'the password would cross the network unencrypted: write start_tls = "true" or use_tls = "true"'
                ' (or allow_unencrypted = "true", if it may)',
            )
        return self

    @property
    def _needs_encryption(self) -> bool:
        if self.password is None or self.use_tls or self.allow_unencrypted:
            return False
        return not is_loopback(self.host)

    @property
    def upgrade(self) -> bool | None:
        """Whether STARTTLS is sent; None if the server offers it."""
        if self.start_tls is None and self._needs_encryption:
            return True
        return self.start_tls


class Webhook(AlertOptions):
    """Options of ``webhook``."""

    url: Url
    headers: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return "url", "allow_unencrypted", f"{HEADER}NAME"

    @model_validator(mode="before")
    @classmethod
    def _with_headers(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        headers = dict[str, Any]()
        others = dict[str, Any]()
        for option, value in given.items():
            if not option.startswith(HEADER):
                others[option] = value
                continue
            name = option.removeprefix(HEADER)
            if not _TOKEN.fullmatch(name) or not set("\r\n\0").isdisjoint(str(value)):
                raise InvalidSetting(option, None, "must be the name of a header, and its value one line")
            headers[name] = value
        return {**others, "headers": headers}

    @model_validator(mode="after")
    def _keeps_secrets(self) -> Webhook:
        if "@" in urlsplit(self.url).netloc:
            _require_encryption(self, "url", self.url, "the password")
        for name in filter(_SECRET.search, self.headers):
            _require_encryption(self, "url", self.url, f"the header {name}")
        return self


class Robot(AlertOptions):
    """Options of ``wecom``."""

    webhook: Url

    @model_validator(mode="after")
    def _keeps_its_key(self) -> Robot:
        _require_encryption(self, "webhook", self.webhook, "the robot's key")
        return self


class DingTalk(Robot):
    """Options of ``dingtalk``."""

    secret: Line | None = None
    keyword: str = ""


AlertOptionsT = TypeVar("AlertOptionsT", bound=AlertOptions)


def parse(model: type[AlertOptionsT], options: Mapping[str, str]) -> AlertOptionsT:
    """Return options as a value.

    Raises:
        InvalidSetting: names the option, its value unless that may be secret, and what would be right.
    """
    for name in options:
        is_header = model is Webhook and name.startswith(HEADER)
        if name not in model.names() and not is_header:
            unknown = unknown_setting(name, HIDDEN, model.names())
            raise _mistake(name, HIDDEN, unknown.expected)
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        wrong = next(mistakes(error))
    if wrong.setting not in options:
        raise _mistake(wrong.setting, None, "this error handler needs it")
    shown = _shown(wrong.setting, options[wrong.setting])
    raise _mistake(wrong.setting, shown, wrong.expected)


def is_loopback(host: str) -> bool:
    """Whether data sent to a host stays on this machine."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def place(url: str) -> str:
    """Return an address for logs, without password, path and query, since each of them may be a secret key."""
    try:
        parts = urlsplit(_url(url))
    except ValueError:
        return HIDDEN
    _, _, host = parts.netloc.rpartition("@")
    rest = f"/{HIDDEN}" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{host}{rest}"


def _mistake(name: str, value: object, expected: str) -> InvalidSetting:
    return InvalidSetting(f"error_handler_options.{name}", value, expected)


def _shown(name: str, value: str) -> str:
    if name in ("url", "webhook"):
        return place(value)
    return value if name in _SHOWN else HIDDEN


def _require_encryption(options: AlertOptions, name: str, url: str, what: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "http" or options.allow_unencrypted or is_loopback(parts.hostname or ""):
        return
    expected = f'{what} would cross the network unencrypted: write https (or allow_unencrypted = "true", if it may)'
    raise InvalidSetting(name, None, expected)
