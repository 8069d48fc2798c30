"""Tables, commands and links of the documentation agree with the code."""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any

import pytest
import typer

from aioelasticjob import Cron, ElasticJob, InvalidSetting, error_handlers
from aioelasticjob.cli.application import application
from aioelasticjob.core.layout import SWITCHES, ItemPaths, Layout, server_switch
from aioelasticjob.error_handlers import lookup
from aioelasticjob.registry.settings import ConnectionOptions, ConnectionSettings
from aioelasticjob.zookeeper.__main__ import main as zookeeper
from tests.__main__ import CHECKS, LONG
from tests.docs.pages import ROOT, blocks, pages, read, table

ID = "10.0.0.5@-@4711-0a1b2c3d"
SETTINGS = "docs/reference/settings.md"
EXAMPLES = {
    "host": "mail.example.org",
    "sender": "a@example.org",
    "to": "b@example.org",
    "url": "https://example.org",
    "webhook": "https://example.org",
}
"""Of options that error handlers need."""


def test_every_setting_of_a_connection_has_its_row() -> None:
    rows = {cells[0].strip("`"): cells[1].strip("`") for cells in table(SETTINGS, "| setting | default |")}
    parameters = inspect.signature(ElasticJob).parameters
    own = {
        name: repr(one.default) for name, one in parameters.items() if name not in ("address", "clock", "connection")
    }
    defaults = {one.name: repr(one.default) for one in fields(ConnectionSettings)}
    assert rows == own | {name: defaults[name] for name in ConnectionOptions.__optional_keys__}


def test_every_znode_has_its_row() -> None:
    cells = [row[0] for row in table("docs/reference/znodes.md", "| path | ephemeral |")]
    documented = {path for cell in cells for path in re.findall(r"`([^`]+)`", cell)}
    assert documented >= {path for path in _spelt() if not any(other.startswith(f"{path}/") for other in documented)}
    assert all(path in _spelt() for path in documented)


def _spelt() -> set[str]:
    """Return all paths that the layout spells, relative to the job, with placeholders."""
    layout, found = Layout("job"), set[str]()
    placeholders = {
        "ip": "{ip}",
        "instance": "{id}",
        "run": "{run}",
        "name": "{id}",
        "item": "{item}",
        "hash": "{hash}",
        "follower": "{follower}",
    }
    for name, member in vars(Layout).items():
        if isinstance(member, property):
            found |= {value for value in [getattr(layout, name)] if isinstance(value, str)}
        elif inspect.isfunction(member) and not name.startswith("_") and name != "item":
            parameters = list(inspect.signature(member).parameters)[1:]
            found.add(member(layout, *(placeholders[parameter] for parameter in parameters)))
    of_item: Any = layout.item("{item}")  # type: ignore[arg-type]
    found |= {getattr(of_item, name) for name, member in vars(ItemPaths).items() if isinstance(member, property)}
    found |= {f"{layout.started}/{{item}}", f"{layout.completed}/{{item}}"}
    return {path.removeprefix("/job/") for path in found if path != "/job"}


def test_every_error_handler_has_its_row_and_its_needs_are_bold() -> None:
    rows = {cells[0].strip("`"): cells[2] for cells in table("docs/how-to/failures.md", "| name | what it does |")}
    points = tomllib.loads(read("pyproject.toml"))["project"]["entry-points"]["aioelasticjob.error_handlers"]
    assert rows.keys() == points.keys()
    for name, options in rows.items():
        needed = {one: EXAMPLES[one] for one in re.findall(r"\*\*`(\w+)`\*\*", options)}
        error_handlers.check(name, needed)
        for missing in needed:
            with pytest.raises(InvalidSetting, match=missing):
                error_handlers.check(name, {one: value for one, value in needed.items() if one != missing})
        model = lookup._OPTIONS.get(name)
        assert set(re.findall(r"`([\w.]+)`", options)) == (set() if model is None else set(model.names()))


def test_operators_write_where_we_look() -> None:
    layout = Layout("report")
    known = {
        layout.root,
        layout.config,
        layout.server_disabled("10.0.0.5"),
        layout.server_paused("10.0.0.5"),
        layout.paused,
        SWITCHES,
        server_switch("10.0.0.5"),
        server_switch("10.0.0.5", "disabled"),
        layout.request("x"),
        layout.shutdown(ID),
        layout.item(2).disabled,
    }
    written = set[str]()
    for page in ("docs/how-to/operate.md", "docs/how-to/change-settings.md"):
        written |= set(re.findall(r"(?:create|delete|deleteall|get|set) (/\S+?)(?=[\s`]|$)", read(page)))
    assert written == {f"/billing{path}" for path in known}


def _commands(program: str) -> list[Any]:
    """Return the lines of all pages that start a program, without it."""
    found = []
    for page in pages():
        for block in blocks(page, "bash"):
            for line in block.text.splitlines():
                for part in line.partition(" #")[0].split("&&"):
                    words = shlex.split(part.strip().removesuffix("&").removeprefix("$ "))
                    start = [word.removeprefix(".venv/bin/") for word in words]
                    if start[: len(program.split())] == program.split():
                        found.append(pytest.param(words[len(program.split()) :], id=f"{block}-{part.strip()}"))
    return found


@pytest.mark.parametrize("words", _commands("aioelasticjob"))
def test_a_command_is_one_and_takes_its_options(words: list[str]) -> None:
    group: Any = typer.main.get_command(application)
    command = group.get_command(None, words[0])
    command.make_context(words[0], list(words[1:]))


@pytest.mark.parametrize("words", _commands("python -m aioelasticjob.zookeeper"))
def test_the_servers_own_options_exist(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["zookeeper", "--help"])
    with pytest.raises(SystemExit):
        zookeeper()
    printed = capsys.readouterr().out
    assert all(word in printed for word in words if word.startswith("--"))


@pytest.mark.parametrize("words", _commands("python3 -m tests"))
def test_the_checks_named_exist(words: list[str]) -> None:
    assert set(words) <= {*CHECKS, *LONG, "--long", "--no-setup", "--allow-skips"}


def test_the_readme_opens_with_two_commands_and_ci_calls_the_second() -> None:
    opening = blocks("README.md", "bash")[:2]  # a block each: who pastes the first does not start the whole suite
    demo, tests = (line for one in opening for line in one.text.splitlines() if line and not line.startswith("#"))
    assert demo == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/aioelasticjob demo"
    assert tests == "python3 -m tests"
    assert f"exec {tests}\n" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(
    "page", [*pages(), *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*/*.md"))]
)
def test_nothing_is_installed_from_where_it_is_not(page: str) -> None:
    assert "Alpha, not on PyPI" in read("README.md")
    assert not re.search(r"pip install '?aioelasticjob", read(page))


@pytest.mark.parametrize("page", pages())
def test_a_table_begins_on_a_line_of_its_own_after_an_empty_one(page: str) -> None:
    """Otherwise it is shown as text."""
    lines = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL).splitlines()
    below = [n for n, line in enumerate(lines) if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line)]
    assert [lines[n - 2 : n] for n in below if lines[n - 2] or not lines[n - 1].startswith("|")] == []


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    """The builder of the site looks at pages inside docs only; this looks at README, CONTRIBUTING and images, too."""
    for target in re.findall(r"\]\(([^)#\s]+)", read(page)):
        if "://" not in target:
            assert (ROOT / PurePosixPath(page).parent / target).exists(), target


@pytest.mark.parametrize("page", pages())
def test_the_pictures_of_a_page_are_there(page: str) -> None:
    """Markdown's own pictures are links, which the test above has; these are those with a variant for dark screens."""
    for target in re.findall(r'(?:src|srcset)="([^"]+)"', read(page)):
        assert (ROOT / PurePosixPath(page).parent / target).is_file(), target


def test_the_changelog_says_in_few_words_what_the_first_release_will_be() -> None:
    """A line for each change that users see.  If a rebase has brought back the old lines, remove them: git has them."""
    changelog = read("CHANGELOG.md")
    assert len(changelog.split()) <= 1_000
    assert re.findall(r"^#+ (.+)$", changelog, re.MULTILINE)[1:] == ["[Unreleased]", "Added", "Changed", "Fixed"]


def test_the_readme_has_three_pictures_for_light_and_dark_screens() -> None:
    variants = r'<source media="\(prefers-color-scheme: dark\)" srcset="(\S+)">\s*<img alt="[^"]+" src="(\S+)">'
    shown = re.findall(variants, read("README.md"))
    assert len(shown) == 3
    assert [dark.replace("dark", "light") for dark, _ in shown] == [light for _, light in shown]


@pytest.mark.parametrize("page", [page for page in pages() if page != "CHANGELOG.md"])
def test_a_file_of_ours_that_a_page_names_is_there(page: str) -> None:
    """Pages name modules of the package without its folder; commands name folders of tests."""
    files = re.findall(r"`((?:[\w.]+/)+\w+\.py)`", read(page))
    folders = re.findall(r"\btests/\w+(?:/\w+)*", "".join(block.text for block in blocks(page, "bash")))
    missing = {name for name in files if not any((ROOT / below / name).is_file() for below in (".", "aioelasticjob"))}
    assert missing | {name for name in folders if not (ROOT / name).is_dir()} == set()


@pytest.mark.parametrize(
    "cells", table("docs/reference/schedules.md", "| | Quartz | crontab |"), ids=lambda row: row[0]
)
def test_the_expressions_shown_are_understood(cells: list[str]) -> None:
    both = [Cron.parse(cell.strip("`"), "UTC", "cron").describe() for cell in cells[1:] if cell != "–"]
    assert both
    assert len(set(both)) == 1
