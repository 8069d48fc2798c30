"""Mistakes in settings: each with its place, the wrong value, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from aioelasticjob.errors import InvalidSetting

LONGEST_VALUE = 80
"""Characters of a wrong value that are shown."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake."""

    source: str
    """The file, or the environment variable."""
    line: int | None
    setting: str
    """The keys that lead to the setting, such as ``jobs.backup.cron``; empty if the whole source is wrong."""
    value: object
    expected: str

    @property
    def place(self) -> str:
        """File and line, in the form that editors understand, or the variable."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    def __str__(self) -> str:
        if not self.setting:
            return f"{self.place}: {self.expected}"
        shown = "" if self.value is None else f" = {_shortened(repr(self.value))}"
        return f"{self.place}: {self.setting}{shown}: {self.expected}"


class WrongSettings(InvalidSetting):
    """A settings file, or the environment, is wrong; ``mistakes`` has all mistakes."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first, *others = mistakes
        super().__init__(first.setting, first.value, first.expected)
        self.mistakes = tuple(mistakes)
        more = f" (and {len(others)} more: aioelasticjob config check lists them all)" if others else ""
        self.args = (f"{first}{more}",)


def in_order(found: Sequence[Mistake]) -> tuple[Mistake, ...]:
    """Return mistakes as a reader meets them: down the file, then the environment."""
    return tuple(sorted(found, key=lambda one: (one.line is None, one.line or inf, one.source, one.setting)))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
