"""How often a failed call is tried again, after which errors, and with what pauses."""

from __future__ import annotations

import builtins
import random
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.util import find_spec
from math import inf
from typing import Any, TypeAlias

from anyio import sleep
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from aioelasticjob.config.durations import Duration, as_seconds
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.host.importable import importable_name, main_module

Call: TypeAlias = Callable[..., Awaitable[object]]
Kinds: TypeAlias = type[Exception] | str | Sequence[type[Exception] | str]
"""Classes of exceptions, or their names: ``ConnectionError``, or ``module:Class`` if it is not one of Python's own."""
MAX_DOUBLINGS = 64
"""How often a pause doubles at most; it is bounded by ``longest`` long before."""
_KINDS = "must be an exception class, the name of one, or several of them"
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*")


class NameOfClass(str):
    """The name of a class that was given, so it needs no check: the class may be in no module under this name."""


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often a run is tried that raises, or ``process`` of a dataflow for one record, and with what pauses.

    ``backoff`` is the pause in seconds before the second attempt; it doubles with each further one up to ``longest``,
    and each is shortened by up to half at random so that many runs or records do not come back at the same moment.

    Raises:
        InvalidSetting: a number that makes no sense, or an exception that is none.
    """

    attempts: int
    """How often it is tried in all, the first time included."""
    backoff: float
    on: tuple[str, ...]
    """The names of the exceptions after which it is tried again; their subclasses count, too."""
    longest: float

    def __init__(
        self, attempts: int = 3, backoff: Duration = 0.1, on: Kinds = Exception, longest: Duration = 30.0
    ) -> None:
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise InvalidSetting("retry.attempts", attempts, "must be a whole number, at least 1")
        several = on if isinstance(on, Sequence) and not isinstance(on, str) else (on,)
        if not several:
            raise InvalidSetting("retry.on", on, _KINDS)
        names = [_name_of(one) for one in several]
        object.__setattr__(self, "attempts", attempts)
        object.__setattr__(self, "backoff", _seconds("backoff", backoff))
        object.__setattr__(self, "on", tuple(dict.fromkeys(names)))
        object.__setattr__(self, "longest", _seconds("longest", longest))

    @classmethod
    def of(cls, given: object) -> Retry:
        """Return a retry from what files, command lines or the registry hold: a mapping, or one as JSON text.

        Raises:
            InvalidSetting: names the part that is wrong, its value and what would be right.
        """
        if isinstance(given, str):
            with suppress(ValueError):  # what is no JSON is refused below
                given = read_json(given)
        if isinstance(given, cls):
            return given
        known = [one.name for one in fields(cls)]
        if not isinstance(given, Mapping):
            expected = f"must be a Retry, or a mapping with any of {', '.join(known)}"
            raise InvalidSetting("retry", given, f'{expected}, such as {{"attempts": 5, "backoff": "2s"}}')
        for name, value in given.items():
            if name not in known:
                raise InvalidSetting(f"retry.{name}", value, f"there is no such setting; known are {', '.join(known)}")
        attempts = given.get("attempts")
        if isinstance(attempts, str) and attempts.strip().isdecimal():  # a variable of the environment is text
            given = {**given, "attempts": int(attempts)}
        return cls(**given)

    def as_json(self) -> dict[str, object]:
        """Return what the registry stores."""
        return {"attempts": self.attempts, "backoff": self.backoff, "on": list(self.on), "longest": self.longest}

    def check_names(self) -> None:
        """Check names that somebody has written, as far as that is possible without importing a module.

        Raises:
            InvalidSetting: there is no such module, or it has been imported and has no such class of exceptions.
        """
        for name in self.on:
            module, _, qualname = name.rpartition(":")
            if isinstance(name, NameOfClass) or not module or "<locals>" in qualname:
                continue
            known = sys.modules.get("__main__" if module == main_module() else module)
            if known is None and not _is_found(module):
                raise InvalidSetting("retry.on", name, f"there is no module {module!r}")
            spec = getattr(known, "__spec__", None)
            if known is None or getattr(spec, "_initializing", False):  # it is being imported at this moment
                continue
            modules = (known, *_loaded_below(module))
            if not any(_is_exception(one, qualname) for one in modules):
                raise InvalidSetting("retry.on", name, f"the module {module!r} has no such class of exceptions")

    def applies_to(self, error: BaseException) -> bool:
        """Whether an attempt that has raised this error may be followed by a further one."""
        return any(_is_called(kind, name) for kind in type(error).__mro__ for name in self.on)

    def pause_after(self, attempt: int) -> float:
        """Return the seconds between an attempt, counted from 1, and the next one."""
        pause = self.backoff * 2.0 ** min(attempt - 1, MAX_DOUBLINGS)
        return min(pause, self.longest) * random.uniform(0.5, 1)

    def wraps(self, call: Call) -> Call:
        """Return ``call`` with its further attempts; the first attempt has no overhead."""

        async def attempt(*given: Any, **named: Any) -> object:
            for number in range(1, self.attempts):
                try:
                    return await call(*given, **named)
                except Exception as error:
                    if not self.applies_to(error):
                        raise
                await sleep(self.pause_after(number))
            return await call(*given, **named)

        return attempt

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(cls.as_json)
        return core_schema.no_info_plain_validator_function(cls.of, serialization=written)


def _loaded_below(package: str) -> list[object]:
    """Return the modules of a package that were imported: a class may be named by its package."""
    return [module for name, module in sys.modules.copy().items() if name.startswith(f"{package}.")]


def _is_exception(module: object, qualname: str) -> bool:
    found = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and issubclass(found, Exception)


def _seconds(name: str, given: Duration) -> float:
    try:
        seconds = as_seconds(given)
    except ValueError as wrong:
        raise InvalidSetting(f"retry.{name}", given, str(wrong)) from None
    if not (isinstance(seconds, int | float) and 0 <= seconds < inf):
        raise InvalidSetting(f"retry.{name}", given, "must be seconds, 0 or more")
    return float(seconds)


def _name_of(kind: object) -> str:
    """Return the name by which a class of exceptions is stored; a name that is given is checked."""
    if isinstance(kind, type) and issubclass(kind, Exception):
        if kind.__module__ == "builtins":
            return kind.__qualname__
        return NameOfClass(importable_name(kind))
    if isinstance(kind, str):
        own = getattr(builtins, kind, None)
        if _NAME.fullmatch(kind) or (isinstance(own, type) and issubclass(own, Exception)):
            return kind
        raise InvalidSetting("retry.on", kind, "must name an exception of Python's, or another one as module:Class")
    raise InvalidSetting("retry.on", kind, _KINDS)


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a package around it is missing, or no package
        return False


def _is_called(kind: type, name: str) -> bool:
    """Whether a class has this name; packages offer classes of their inner modules, so their names count, too."""
    module, _, qualname = name.rpartition(":")
    if kind.__qualname__ != qualname:
        return False
    own, _, _ = importable_name(kind).rpartition(":")
    if not module:
        return own == "builtins"
    return own == module or own.startswith(f"{module}.")
