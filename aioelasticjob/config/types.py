"""The types of settings that people may write in more than one way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, tzinfo
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

from aioelasticjob.config.durations import as_seconds
from aioelasticjob.config.links import as_links, checked_links
from aioelasticjob.ground.nesting import all_inside
from aioelasticjob.schedules.calendars import MAX_CALENDARS, checked_name
from aioelasticjob.schedules.schedule import LONGEST, MAX_PARTS, SEPARATOR, SHORTEST


def _item_parameters(given: object) -> object:
    """Return item parameters as a mapping; Elastic-Job's text (``0=Beijing,1=Shanghai``) is accepted as well."""
    if isinstance(given, list | tuple):
        texts = [text if isinstance(text, str) else "…" for text in given[:3]]
        example = dict(enumerate(texts or ["Beijing"]))
        raise ValueError(f"must be a mapping with a text for each item: write {example}")
    if given is None:
        return {}
    if not isinstance(given, str):
        return given
    pairs = _pairs(given, "0=Beijing")
    for item, text in pairs.items():
        if not item.isdigit():
            pair = f"{item}={text}"
            raise ValueError(f"{pair!r} is no pair like 0=Beijing")
    return pairs


def _labels(given: object) -> object:
    """Return labels as a mapping; text such as ``team=billing,tier=gold`` is accepted as well."""
    if given is None:
        return {}
    if isinstance(given, str):
        return _pairs(given, "team=billing")
    return given


def _pairs(text: str, example: str) -> dict[str, str]:
    """Return the pairs of a text; ``example`` is one such pair."""
    found: dict[str, str] = {}
    for part in text.split(","):
        pair = part.strip()
        if not pair:
            continue
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals:
            raise ValueError(f"{pair!r} is no pair like {example}")
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value.strip()
    return found


def _labels_fit(labels: dict[str, str]) -> dict[str, str]:
    """Refuse labels that could not be written as ``NAME=VALUE`` in one line with others."""
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name):
            raise ValueError(f"the name {name[:120]!r} must be 1 to 100 letters, digits or any of _ . / -")
        if not 0 < len(value) <= 200 or "," in value or not value.isprintable() or value != value.strip():
            raise ValueError(f"the value of {name} must be 1 to 200 characters, without a comma or spaces around")
    return labels


def _words(given: object) -> object:
    """Return words without duplicates; text such as ``first,second`` is accepted as well as a list."""
    if isinstance(given, str):
        stripped = [part.strip() for part in given.split(",")]
        given = [word for word in stripped if word]
    if isinstance(given, list | tuple) and all(isinstance(part, str) for part in given):
        return tuple(dict.fromkeys(given))
    return given


def _expressions(given: object) -> object:
    """Return cron expressions as one text, with a semicolon between them."""
    if not isinstance(given, list | tuple):
        return given
    if not given or not all(isinstance(one, str) and one.strip() for one in given):
        raise ValueError("must be an expression such as '0 9 * * *', or a list of some")
    return f"{SEPARATOR} ".join(dict.fromkeys(given))


def _moment(given: object) -> object:
    """Return a moment as text, which may have been given as a datetime."""
    if isinstance(given, date):
        return given.isoformat()
    return given.strip() if isinstance(given, str) else given


def _moments(given: object) -> object:
    """Return moments as a list of texts: one may be given alone, and text such as ``2026-12-24, 2026-12-31``."""
    if given is None:
        return ()
    if isinstance(given, str):
        return _words(given)
    several = given if isinstance(given, list | tuple) else (given,)
    return tuple(dict.fromkeys(map(_moment, several)))


def _calendar_names(given: object) -> object:
    """Return names of calendars without duplicates; None is no name."""
    return () if given is None else _words(given)


def _zone_name(given: object) -> object:
    """Return the name of a ``ZoneInfo`` that was made from a name; return what is no time zone object as it is."""
    if not isinstance(given, tzinfo):
        return given
    name: object = getattr(given, "key", None)
    if name:
        return name
    raise ValueError("expected a name such as 'Europe/Berlin', or an offset such as 'GMT+8'")


def _parameter(given: object) -> object:
    """Return a parameter as text; a mapping is spelled as JSON."""
    if not isinstance(given, Mapping):
        return given
    try:
        return json.dumps(dict(given), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be text, or a mapping that JSON can spell: {error}") from None


Parameter = Annotated[str, BeforeValidator(_parameter)]
Feature = Annotated[str, Field(min_length=1, max_length=200)]
Features = Annotated[tuple[Feature, ...], BeforeValidator(_words)]
Kinds = Annotated[tuple[str, ...], BeforeValidator(_words)]
Alert: TypeAlias = Literal[
    "failed",
    "given-up",
    "missed",
    "nobody-there",
    "nobody-leads",
    "failing",
    "misfiring",
    "late",
    "writes-refused",
    "config-unusable",
    "clock-differs",
]
"""What the error handler of a job is called for: the first three by workers, the others by ``aioelasticjob alert``."""
RegistryAlert: TypeAlias = Literal["registry-away", "store-not-written"]
"""Further faults that belong to no job."""
AlertKind: TypeAlias = Alert | RegistryAlert
Alerts = Annotated[tuple[Alert, ...], BeforeValidator(_words)]
MAX_UPSTREAMS = 20
"""The most jobs that one job follows."""
_LABEL_NAME = re.compile(r"[\w./-]{1,100}")
Labels = Annotated[dict[str, str], BeforeValidator(_labels), AfterValidator(_labels_fit)]
Expressions = Annotated[str, BeforeValidator(_expressions)]
JobNames = Annotated[tuple[str, ...], Field(max_length=MAX_UPSTREAMS), BeforeValidator(_words)]
Time = Annotated[str, BeforeValidator(_moment)]
Times = Annotated[tuple[str, ...], Field(max_length=MAX_PARTS), BeforeValidator(_moments)]
CalendarNames = Annotated[
    tuple[Annotated[str, AfterValidator(checked_name)], ...],
    Field(max_length=MAX_CALENDARS),
    BeforeValidator(_calendar_names),
]
Links = Annotated[dict[str, str], BeforeValidator(as_links), AfterValidator(checked_links)]
ZoneName = Annotated[str, BeforeValidator(_zone_name)]
ItemParameters = Annotated[dict[int, str], BeforeValidator(_item_parameters)]
MILLISECOND = 0.001
SECOND = 1
DAY = 86_400
AGES = 10**9
NO_BYTES = "must not be bytes"
DURATION = BeforeValidator(as_seconds)
"""Marks a setting that is a duration, and reads it."""
Seconds = Annotated[float, Field(ge=0, le=AGES, allow_inf_nan=False), DURATION]
Interval = Annotated[float, Field(ge=SECOND, le=DAY, allow_inf_nan=False), DURATION]
Repetition = Annotated[float, Field(ge=SHORTEST, le=LONGEST, allow_inf_nan=False), DURATION]
Limit = Annotated[float, Field(ge=MILLISECOND, le=AGES, allow_inf_nan=False), DURATION]
"""A time limit in seconds; a limit below a millisecond would end the work before it begins, so it is refused."""


def has_bytes(value: object) -> bool:
    """Whether a value is bytes, or has some inside: pydantic would take them as text, as numbers and as flags."""
    return any(isinstance(part, bytes | bytearray) for part in all_inside(value))


def parts_of(field: FieldInfo) -> list[object]:
    """Return the types that a setting's type consists of, and their marks, such as ``int`` and ``DURATION``."""
    return [*_leaves(field.annotation), *field.metadata]


def _leaves(annotation: object) -> Iterator[object]:
    inside = get_args(annotation)
    if not inside:
        yield annotation
    for one in inside:
        yield from _leaves(one)
