"""What the builder of the site does not check itself: the navigation, and the files that the theme names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

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
