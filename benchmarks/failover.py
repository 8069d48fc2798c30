"""From ``kill -9`` of a process in the midst of a run to the start of the rescued handler in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median
from typing import Final

from aioelasticjob.model import FireSource
from benchmarks.crew import SESSION_TIMEOUT, Crew, crew
from benchmarks.report import Figure

NAME: Final = "failover: kill -9 in the midst of a run"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    measured = asyncio.run(_rounds(1 if quick else 5, quick=quick))
    for leader, case in ((False, "a process that does not lead"), (True, "the leader's process")):
        expiry, own = zip(*measured[leader], strict=True)
        yield Figure(
            NAME, case, f"until ZooKeeper ended its session (timeout {SESSION_TIMEOUT:g} s)", median(expiry), "s"
        )
        yield Figure(NAME, case, "from there to the handler's start elsewhere", 1000 * median(own), "ms", "< 200")
        yield Figure(NAME, case, "from there to the handler's start elsewhere, at most", 1000 * max(own), "ms")
        yield Figure(NAME, case, "in all", median(sum(one) for one in measured[leader]), "s")


async def _rounds(rounds: int, *, quick: bool) -> dict[bool, list[tuple[float, float]]]:
    """Return, for whether the leader dies, how long its session lasted and how long we took from there."""
    measured: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    async with crew(quick=quick) as processes:
        for _ in range(rounds):
            for leader, times in measured.items():
                times.append(await _round(processes, leader=leader))
    return measured


async def _round(processes: Crew, *, leader: bool) -> tuple[float, float]:
    view = await processes.complete()
    victim = processes.choose(view, leader=leader)
    item = min(item for item, holder in view.assignment.items() if holder == victim)
    held = await processes.held(item)
    await asyncio.sleep(0.2)  # the others are idle by then
    process, killed = processes.process(victim), processes.clock.now()
    process.kill()
    await processes.hold(None)  # or the next holder held it as well, and was not idle when its turn comes to rescue
    await processes.until(lambda view: victim not in view.instances)
    expired = processes.clock.now()
    rescue = await processes.begun(lambda run: run.source is FireSource.FAILOVER and run.fence > held.fence)
    processes.join()
    return expired - killed, max(0.0, rescue.at - expired)  # on a loaded machine the rescuer may see the end before us
