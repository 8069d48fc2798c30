"""Worker processes with a journal, before each kind of server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.staff import Staff
from tests.support.processes import Workers


@pytest.fixture
def staff(worker_processes: Workers, registry_address: str, tmp_path: Path) -> Staff:
    """Nobody yet; ``start`` makes worker processes that share one registry and one journal."""
    return Staff(worker_processes, registry_address, tmp_path / "journal")
