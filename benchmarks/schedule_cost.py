"""What a fire costs by the kind of its schedule: an interval, and a cron expression with a calendar, beside cron."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from benchmarks.load import run_worker
from benchmarks.report import Figure
from benchmarks.servers import measured_server
from benchmarks.worker import Load

NAME: Final = "own processor time per fire, by kind of schedule"
CRON: Final = {"cron": "* * * * * ?", "time_zone": "Europe/Berlin"}
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cron": CRON,
    "every": {"every": 1},
    "cron with a calendar": {**CRON, "calendar": "closed"},
    "cron with a calendar, moved to the next day": {**CRON, "calendar": "closed", "calendar_mode": "next"},
}
TIMES: Final = 10
"""How often each kind is measured, in turns with the others: what the machine does besides falls on all of them."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs = 20 if quick else 100
    seconds = 1 if quick else 5
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with measured_server(quick=quick) as server:
        for number in range(1 if quick else TIMES):
            for place, (kind, settings) in enumerate(KINDS.items()):
                address = f"zk://{server.address}/schedules-{number}-{place}"
                found = run_worker(Load(jobs, seconds, address, warm_up=0 if quick else 3, settings=dict(settings)))
                costs[kind].append(1000 * found.own_cpu / max(1, len(found.late)))
    spread = max(costs["cron"]) - min(costs["cron"])
    for kind, found_costs in costs.items():
        case = f"{kind}, {jobs} jobs"
        yield Figure(NAME, case, "median", median(found_costs), "ms")
        yield Figure(NAME, case, "lowest", min(found_costs), "ms")
        yield Figure(NAME, case, "highest", max(found_costs), "ms")
        if kind != "cron":
            cron = median(costs["cron"])
            goal = f"≤ {1 + spread / cron:.2f}, the spread of cron"
            yield Figure(NAME, case, "median beside cron's", median(found_costs) / cron, "×", goal)
