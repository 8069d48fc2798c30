"""Imports of users' modules by other processes, and by commands that only look at what a module declares."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aioelasticjob.errors import InvalidSetting

GUARD = 'if __name__ == "__main__": app.run()'
"""The line that a module needs at its end if it is run as well as imported."""
_imported = list[str]()
"""The modules that commands import now."""


def importable_name(thing: Any) -> str:
    """Return ``module:name`` of a function or a class; empty if it has no such name."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return ""
    if module == "__main__":
        module = main_module()
    return f"{module}:{name}"


def main_module() -> str:
    """Return the name under which other processes import the program that this process runs."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    if file:
        return Path(file).stem
    return "__main__"


@contextmanager
def only_declaring(module: str) -> Iterator[None]:
    """Refuse to run jobs while the block imports a module, which should only declare them."""
    _imported.append(module)
    try:
        yield
    finally:
        _imported.pop()


def refuse_while_imported() -> None:
    """Return if jobs may run now.

    Otherwise a command would start them while it imports their module, and again when they have ended; and so would
    each process that multiprocessing starts, because it imports the main module of its parent.

    Raises:
        InvalidSetting: a command imports a module of jobs, or a process of ``executor="process"`` its parent's.
    """
    if _imported:
        importer = f"while {_imported[-1]} is imported, by a command that runs the jobs itself or only looks at them"
    elif getattr(multiprocessing.current_process(), "_inheriting", False):
        importer = "while a process for plain functions imports the main module of its parent"
    else:
        return
    raise InvalidSetting("run", importer, f"write {GUARD}")
