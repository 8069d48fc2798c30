"""The options behind the ``?`` of a database's URL: they are text, and the driver takes numbers and switches, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.credentials import HIDDEN

if TYPE_CHECKING:
    from sqlalchemy import URL

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_OTHER_NAMES = {"sslmode": "ssl"}
_PLACE = frozenset({"host", "port"})
"""Options that say where the database is: SQLAlchemy reads them, since they may name several servers."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an option takes."""

    expected: str
    read: Callable[[str], Any]
    """Returns the value that the driver takes; raises a ValueError or a KeyError if there is none."""


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if (number := int(text)) < least:
            raise ValueError
        return number

    return read


def _seconds(text: str) -> float:
    if not 0 < (number := float(text)) < math.inf:
        raise ValueError
    return number


def _switch(text: str) -> bool:
    return _SWITCHES[text.lower()]


def _one_of(*names: str, **others: Any) -> _Kind:
    """Return a kind that takes one of these texts, or of others, which stand for a value."""
    values = {**{name: name for name in names}, **others}
    return _Kind(f"one of {', '.join(values)}", values.__getitem__)


_TEXT = _Kind("text", str)
_WHOLE = _Kind("a whole number, 0 or more", _whole(0))
_SECONDS = _Kind("a number of seconds above 0", _seconds)
_WHOLE_SECONDS = _Kind("a whole number of seconds above 0", _whole(1))
_SWITCH = _Kind("true or false", _switch)
_BY_DEFAULT: Mapping[type, _Kind] = {bool: _SWITCH, int: _WHOLE, float: _SECONDS}
"""What an option takes, by the type of its default."""

_OF_SQLITE = {
    "cached_statements": _WHOLE,
    "check_same_thread": _SWITCH,
    "detect_types": _WHOLE,
    "isolation_level": _one_of("DEFERRED", "IMMEDIATE", "EXCLUSIVE"),
    "timeout": _SECONDS,
    "uri": _SWITCH,
}
_OF_ASYNCPG = {
    "command_timeout": _SECONDS,
    "direct_tls": _SWITCH,
    "gsslib": _one_of("gssapi", "sspi"),
    "prepared_statement_cache_size": _WHOLE,  # of SQLAlchemy
    "ssl": _one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full", true=True, false=False),
    "target_session_attrs": _one_of("any", "primary", "standby", "prefer-standby", "read-write", "read-only"),
    "timeout": _SECONDS,
}
_OF_ASYNCMY = {
    "connect_timeout": _WHOLE_SECONDS,
    "read_timeout": _WHOLE_SECONDS,
    "ssl": _one_of(true={"check_hostname": False}, false=None),  # 0.2.10 takes True for False
    "ssl_ca": _TEXT,
    "ssl_capath": _TEXT,
    "ssl_cert": _TEXT,
    "ssl_check_hostname": _SWITCH,
    "ssl_cipher": _TEXT,
    "ssl_key": _TEXT,
}
_NOT_TEXT = {
    "asyncpg": frozenset({"dsn", "loop", "connection_class", "record_class", "server_settings"}),
    "asyncmy": frozenset(
        {"auth_plugin_map", "conv", "cursor_cls", "init_command", "password_creator", "query_callback", "sock"}
    ),
}
"""Arguments of the drivers that no text can stand for, and ``init_command``, which the event store needs itself."""


def connect_options(url: URL, shown: str) -> dict[str, Any]:
    """Return the options of a URL as its driver takes them; ``shown`` is the URL for an error.

    Raises:
        InvalidSetting: the driver has no such option, or does not take the value.
    """
    driver = url.get_driver_name()
    kinds = _kinds(url.get_driver_name())
    given = {name: value for name, value in url.query.items() if name not in _PLACE}
    if driver == "aiosqlite" and "uri" in given:  # with it, the others are SQLite's
        given = {name: value for name, value in given.items() if name in kinds}
    options = dict[str, Any]()
    for name, value in given.items():
        if name not in kinds:
            raise InvalidSetting("event_store", shown, _unknown(driver, name, kinds))
        try:
            options[name] = kinds[name].read(_single(value))
        except (ValueError, KeyError):
            written = HIDDEN if "pass" in name or value == url.password else repr(value)[:80]
            expected = f"{driver}'s option {name} = {written} behind the ?: must be {kinds[name].expected}"
            raise InvalidSetting("event_store", shown, expected) from None
    if driver == "asyncmy":
        options = _without_tls_files(options)
    return options


def _single(value: str | tuple[str, ...]) -> str:
    if isinstance(value, tuple):  # it is written twice
        raise ValueError
    return value


def _kinds(driver: str) -> Mapping[str, _Kind]:
    """Return what each option takes that can be written behind the ``?``."""
    if driver == "aiosqlite":
        return _OF_SQLITE
    known = _OF_ASYNCPG if driver == "asyncpg" else _OF_ASYNCMY
    parameters = signature(import_module(driver).connect).parameters.values()
    found = {one.name: _kind_of(one) for one in parameters if one.name not in _NOT_TEXT[driver] | _PLACE}
    return {**found, **known}


def _kind_of(parameter: Parameter) -> _Kind:
    return _BY_DEFAULT.get(type(parameter.default), _TEXT)


def _without_tls_files(options: dict[str, Any]) -> dict[str, Any]:
    """Leave to SQLAlchemy the options from which it makes one for TLS: then a further switch says nothing more."""
    files = {name for name in options if name.startswith("ssl_")}
    left_out = {*files, "ssl"} if files else files
    return {name: value for name, value in options.items() if name not in left_out}


def _unknown(driver: str, name: str, kinds: Iterable[str]) -> str:
    if name in _NOT_TEXT.get(driver, ()):
        return f"{driver}'s option {name} cannot be written behind the ?: leave it out"
    known = sorted(kinds)
    near = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, known, n=1)), None)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(known)}"
    return f"{driver} has no option {name[:80]!r} behind the ?: {hint}"
