"""Executors that packages add, as tests add them: by a name, without a package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from aioelasticjob.jobs import executors


@contextmanager
def added(**found: object) -> Iterator[None]:
    """Add entry points by name; one that leads to an exception cannot be loaded."""

    def load(target: object) -> object:
        if isinstance(target, Exception):
            raise target
        return target

    points = [SimpleNamespace(name=name, load=lambda target=target: load(target)) for name, target in found.items()]
    with mock.patch.object(executors, "entry_points", return_value=points):
        _forget()
        yield
    _forget()


def _forget() -> None:
    executors.find.cache_clear()
    executors._others.cache_clear()
