"""The smallest example says hello to both cities."""

from __future__ import annotations

import pytest

from tests.support.processes import ROOT, Workers

pytestmark = pytest.mark.process


def test_both_cities_are_greeted(worker_processes: Workers) -> None:
    program = ROOT / "examples" / "hello_job" / "hello.py"
    child = worker_processes.start(str(program), environment={"PYTHONPATH": str(ROOT)})
    for city in ("Beijing", "Shanghai"):
        child.wait_for_output(f"hello {city}")
    assert child.terminate() == 0
