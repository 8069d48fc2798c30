"""What the command line's tests share: a runner in this process, and a directory of a user's modules."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner, Result

from aioelasticjob.cli.application import application

Command = Callable[..., Result]
Write = Callable[[str, str], Path]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, root_log: logging.Logger) -> Command:
    """Runs a command in this process and returns its result, lines as long as they like; the log is as it was then."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("AIOELASTICJOB_REGISTRY", raising=False)
    monkeypatch.delenv("AIOELASTICJOB_DIGEST", raising=False)
    monkeypatch.delenv("AIOELASTICJOB_PROFILE", raising=False)
    monkeypatch.setenv("AIOELASTICJOB_PROFILES", os.devnull)  # not those of whoever runs the tests
    return lambda *arguments: CliRunner().invoke(application, list(arguments))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current directory, which is a fresh one; it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)

    def write(name: str, source: str) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(dedent(source))
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def root_log() -> Iterator[logging.Logger]:
    """The root logger, which is afterwards as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()  # those are pytest's: set_up would close them
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
