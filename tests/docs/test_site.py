"""What the builder of the site does not check itself: the navigation, and the files that the theme names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pytest
import yaml
import zensical
from playwright.sync_api import sync_playwright

from tests.console.browsing import CHROMIUM, QUIETLY
from tests.docs.pages import ROOT, blocks, pages

SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
DOCS = ROOT / "docs"


def named(part: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    for entry in part:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else named(below)


def test_every_page_is_in_the_navigation_once_and_nothing_else_is() -> None:
    assert sorted(named(SITE["nav"])) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_logo_icon_and_styles_are_there() -> None:
    theme = SITE["theme"]
    for file in (theme["logo"], theme["favicon"], *SITE["extra_css"]):
        assert (DOCS / file).is_file()


def test_a_reader_fetches_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert not any("://" in file for file in [*SITE["extra_css"], *SITE.get("extra_javascript", [])])
    assert not any("```mermaid" in path.read_text() for path in DOCS.rglob("*.md"))


def test_python_fits_into_the_column_of_a_page() -> None:
    """At 1,280 pixels the column has 87 characters; excerpts of our own code stay as they are, and scroll."""
    shown = (block for page in pages() if page.startswith("docs/") for block in blocks(page, "python"))
    wide = [(str(block), line) for block in shown for line in block.text.splitlines() if len(line) > 86]
    assert [(where, line) for where, line in wide if "docs/why/" not in where] == []


def test_signatures_list_the_settings_that_are_given_by_keyword() -> None:
    (handler,) = (plugin["mkdocstrings"]["handlers"] for plugin in SITE["plugins"] if "mkdocstrings" in plugin)
    extensions = griffe.load_extensions(*handler["python"]["options"]["extensions"])
    found = griffe.load("aioelasticjob", search_paths=[ROOT], extensions=extensions)
    for name in ("app.ElasticJob.__init__", "app.ElasticJob.job", "app.ElasticJob.script"):
        parameters = found[name].parameters
        assert not any("Unpack" in str(one.annotation) for one in parameters), name
        assert {"session_timeout", "cron"} & {one.name for one in parameters}, name


TABLE = """<link rel="stylesheet" href="{theme}"><link rel="stylesheet" href="{ours}">
<div class="md-typeset" style="width: 686px"><table><thead><tr><th>setting</th><th>key</th><th>default</th><th>meaning
</th></tr></thead><tbody><tr><td><code>sharding_item_parameters</code></td><td><code>shardingItemParameters</code></td>
<td><code>"average"</code></td><td>{text}</td></tr></tbody></table></div>"""


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
def test_names_in_a_table_are_not_broken_inside_words(tmp_path: Path) -> None:
    (theme,) = Path(zensical.__file__).parent.glob("templates/assets/stylesheets/modern/main.*.css")
    page = tmp_path / "page.html"
    text = "The meaning of a setting takes much room, so that its names have little. " * 4
    page.write_text(TABLE.format(theme=theme.as_uri(), ours=(DOCS / "css" / "site.css").as_uri(), text=text))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        shown = browser.new_page()
        shown.goto(page.as_uri())
        lines = shown.evaluate("() => [...document.querySelectorAll('code')].map(one => one.getClientRects().length)")
        fits = shown.evaluate("() => document.querySelector('table').scrollWidth <= 686")
        browser.close()
    assert (lines, fits) == ([1, 1, 1], True)
