"""The runs of a job's items: their handlers have a task, and their settlement needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aioelasticjob.errors import Conflict
from aioelasticjob.registry.transaction import Committed, Delete, Op
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def settles(ops: Sequence[Op]) -> bool:
    return any(isinstance(op, Delete) and op.path.endswith("/running") for op in ops)


@pytest.mark.parametrize("refused", [False, True])
def test_while_a_settlement_is_under_way_no_task_waits_for_it(refused: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running() as session:
            commit, held = session.commit, list[asyncio.Future[Committed]]()

            def hold(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
                if not settles(ops) or held:
                    return commit(ops, **options)
                held.append(asyncio.get_running_loop().create_future())
                held[0].ops = ops, options  # type: ignore[attr-defined]
                return held[0]

            await here.until(2)
            before = len(asyncio.all_tasks())
            session.commit = hold  # type: ignore[method-assign]
            await here.until(7)
            assert len(here.runs) == len(held) == 1
            assert await here.names(LAYOUT.item(0).execution) == ("running",)
            assert len(asyncio.all_tasks()) == before
            if refused:
                held[0].set_exception(Conflict(0, LAYOUT.item(0).execution, "bad version"))
            else:
                ops, options = held[0].ops  # type: ignore[attr-defined]
                held[0].set_result(await commit(ops, **options))
            await here.until(8)
            assert await here.names(LAYOUT.item(0).execution) == ()
            assert (await here.record(0)).outcome == "completed"
            await here.until(12)
        assert [at for at, _, _ in here.starts()] == [5.0, 10.0]

    simulate(scene)
