"""Events that depend on each other are booked in their order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Workers

pytestmark = pytest.mark.process
PROGRAM = ROOT / "examples" / "ordered_events" / "events.py"


def test_no_event_comes_before_its_turn(worker_processes: Workers) -> None:
    child = worker_processes.start(str(PROGRAM), environment={"PYTHONPATH": str(ROOT)})
    assert child.wait(90) == 0, child.output
    assert "600 events booked, 0 refused" in child.output


def test_without_order_some_do(tmp_path: Path, worker_processes: Workers) -> None:
    """Or the test above would show nothing."""
    shuffled = tmp_path / "events.py"
    shuffled.write_text(PROGRAM.read_text().replace("ordered=True, ", ""))
    child = worker_processes.start(str(shuffled), environment={"PYTHONPATH": str(ROOT)})
    assert child.wait(90) == 0, child.output
    assert not re.search(r"\b0 refused", child.output)
    assert "Overdrawn" in child.output
