"""Strategies: functions that compute an assignment from the eligible instances, item count and present assignment.

Every strategy is deterministic and stable: if its own result is the present assignment, it returns the same result.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import cast
from zlib import crc32

from aioelasticjob.errors import error_text
from aioelasticjob.host.plugins import load
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.model import Instance
from aioelasticjob.zookeeper.javaset import string_hash

Assignment = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """The facts from which a strategy computes an assignment."""

    job: str
    instances: tuple[str, ...]
    """The eligible instances, sorted by address; never empty."""
    count: int
    present: Assignment = field(default_factory=dict)
    """The instance that holds each item now; it may be dead."""


Strategy = Callable[[AssignmentInput], Assignment]


def in_order(instances: Sequence[Instance]) -> tuple[str, ...]:
    """Return the ids of instances, sorted by address (numerically if it is an IP address), then by id."""
    ordered = sorted(instances, key=lambda one: (_order_of(one.ip), one.id))
    return tuple(one.id for one in ordered)


def average(given: AssignmentInput) -> Assignment:
    """Give each instance the same number of consecutive items, and one more item to each of the first instances.

    This is Elastic-Job's AverageAllocationJobShardingStrategy.
    """
    return _runs(given.instances, given.count)


def average_by_name(given: AssignmentInput) -> Assignment:
    """Assign as ``average`` does, beginning at an instance that follows from the job's name.

    So jobs that have fewer items than there are instances do not all run on the first instances.
    """
    # CRC-32 chooses all instances about equally often, however many there are. Java's hash, by which ``round_robin``
    # begins, does not: of 31 instances some are never chosen for the names job-0 to job-999.
    return _runs(_beginning_at(given.instances, crc32(given.job.encode())), given.count)


def odevity(given: AssignmentInput) -> Assignment:
    """Assign as ``average`` does, over the instances ascending, or descending if the job name's hash is even."""
    order = given.instances if java_hash(given.job) % 2 else given.instances[::-1]
    return _runs(order, given.count)


def round_robin(given: AssignmentInput) -> Assignment:
    """Assign as ``average`` does, over the instances rotated by the hash of the job name."""
    return _runs(_rotated(given), given.count)


def single_balance(given: AssignmentInput) -> Assignment:
    """Give the instances one item after another, beginning with one that the hash of the job name chooses.

    This spreads jobs that have fewer items than there are instances.
    """
    order = _rotated(given)
    return {item: order[item % len(order)] for item in range(given.count)}


def sticky(given: AssignmentInput) -> Assignment:
    """Move as few items as a balanced assignment allows.

    Every instance keeps items up to its share.  Shares differ by at most one, and the instances that hold most items
    get the larger shares.
    """
    held: dict[str, list[int]] = {one: [] for one in given.instances}
    free: list[int] = []
    for item in range(given.count):
        held.get(given.present.get(item, ""), free).append(item)
    share, extra = divmod(given.count, len(given.instances))
    by_load = sorted(given.instances, key=lambda one: -len(held[one]))
    quota = {one: share + (n < extra) for n, one in enumerate(by_load)}
    for one, items in held.items():
        free += items[quota[one] :]
        del items[quota[one] :]
    free.sort(reverse=True)
    for one in given.instances:
        while len(held[one]) < quota[one]:
            held[one].append(free.pop())
    return {item: one for one, items in held.items() for item in items}


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, so that instances are ordered as in Elastic-Job."""
    value = string_hash(text)
    return value - (1 << 32) if value >= 1 << 31 else value


@cache
def find(name: str) -> Strategy:
    """Return the strategy registered as ``name`` in the entry points ``aioelasticjob.strategies``.

    Raises:
        InvalidSetting: there is no such strategy, or its package cannot be used.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    others = {point.name: point for point in entry_points(group="aioelasticjob.strategies")}
    known = sorted({*_BUILT_IN, *others})
    return cast(Strategy, load("sharding_strategy", name, others.get(name), known))


def assignment_of(name: str, given: AssignmentInput) -> tuple[Assignment, str]:
    """Return the assignment of the strategy ``name``, and why the strategy failed; "" if it did not.

    If the strategy is unknown in this process, fails or leaves out items, the present assignment stays.  If the present
    one gives an item to no eligible instance, ``average`` is used, so that all items run.
    """
    try:
        with UserCode("it"):
            assignment = dict(find(name)(given))
            if _is_complete(assignment, given):
                return assignment, ""
        why = "it must give every item to one of the instances"
    except Exception as error:  # an unknown strategy too: another process may have it
        why = error_text(error)
    return given.present if _is_complete(given.present, given) else average(given), why


def _is_complete(assignment: Assignment, given: AssignmentInput) -> bool:
    has_all_items = assignment.keys() == set(range(given.count))
    return has_all_items and set(assignment.values()) <= set(given.instances)


def _runs(order: Sequence[str], count: int) -> Assignment:
    share, rest = divmod(count, len(order))
    evenly = share * len(order)
    even = {item: order[item // share] for item in range(evenly)}
    left = {evenly + n: order[n] for n in range(rest)}
    return even | left


def _rotated(given: AssignmentInput) -> tuple[str, ...]:
    return _beginning_at(given.instances, abs(java_hash(given.job)))


def _beginning_at(instances: tuple[str, ...], place: int) -> tuple[str, ...]:
    """Return the instances rotated, so that the one at a place comes first; places are counted round and round."""
    by = place % len(instances)
    return instances[by:] + instances[:by]


@lru_cache(4096)
def _order_of(ip: str) -> tuple[int, int, str]:
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return (9, 0, ip)
    return (address.version, int(address), "")


_BUILT_IN: Mapping[str, Strategy] = {
    "average": average,
    "average-by-name": average_by_name,
    "odevity": odevity,
    "round-robin": round_robin,
    "single-balance": single_balance,
    "sticky": sticky,
}
