from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import aioelasticjob
from aioelasticjob import errors, operations
from aioelasticjob.errors import ElasticJobError

ROOT = Path(__file__).parents[1]


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


def test_the_package_uses_each_of_its_runtime_dependencies_itself() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[^a-z-]", dependency)[0] for dependency in declared}
    distributions = packages_distributions()
    # a dependency that is not installed here yet counts by the name of its module
    used = {name.lower() for module in set(modules_used()) for name in distributions.get(module, (module,))}
    assert "pydantic" in names
    assert names - used == set()


def modules_used() -> Iterator[str]:
    """Yield the top-level modules that the package imports, or whose files it reads by ``resources.files``."""
    for file in (ROOT / "aioelasticjob").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(names=names):
                    yield from (one.name.partition(".")[0] for one in names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield module.partition(".")[0]
                case ast.Call(func=ast.Attribute(attr="files"), args=[ast.Constant(value=str(module))]):
                    yield module
