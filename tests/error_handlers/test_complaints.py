"""Failures on their way, and the place of error handlers in a job."""

from __future__ import annotations

import logging

import anyio
import pytest

from aioelasticjob import ItemContext
from aioelasticjob.error_handlers import Complaints, Failure, Options, complaints
from aioelasticjob.registry.txn import Set
from aioelasticjob.testing import VirtualClock, run
from tests.error_handlers.some import failure, told_by
from tests.running.office import LAYOUT, Office, play


def test_the_handler_is_changed_while_the_job_runs_and_a_slow_one_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    async def slow(failed: Failure, options: Options) -> None:
        await anyio.sleep(20)
        told.append(f"{failed.items} {options['to']}")

    told_by(monkeypatch, mine=slow)

    async def scene(here: Office) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), 0, "", 0))
            raise ValueError("no luck")

        app = here.app(handler, cron="0/10 * * * * ?", error_handler="ignore")
        async with app.running():
            await here.until(15)
            chosen = app.jobs[0].changed(error_handler="mine", error_handler_options={"to": "ops"})
            await here.write(Set(LAYOUT.config, chosen.to_json(), -1))
            await here.until(65)

    here = play(scene)
    assert [round(at) for at, *_ in here.runs] == [10, 20, 30, 40, 50, 60]
    assert told == ["(0,) ops"] * 2


def test_raise_ends_the_application_with_the_error() -> None:
    async def scene(here: Office) -> None:
        async def handler(context: ItemContext) -> None:
            raise ZeroDivisionError("enough")

        with pytest.raises(ZeroDivisionError, match="enough"):
            async with here.app(handler, cron="0/10 * * * * ?", error_handler="raise").running():
                await here.until(60)
        assert round(here.now()) == 10

    play(scene)


def test_a_handler_that_fails_itself_leaves_both_errors_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(failed: Failure, options: Options) -> None:
        raise OSError("line is dead")

    told_by(monkeypatch, mine=broken)

    async def main() -> None:
        mine = Complaints(VirtualClock())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.tell)
            mine.put("mine", {}, failure())
            await mine.told()
            tasks.cancel_scope.cancel()

    with caplog.at_level(logging.ERROR):
        run(main)
    assert "error handler mine failed: line is dead" in caplog.text
    assert "ValueError: no luck" in caplog.text


def test_too_many_failures_drop_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complaints, "BACKLOG", 2)

    async def main() -> int:
        mine = Complaints(VirtualClock())
        for _ in range(5):
            mine.put("log", {}, failure())
        return mine.dropped

    assert run(main) == 3
