"""The other Pythons are found wherever they are, and one that is not there is named."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import __main__ as checks
from tests import sid
from tests.support import pythons

ROOT = Path(__file__).resolve().parents[2]
CLASSIFIER = "Programming Language :: Python :: "
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
        ((3, 11), ["3.11", "3.12", "3.13", "3.14", "3.15"]),
        ((3, 12), ["3.11", "3.13", "3.14", "3.15"]),
        ((3, 15), ["3.11", "3.12", "3.13", "3.14"]),
        ((3, 16), ["3.11", "3.12", "3.13", "3.14", "3.15"]),
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


def test_the_versions_that_the_checks_run_on_are_the_ones_that_the_package_and_its_pages_promise() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [one.removeprefix(CLASSIFIER) for one in project["classifiers"] if one.startswith(CLASSIFIER)]
    assert tuple(named) == pythons.VERSIONS
    assert project["requires-python"] == f">={pythons.LOWEST}"
    promise = f"Python {pythons.LOWEST} to {pythons.VERSIONS[-1]}"
    for page in ("README.md", "docs/tutorial/first-job.md"):
        assert promise in (ROOT / page).read_text(), page
    platforms = (ROOT / "docs/reference/platforms.md").read_text()
    assert all(version in platforms for version in pythons.VERSIONS)


def test_sid_has_the_pythons_that_stable_machines_do_not_have() -> None:
    assert set(sid.VERSIONS) < set(pythons.VERSIONS)
    assert checks.SID.keys() < checks.LONG.keys()


@pytest.mark.parametrize(("asked", "installed"), [("sid-zookeeper", True), ("ruff", False)])
def test_debootstrap_is_installed_for_the_checks_that_need_it(
    asked: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = set[str]()
    monkeypatch.setattr(checks, "set_up", lambda allow_skips, needed, environment: packages.update(needed))
    monkeypatch.setattr(checks, "passes", lambda *check: True)
    monkeypatch.setattr(sys, "argv", ["tests", asked])
    assert checks.main() == 0
    assert ("debootstrap" in packages) is installed


def test_a_directory_that_is_no_chroot_is_left_alone(tmp_path: Path, script: Script) -> None:
    script("debootstrap", "exit 1")
    with pytest.raises(SystemExit, match="is no chroot, or one that was not completed: remove it"):
        sid.make(tmp_path)


def test_in_sid_the_same_suites_run_as_on_the_pythons_of_the_machine_and_others_besides() -> None:
    *setup, suites, others = sid.steps("python3.15")
    *usual_setup, usual_suites = pythons.commands("3.15", ROOT, sid.TOOLS)
    assert suites == usual_suites
    assert others[: len(sid.MAY_SKIP) + 1] == [*sid.MAY_SKIP, suites[0]]
    assert [place for place in others if str(place).startswith("tests/")] == list(sid.OTHER_SUITES)
    assert all((ROOT / place).is_dir() for place in sid.OTHER_SUITES)
    assert setup[1:] == usual_setup[1:]
    assert "/usr/bin/python3.15" in setup[0]


def test_a_suite_that_has_failed_does_not_keep_the_next_one_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / sid.MADE).touch()
    ran: list[object] = []

    def fail(chroot: Path, command: Sequence[str | Path], directory: Path = ROOT) -> int:
        ran.append(command)
        return 1

    monkeypatch.setattr(sid, "run", fail)
    monkeypatch.setattr(sid, "show", lambda chroot: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.argv", ["sid", "python3.14", "--directory", str(tmp_path)])
    assert sid.main() == 1
    assert ran == [*sid.steps("python3.14")]


def test_the_suites_of_zookeeper_run_on_the_first_python_of_sid() -> None:
    *_, suites = sid.steps("zookeeper")
    assert "-m zookeeper" in " ".join(map(str, suites))
    assert str(suites[0]).startswith(f"{ROOT}/.venv-python{sid.VERSIONS[0]}/")
    assert all((ROOT / place).exists() for place in sid.SUITES_OF_ZOOKEEPER)
