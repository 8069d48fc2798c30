"""A chain of five jobs with different numbers of items on three processes, which are killed one after another."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.local_applications import TIMEOUT
from tests.support.loops import run_async
from tests.support.processes import ChildProcess, Workers
from tests.support.worker_processes import LOOK_EVERY, ended

pytestmark = pytest.mark.process

EVERY = 2
JOBS: dict[str, dict[str, Any]] = {
    "extract": {"every": EVERY, "sharding_total_count": 4},
    "clean": {"after": "extract", "sharding_total_count": 2},
    "load": {"after": "clean", "sharding_total_count": 5},
    "check": {"after": ["extract", "load"], "sharding_total_count": 1},
    "report": {"after": "check", "sharding_total_count": 3},
}
Line = dict[str, Any]


def lines_of(journal: Path) -> list[Line]:
    whole, _, _ = journal.read_text().rpartition("\n") if journal.exists() else ("", "", "")
    return [json.loads(text) for text in whole.splitlines()]


def test_every_moment_of_every_job_of_a_chain_is_run_or_reported_in_order_though_processes_are_killed(
    worker_processes: Workers, registry_address: str, tmp_path: Path
) -> None:
    journal = tmp_path / "chain"
    jobs = {name: {"failover": True, **settings} for name, settings in JOBS.items()}
    connection = {"session_timeout": 3, "connection_timeout": 15, "base_sleep_time": 0.2, "max_sleep_time": 0.5}
    given = {"address": registry_address, "connection": connection, "journal": str(journal), "work": 0.1, "jobs": jobs}

    def start() -> ChildProcess:
        return worker_processes.start("-m", "tests.support.chain_worker", json.dumps(given))

    async def reported(times: int) -> None:
        """Wait until the last job of the chain has ended so many more moments."""
        known = {line["slot"] for line in lines_of(journal)}
        with anyio.fail_after(TIMEOUT):
            while True:
                ends = [line for line in lines_of(journal) if (line["what"], line.get("job")) == ("end", "report")]
                if len({line["slot"] for line in ends} - known) >= times:
                    return
                await anyio.sleep(LOOK_EVERY)

    async def main() -> None:
        processes = [start() for _ in range(3)]
        await reported(1)
        for _ in range(2):
            processes.pop(0).kill()
            processes.append(start())
            await reported(2)
        for process in processes:
            os.kill(process.pid, signal.SIGTERM)
        for process in processes:
            assert await ended(process) == 0, process.output

    run_async("asyncio", main)
    judge(lines_of(journal))


def judge(lines: list[Line]) -> None:
    runs = dict[tuple[str, int], list[float]]()
    completed = dict[tuple[str, int], set[float]]()
    for line in lines:
        item = line.get("job", ""), line.get("item", -1)
        if line["what"] == "begin":
            for upstream in _upstreams(item[0]):
                for number in range(JOBS[upstream]["sharding_total_count"]):
                    assert line["slot"] in completed.get((upstream, number), set()), (line, upstream, number)
            assert line["slot"] >= max(runs.get(item, [0])), line
            runs.setdefault(item, []).append(line["slot"])
        elif line["what"] == "end":
            completed.setdefault(item, set()).add(line["slot"])
    spans = [line for line in lines if line["what"] == "misfire"]
    for job, settings in JOBS.items():
        for item in range(settings["sharding_total_count"]):
            slots = sorted({*runs[job, item]})
            moment = slots[0]
            while moment < slots[-1]:
                said = [line for line in spans if line["job"] == job and item in line["items"]]
                is_reported = any(line["first"] <= moment <= line["slot"] for line in said)
                assert moment in slots or is_reported, (job, item, moment)
                moment += EVERY


def _upstreams(job: str) -> list[str]:
    after = JOBS[job].get("after", [])
    return [after] if isinstance(after, str) else after
