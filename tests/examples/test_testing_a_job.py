"""The example's tests pass where their readers run them: in the example's directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "testing_a_job"


@pytest.mark.process
def test_the_example_of_a_tested_job_warns_of_nothing(tmp_path: Path) -> None:
    _pass(tmp_path, "-W", "error")


WARNING_PLUGIN = """
import warnings

import pytest


def pytest_configure():  # as pytest-asyncio does if an option of its own is not set
    warnings.warn(pytest.PytestDeprecationWarning("an option is unset"))
"""


@pytest.mark.process
def test_the_example_passes_where_a_plugin_warns_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "plugin_that_warns.py").write_text(WARNING_PLUGIN)
    _pass(tmp_path, "-p", "plugin_that_warns")


def _pass(directory: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aioelasticjob", "-p", "no:cacheprovider", *options]
    command += ["-c", "pytest.ini", "--rootdir", ".", f"--basetemp={directory / 'base'}"]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
