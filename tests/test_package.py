from __future__ import annotations

import subprocess
import sys
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
