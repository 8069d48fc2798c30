"""Values: objects that never change, of which many are made for every fire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a dataclass whose objects are never changed: type checkers refuse it.

    ``dataclass(frozen=True)`` also refuses it at run time; making an object takes four times as long then.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
