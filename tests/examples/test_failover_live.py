"""The worker that counts is killed, and the other one goes on where it was."""

from __future__ import annotations

import pytest

from tests.support.ports import reserved_ports
from tests.support.processes import ROOT, Workers

pytestmark = pytest.mark.process


def test_the_other_worker_goes_on_at_the_next_step(worker_processes: Workers) -> None:
    with reserved_ports(1) as (port,):
        environment = {"PYTHONPATH": str(ROOT), "COUNT_PORT": str(port)}
        child = worker_processes.start(str(ROOT / "examples/failover_live/show.py"), environment=environment)
        assert child.wait(150) == 0, child.output
    assert "SCHEDULE step 15" in child.output
    assert child.output.index("is killed with kill -9") < child.output.index("FAILOVER step 16")
    assert "FAILOVER step 15" not in child.output
