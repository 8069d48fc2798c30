"""Every log record has fields, and every field is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, table

PACKAGE = ROOT / "aioelasticjob"
OTHERS = {"cli", "console", "demo", "testing", "zookeeper"}
"""Programs of their own, with logs for people."""
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        within = path.relative_to(PACKAGE)
        if within.parts[0] in OTHERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in LEVELS and ast.unparse(node.func.value) in ("log", "context.log"):
                yield f"{within}:{node.lineno}", node


def extra(call: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)


@pytest.mark.parametrize(("where", "call"), [pytest.param(*one, id=one[0]) for one in calls()])
def test_a_record_has_fields_that_the_reference_tells_of(where: str, call: ast.Call) -> None:
    given = extra(call)
    assert given is not None, f"{where}: no extra"
    documented = {
        name for row in table("docs/reference/logging.md", "| field |") for name in re.findall(r"`(\w+)`", row[0])
    }
    if isinstance(given, ast.Dict):
        assert {name.value for name in given.keys if isinstance(name, ast.Constant)} <= documented


def test_there_are_records_to_look_at() -> None:
    assert len(list(calls())) > 25
