from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioelasticjob
from aioelasticjob import errors, operations
from aioelasticjob.declarations import Declarations
from aioelasticjob.errors import ElasticJobError

ROOT = Path(__file__).parents[1]
MOST = 12
"""Methods of a class that everything would like to move into; properties are not counted, they decide nothing."""


def test_every_promised_name_is_there_and_shown() -> None:
    for name in aioelasticjob.__all__:
        assert getattr(aioelasticjob, name).__name__.rpartition(".")[2] == name
    assert set(aioelasticjob.__all__) <= set(dir(aioelasticjob))
    assert sorted([*aioelasticjob._HOMES, *aioelasticjob._MODULES]) == sorted(aioelasticjob.__all__)


def test_all_errors_and_the_operations_are_imported_from_the_package_itself() -> None:
    classes = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, ElasticJobError)}
    assert classes <= set(aioelasticjob.__all__)
    assert aioelasticjob.JobConflict is errors.JobConflict
    assert aioelasticjob.operations is operations


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Scheduler'"):
        aioelasticjob.Scheduler  # noqa: B018


def test_the_embedded_server_starts_without_the_rest_of_the_house() -> None:
    program = "import sys, aioelasticjob.zookeeper.__main__; print('pydantic' in sys.modules, 'aiozk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("of", [aioelasticjob.ElasticJob, Declarations])
def test_an_application_does_not_become_the_object_that_does_everything(of: type) -> None:
    plain = (inspect.isfunction(one) or isinstance(one, classmethod | staticmethod) for one in vars(of).values())
    assert 0 < sum(plain) <= MOST


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and the names that it imports from them, by their full names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)


@pytest.mark.parametrize("folder", ["benchmarks", "tests/support"])
def test_benchmarks_and_what_they_share_with_tests_import_no_tests(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = {(path.name, name) for path in files for name in imported(path) if name.startswith("tests.")}
    assert found
    assert {(path, name) for path, name in found if not name.startswith("tests.support.")} == set()
