"""The pages about kinds and settings files say what the code does."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from aioelasticjob import InvalidSetting
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.context import described
from aioelasticjob.jobs.http import Request
from aioelasticjob.jobs.script import Script
from aioelasticjob.settings import examine
from aioelasticjob.settings.checking import Application
from tests.docs.pages import blocks, execute, read
from tests.support.contexts import of_item

KINDS, FILES, OWN = (f"docs/how-to/{page}.md" for page in ("script-and-http", "settings-files", "own-kind"))


@pytest.mark.parametrize(("section", "model"), [("Scripts", Script), ("Requests", Request)])
def test_every_option_has_its_row_and_its_default(section: str, model: type[BaseModel]) -> None:
    text = read(KINDS).partition(f"## {section}")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        [f"`{name}`", "–" if field.is_required() else f"`{shown(field.get_default(call_default_factory=True))}`"]
        for name, field in model.model_fields.items()
    ]


def shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, str | list | dict) else repr(value)


def test_the_context_shown_is_one() -> None:
    (block,) = blocks(KINDS, "json")
    assert list(json.loads(block.text)) == list(json.loads(described(of_item())))


@pytest.fixture
def sql(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The kind of the page, registered as the page says."""
    kind = execute(*blocks(OWN, "python"))["KIND"]
    monkeypatch.setattr(kinds, "entry_points", lambda group: [SimpleNamespace(name="sql", load=lambda: kind)])
    kinds.find.cache_clear()
    yield kind
    kinds.find.cache_clear()


def test_the_kind_shown_does_its_work(sql: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE carts (shard, touched)")
        database.executemany(
            "INSERT INTO carts VALUES (?, ?)", [(4, "2025-01-01"), (4, "2025-11-19"), (3, "2025-01-01")]
        )
    (declared,) = yaml.safe_load(blocks(OWN, "yaml")[0].text)["jobs"].values()
    options = {"database": path, "statement": declared["statement"]}
    kinds.handler(sql)(replace(of_item(), options=options))
    assert database.execute("SELECT * FROM carts ORDER BY shard").fetchall() == [(3, "2025-01-01"), (4, "2025-11-19")]
    database.close()
    with pytest.raises(InvalidSetting, match="is not complete"):
        kinds.declared("sql", "clean-up", {"database": path, "statement": "SELECT 'a"})


@pytest.mark.usefixtures("sql")
@pytest.mark.parametrize(
    ("page", "language"), [(KINDS, "yaml"), (FILES, "yaml"), (FILES, "toml"), (OWN, "yaml")], ids=str
)
def test_the_files_shown_are_right(page: str, language: str, tmp_path: Path) -> None:
    for block in blocks(page, language):
        if "entry-points" not in block.text:
            file = tmp_path / f"jobs.{language}"
            file.write_text(block.text)
            settings, mistakes = examine(file)
            assert mistakes == ()
            assert settings.jobs


def test_both_files_shown_say_the_same(tmp_path: Path) -> None:
    seen = []
    for language in ("yaml", "toml"):
        file = tmp_path / f"jobs.{language}"
        file.write_text(blocks(FILES, language)[0].text)
        settings, _ = examine(file)
        seen.append((settings.application, settings.declared("backup")))
    assert seen[0] == seen[1]


def test_the_mistakes_shown_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIOELASTICJOB_MAX_RETRIES", "many")
    text = blocks(FILES, "yaml")[0].text
    for right, wrong in (
        ("session_timeout", "sesion_timeout"),
        ("Europe/Berlin", "Europe/Berln"),
        ("[tar, -cf, /tmp/etc.tar, /etc]", "[tra]"),
        ("0 0 2 * * ?", "0 0 25 * * ?"),
    ):
        assert right in text
        text = text.replace(right, wrong)
    Path("jobs.yaml").write_text(text)
    assert [str(mistake) for mistake in examine("jobs.yaml")[1]] == blocks(FILES, "text")[0].text.splitlines()


def test_all_that_may_stand_at_the_top_is_named() -> None:
    section = read(FILES).partition("## What may be in a file?")[2].partition("## ")[0]
    assert all(f"`{name}`" in section for name in Application.model_fields)
