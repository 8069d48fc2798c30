"""What operators do to a job is in the log of the processes that it concerns, with who has done it if that is known."""

from __future__ import annotations

import json

import pytest

from aioelasticjob import operations
from aioelasticjob.engine.operator_log import (
    ANYBODY,
    MAX_NAME,
    MAX_PATHS,
    encode_note,
    shown_name,
    who_acted,
)
from aioelasticjob.registry.tree import Node, Stat
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import SimulatedJobs, simulate

PAUSED = "/job/leader/paused"


def node(data: bytes, zxid: int = 7) -> Node:
    return Node.of(data, Stat.of((1, zxid), (0, 0), 0))


def test_what_operators_do_is_logged_by_the_workers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.operator_log")

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ? 2090", sharding_total_count=15)
        async with app.running():
            await here.until(5)
            assert said() == []
            server = (await operations.job(here.observer, "job", now=0)).servers[0].ip
            for act, expected in (
                (operations.pause(here.observer, "job"), "job: an operator has paused the job"),
                (operations.resume(here.observer, "job"), "job: an operator has resumed the job"),
                *(
                    (act(here.observer, "job", server=server), f"job: an operator has {done} this server, {server}")
                    for act, done in (
                        (operations.pause, "paused"),
                        (operations.resume, "resumed"),
                        (operations.disable, "disabled"),
                        (operations.enable, "enabled"),
                    )
                ),
                *(
                    (act(here.observer, server), f"job: an operator has {done} this server, {server}, in all jobs")
                    for act, done in (
                        (operations.pause_server, "paused"),
                        (operations.resume_server, "resumed"),
                        (operations.disable_server, "disabled"),
                        (operations.enable_server, "enabled"),
                    )
                ),
                (operations.disable(here.observer, "job", item=3), "job: an operator has disabled item 3"),
                (operations.enable(here.observer, "job", item=3), "job: an operator has enabled item 3"),
                (operations.ask(here.observer, "job", id="r"), "job: an operator has asked for runs: the request r"),
                (
                    operations.configure(here.observer, "job", {"timeout": 5}),
                    "job: the setting timeout was changed from None to 5.0",
                ),
                (
                    operations.configure(here.observer, "job", {"error_handler_options": {"password": "a"}}),
                    "job: the setting error_handler_options was changed",
                ),
                (operations.shut_down(here.observer, "job"), "job: an operator has asked this instance to leave"),
            ):
                await act
                await here.until(here.now() + 3)
                assert said() == [expected]

    def said() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.name == "aioelasticjob.engine.operator_log"]
        caplog.clear()
        return found

    simulate(scene)


def test_the_log_names_who_has_acted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine")

    async def scene(here: SimulatedJobs) -> None:
        app, by = here.app(cron="0 0 0 1 1 ? 2090", sharding_total_count=3), "anna@desk"
        async with app.running():
            await here.until(5)
            caplog.clear()
            server = (await operations.job(here.observer, "job", now=0)).servers[0].ip
            for act, expected in (
                (operations.pause(here.observer, "job", by=by), "has paused the job"),
                (operations.resume(here.observer, "job", by=by), "has resumed the job"),
                (operations.disable(here.observer, "job", server=server, by=by), f"has disabled this server, {server}"),
                (operations.enable(here.observer, "job", server=server, by=by), f"has enabled this server, {server}"),
                (operations.pause_server(here.observer, server, by=by), f"has paused this server, {server}, in all"),
                (operations.resume_server(here.observer, server, by=by), f"has resumed this server, {server}, in all"),
                (operations.disable(here.observer, "job", item=1, by=by), "has disabled item 1"),
                (operations.enable(here.observer, "job", item=1, by=by), "has enabled item 1"),
                (operations.ask(here.observer, "job", id="n", by=by), "has asked for runs: the request n"),
                (
                    operations.configure(here.observer, "job", {"timeout": 5}, by=by),
                    "has changed the setting timeout from None to 5.0",
                ),
                (operations.ask(here.observer, "job", id="r", delay="1d", by=by), "has asked for runs: the request r"),
                (operations.pause_request(here.observer, "job", "r", by=by), "has paused the request r"),
                (operations.resume_request(here.observer, "job", "r", by=by), "has resumed the request r"),
                (operations.cancel_request(here.observer, "job", "r", by=by), "has cancelled the request r"),
                (operations.pause(here.observer, "job"), "an operator has paused the job"),  # by hand
                (operations.remove(here.observer, "job", force=True, by=by), "has removed the job from the registry"),
            ):
                await act
                await here.until(here.now() + 3)
                said = [one.getMessage() for one in caplog.records]
                caplog.clear()
                who = expected if expected.startswith("an operator") else f"{by} {expected}"
                assert any(who in line for line in said), said

    simulate(scene)


def test_a_removal_of_long_ago_is_not_taken_for_that_of_today(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        for by in ("anna@desk", ""):
            app = here.app(cron="0 0 0 1 1 ? 2090", sharding_total_count=3)
            async with app.running():
                await here.until(here.now() + 5)
                await operations.remove(here.observer, "job", force=True, by=by)
                await here.until(here.now() + 5)

    simulate(scene)
    said = [line for line in caplog.messages if "from the registry" in line]
    assert [line.partition(" leaves, because ")[2] for line in said] == [
        "anna@desk has removed the job from the registry",
        "the job was removed from the registry",
    ]


def test_runs_that_somebody_stops_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine")

    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=60, cron="0 0 0 1 1 ? 2090")
        await operations.ask(here.observer, "job", items=[1, 2], by="anna")
        await here.until(here.now() + 5)
        await operations.cancel(here.observer, "job", by="bert")
        await here.until(here.now() + 5)
        assert them.runs

    simulate(scene)
    assert any("bert has asked to stop the runs of items 1, 2" in line for line in caplog.messages), caplog.messages


def test_an_action_is_that_of_the_note_that_was_written_with_it() -> None:
    after = node(encode_note("anna@desk", [PAUSED]))
    assert who_acted(PAUSED, after, 0) == "anna@desk"
    assert who_acted(PAUSED, after, 6) == "anna@desk"
    assert who_acted(PAUSED, after, 7) == ""  # somebody else has acted since, without a note
    assert who_acted("/job/config", after, 0) == ""
    assert who_acted(PAUSED, None, 0) == ""


def test_of_many_nodes_only_their_parents_are_noted() -> None:
    asked = [f"/job/shutdown/{number}" for number in range(1000)]
    after = node(encode_note("anna", asked))
    assert len(after.data) < 100
    assert who_acted(asked[-1], after, 0) == "anna"
    everywhere = node(encode_note("anna", [f"/job{number}/servers/ip/paused" for number in range(1000)]))
    assert len(json.loads(everywhere.data)["paths"]) == MAX_PATHS


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"by": 1, "paths": []}', b'{"by": "a", "paths": [1]}'])
def test_what_is_no_note_names_nobody(data: bytes) -> None:
    assert who_acted(PAUSED, node(data), 0) == ""


def test_a_name_is_shown_short_and_on_one_line() -> None:
    assert shown_name("anna\nERROR all is lost") == "annaERROR all is lost"
    assert len(shown_name("x" * 1000)) == MAX_NAME
    assert shown_name("") == ANYBODY
