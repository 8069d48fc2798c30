"""The rules for Prometheus, judged by its own ``promtool`` on series that were recorded from simulated applications."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioelasticjob import ElasticJob, ItemContext, observers
from aioelasticjob.observers.metrics import HELP, PREFIX, Metrics
from tests.support.simulated_jobs import REGISTRY, SimulatedJobs, simulate

RULES = Path(observers.__path__[0]) / "prometheus-rules.yaml"
EVERY = 15
"""Seconds between two scrapes."""
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="Debian's prometheus is not installed: it has promtool")


class Recorded:
    """Series as Prometheus has them that scrapes one worker every 15 s; they are stale when the worker is gone."""

    def __init__(self) -> None:
        self.series: dict[str, list[str]] = {}
        self.scrapes = 0

    def scrape(self, text: str) -> None:
        """Take in what the worker has answered; nothing if it is gone."""
        seen = set[str]()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels, "instance": "alpha:9464"}
                shown = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
                name = f"{sample.name}{{{shown}}}"
                seen.add(name)
                self.series.setdefault(name, ["_"] * self.scrapes).append(repr(float(sample.value)))
        for name in self.series.keys() - seen:
            values = self.series[name]
            values.append("stale" if values[-1] not in ("_", "stale") else "_")
        self.scrapes += 1

    def input(self) -> list[dict[str, str]]:
        return [{"series": name, "values": " ".join(values)} for name, values in self.series.items()]


def recorded_from(
    scene: Callable[[SimulatedJobs, ElasticJob], Awaitable[None]], work: Callable[[ItemContext], Awaitable[None]]
) -> list[dict[str, str]]:
    """Return the series that the scrapes of one worker have given."""
    recorded = Recorded()

    async def scrape(app: ElasticJob, metrics: Metrics) -> None:
        while True:
            metrics.look()
            recorded.scrape(generate_latest(metrics.registry).decode() if app.vitals.running else "")
            await anyio.sleep(EVERY)

    async def play(here: SimulatedJobs) -> None:
        app = here.app(work, cron="0 * * * * ?")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scrape, app, Metrics(app))
            await scene(here, app)
            tasks.cancel_scope.cancel()

    simulate(play)
    return recorded.input()


def firing(series: list[dict[str, str]], minute: float, path: Path) -> set[str]:
    """Return the alerts that fire at a minute, as promtool says."""
    found = set[str]()
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        name = rule["alert"]
        expected: list[dict[str, Any]] = []  # it says what it got if it expects nothing
        test = {
            "rule_files": [str(RULES)],
            "evaluation_interval": f"{EVERY}s",
            "tests": [
                {
                    "interval": f"{EVERY}s",
                    "input_series": series,
                    "alert_rule_test": [
                        {"eval_time": f"{round(minute * 60)}s", "alertname": name, "exp_alerts": expected}
                    ],
                }
            ],
        }
        file = path / "test.yaml"
        file.write_text(yaml.safe_dump(test))
        result = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True)
        said = result.stdout + result.stderr
        if result.returncode:
            assert f'alertname="{name}"' in said, said
            found.add(name)
    return found


def test_every_metric_that_the_rules_name_exists() -> None:
    named = set(re.findall(rf"{PREFIX}(\w+)", RULES.read_text()))
    known = {*HELP, *(f"{name}_total" for name in HELP)}
    assert named
    assert named <= known


def test_each_rule_is_in_the_documentation() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    page = (Path(__file__).parents[2] / "docs/how-to/metrics.md").read_text()
    documented = re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE)
    assert documented == [rule["alert"] for rule in rules]


@NEEDS_PROMTOOL
def test_promtool_takes_the_rules() -> None:
    subprocess.run([str(PROMTOOL), "check", "rules", str(RULES)], check=True, capture_output=True)


@NEEDS_PROMTOOL
def test_the_first_failure_of_a_job_fires(tmp_path: Path) -> None:
    begun = 0

    async def work(context: ItemContext) -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            raise ValueError("no luck")

    async def scene(here: SimulatedJobs, app: ElasticJob) -> None:
        async with app.running():
            await here.until(6 * 60)

    series = recorded_from(scene, work)
    assert firing(series, 2.5, tmp_path) == set()
    assert firing(series, 4, tmp_path) == {"RunsFail"}


@NEEDS_PROMTOOL
def test_a_job_whose_workers_are_all_dead_fires_although_their_series_are_gone(tmp_path: Path) -> None:
    async def work(context: ItemContext) -> None:
        pass

    async def scene(here: SimulatedJobs, app: ElasticJob) -> None:
        async with app.running():
            await here.until(3 * 60)
        await here.until(90 * 60)

    series = recorded_from(scene, work)
    assert firing(series, 3, tmp_path) == set()
    assert firing(series, 6, tmp_path) == {"NobodyLeads"}
    assert firing(series, 89, tmp_path) == {"NobodyLeads"}


@NEEDS_PROMTOOL
def test_a_worker_that_loses_the_registry_fires(tmp_path: Path) -> None:
    async def work(context: ItemContext) -> None:
        pass

    async def scene(here: SimulatedJobs, app: ElasticJob) -> None:
        async with app.running():
            await here.until(2 * 60)
            here.faults.partition(["127.0.0.1"], [REGISTRY])
            await here.until(6 * 60)
            here.faults.heal()

    series = recorded_from(scene, work)
    assert "RegistryAway" in firing(series, 5, tmp_path)


def gauge(name: str, values: str) -> dict[str, str]:
    return {"series": f'{PREFIX}{name}{{instance="alpha:9464"}}', "values": values}


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("name", "values", "alert"),
    [
        ("event_store_up", "1x4 0x40", "EventStoreAway"),
        ("event_store_dropped_total", "0x4 5x40", "HistoryIsLost"),
        ("event_store_rejected_total", "0x4 5x40", "HistoryIsLost"),
        ("clock_skew_seconds", "0x4 -5x40", "ClockDiffers"),
    ],
)
def test_a_history_that_is_not_written_and_a_clock_that_is_wrong_fire(
    name: str, values: str, alert: str, tmp_path: Path
) -> None:
    series = [gauge(name, values)]
    assert firing(series, 0.5, tmp_path) == set()
    assert firing(series, 5, tmp_path) == {alert}
