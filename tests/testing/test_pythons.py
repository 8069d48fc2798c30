"""The other Pythons are found wherever they are, and one that is not there is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import __main__ as checks
from tests.support import pythons

ABSENT = "3.99"
Script = Callable[[str, str], Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Write programs into folders, which alone are the path, in the order in which they are made."""
    folders: list[str] = []
    monkeypatch.setenv("PATH", "")

    def write(name: str, text: str) -> Path:
        folder = tmp_path / str(len(folders))
        folder.mkdir()
        folders.append(str(folder))
        monkeypatch.setenv("PATH", ":".join(folders))
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return write


def test_a_shim_that_does_not_work_is_passed_over(script: Script) -> None:
    script(f"python{ABSENT}", "exit 127")
    script(f"python{ABSENT}", "echo 3.98")
    right = script(f"python{ABSENT}", f"echo {ABSENT}")
    assert pythons.interpreter(ABSENT) == str(right)


def test_pyenv_is_asked_for_what_is_not_on_the_path(script: Script, tmp_path: Path) -> None:
    there = tmp_path / "versions" / "bin" / f"python{ABSENT}"
    there.parent.mkdir(parents=True)
    there.write_text(f"#!/bin/sh\necho {ABSENT}\n")
    there.chmod(0o755)
    script("pyenv", f'test "$1 $2" = "prefix {ABSENT}" && echo {there.parent.parent}')
    assert pythons.interpreter(ABSENT) == str(there)


def test_neither_path_nor_pyenv_has_it(script: Script) -> None:
    script("pyenv", "exit 1")
    assert pythons.interpreter(ABSENT) is None


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ((3, 11), ["3.11", "3.12", "3.13"]),
        ((3, 12), ["3.11", "3.13"]),
        ((3, 13), ["3.11", "3.12"]),
        ((3, 14), ["3.11", "3.12", "3.13"]),
    ],
)
def test_all_but_the_own_version_have_a_check_and_so_has_the_one_of_the_lowest_dependencies(
    own: tuple[int, int], others: list[str]
) -> None:
    assert pythons.besides(own) == others


def test_a_python_that_is_not_there_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = list(checks.PYTHONS)[:1]
    monkeypatch.setattr(pythons, "interpreter", lambda version: None)
    monkeypatch.setattr(sys, "argv", ["tests", "--no-setup", name])
    assert checks.main() == 0
    assert f"NOT RUN: {name}" in capsys.readouterr().out


def test_the_lowest_dependencies_are_installed_on_the_lowest_python_only() -> None:
    for version in pythons.VERSIONS:
        steps = [" ".join(map(str, step)) for step in pythons.commands(version, Path(), Path("bin"))]
        assert ("--resolution lowest-direct" in steps[1]) == (version == pythons.LOWEST)
        assert ("--resolution highest" in steps[1]) == (version != pythons.LOWEST)
