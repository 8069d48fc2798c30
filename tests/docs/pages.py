"""The documentation as its readers meet it: pages, and the fenced blocks on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the pages that people read, relative to the root."""
    outside = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if path.exists()]
    return [str(path.relative_to(ROOT)) for path in (*outside, *sorted((ROOT / "docs").rglob("*.md")))]


def read(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[Block]:
    """Return a page's blocks in one language."""
    text = read(page)
    return [
        Block(page, text.count("\n", 0, found.start(2)) + 1, language, found[2])
        for found in _FENCED.finditer(text)
        if found[1] == language
    ]


def execute(*given: Block, **replaced: str) -> dict[str, Any]:
    """Run blocks one after another as one module that is not the main one, and return its names.

    ``replaced``: ``address`` stands for the registry's address wherever the blocks name one.
    """
    names: dict[str, Any] = {"__name__": "snippet"}
    for block in given:
        text = block.text
        if "address" in replaced:
            text = re.sub(r'"(zk|embedded)://[^"]*"', repr(replaced["address"]), text)
        lines_before = "\n" * (block.line - 1)  # so that a traceback names the page's line
        exec(compile(lines_before + text, block.page, "exec"), names)
    return names


def table(page: str, header: str) -> list[list[str]]:
    """Return the cells of the rows below the table header that begins with ``header``."""
    rows: list[list[str]] = []
    within = False
    for line in read(page).splitlines():
        if line.startswith(header):
            within = True
        elif within and not line.startswith("|"):
            break
        elif within and not line.startswith("|---"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows
