"""Finding error handlers by their names: the built-in ones, and those that packages add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from aioelasticjob.error_handlers import alerts
from aioelasticjob.error_handlers.failure import ErrorHandler, Options, escalate, ignore, to_log
from aioelasticjob.error_handlers.options import AlertOptions, DingTalk, Email, Robot, Webhook, parse
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.host.plugins import load

_BUILT_IN: Mapping[str, ErrorHandler] = {
    "log": to_log,
    "ignore": ignore,
    "raise": escalate,
    "email": alerts.email,
    "webhook": alerts.webhook,
    "dingtalk": alerts.dingtalk,
    "wecom": alerts.wecom,
}
_OPTIONS: Mapping[str, type[AlertOptions]] = {"email": Email, "webhook": Webhook, "dingtalk": DingTalk, "wecom": Robot}


@cache
def find(name: str) -> ErrorHandler:
    """Return the error handler of that name.

    Raises:
        InvalidSetting: there is none, or its package cannot be used.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    found = load("error_handler", name, _others().get(name), sorted({*_BUILT_IN, *_others()}))
    if not callable(found):
        raise InvalidSetting("error_handler", name, f"its entry point leads to a {type(found).__name__}, no function")
    return cast(ErrorHandler, found)


def check(name: str, options: Options) -> None:
    """Check that an error handler exists and that its options are right.  Done when it is configured, before any
    failure.

    The options of ``log``, ``ignore``, ``raise`` and of handlers from packages are not checked: a job may be switched
    to ``log`` for a while and keep the options of another handler.

    Raises:
        InvalidSetting: it does not, or they are not.
    """
    find(name)
    if name in _OPTIONS:
        parse(_OPTIONS[name], options)


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Return the handlers that packages add; they are listed once, since each change may ask for an unknown name."""
    return {point.name: point for point in entry_points(group="aioelasticjob.error_handlers")}
