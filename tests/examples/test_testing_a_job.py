"""The example's tests pass where their readers run them: in the example's directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "testing_a_job"


@pytest.mark.process
def test_the_example_of_a_tested_job(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aioelasticjob", "-p", "no:cacheprovider"]
    command += ["-c", "pytest.ini", "--rootdir", ".", f"--basetemp={tmp_path / 'base'}"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
