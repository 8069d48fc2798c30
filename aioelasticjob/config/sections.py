"""The sections of a form and the labels of its fields, which stand beside the types of settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """The section of a form that shows a setting; written beside the setting's type."""

    title: str
    kind: str | None = None
    """The only kind of job that has the settings of this section; None for all kinds."""


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a setting in a form, where its name alone is not clear enough."""

    text: str


SCHEDULE = Section("Schedule")
ITEMS = Section("Items")
SAFETY = Section("Safety")
FAILURES = Section("Failures")
DATAFLOW = Section("Dataflow", kind="DATAFLOW")
OWN = Section("Own settings of this kind")
MORE = Section("More")
