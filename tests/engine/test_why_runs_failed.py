"""The record says why an item's newest run failed, until a run of it ends otherwise."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob import ItemContext, operations
from aioelasticjob.core.records import decode, encode
from aioelasticjob.model import Record
from aioelasticjob.observers.failures import MAX_REASON_BYTES, reason
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"


def test_the_reason_stands_in_the_record_until_a_run_completes() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            await anyio.sleep(2)
            if context.job_parameter:
                raise ValueError(f"no such file\nbelow {context.item}")

        async with here.app(handler, cron=NEVER, sharding_total_count=2).running():
            await here.until(3)
            await operations.ask(here.observer, "job", parameter="fail", id="r")
            found = await operations.ended(here.observer, "job", "r")
            assert [(await here.record(item)).error for item in (0, 1)] == ["ValueError: no such file"] * 2
            assert found.errors == {0: "ValueError: no such file", 1: "ValueError: no such file"}
            await operations.ask(here.observer, "job", items=[0], id="s")
            await anyio.sleep(1)
            assert (await here.record(0)).error == "ValueError: no such file"  # the next run goes on
            assert (await operations.ended(here.observer, "job", "s")).errors == {}
            assert [(await here.record(item)).error for item in (0, 1)] == ["", "ValueError: no such file"]
            assert b'"error"' not in (await here.observer.get(LAYOUT.item(0).execution)).data

    simulate(scene)


def test_a_run_that_has_timed_out_says_so() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(work=60, cron=NEVER, timeout=2).running():
            await here.until(3)
            await operations.ask(here.observer, "job", id="r")
            await operations.ended(here.observer, "job", "r")
            record = await here.record(0)
            assert (record.outcome, record.error.partition(":")[0]) == ("timed out", "TimeoutError")

    simulate(scene)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyError(), "KeyError"),
        (ValueError("a\x1b[31mb\tc"), "ValueError: a[31mb c"),
        (ValueError("password=hunter2 is wrong"), "ValueError: password=… is wrong"),
        (ValueError("half \ud800"), "ValueError: half ?"),
    ],
)
def test_a_reason_is_one_line_without_control_characters_and_credentials(error: Exception, said: str) -> None:
    assert reason(error) == said


@pytest.mark.parametrize("letter", ["x", "ß", "漢", "🙂"])
def test_a_long_reason_is_cut_at_a_character(letter: str) -> None:
    said = reason(ValueError(letter * 1000))
    assert MAX_REASON_BYTES - 4 < len(said.encode()) <= MAX_REASON_BYTES
    assert said.startswith(f"ValueError: {letter}")
    assert set(said.removeprefix("ValueError: ")) == {letter}


def test_a_record_keeps_its_reason_when_it_is_read_and_written() -> None:
    record = Record(1000, begun=1, completed_at=2, outcome="failed", error='ValueError: "ß"')
    assert decode(encode(record)) == record
