"""Jobs by their labels: ``team=billing`` means the jobs with that label, ``team`` those with any label of that name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations.status import JobStatus

WantedLabel: TypeAlias = tuple[str, str | None]
"""The name of a label and its value; None for any value."""


def labelled(statuses: Iterable[JobStatus], wanted: Iterable[WantedLabel]) -> tuple[JobStatus, ...]:
    """Return the jobs that have all of these labels."""
    wanted = tuple(wanted)
    return tuple(status for status in statuses if all(has_label(status, one) for one in wanted))


def has_label(status: JobStatus, wanted: WantedLabel) -> bool:
    """Whether a job has this label."""
    name, value = wanted
    labels = status.config.labels
    return name in labels if value is None else labels.get(name) == value


def label_in(text: str) -> WantedLabel:
    """Return the label that a text names, as ``team=billing`` or ``team``.

    Raises:
        InvalidSetting: it names none.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name or (equals and not value):
        raise InvalidSetting("label", text, "write NAME=VALUE, such as team=billing, or NAME for any value")
    return name, value if equals else None
