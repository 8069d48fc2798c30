from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import aioelasticjob
from aioelasticjob.declarations import Declarations

PACKAGE = Path(aioelasticjob.__file__).parent
SIMULATOR = Path(__file__).parent / "simulation"
LONGEST = {"file": 400, "function": 40}
"""Lines of a file, and of a function with its docstring."""
MOST = 12
"""Methods of a class that everything would like to move into; properties are not counted, they decide nothing."""


def test_every_promised_name_is_there_and_shown() -> None:
    for name in aioelasticjob.__all__:
        assert getattr(aioelasticjob, name).__name__ == name
    assert set(aioelasticjob.__all__) <= set(dir(aioelasticjob))
    assert sorted(aioelasticjob._HOMES) == sorted(aioelasticjob.__all__)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Scheduler'"):
        aioelasticjob.Scheduler  # noqa: B018


def test_the_embedded_server_starts_without_the_rest_of_the_house() -> None:
    program = "import sys, aioelasticjob.zookeeper.__main__; print('pydantic' in sys.modules, 'aiozk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_nothing_is_longer_than_one_can_read() -> None:
    found = set[str]()
    simulator = (path for path in SIMULATOR.rglob("*.py") if not path.name.startswith("test_"))
    for path in [*PACKAGE.rglob("*.py"), *simulator]:
        text, name = path.read_text("utf-8"), path.relative_to(PACKAGE.parent).as_posix()
        if len(text.splitlines()) > LONGEST["file"]:
            found.add(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST["function"]:
                    found.add(f"{name}: {node.name}")
    assert not found


@pytest.mark.parametrize("of", [aioelasticjob.ElasticJob, Declarations])
def test_an_application_does_not_become_the_object_that_does_everything(of: type) -> None:
    plain = (inspect.isfunction(one) or isinstance(one, classmethod | staticmethod) for one in vars(of).values())
    assert 0 < sum(plain) <= MOST


def test_a_class_has_twelve_methods_or_says_why_it_has_more() -> None:
    """Properties and methods with two underscores do not count."""
    silent = set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef) or methods(node) <= MOST:
                continue
            if "more than twelve methods" not in (ast.get_docstring(node) or ""):
                silent.add(f"{path.relative_to(PACKAGE)}: {node.name}")
    assert not silent


def methods(node: ast.ClassDef) -> int:
    """Return how many methods a class defines that are no properties."""
    found = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = [one for one in found if not one.name.startswith("__")]
    return sum(not any(ast.unparse(mark).endswith("property") for mark in one.decorator_list) for one in named)
