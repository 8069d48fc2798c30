"""Every time that a command shows to people has its date and its offset, in one form."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from aioelasticjob.events import Misfired
from aioelasticjob.observers.sql import open_store
from tests.cli.conftest import Command
from tests.cli.test_requests import working
from tests.observers.sample_events import ME, NOON, batch, beginning, end
from tests.support.embedded import EmbeddedServer

ANY_TIME = re.compile(r"\S*\d\d:\d\d\S*|\d{4}-\d\d-\d\d\S*")
SENTENCE = re.compile(r"At \d\d:\d\d:\d\d, Asia/.*")
"""A schedule in words, which names the zone."""
RIGHT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d")


def times(result: Result) -> set[str]:
    """Return the times of a result, after a check of their form."""
    assert result.exit_code == 0, result.output
    shown = SENTENCE.sub("", result.stdout)
    found = {text.strip("(),;") for text in ANY_TIME.findall(shown)}
    assert not [text for text in found if not RIGHT.fullmatch(text)], result.stdout
    assert found, result.stdout
    return found


def test_commands_that_ask_a_registry_show_each_time_with_its_offset(
    command: Command, embedded: EmbeddedServer
) -> None:
    address = f"zk://{embedded.address}/times"

    def ask(*words: str) -> Result:
        return command(*words, "-r", address)

    with working(address):
        assert ask("trigger", "report", "--at", "2090-01-01T06:00", "--expires", "30m").exit_code == 0
        assert times(ask("requests")) == {"2090-01-01T06:00:00+08:00", "2090-01-01T06:30:00+08:00"}
        span = ("--from", "2026-01-01", "--to", "2026-01-04")
        assert times(ask("backfill", "report", *span)) >= {"2026-01-01T02:00:00+08:00", "2026-01-03T02:00:00+08:00"}
        assert "2026-01-03T02:00:00+08:00" in times(ask("requests", "report"))
        assert all(text.endswith("T02:00:00+08:00") for text in times(ask("jobs")) | times(ask("job", "report")))
        (server,) = [one["ip"] for one in json.loads(ask("servers", "--json").stdout)]
        assert ask("pause", "--server", server, "--yes").exit_code == 0
        assert all(text.endswith("+00:00") for text in times(ask("server", server)))
        assert len(times(ask("set", "report", "cron=0 0 3 * * ?", "--dry-run"))) > 1


def test_commands_without_a_registry_show_each_time_with_its_offset(
    command: Command, tmp_path: Path, store: Callable[[], str]
) -> None:
    assert len(times(command("cron", "30 2 * * *", "-z", "Asia/Tokyo"))) == 5
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: {backup: {kind: script, command: 'true', cron: '0 30 2 * * ?', time_zone: Asia/Tokyo}}")
    assert all(text.endswith("T02:30:00+09:00") for text in times(command("config", "check", str(file))))
    url = store()
    listed = times(command("events", "list", "-s", url))
    assert listed == {"2027-01-15T08:00:00+00:00"}
    assert times(command("events", "list", "-s", url, "--missed")) > listed
    run = re.findall(r"[0-9a-f]{32}", command("events", "list", "-s", url).stdout)[0]
    assert times(command("events", "show", "-s", url, run)) >= listed


@pytest.fixture
def store(tmp_path: Path) -> Callable[[], str]:
    """Makes an event store with one run and one missed moment, and returns its URL."""
    url = f"sqlite:///{tmp_path / 'events.db'}"

    async def fill() -> None:
        missed = Misfired("report", ME, NOON, NOON, (3,), 1, "busy", at=NOON / 1000 + 5)
        async with open_store(url) as events:
            await events.write(batch(*beginning(), end(), missed))

    def made() -> str:
        asyncio.run(fill())
        return url

    return made
