"""The aiohttp example: a program of its own that keeps prices fresh and says what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.ports import reserved_ports
from tests.support.processes import ROOT, Workers


def ask(port: int, path: str) -> Any:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=90) as answer:
        return json.load(answer)


@pytest.mark.process
def test_prices_are_refreshed_by_a_job_of_the_application(tmp_path: Path, worker_processes: Workers) -> None:
    program = str(ROOT / "examples" / "aiohttp_app" / "web.py")
    with reserved_ports(2) as (port, registry_port):
        environment = {
            "PYTHONPATH": str(ROOT),
            "PORT": str(port),
            "PRICES_REGISTRY": f"embedded://127.0.0.1:{registry_port}/prices?data_dir={tmp_path / 'registry'}&linger=1",
        }
        web = worker_processes.start(program, environment=environment)
        web.wait_for_output("Running on")
        prices: dict[str, int] = {}
        while prices.keys() != {"tea", "coffee"}:  # the test's own timeout bounds it
            prices = ask(port, "/prices")
        (job,) = ask(port, "/health")["jobs"]
        assert (job["name"], job["holds"]) == ("refresh", [0, 1])
        assert web.terminate() == 0
    assert "Traceback" not in web.output
