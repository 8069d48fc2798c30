"""Fire times as Quartz 2.3.2 itself computed them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aioelasticjob.cron import Cron
from aioelasticjob.errors import InvalidSetting

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "quartz" / "dev.jsonl"
QUIRKS = [case for case in map(json.loads, CASES.read_text().splitlines()) if case["category"].startswith("quirk_")]


@pytest.mark.parametrize("options", [[], ["--utc-start"]], ids=["start in the case's zone", "start in UTC"])
def test_every_recorded_case_is_met(options: list[str]) -> None:
    command = [sys.executable, "tests/quartz/check_quartz.py", str(CASES), "tests.quartz.subject:quartz_times"]
    run = subprocess.run(
        [*command, "--skip", "quirk_", "--show", "3", *options], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("1545/1545 passed\n")


@pytest.mark.parametrize(
    "expression",
    [case["expr"] for case in QUIRKS if case["category"] != "quirk_dst"],
    ids=lambda expression: ascii(expression),
)
@pytest.mark.parametrize("dst", ["cron", "quartz"])
def test_what_quartz_accepts_by_accident_is_refused(expression: str, dst: str) -> None:
    with pytest.raises(InvalidSetting, match="cron = "):
        Cron.parse(expression, dst=dst)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case", [case for case in QUIRKS if case["category"] == "quirk_dst"], ids=lambda case: case["expr"]
)
def test_where_quartz_loses_a_day_over_a_gap_the_expression_is_sound(case: dict[str, str]) -> None:
    """``0 0 * * * ?`` is nobody's mistake: it stays valid, and fires on the day that Quartz 2.3.2 leaves out."""
    Cron.parse(case["expr"], case["tz"], "quartz")
