"""The parts of a soak: its jobs, what they write down, the memory's slope, and whether a run was good."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from aioelasticjob import ElasticJob
from aioelasticjob.events import Ended
from aioelasticjob.jobs.context import described
from aioelasticjob.model import FireSource, Outcome
from tests.chaos.checker import Verdict
from tests.chaos.worker import Order
from tests.simulation.facts import Violation
from tests.soak.__main__ import Soak
from tests.soak.jobs import EACH, KINDS, SOAK_JOBS, batches, declare
from tests.soak.journal import ORDER, PROCESS, noted
from tests.soak.log import Examined, LogLine
from tests.soak.memory import MIB, slope_of
from tests.soak.report import Soaked
from tests.soak.server import application
from tests.support.contexts import of_instance, of_item
from tests.support.history import Attempted, Begun, Finished
from tests.support.processes import ROOT
from tests.support.worker_journal import GAVE_WAY, Pen, TrueTime, read


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "journal"
    order = Order("worker-0.1", "zk://nowhere/soak", str(path), 1000.0, 5.0)
    monkeypatch.setenv(ORDER, order.to_json())
    monkeypatch.setenv(PROCESS, order.process)
    return path


def context_fields(**changes: object) -> dict[str, Any]:
    return {**json.loads(described(of_item())), "fence": 7, **changes}


def test_there_are_a_hundred_jobs_of_all_kinds_with_and_without_failover(journal: Path) -> None:
    app = ElasticJob("zk://127.0.0.1:1/soak")
    declare(app, Order("worker", "", str(journal), 0.0, 5.0, requests="http://127.0.0.1:1"))
    assert len(app.jobs) == len(SOAK_JOBS) == EACH * len(KINDS) == 100
    for kind in KINDS:
        mine = [job.config for job in SOAK_JOBS if job.kind == kind]
        assert len({config.failover for config in mine}) == 2
        assert len({config.sharding_total_count for config in mine}) == 2


def test_a_run_is_written_down_as_it_ends(journal: Path) -> None:
    with noted(context_fields()):
        pass
    with pytest.raises(ValueError, match="wrong"), noted(context_fields(fence=8)):
        raise ValueError("wrong")
    with pytest.raises(asyncio.CancelledError), noted(context_fields(fence=9)):
        raise asyncio.CancelledError
    entries = read(journal)
    assert [one.how for one in entries if isinstance(one, Finished)] == ["completed", "failed", "cut off"]
    begun = [one for one in entries if isinstance(one, Begun)]
    assert [one.fence for one in begun] == [7, 8, 9]
    assert {one.process for one in begun} == {"worker-0.1"}


def test_a_further_attempt_belongs_to_the_run_which_ends_with_it(journal: Path) -> None:
    with pytest.raises(ValueError, match="wrong"), noted(context_fields()):
        raise ValueError("wrong")
    with noted(context_fields(attempt=2)):
        pass
    assert Counter(type(entry) for entry in read(journal)) == {Begun: 1, Attempted: 1, Finished: 1}
    assert [one.how for one in read(journal) if isinstance(one, Finished)] == ["completed"]


def test_a_run_of_an_instance_is_one_of_each_item(journal: Path) -> None:
    context = of_instance()
    with noted(json.loads(described(context))):
        pass
    begun = [one for one in read(journal) if isinstance(one, Begun)]
    assert {one.item: one.fence for one in begun} == dict(context.fences)
    assert sum(isinstance(one, Finished) for one in read(journal)) == len(context.items)


def test_a_stream_that_gave_way_is_gone_on_with(journal: Path) -> None:
    async def give_way() -> None:
        stream = batches(of_item())
        await anext(stream)
        await stream.aclose()
        assert len([batch async for batch in batches(of_item())]) == 3

    asyncio.run(give_way())
    entries = read(journal)
    assert [one.how for one in entries if isinstance(one, Finished)] == [GAVE_WAY, "completed"]
    first, second = (one for one in entries if isinstance(one, Begun))
    assert (first.source, second.source) == (of_item().source, FireSource.FAILOVER)


def ended(outcome: Outcome) -> Ended:
    """Return the event with which the instance reports the end of the run in ``context_fields``."""
    slot, source = round(of_item().fire_time.timestamp() * 1000), of_item().source
    fields = context_fields()
    of = fields["jobName"], fields["instance"], slot, source, fields["shardingItem"]
    return Ended(*of, outcome, 1.0, f"@-@.{fields['fence']:x}", TrueTime.of_this_machine().now())


@pytest.mark.parametrize(
    ("handler", "outcome", "how"),
    [
        (GeneratorExit, Outcome.COMPLETED, GAVE_WAY),
        (GeneratorExit, Outcome.CANCELLED, "cut off"),  # a generator is closed then, too
        (GeneratorExit, Outcome.FAILED, "failed"),
        (asyncio.CancelledError, Outcome.COMPLETED, GAVE_WAY),  # it fetched for too long
        (asyncio.CancelledError, Outcome.CANCELLED, "cut off"),
        (asyncio.CancelledError, Outcome.TIMED_OUT, "failed"),
        (ValueError, Outcome.CANCELLED, "failed"),
        (None, Outcome.CANCELLED, "completed"),
    ],
)
def test_the_instance_says_what_came_of_a_run_whose_handler_was_ended(
    journal: Path, handler: type[BaseException] | None, outcome: Outcome, how: str
) -> None:
    with suppress(BaseException), noted(context_fields()):
        if handler is not None:
            raise handler
    Pen(journal, "worker-0.1", TrueTime.of_this_machine()).outcome(ended(outcome))
    assert [one.how for one in read(journal) if isinstance(one, Finished)] == [how]


def test_a_run_that_was_cut_off_before_its_handler_noted_anything_is_known_from_the_instance(journal: Path) -> None:
    event = ended(Outcome.CANCELLED)
    Pen(journal, "worker-0.1", TrueTime.of_this_machine()).outcome(event)
    begun, finished = read(journal)
    assert isinstance(begun, Begun)
    assert (begun.job, begun.slot, begun.fence, begun.process) == (event.job, event.slot, 7, "worker-0.1")
    assert begun.at == pytest.approx(event.at, abs=0.05)
    assert finished == Finished(begun.at, begun.run, "cut off")


def test_a_script_writes_its_run_down(journal: Path) -> None:
    command = [sys.executable, "-m", "tests.soak.script", json.dumps(context_fields())]
    subprocess.run(command, cwd=ROOT, env=dict(os.environ), check=True, timeout=60)
    assert [type(entry) for entry in read(journal)] == [Begun, Finished]


def test_the_server_writes_a_request_down(journal: Path) -> None:
    async def ask() -> None:
        order = json.loads(os.environ[ORDER])
        headers = {"shardingContext": json.dumps(context_fields(attempt=3)), PROCESS.replace("_", "-"): "worker-3.2"}
        async with TestServer(application(order)) as server, ClientSession(headers=headers) as client:
            assert (await client.get(server.make_url("/flaky"))).status == 200

    asyncio.run(ask())
    begun, finished = read(journal)
    assert isinstance(begun, Begun)
    assert begun.process == "worker-3.2"
    assert isinstance(finished, Finished)
    assert finished.how == "completed"


def test_the_slope_is_that_after_the_warm_up() -> None:
    warming = [(float(at), round(at * MIB)) for at in range(60)]
    growing = [(float(at), round((60 + (at - 60) / 60) * MIB)) for at in range(60, 180)]
    slope = slope_of(warming + growing, warm_up=60)
    assert slope is not None
    assert slope.per_hour == pytest.approx(60, abs=0.1)
    assert (slope.first, slope.seconds) == (60, 119)
    assert slope_of(warming, warm_up=55) is None


@pytest.mark.parametrize(
    ("violations", "lines", "good"),
    [
        ([], [], True),
        ([Violation("one runner", 1.0, "job/0: …")], [], False),
        ([], [LogLine(1.0, "worker", "ERROR", "who knows why")], False),
    ],
)
def test_a_violation_and_a_line_without_a_cause_make_a_soak_bad(
    violations: list[Violation], lines: list[LogLine], good: bool
) -> None:
    class Played:
        verdict = Verdict(violations=violations)

    assert Soaked(cast("Any", Played()), {}, 0, Examined(unexplained=lines)).good is good


def test_a_console_that_answers_with_an_error_or_not_at_all_is_noted() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=500)

    async def ask() -> None:
        console = web.Application()
        console.router.add_get("/", refuse)
        async with TestServer(console) as server, ClientSession() as browser:
            soak = Soak(cast("Any", None), {}, str(server.make_url("/")), 1.0, Random(1))
            assert await soak.unanswered_by(browser) == "the console answered with 500"
            await server.close()
            assert "the console did not answer" in str(await soak.unanswered_by(browser))

    asyncio.run(ask())


def test_the_end_of_a_run_without_a_claim_is_what_its_handler_says(journal: Path) -> None:
    event = ended(Outcome.CANCELLED)
    Pen(journal, "worker-0.1", TrueTime.of_this_machine()).outcome(replace(event, task_id=f"@-@.{event.slot:x}"))
    assert not read(journal)
