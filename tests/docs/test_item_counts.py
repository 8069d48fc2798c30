"""No page and no example divides work by an item count that is written down: the registry's count may be another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, pages, read

DIVIDED = re.compile(r"%%?\s*\d+\s*==?|\bMOD\s*\([^()]*,\s*\d+\s*\)|\bmodulo\s+\d+", re.IGNORECASE)
"""Text that divides by a number: ``order % 4 == item``, in SQL ``till % 3 = :item`` and ``mod(till, 3)``, or prose."""
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".sh", ".yaml", ".md"))


def divided_by_declared_count(*modules: str) -> Iterator[str]:
    """Yield the remainders of a division by what a program also declares as an item count."""
    nodes = [node for code in modules for node in ast.walk(ast.parse(code))]
    keywords = [node for node in nodes if isinstance(node, ast.keyword)]
    declared = {ast.unparse(one.value) for one in keywords if one.arg == "sharding_total_count"}
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and ast.unparse(node.right) in declared:
            yield ast.unparse(node)


@pytest.mark.parametrize("page", [page for page in pages() if page != "CHANGELOG.md"])
def test_no_page_divides_by_an_item_count_that_is_written_down(page: str) -> None:
    assert DIVIDED.findall(read(page)) == []
    assert list(divided_by_declared_count(*[block.text for block in blocks(page, "python")])) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_example_divides_by_an_item_count_that_is_written_down(path: Path) -> None:
    assert DIVIDED.findall(path.read_text("utf-8")) == []
    assert list(divided_by_declared_count(*[one.read_text("utf-8") for one in path.parent.glob("*.py")])) == []


@pytest.mark.parametrize(
    "text", ["order % 4 == context.item", "WHERE till % 3 = {context.item}", "MOD(till, 3) = ?", "number modulo 6"]
)
def test_a_division_by_a_number_is_found(text: str) -> None:
    assert DIVIDED.search(text)


def test_a_division_by_the_declared_count_is_found() -> None:
    declared, divided = "@app.job(sharding_total_count=ITEMS)\nasync def job(context): ...", "mine = 7 % ITEMS"
    assert list(divided_by_declared_count(declared, divided)) == ["7 % ITEMS"]
