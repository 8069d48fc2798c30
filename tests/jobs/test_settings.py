"""The settings of jobs as types are those that the models have, each with a type that allows the same."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Literal, Union

import pytest
from pydantic import BaseModel, JsonValue

from aioelasticjob.config import JobConfig, section_of
from aioelasticjob.jobs.http import Request
from aioelasticjob.jobs.script import Script
from aioelasticjob.jobs.settings import CommonSettings, DataflowSettings, JobSettings, RequestSettings, ScriptSettings
from aioelasticjob.setting_types import DURATION, parts_of

OTHERWISE = {"job_name", "job_type", "options", "command", "url"}
"""Settings that are arguments of their own, or that follow from how a job is declared."""


def own(settings: type) -> set[str]:
    """Return the settings that a type adds to those of every job."""
    return set(typing.get_type_hints(settings)) - set(typing.get_type_hints(JobSettings))


def test_the_names_are_those_of_the_models() -> None:
    of_dataflow = {name for name in JobConfig.model_fields if section_of(name).kind == "DATAFLOW"}
    assert set(typing.get_type_hints(JobSettings)) == set(JobConfig.model_fields) - of_dataflow - OTHERWISE
    assert own(DataflowSettings) == of_dataflow
    assert own(ScriptSettings) == set(Script.model_fields) - OTHERWISE | {"listeners"}
    assert own(RequestSettings) == set(Request.model_fields) - OTHERWISE | {"listeners"}


def alternatives(hint: Any) -> set[object]:
    """Return what a type allows: classes, values, and abstract collections for their concrete kinds."""
    origin = typing.get_origin(hint)
    if hint == JsonValue:
        return {JsonValue}
    if origin in (Union, UnionType):
        return set().union(*(alternatives(one) for one in typing.get_args(hint)))
    if origin is typing.Annotated:
        return alternatives(typing.get_args(hint)[0])
    if origin is Literal:
        return set(typing.get_args(hint))
    return {{dict: Mapping, list: Sequence, tuple: Sequence}.get(origin or hint, origin or hint)}


BESIDES: Mapping[str, set[object]] = {
    "labels": {str},
    "sharding_item_parameters": {str},
    "alert_on": {str},
    "requires": {str},
    "expected_status": {int, str},
}
"""What may be written in place of the type that the model holds."""


@pytest.mark.parametrize(
    ("settings", "model", "name"),
    [
        (settings, model, name)
        for settings, model in (
            (JobSettings, JobConfig),
            (DataflowSettings, JobConfig),
            (ScriptSettings, Script),
            (RequestSettings, Request),
        )
        for name in sorted(typing.get_type_hints(settings) if model is JobConfig else own(settings) - {"listeners"})
    ],
)
def test_each_setting_has_the_type_that_its_model_allows(settings: type, model: type[BaseModel], name: str) -> None:
    field = model.model_fields[name]
    allowed = alternatives(field.annotation) | BESIDES.get(name, set())
    if DURATION in parts_of(field):
        allowed = allowed - {int} | {float, str, timedelta}
    assert alternatives(typing.get_type_hints(settings)[name]) == allowed


def test_listeners_are_taken_by_every_kind() -> None:
    assert typing.get_origin(typing.get_type_hints(ScriptSettings)["listeners"]) is Iterable
    assert NoneType not in alternatives(typing.get_type_hints(RequestSettings)["listeners"])


def texts(described: type) -> dict[str, str]:
    """Return what is written below each setting of a class; nothing is empty text."""
    (found,) = ast.parse(dedent(inspect.getsource(described))).body
    assert isinstance(found, ast.ClassDef)
    said = {}
    for setting, text in pairwise([*found.body, None]):
        match setting, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(written))):
                said[name] = written
            case ast.AnnAssign(target=ast.Name(name)), _:
                said[name] = ""
    return said


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        (CommonSettings, JobConfig),
        (JobSettings, JobConfig),
        (DataflowSettings, JobConfig),
        (ScriptSettings, Script),
        (RequestSettings, Request),
    ],
)
def test_an_editor_shows_what_each_setting_means_as_the_model_says_it(settings: type, model: type[BaseModel]) -> None:
    said, of_model = texts(settings), texts(model)
    assert {name for name, text in said.items() if not text} == set()
    assert {name: said[name] for name, text in of_model.items() if text and name in said}.items() <= of_model.items()
