"""Finds the application that ``module:app`` names; each mistake in such a name has its own error message."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from aioelasticjob.app import ElasticJob
from aioelasticjob.errors import ElasticJobError, InvalidSetting, error_text
from aioelasticjob.host.code_origin import is_installed, is_ours_or_pythons
from aioelasticjob.host.importable import only_declaring
from aioelasticjob.logging import logger

log = logger(__name__)


class ImportFailed(ElasticJobError):
    """The user's module could not be imported; its cause says why."""

    names_page = False

    def __init__(self, module: str, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.module, self.place, self.reason = module, place, reason


def load(target: str, *, jobs_may_come: bool = False) -> ElasticJob:
    """Import the application, also from the current directory; its jobs may come from a settings file.

    Raises:
        InvalidSetting: there is no such application.
        ImportFailed: its module cannot be imported.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise InvalidSetting("app", target, f"write module:app, as {_suggestion(module_name, name)}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, target)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidSetting("app", target, f"{module_name} has no {name!r}; {_there_are(module)}")
        found = getattr(found, part)
    if not isinstance(found, ElasticJob):
        kind = type(found).__name__
        raise InvalidSetting("app", target, f"{name} is no ElasticJob but of type {kind}; {_there_are(module)}")
    if not (found.jobs or found.handlers or jobs_may_come):
        raise InvalidSetting("app", target, "declares no job: decorate a function with @app.job(cron=…)")
    return found


def _import(name: str, target: str) -> ModuleType:
    try:
        with only_declaring(name):
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        log.debug("cannot import", exc_info=True, extra={"imported": name})
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            hint = f"; did you mean {_suggestion(name, target.partition(':')[2])}?" if name.endswith(".py") else ""
            places = f"neither in {os.getcwd()} nor installed"
            raise InvalidSetting("app", target, f"there is no module {error.name!r}, {places}{hint}") from None
        raise ImportFailed(name, _place(error), f"{_reason(error)}{_more(name, error)}") from error


def _reason(error: BaseException) -> str:
    match error:
        case ElasticJobError() | ModuleNotFoundError():
            return str(error)
        case SyntaxError():
            return f"{type(error).__name__}: {error.msg}"
        case SystemExit():
            return f"the module ends the process (SystemExit {error.code}) where it should only declare jobs"
        case _:
            return error_text(error)


def _more(name: str, error: BaseException) -> str:
    """Return how to see the whole stack, unless the message of the error says all."""
    if isinstance(error, ElasticJobError | ModuleNotFoundError | SystemExit):
        return ""
    return f' (the whole stack: python -c "import {name}")'


def _place(error: BaseException) -> str:
    """Return file and line of the user's code that led to the error.

    That is the last line that is neither ours nor Python's nor an installed package's; or the last one of an installed
    package, if the module itself is in one.
    """
    if isinstance(error, SyntaxError) and os.path.isfile(error.filename or ""):
        return f"{_relative(str(error.filename))}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not is_ours_or_pythons(frame.filename)]
    theirs = [frame for frame in foreign if not is_installed(frame.filename)] or foreign
    return f"{_relative(theirs[-1].filename)}:{theirs[-1].lineno}" if theirs else "while importing"


def _relative(path: str) -> str:
    try:
        return str(Path(path).relative_to(os.getcwd()))
    except ValueError:
        return path


def _there_are(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, ElasticJob)]
    if not names:
        return f"{module.__name__} declares none: write app = ElasticJob('zk://host:2181/namespace')"
    return f"there is {', '.join(f'{module.__name__}:{name}' for name in names)}"


def _suggestion(module: str, name: str) -> str:
    dotted = module.strip().removeprefix("./").removesuffix(".py").replace("/", ".").replace("\\", ".").strip(".")
    if not dotted or not all(part.isidentifier() for part in dotted.split(".")):
        dotted = "jobs"
    return f"{dotted}:{name if name.isidentifier() else 'app'}"
