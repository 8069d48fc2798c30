"""The health strip is counted once a second for all open pages, and at once when something has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioelasticjob.console.watching.instance_log import InstanceLog
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.watching.strip import Strips, strip_of
from aioelasticjob.observers.missed import Count


class Registry:
    """A registry without an event store."""

    store = None


def test_a_strip_is_counted_once_for_all_pages_and_anew_when_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = list[float]()

    def strip_of(registry: Any, snapshot: Any, health: Any, now: float) -> float:
        counted.append(now)
        return now

    monkeypatch.setattr("aioelasticjob.console.watching.strip.strip_of", strip_of)
    strips, registry, health = Strips(), Registry(), object()
    first, second = RegistrySnapshot(), RegistrySnapshot()
    moments = ((first, 10.0), (first, 10.9), (second, 10.95), (second, 11.9), (second, 11.95), (second, 3.0))
    shown = [strips.of(registry, snapshot, health, now) for snapshot, now in moments]  # type: ignore[arg-type]
    assert shown == [10.0, 10.0, 10.95, 10.95, 11.95, 3.0]
    assert counted == [10.0, 10.95, 11.95, 3.0]  # the last one after the clock was set back


def test_what_was_before_the_start_of_the_console_is_not_said_to_have_been_nothing() -> None:
    registry = SimpleNamespace(store=None, runs={}, missed={}, instances=InstanceLog())
    health = SimpleNamespace(of={}, excused=lambda jobs: Count())

    def known(now: float) -> tuple[float | None, bool]:
        strip = strip_of(registry, RegistrySnapshot(), health, now)  # type: ignore[arg-type]
        return strip.known_since, strip.whole_hour

    assert known(1000.0) == (None, False)
    registry.instances.update([], 1000.0)
    registry.instances.update([], 2000.0)
    assert known(4599.0) == (1000.0, False)
    assert known(4600.0) == (1000.0, True)
