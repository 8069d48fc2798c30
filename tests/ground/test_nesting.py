"""What is nested very deeply, be it a value or a group of errors, is walked or refused, and never a RecursionError."""

from __future__ import annotations

import ast
import json
import logging
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aioelasticjob
from aioelasticjob import ElasticJob, ItemContext, JobConfig
from aioelasticjob.config.retry import Retry
from aioelasticjob.config.types import has_bytes
from aioelasticjob.core import records
from aioelasticjob.errors import ForeignData, InvalidSetting, leaf_errors
from aioelasticjob.ground.credentials import HIDDEN, hide_all, hide_in_json, hide_in_text
from aioelasticjob.ground.encoding import json_object, unencodable_text
from aioelasticjob.ground.nesting import MAX_DEPTH, TOO_DEEP, is_too_deep, read_json
from aioelasticjob.host.user_code import cancellation_behind
from aioelasticjob.logging import formatter
from aioelasticjob.operations.instances import parameter_text
from aioelasticjob.operations.settings import settings_from
from aioelasticjob.operations.transfer import configurations
from aioelasticjob.settings import files
from aioelasticjob.settings.environment import _value
from tests.support.simulated_jobs import SimulatedJobs, simulate

PACKAGE = Path(aioelasticjob.__file__).parent
DEEP = 5_000
OWN_FILES = {"console/language/i18n.py", "console/language/messages.py", "ground/nesting.py"}
"""Modules that read JSON which this package has written itself."""


def nested(levels: int = DEEP, innermost: object = "text") -> dict[str, Any]:
    value: Any = innermost
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return {"a": value}


def spelt(levels: int = DEEP) -> str:
    return f'{{"a": {"[" * levels}{"]" * levels}}}'


def group(levels: int, error: BaseException) -> BaseException:
    for _ in range(levels):
        error = BaseExceptionGroup("group", [error])
    return error


def test_values_may_have_a_hundred_levels() -> None:
    assert not is_too_deep(nested(MAX_DEPTH - 1))
    assert is_too_deep(nested(MAX_DEPTH))
    assert read_json(spelt(MAX_DEPTH - 1))["a"]
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        read_json(spelt(MAX_DEPTH))


def test_a_value_that_contains_itself_is_too_deep() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert is_too_deep(circle)


def test_a_value_that_names_another_many_times_is_looked_at_once() -> None:
    value: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value, value]
    assert not is_too_deep(value)


def test_a_wide_value_is_not_deep() -> None:
    assert read_json(json.dumps([[]] * 10 * MAX_DEPTH)) == [[]] * 10 * MAX_DEPTH


REFUSED: dict[str, Callable[[], object]] = {
    "a parameter": lambda: parameter_text(nested()),
    "a parameter that contains itself": lambda: parameter_text(_circle()),
    "a setting in the code": lambda: declared(labels=nested()),
    "options of an error handler": lambda: declared(error_handler="webhook", error_handler_options=nested()),
    "options of a job without Python": lambda: declared_http(nested()),
    "a setting on the command line": lambda: settings_from({"labels": spelt()}),
    "an import of JSON": lambda: configurations(f'[{{"jobName": "job", "labels": {spelt()}}}]'),
    "an import of YAML": lambda: configurations(f"jobs:\n- jobName: job\n  labels: {'[' * 500}{']' * 500}\n"),
    "a retry": lambda: Retry.of(spelt()),
}


async def idle(_context: ItemContext) -> None: ...


def declared(**settings: Any) -> JobConfig:
    return ElasticJob("embedded://").add(idle, name="job", **settings)


def declared_http(body: object) -> JobConfig:
    return ElasticJob("embedded://").http("job", url="http://127.0.0.1/", body=body)


def _circle() -> dict[str, object]:
    circle: dict[str, object] = {}
    circle["a"] = circle
    return circle


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_what_is_nested_too_deeply_is_refused_with_a_typed_error(refused: Callable[[], object]) -> None:
    with pytest.raises(InvalidSetting):
        refused()


def test_the_error_says_what_was_too_deep() -> None:
    with pytest.raises(InvalidSetting, match=r"parameter.*is nested more than 100 levels deep"):
        parameter_text(nested())
    with pytest.raises(InvalidSetting, match=r"labels.*is nested more than 100 levels deep"):
        declared(labels=nested())
    with pytest.raises(InvalidSetting, match=r"body.*is nested more than 100 levels deep"):
        declared_http(nested())


def test_nodes_that_are_nested_too_deeply_hold_nothing_of_ours() -> None:
    text = spelt().encode()
    assert json_object(text) == {}
    assert records.decode(text) is None
    assert records.decode_mark(text) is None
    with pytest.raises(ForeignData, match="is nested more than 100 levels deep"):
        JobConfig.from_json(text, "/job/config")


def test_a_variable_of_the_environment_that_is_nested_too_deeply_is_text() -> None:
    assert _value(spelt()) == spelt()


@pytest.mark.parametrize("levels", [200, DEEP])
@pytest.mark.parametrize(
    ("read", "text"),
    [(files._read_yaml, "jobs: {}{}"), (files._read_toml, "jobs = {}{}")],
    ids=["YAML", "TOML"],
)
def test_a_settings_file_that_is_nested_too_deeply_is_a_mistake(
    read: Callable[[str, str], files.SettingsFile], text: str, levels: int
) -> None:
    (mistake,) = read("jobs", text.format("[" * levels, "]" * levels)).mistakes
    assert TOO_DEEP in mistake.expected


@pytest.mark.parametrize("hide", [hide_in_json, hide_all])
def test_of_a_value_that_is_nested_too_deeply_nothing_is_shown(hide: Callable[[object], object]) -> None:
    assert hide(nested()) == HIDDEN
    assert hide_in_text(spelt()) == HIDDEN


def test_values_of_any_depth_are_searched() -> None:
    assert unencodable_text(nested(innermost="\ud800")) == "\ud800"
    assert unencodable_text(nested()) is None
    assert has_bytes(nested(innermost=b"bytes"))
    assert not has_bytes(nested())


def test_the_first_text_that_cannot_be_encoded_is_found() -> None:
    assert unencodable_text([{"a": ["\ud801"], "b": "\ud802"}, "\ud803"]) == "\ud801"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("value", [nested(), _circle()], ids=["deep", "circle"])
def test_a_log_line_has_its_message_also_if_a_field_is_nested_too_deeply(form: Any, value: object) -> None:
    record = logging.makeLogRecord({"msg": "said", "levelname": "INFO", "given": value})
    line = formatter(form).format(record)
    assert "said" in line
    assert TOO_DEEP in line


@pytest.mark.parametrize("levels", [500, 10_000])
def test_groups_of_errors_are_searched_at_any_depth(levels: int) -> None:
    error = ValueError("inside")
    assert list(leaf_errors(group(levels, error))) == [error]
    cancelled = CancelledError()
    error.__cause__ = cancelled
    assert cancellation_behind(group(levels, error)) is cancelled
    assert cancellation_behind(group(levels, KeyError())) is None


def test_the_errors_of_a_group_are_found_in_their_order_and_each_once() -> None:
    first, second, third = ValueError(1), ValueError(2), ValueError(3)
    inner = ExceptionGroup("inner", [first, second])
    assert list(leaf_errors(ExceptionGroup("outer", [inner, third, inner]))) == [first, second, third]


@pytest.mark.parametrize("levels", [500, 10_000])
def test_a_handler_that_raises_a_deep_group_fails_and_its_job_goes_on(
    levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_context: ItemContext) -> None:
        raise group(levels, ValueError("inside"))

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(fail, cron="0/5 * * * * ?")
        async with app.running():
            await here.until(11)
        assert app.counts["job"].runs == {"failed": 2}

    simulate(scene)
    assert "an error in this package" not in caplog.text
    assert "RecursionError" not in caplog.text


def test_json_is_read_where_its_depth_is_limited() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
                found.add(name)
    assert found - OWN_FILES == set()
