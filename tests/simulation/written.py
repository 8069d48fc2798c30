"""What was written to the registry, as judges read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from aioelasticjob.core import records
from aioelasticjob.model import Record
from tests.support.history import Written

decode_record = lru_cache(2**16)(records.decode)
"""Judges read the same records again and again."""


def is_as_before(record: Record | None, before: Record | None) -> bool:
    """Say whether a record is the one before the last, apart from its account, and from the ends of earlier moments."""
    if record is None or before is None:
        return record == (before or Record())
    return replace(record, accounted=0, owing=(), ends=()) == replace(before, accounted=0, owing=(), ends=())


def dismissed(written: Written, incarnations: Mapping[str, int]) -> Iterator[str]:
    """Yield the instances that a transaction asks to leave, or that it removes though they are another's."""
    for change in written.changes:
        _, _, parent, *name = change.path.split("/") + [""] * 2
        removed = parent == "instances" and change.data is None and incarnations.get(name[0]) != written.session
        if removed or (parent == "shutdown" and change.created):
            yield name[0]
