"""Starts modules of this package in a new Python, which finds the same modules as this process."""

from __future__ import annotations

import os
import sys
from typing import Final

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def has_interpreter() -> bool:
    """Whether there is a Python to start: not if this program was frozen, or embeds Python."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def python_command(module: str, *arguments: str, unbuffered: bool = False) -> list[str]:
    """Return the command that runs a module as ``python -m`` does.

    The new Python is given this process's ``sys.path``.  So it finds this package, and what that imports, wherever they
    came from: an environment, a path that was added at run time, a zip file, or a directory that a program such as
    shiv has unpacked.  A variable such as ``PYTHONPATH`` would be handed on to the programs that the module starts.
    """
    program = _PROGRAM.format(path=_absolute_paths(), module=module)
    options = ["-P"]
    if unbuffered:
        options.append("-u")
    return [sys.executable, *options, "-c", program, *arguments]


def _absolute_paths() -> list[str]:
    """Return ``sys.path`` for a process that may have another working directory; "" is the present one."""
    found = dict[str, None]()
    for path in sys.path:
        try:
            found[os.path.abspath(path)] = None
        except OSError:  # the working directory was removed, so nothing is found there
            continue
    return [*found]
