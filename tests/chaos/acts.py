"""The acts of a run that is disturbed on purpose: calm, disturbance, calm; then everybody leaves, and is judged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos.checker import Span, Verdict, judge
from tests.chaos.history import Arranged, arrange
from tests.chaos.stage import LOOK_EVERY, Stage
from tests.simulation.facts import Violation
from tests.support.history import Begun, Finished, Phase, of_kind
from tests.support.worker_journal import read

TIMEOUT: Final = 60.0
"""Seconds within which every item has to run again when everything is mended."""
START_TIMEOUT: Final = 300.0
"""Seconds within which every item has to run at first; nothing is judged by it, and a busy machine starts slowly."""
ROUNDS: Final = 2
"""Runs of every item that show that it is served."""


async def act(
    stage: Stage, workers: int, disturb: Callable[[], Awaitable[None]], patience: float = TIMEOUT
) -> tuple[Span, list[Violation]]:
    """Wait for calm, disturb, wait for calm, leave; return what is to be judged, and what was not served in the end.

    Raises: TimeoutError when not all items have run soon enough after the start.
    """
    unserved: list[Violation] = []
    async with stage.seated(workers), asyncio.TaskGroup() as tasks:
        replacing = tasks.create_task(stage.replace_the_dead())
        await _served(stage, max(patience, START_TIMEOUT))
        start = stage.clock.now()
        stage.actions.append(Phase(start, "chaos"))
        await disturb()
        stop = stage.clock.now()
        stage.actions.append(Phase(stop, "recovery"))
        try:
            await _served(stage, patience)
        except TimeoutError:
            text = f"after {patience:g} s of peace these have not run {ROUNDS} times: {_unserved(stage, stop)}"
            unserved.append(Violation("convergence", stop, text))
        replacing.cancel()
        async with asyncio.TaskGroup() as leaving:
            for seat in stage.seats:
                leaving.create_task(stage.leave(seat))
        stage.actions.append(Phase(stage.clock.now(), "end"))
    return Span(start, stop), unserved


def judged(stage: Stage, span: Span, unserved: list[Violation]) -> tuple[Arranged, Verdict]:
    """Return the history of what happened on a stage, and the verdict."""
    arranged = arrange(read(stage.journal), stage.actions)
    verdict = judge(arranged.entries, stage.jobs, span, stage.excuses)
    verdict.violations += unserved
    verdict.violations += [Violation("nobody dies", span.stop, death) for death in stage.deaths]
    return arranged, verdict


async def _served(stage: Stage, patience: float) -> None:
    """Return when every item of every job has ended some runs that began from now on."""
    since = stage.clock.now()
    async with asyncio.timeout(patience):
        while _unserved(stage, since):
            await asyncio.sleep(10 * LOOK_EVERY)


def _unserved(stage: Stage, since: float) -> list[str]:
    entries = read(stage.journal)
    ended = {one.run for one in of_kind(entries, Finished) if one.how == "completed"}
    runs = Counter((one.job, one.item) for one in of_kind(entries, Begun) if one.at >= since and one.run in ended)
    items = [(config.job_name, item) for config in stage.jobs for item in range(config.sharding_total_count)]
    return [f"{job}/{item}" for job, item in items if runs[job, item] < ROUNDS]
