"""Worker processes with a journal, before each kind of server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import Workers
from tests.support.worker_processes import WorkerProcesses


@pytest.fixture
def start_processes(worker_processes: Workers, registry_address: str, tmp_path: Path) -> WorkerProcesses:
    """Nobody yet; ``start`` makes worker processes that share one registry and one journal."""
    return WorkerProcesses(worker_processes, registry_address, tmp_path / "journal")
