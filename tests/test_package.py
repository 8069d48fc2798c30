from __future__ import annotations

import subprocess
import sys

import pytest

import aioelasticjob


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
