"""The other Pythons of this machine: where they are, and what runs on each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
"""The Pythons that this package promises to run on."""
LOWEST = VERSIONS[0]
"""The Python that runs with the lowest allowed versions of the dependencies; the others run with the newest."""
SUITES = (
    *("tests/test_*.py", "tests/config", "tests/cron", "tests/error_handlers", "tests/ground", "tests/host"),
    *("tests/integrations", "tests/jobs", "tests/registry", "tests/settings"),
    *("tests/engine/test_cancellation.py", "tests/engine/test_executors.py", "tests/engine/test_process_worker.py"),
    "tests/engine/test_turns.py",
)
"""Suites that meet what differs between Pythons and versions of dependencies, in some two minutes of processor time."""
LEFT_OUT = (
    "tests/test_app.py::test_a_thousand_jobs_join_and_leave",
    "tests/registry/test_mirror.py::test_a_mirror_is_equal_to_the_tree_after_any_changes_and_faults",
)
"""They take long, and show nothing that depends on the Python."""
ONE_PROCESS = "not simulation and not process and not zookeeper"
OPTIONS = ("-q", "-n", "4", "--dist", "worksteal", "-m", ONE_PROCESS, *(f"--deselect={test}" for test in LEFT_OUT))


def besides(own: tuple[int, int]) -> list[str]:
    """Return the versions that have a check of their own: all but the one that everything runs on, and the lowest."""
    return [version for version in VERSIONS if version == LOWEST or version != "{}.{}".format(*own)]


def interpreter(version: str) -> str | None:
    """Return a Python of that version that works: the first one on the path, or the one that pyenv has."""
    name = f"python{version}"
    found = (shutil.which(name, path=folder) for folder in os.get_exec_path())
    return next((path for path in (*found, of_pyenv(version)) if path and works(path, version)), None)


def of_pyenv(version: str) -> str | None:
    """Return where pyenv has that version, if there is a pyenv: it need not be one that pyenv puts on the path."""
    if (pyenv := shutil.which("pyenv")) is None:
        return None
    answer = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True)
    return str(Path(answer.stdout.strip()) / "bin" / f"python{version}") if answer.returncode == 0 else None


def works(path: str, version: str) -> bool:
    """Return whether that file starts, as a shim of pyenv may not, and is that version."""
    program = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        answer = subprocess.run([path, "-c", program], capture_output=True, text=True)
    except OSError:
        return False
    return answer.stdout.strip() == version


def commands(version: str, root: Path, tools: Path, found: str | None = None) -> Iterator[Sequence[str | Path]]:
    """Yield what the check of a version runs: a new environment, and in it the suites that need one process only.

    ``found`` is that Python, by default the one of this machine.
    """
    place, uv = root / f".venv-python{version}", tools / "uv"
    python = place / tools.name / "python"
    resolution = "lowest-direct" if version == LOWEST else "highest"
    yield [uv, "venv", "--quiet", "--clear", "--python", found or str(interpreter(version)), place]
    yield [uv, "pip", "install", "--quiet", "--python", python, "--resolution", resolution, "--editable", ".[suites]"]
    suites = [path.relative_to(root) for pattern in SUITES for path in sorted(root.glob(pattern))]
    yield [python, "-m", "pytest", *OPTIONS, *suites]
