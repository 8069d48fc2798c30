"""From ``module:app`` to the application it names; each way to get that wrong has a line of its own."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from aioelasticjob.app import ElasticJob
from aioelasticjob.errors import ElasticJobError, InvalidSetting

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_IMPORTS = ("<frozen importlib", importlib.__file__)


class ImportFailed(InvalidSetting):
    """The user's module could not be imported."""


def load(target: str) -> ElasticJob:
    """Import the application, also from the current directory.

    Raises:
        InvalidSetting: there is no such application, or its module cannot be imported.
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
    if not found.jobs:
        raise InvalidSetting("app", target, "declares no job: decorate a function with @app.job(cron=…)")
    return found


def _import(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InvalidSetting(
                "app", target, f"there is no module {error.name!r}, neither in {os.getcwd()} nor installed"
            ) from None
        raise ImportFailed("app", target, f"{_place(error)}: {error}") from error
    except ElasticJobError as error:
        raise ImportFailed("app", target, f"{_place(error)}: {error}") from error
    except SyntaxError as error:
        where = f"{_relative(error.filename or '?')}:{error.lineno}"
        raise ImportFailed("app", target, f"{where}: {type(error).__name__}: {error.msg}") from error
    except Exception as error:
        raise ImportFailed("app", target, f"{_place(error)}: {type(error).__name__}: {error}") from error


def _place(error: Exception) -> str:
    """Return file and line of the user's code that the error comes from: the last that is neither ours nor Python's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, *_IMPORTS))]
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
