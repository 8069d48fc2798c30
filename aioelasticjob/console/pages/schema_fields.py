"""The fields of a form that follow from a JSON schema, and what somebody has typed in them as a JSON value.

The schema is one that a process has published for a handler.  What a single field cannot hold is typed as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import read_json

PREFIX: Final = "value:"
"""Begins the names of these fields in a form, so that they are not taken for settings."""
_KINDS: Final[Mapping[object, str]] = {
    "boolean": "switch",
    "integer": "number",
    "number": "number",
    "string": "text",
}


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One property of a schema in a form."""

    key: str
    """The property that it is for."""
    label: str
    kind: str
    """``text``, ``number``, ``switch``, ``choice``, or ``json`` for what is typed as JSON."""
    required: bool
    help: str = ""
    shown: str = ""
    """The default, as the form shows it."""
    choices: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The field's name in the form."""
        return f"{PREFIX}{self.key}"


def fields_of(schema: Mapping[str, Any]) -> list[SchemaField]:
    """Return the fields for the properties of a schema, in its order; none if it describes no object."""
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    found = list[SchemaField]()
    for name, said in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(said, dict):
            found.append(_field(name, said, _meant(schema, said), name in needed))
    return found


def typed_value(form: Mapping[str, str], fields: Sequence[SchemaField]) -> dict[str, Any]:
    """Return what was typed, without what was left empty.

    Raises:
        InvalidSetting: a number or JSON was expected.
    """
    found = dict[str, Any]()
    for field in fields:
        text = form.get(field.name, "")
        if field.kind == "switch":
            found[field.key] = text == "true"
        elif text or (field.required and field.kind == "text"):
            found[field.key] = _value(field, text)
    return found


def _value(field: SchemaField, text: str) -> Any:
    if field.kind == "text" or (field.kind == "choice" and field.choices):
        return text
    try:
        return read_json(text)
    except ValueError:
        expected = "must be a number" if field.kind == "number" else "must be JSON"
        raise InvalidSetting(field.key, text, expected) from None


def _field(name: str, said: Mapping[str, Any], meant: Mapping[str, Any], required: bool) -> SchemaField:
    title = said.get("title")
    help = said.get("description")
    choices = meant.get("enum")
    is_choice = isinstance(choices, list) and all(isinstance(one, str) for one in choices)
    kind = "choice" if is_choice else _KINDS.get(meant.get("type"), "json")
    default = said.get("default")
    shown = ""
    if default is not None:
        is_text = isinstance(default, str) and kind != "json"
        shown = default if is_text else json.dumps(default, ensure_ascii=False)
    return SchemaField(
        name,
        title if isinstance(title, str) else name,
        kind,
        required,
        help if isinstance(help, str) else "",
        shown,
        tuple(choices) if isinstance(choices, list) and is_choice else (),
    )


def _meant(schema: Mapping[str, Any], said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a property may be besides null, if that is one thing; a reference is followed."""
    meant = said
    options = said.get("anyOf")
    if isinstance(options, list):
        several = [one for one in options if isinstance(one, dict) and one.get("type") != "null"]
        meant = several[0] if len(several) == 1 else {}
    reference = meant.get("$ref")
    definitions = schema.get("$defs")
    if isinstance(reference, str) and isinstance(definitions, dict):
        found = definitions.get(reference.removeprefix("#/$defs/"))
        meant = found if isinstance(found, dict) else {}
    return meant
