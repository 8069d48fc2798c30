"""Every member of a real ensemble of five is replaced under load by one at another address: every promise is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.moving import KIND, MEMBERS, play
from tests.chaos.report import page
from tests.chaos.worker import JOBS


@pytest.mark.zookeeper
@pytest.mark.process
@pytest.mark.timeout(600)  # against what hangs: a busy machine needs long to start and to end
def test_members_that_move_break_no_promise(tmp_path: Path) -> None:
    played = play(tmp_path, rounds=1)
    report = page(played)
    print(report)
    assert not played.verdict.violations, report
    assert played.stage.done[KIND] == MEMBERS
    assert played.verdict.met["run"] >= sum(config.sharding_total_count for config in JOBS)
    hosts = json.loads((tmp_path / "hosts.json").read_text())
    assert sorted(hosts.values()) == sorted(f"127.0.1.{number}" for number in range(MEMBERS + 1, 2 * MEMBERS + 1))
