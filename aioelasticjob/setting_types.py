"""The types of settings that people may write in more than one way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from aioelasticjob.durations import as_seconds


def _item_parameters(given: object) -> object:
    """Return item parameters as a mapping; Elastic-Job's text (``0=Beijing,1=Shanghai``) is accepted as well."""
    if not isinstance(given, str):
        return {} if given is None else given
    parameters: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in given.split(","))):
        item, equals, value = pair.partition("=")
        if not equals or not item.strip().isdigit():
            raise ValueError(f"{pair!r} is no pair like 0=Beijing")
        if item.strip() in parameters:
            raise ValueError(f"item {item.strip()} is given twice")
        parameters[item.strip()] = value.strip()
    return parameters


def _words(given: object) -> object:
    """Return words without duplicates; text such as ``first,second`` is accepted as well as a list."""
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    if isinstance(given, list | tuple) and all(isinstance(part, str) for part in given):
        return tuple(dict.fromkeys(given))
    return given


Feature = Annotated[str, Field(min_length=1, max_length=200)]
Features = Annotated[tuple[Feature, ...], BeforeValidator(_words)]
Alert: TypeAlias = Literal["failed", "given-up", "missed", "nobody-there"]
Alerts = Annotated[tuple[Alert, ...], BeforeValidator(_words)]
ItemParameters = Annotated[dict[int, str], BeforeValidator(_item_parameters)]
MILLISECOND, SECOND, DAY, AGES = 0.001, 1, 86_400, 10**9
DURATION = BeforeValidator(as_seconds)
"""Marks a setting that is a duration, and reads it."""
Seconds = Annotated[float, Field(ge=0, le=AGES, allow_inf_nan=False), DURATION]
Limit = Annotated[float, Field(ge=MILLISECOND, le=AGES, allow_inf_nan=False), DURATION]
"""A time limit in seconds; a limit below a millisecond would end the work before it begins, so it is refused."""


def parts_of(field: FieldInfo) -> list[object]:
    """Return the types that a setting's type consists of, and their marks, such as ``int`` and ``DURATION``."""
    return [*_leaves(field.annotation), *field.metadata]


def _leaves(annotation: object) -> Iterator[object]:
    inside = get_args(annotation)
    if not inside:
        yield annotation
    for one in inside:
        yield from _leaves(one)
