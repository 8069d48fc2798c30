"""The colour of each instance.  An instance keeps its colour while it is there, so that items can be seen to move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

COLOURS: Final = 10
"""Colours that the style sheet knows."""


class Palette:
    """The colours of one job's instances."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def update(self, instances: Iterable[str]) -> None:
        """Give colours to those that are new, the least used first, and take them from those that are gone."""
        there = list(instances)
        self._taken = {name: colour for name, colour in self._taken.items() if name in there}
        for name in there:
            if name not in self._taken:
                used = list(self._taken.values())
                self._taken[name] = min(range(COLOURS), key=lambda colour: (used.count(colour), colour))

    def css_class(self, instance: str | None) -> str:
        """Return the style class of an instance; one that is gone, or nobody, is grey."""
        colour = self._taken.get(instance or "")
        return "c-none" if colour is None else f"c-{colour}"
