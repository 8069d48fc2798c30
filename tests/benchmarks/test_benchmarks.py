"""Every benchmark still runs; what it measures is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from tests.support.processes import ROOT

pytestmark = [pytest.mark.zookeeper, pytest.mark.process]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_and_tells_its_figures(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())["figures"]
    assert figures
    assert all(isinstance(figure["value"], int | float) and figure["value"] >= 0 for figure in figures)
    assert figures[0]["case"] in done.stdout


def test_an_unknown_benchmark_is_named() -> None:
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such benchmark: nonsense" in done.stderr
