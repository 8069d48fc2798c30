"""`aioelasticjob events`: the history of runs, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.cli import events as cli_events
from aioelasticjob.cli.application import application
from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome, run_name
from aioelasticjob.observers.sql import open_store
from tests.observers.sample_events import ME, NOON, batch, beginning, end, raised
from tests.support.embedded import EmbeddedServer


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'events.db'}"

    async def fill() -> None:
        async with open_store(url) as store:
            failed = end(NOON + 1000, outcome=Outcome.FAILED, failure=raised("[bold]no luck"))
            await store.write(batch(*beginning(), end(), *beginning(NOON + 1000), failed, *beginning(NOON + 2000)))

    asyncio.run(fill())
    return url


LONG_AGO = 1_700_000_000_000
"""A moment in milliseconds."""


def command(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["events", *arguments])


def test_runs_are_listed_the_newest_first(store: str) -> None:
    shown = command("list", "--event-store", store)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [word for line in lines for word in ("running", "failed", "completed") if f" {word} " in line] == [
        "running",
        "failed",
        "completed",
    ]
    assert "    ValueError: [bold]no luck" in lines


def test_the_columns_of_the_list_have_heads(store: str) -> None:
    head, rule, run, *_ = command("list", "--event-store", store, "--outcome", "completed").stdout.splitlines()
    heads = ["Began", "Job, item", "Source", "Outcome", "Took", "Address", "Id"]
    assert re.split(r"  +", head.rstrip()) == heads
    cells = re.split(r"  +", run)
    for name, cell in zip(heads, cells, strict=True):
        if name == "Took":
            assert head.index(name) + len(name) == run.index(cell) + len(cell)
        else:
            assert head.index(name) == run.index(cell)
    assert rule == "─" * len(run)
    assert command("show", "--event-store", store, cells[-1]).stdout.startswith(f"{head}\n{rule}\n{run}\n")


def test_the_number_of_attempts_is_said_if_there_was_more_than_one(store: str) -> None:
    async def add() -> None:
        async with open_store(store) as events:
            await events.write(batch(*beginning(item=7), replace(end(item=7), attempt=3)))

    asyncio.run(add())
    *_, line = command("list", "-s", store, "--item", "7").stdout.splitlines()
    assert line.endswith("  3 attempts")
    printed = json.loads(command("list", "-s", store, "--item", "7", "--json").stdout)
    assert [run["attempts"] for run in printed["runs"]] == [3]
    assert "attempts" not in command("list", "-s", store, "--item", "0").stdout


def test_filters_pages_and_json(store: str) -> None:
    printed = json.loads(command("list", "-s", store, "--limit", "2", "--json").stdout)
    assert [run["outcome"] for run in printed["runs"]] == ["running", "failed"]
    rest = json.loads(command("list", "-s", store, "--after", printed["next"], "--json").stdout)
    assert [(run["outcome"], run["taskId"][:6]) for run in rest["runs"]] == [("completed", "report")]
    assert rest["next"] is None
    for options in (["--outcome", "failed"], ["--text", "NO LUCK"], ["--since", "2027-01-15T08:00:01+00:00"]):
        printed = json.loads(command("list", "-s", store, "--json", *options).stdout)
        assert "failed" in [run["outcome"] for run in printed["runs"]]
        assert len(printed["runs"]) < 3
    assert "no such runs" in command("list", "-s", store, "--job", "other").stdout
    assert len(json.loads(command("list", "-s", store, "--json", "--since", "1h30m").stdout)["runs"]) == 3


def test_missed_moments_are_listed_with_the_reasons(store: str) -> None:
    assert "no such missed moments" in command("list", "-s", store, "--missed").stdout

    async def add() -> None:
        busy = Misfired("report", ME, NOON, NOON, (3,), 1, "busy [here]", at=NOON / 1000 + 5)
        gone = Misfired("report", ME, NOON, NOON + 9000, (7,), 4, "nobody was up", at=NOON / 1000 + 9)
        async with open_store(store) as events:
            await events.write(batch(busy, gone))

    asyncio.run(add())
    head, rule, *lines = command("list", "-s", store, "--missed").stdout.splitlines()
    assert re.split(r"  +", head) == ["Moment", "Job, item", "Reported", "Address", "Why"]
    assert rule == "─" * len(head)
    (first, *_), (second, *_, why) = (re.split(r"  +", line) for line in lines)
    assert (first[17:], second[17:], why) == ("09+00:00", "00+00:00", "busy [here]")
    assert [line.index("report") for line in lines] == [head.index("Job")] * 2
    printed = json.loads(command("list", "-s", store, "--missed", "--json", "--limit", "1").stdout)
    (one,) = printed["missed"]
    assert (one["job"], one["item"], one["why"]) == ("report", 7, "nobody was up")
    assert (one["moments"], one["atLeast"]) == (4, False)
    rest = command("list", "-s", store, "--missed", "--text", "BUSY", "--after", printed["next"]).stdout
    assert "busy" in rest
    assert "more: --after" in command("list", "-s", store, "--missed", "--limit", "1").stdout


@pytest.mark.parametrize("option", ["--outcome", "--source", "--run"])
def test_filters_of_runs_are_refused_for_missed_moments(store: str, option: str) -> None:
    done = command("list", "-s", store, "--missed", option, "failed")
    assert (done.exit_code, "leave it out, or --missed" in done.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [("list",), ("show", "key"), ("prune", "--days", "1", "--yes")])
def test_a_store_that_does_not_exist_is_named_and_not_made(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = command(*arguments, "--event-store", f"sqlite:///{tmp_path / 'typo.db'}")
    assert done.exit_code == 2
    assert "there is no file" in done.stderr
    assert "typo.db" in done.stderr
    assert not (tmp_path / "typo.db").exists()


def test_a_damaged_store_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"no database at all" * 100)
    done = command("list", "--event-store", f"sqlite:///{tmp_path / 'events.db'}")
    assert done.exit_code == 1
    assert "events.db" in done.stderr
    assert "move it away, and an empty one is made" in done.stderr


def test_one_run_is_shown_with_its_states_and_its_stack(store: str) -> None:
    (run,) = json.loads(command("list", "-s", store, "--outcome", "failed", "--json").stdout)["runs"]
    shown = command("show", "-s", store, run["id"]).stdout
    assert "TASK_STAGING" in shown
    assert "raise ValueError(text)" in shown
    assert run["runId"] == f"report@{run_name(NOON + 1000)}"
    assert f"run of the job: {run['runId']}" in shown
    assert json.loads(command("show", "-s", store, run["id"], "--json").stdout)["run"] == run


def test_the_run_id_of_the_log_finds_the_runs_of_all_items(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def add() -> None:
        async with open_store(store) as events:
            await events.write(batch(*beginning(NOON + 1000, item=1), end(NOON + 1000, item=1)))

    asyncio.run(add())
    run = f"report@{run_name(NOON + 1000)}"
    listed = json.loads(command("list", "-s", store, "--run", run, "--json").stdout)["runs"]
    assert [(one["item"], one["outcome"], one["runId"]) for one in listed if one["item"]] == [(1, "completed", run)]
    assert [(one["item"], one["outcome"], one["runId"]) for one in listed if not one["item"]] == [(0, "failed", run)]
    shown = command("show", "-s", store, run).stdout
    assert "raise ValueError(text)" in shown
    assert shown.count(f"run of the job: {run}") == 2
    details = json.loads(command("show", "-s", store, run, "--json").stdout)["runs"]
    assert [one["run"] for one in reversed(details)] == listed
    monkeypatch.setattr(cli_events, "MAX_SHOWN", 1)
    assert f"the newest 1: aioelasticjob events list --run '{run}' has all" in command("show", "-s", store, run).stdout


def test_who_asks_for_a_run_that_is_not_there_is_told_where_the_ids_are(store: str) -> None:
    for run in ("nobody", f"report@{run_name(NOON + 5000)}"):
        shown = command("show", "-s", store, run)
        assert shown.exit_code == 2
        assert "aioelasticjob events list shows the ids; the run_id that the log has is taken as well" in shown.stderr


def test_old_events_are_removed_once_somebody_is_sure(store: str) -> None:
    assert command("prune", "-s", store, "--rows", "1").exit_code == 1
    assert command("prune", "-s", store, "--rows", "1", "--yes").stdout.startswith("9 rows")
    assert len(json.loads(command("list", "-s", store, "--json").stdout)["runs"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--event-store", "oracle://me:s3cret@host/db"],
        ["list", "--event-store", "sqlite://", "--since", "yesterday"],
        ["list", "--event-store", "sqlite://", "--since", "2026-01-01"],
        ["list", "--event-store", "sqlite://", "--since", "99999999999d"],
        ["list", "--event-store", "sqlite://", "--since", "1700000000"],
        ["list", "--event-store", "sqlite://", "--outcome", "broken"],
        ["list", "--event-store", "sqlite://", "--source", "nope"],
        ["list", "--event-store", "sqlite://", "--source", "cron"],
        ["list", "--event-store", "sqlite://", "--item", "99999999999999999999"],
        ["list", "--event-store", "sqlite://", "--after", "nonsense"],
        ["list", "--event-store", "sqlite://", "--run", "nobody"],
        ["show", "--event-store", "sqlite://", "nobody"],
        ["show", "--event-store", "sqlite://", "report@today"],
        ["prune", "--event-store", "sqlite://", "--yes"],
    ],
)
def test_what_makes_no_sense_is_one_line_and_code_two(arguments: list[str]) -> None:
    shown = command(*arguments)
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1
    assert "s3cret" not in shown.stderr


def test_runs_of_one_namespace_are_listed_alone(store: str) -> None:
    async def add() -> None:
        async with open_store(store) as events:
            await events.write(batch(end(item=7), namespace="shop/eu"))

    asyncio.run(add())
    printed = json.loads(command("list", "-s", store, "--namespace", "/shop/eu", "--json").stdout)
    assert [(run["item"], run["namespace"]) for run in printed["runs"]] == [(7, "shop/eu")]
    assert len(json.loads(command("list", "-s", store, "--json").stdout)["runs"]) == 4


def test_a_run_without_an_end_says_how_old_it_is_where_no_registry_is_named(store: str) -> None:
    lines = command("list", "-s", store, "--outcome", "running").stdout.splitlines()
    assert re.search(r" running .* no end in the history .* after it began$", lines[2])
    assert lines[-1].startswith("running is what the history says; with --registry")
    (run,) = json.loads(command("list", "-s", store, "--outcome", "running", "--json").stdout)["runs"]
    assert (run["outcome"], run["goesOn"]) == ("running", None)
    done = command("list", "-s", store, "--outcome", "completed", "--json").stdout
    assert [one["goesOn"] for one in json.loads(done)["runs"]] == [False]


def test_with_a_registry_a_run_that_it_knows_to_have_ended_is_not_running(
    embedded: EmbeddedServer, tmp_path: Path
) -> None:
    registry = f"zk://{embedded.address}/shop"
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    began = asyncio.Event()

    async def handler(context: ItemContext) -> None:
        began.set()
        await asyncio.Event().wait()

    async def listed(*filters: str) -> tuple[str, bool | None]:
        shown = await asyncio.to_thread(command, "list", "-r", registry, "-s", url, "--json", *filters)
        assert shown.exit_code == 0, shown.output
        found = json.loads(shown.stdout)["runs"]
        return (found[0]["outcome"], found[0]["goesOn"]) if found else ("", None)

    async def main() -> None:
        async with open_store(url) as events:
            await events.write(batch(*beginning(LONG_AGO), namespace="elsewhere"))
            await events.write(batch(*beginning(LONG_AGO, item=7), namespace="shop"))
        app = ElasticJob(registry, event_store=url)
        app.add(handler, name="report")
        async with app.running():
            await app.trigger("report")
            await began.wait()
            with anyio.fail_after(30):
                while await listed("--namespace", "shop") != ("running", True):  # until the row is written
                    pass
            assert await listed("--namespace", "elsewhere") == ("running", None)
            assert await listed("--namespace", "shop", "--item", "7") == ("ended", False)

    asyncio.run(main())


def test_a_registry_that_does_not_answer_is_said_and_the_history_is_shown_as_without_it(store: str) -> None:
    shown = command("list", "-s", store, "-r", "zk://127.0.0.1:1/shop", "--timeout", "200ms")
    assert shown.exit_code == 0
    assert "the registry cannot say which runs go on: " in shown.stderr
    assert "no end in the history" in shown.stdout
