"""Waits between attempts: why no further attempt may begin, as a view shows it, and how a wait ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from aioelasticjob.core.layout import server_switch
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.early_end import HELD_ELSEWHERE, LEAVES, SWITCHED_OFF, RetryWaits, why_not_again
from aioelasticjob.engine.ending import Ending
from aioelasticjob.ground.latest import Latest
from aioelasticjob.model import Claim, Fire, FireSource
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.testing import run
from tests.core.cases import LAYOUT, ME, OTHER, Case
from tests.support.stats import stat


def view(*acts: Callable[[Case], object]) -> JobView:
    case = Case.of(3)
    for act in acts:
        act(case)
    return case.view()


def claim(source: FireSource = FireSource.SCHEDULE) -> Claim:
    return Claim(Fire(60_000, source), ME, 1, {}, {})


MOVED: Callable[[Case], object] = lambda case: case.put(LAYOUT.item(1).instance, OTHER.encode())  # noqa: E731


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda case: None, ""),
        (lambda case: case.put(LAYOUT.instance(ME), b'{"upSince": 1, "leaving": true}', owner=1), LEAVES),
        (lambda case: case.put(LAYOUT.paused), SWITCHED_OFF),
        (lambda case: case.put(LAYOUT.server_paused("10.0.0.1")), SWITCHED_OFF),
        (lambda case: case.put(LAYOUT.server_disabled("10.0.0.1")), SWITCHED_OFF),
        (lambda case: case.put(LAYOUT.item(1).disabled), SWITCHED_OFF),
        (lambda case: case.put(LAYOUT.item(2).disabled), ""),
        (lambda case: case.drop(LAYOUT.instance(ME)), SWITCHED_OFF),
        (MOVED, HELD_ELSEWHERE),
        (lambda case: case.drop(LAYOUT.item(1).instance), HELD_ELSEWHERE),
        (lambda case: case.put(LAYOUT.item(2).instance, OTHER.encode()), ""),
        (lambda case: case.put(LAYOUT.necessary), ""),  # the items may stay where they are
    ],
)
def test_why_no_further_attempt_may_begin(act: Callable[[Case], object], why: str) -> None:
    assert why_not_again(view(act), claim(), (0, 1)) == why


def test_a_server_may_be_switched_off_in_all_jobs() -> None:
    common = Tree({server_switch("10.0.0.1", "paused"): Node.of(b"", stat())}, 1)
    assert why_not_again(replace(view(), common=common), claim(), (0, 1)) == SWITCHED_OFF


def test_a_rescuer_need_not_hold_the_item() -> None:
    assert why_not_again(view(MOVED), claim(FireSource.FAILOVER), (0, 1)) == ""


def test_a_wait_ends_in_time_or_with_the_reason_that_comes_meanwhile() -> None:
    ended: list[tuple[float, str]] = []

    async def main() -> None:
        async def wait(waits: RetryWaits, seconds: float) -> None:
            why = await waits.wait(claim(), (0, 1), seconds)
            ended.append((round(anyio.current_time() - began, 3), why))

        views, began = Latest(view()), anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for seconds in (1.0, 3.0):
                tasks.start_soon(wait, RetryWaits(views, Latest(Ending())), seconds)
            await anyio.sleep(2)
            views.set(view(MOVED))
        ending = Latest(Ending())
        waits = RetryWaits(Latest(view()), ending)
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, waits, 5.0)
            tasks.start_soon(wait, waits, 7.0)
            await anyio.sleep(1)
            ending.set(ending.value.with_process())
            waits.leave()
        await wait(waits, 5.0)

    run(main)
    assert ended == [(1.0, ""), (2.0, HELD_ELSEWHERE), (1.0, LEAVES), (1.0, LEAVES), (1.0, LEAVES)]
