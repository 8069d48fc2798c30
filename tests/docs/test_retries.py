"""The page on retries: its program does what it says, and its files are right."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import anyio

from aioelasticjob import ElasticJob, Outcome, Retry
from aioelasticjob.events import AttemptFailed, Ended, Started
from aioelasticjob.jobs.script import ScriptFailed
from aioelasticjob.settings import examine
from aioelasticjob.testing import run
from tests.docs.pages import blocks, execute

PAGE = "docs/how-to/retries.md"


def test_the_pages_program_fails_twice_and_succeeds_two_items_at_a_time() -> None:
    app: ElasticJob = execute(blocks(PAGE, "python")[0], address="embedded://")["app"]
    running: set[int] = set()
    failed: list[tuple[int, int]] = []
    ended: list[Ended] = []
    most = 0

    async def main() -> None:
        nonlocal most
        with app.events() as events:
            async with app.running():
                async for event in events:
                    if isinstance(event, Started):
                        running.update(event.items)
                        most = max(most, len(running))
                    elif isinstance(event, AttemptFailed):
                        failed.append((event.items[0], event.attempt))
                    elif isinstance(event, Ended):
                        running.discard(event.item)
                        ended.append(event)
                        if len(ended) == 4:
                            return

    async def bounded() -> None:
        with anyio.fail_after(60):
            await main()

    run(bounded, start=datetime(2026, 1, 15, 2, tzinfo=UTC).timestamp() - 5)
    assert sorted(failed) == [(item, attempt) for item in range(4) for attempt in (1, 2)]
    assert {(one.outcome, one.attempt) for one in ended} == {(Outcome.COMPLETED, 3)}
    assert most == 2


def test_the_pages_files_are_right_and_say_the_same(tmp_path: Path) -> None:
    (yaml,), (toml,) = blocks(PAGE, "yaml"), blocks(PAGE, "toml")
    (tmp_path / "jobs.yaml").write_text(yaml.text)
    head = '[jobs.backup]\nkind = "script"\ncommand = "true"\n'
    (tmp_path / "jobs.toml").write_text(head + toml.text)
    found = []
    for name in ("jobs.yaml", "jobs.toml"):
        settings, mistakes = examine(tmp_path / name, elsewhere=True)
        assert mistakes == ()
        found.append(settings.declared("backup", look=False).retry)
    assert found == [Retry(3, 60, on=(ScriptFailed, TimeoutError), longest=600), Retry(3, 60, longest=600)]
