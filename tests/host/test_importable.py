"""The names under which other processes import users' code."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace

import pytest

from aioelasticjob.host.importable import importable_name


def test_what_users_write_is_named_as_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert importable_name(importable_name) == "aioelasticjob.host.importable:importable_name"
    assert importable_name(functools.partial(importable_name)) == ""

    def report() -> None: ...

    report.__module__ = "__main__"
    for main, name in (
        (SimpleNamespace(__spec__=SimpleNamespace(name="shop.jobs")), "shop.jobs"),
        (SimpleNamespace(__spec__=None, __file__="/srv/shop/jobs.py"), "jobs"),
        (SimpleNamespace(), "__main__"),
    ):
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert importable_name(report).startswith(f"{name}:test_what")
