"""A minute of chaos on real processes and a real ensemble: every promise is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import play
from tests.chaos.report import page
from tests.chaos.worker import JOBS

SECONDS, SEED = 60.0, 7
"""The seed is fixed, so that a landing depends on little chance; ``python3 -m tests --long`` takes others."""


@pytest.mark.zookeeper
@pytest.mark.process
@pytest.mark.timeout(600)  # against what hangs: a busy machine needs long to start and to end
def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    played = play(tmp_path, seconds=SECONDS, seed=SEED)
    report = page(played)
    print(report)
    assert not played.verdict.violations, report
    assert played.stage.done.total() >= SECONDS / 10  # otherwise this shows nothing
    least = sum(config.sharding_total_count for config in JOBS) * SECONDS / 4
    assert played.verdict.targets >= least
    assert played.verdict.met["run"] >= least / 4
