"""The names under which other processes import users' functions and classes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def importable_name(thing: Any) -> str:
    """Return ``module:name`` of a function or a class; empty if it has no such name."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return ""
    return f"{main_module() if module == '__main__' else module}:{name}"


def main_module() -> str:
    """Return the name under which other processes import the program that this process runs."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file else "__main__"
