"""Whose code a file holds, judged by its path: this package's, Python's own, an installed package's, or the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_PYTHONS: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Directories of installed packages; they may lie inside the one of Python's own modules."""


def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return not _INSTALLED.isdisjoint(Path(file).parts)


def is_ours_or_pythons(file: str) -> bool:
    """Return whether a file belongs to this package or to Python, or is none at all, as ``<frozen importlib>``."""
    if file.startswith(("<", _OURS)):
        return True
    return file.startswith(_PYTHONS) and not is_installed(file)
