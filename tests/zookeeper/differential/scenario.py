"""A scenario is a function of a world; played on both servers, it must leave the same transcript."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from itertools import count
from typing import TypeAlias

import pytest

from .wire import Address
from .world import World, world

Play: TypeAlias = Callable[[World], None]
_serial = count()


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the two servers listen, and whether the real one is newer than what ours answers as."""

    real: Address
    ours: Address
    newer: bool


def transcript(play: Play, address: Address, root: str, *, newer: bool) -> list[str]:
    """What one server says in a scenario."""
    with world(address, root, newer=newer) as here:
        play(here)
        return here.transcript


def same(play: Play, servers: Servers) -> None:
    """Play on both servers and compare."""
    root = f"/s{next(_serial)}"  # both trees grow in step
    with ThreadPoolExecutor(2) as pool:  # at once, for some scenarios wait
        theirs = pool.submit(transcript, play, servers.real, root, newer=servers.newer)
        ours = pool.submit(transcript, play, servers.ours, root, newer=servers.newer)
    real, embedded = theirs.result(), ours.result()
    assert real, "a scenario without a reply shows nothing"
    assert embedded == real, "\n".join(unified_diff(real, embedded, "real", "embedded", lineterm=""))


def on_both(play: Play) -> Callable[[Servers], None]:
    """Make a test of a scenario."""

    def test(servers: Servers) -> None:
        same(play, servers)

    return _named(test, play)


def on_both_unless_newer(reason: str) -> Callable[[Play], Callable[[Servers], None]]:
    """Make a test of a scenario in which ZooKeeper 3.9 and newer differ from 3.8; it fails if they do not."""

    def decorated(play: Play) -> Callable[[Servers], None]:
        def test(servers: Servers) -> None:
            if not servers.newer:
                same(play, servers)
                return
            with pytest.raises(AssertionError, match="--- real"):
                same(play, servers)
            pytest.xfail(reason)

        return _named(test, play)

    return decorated


def _named(test: Callable[[Servers], None], play: Play) -> Callable[[Servers], None]:
    # Not `functools.wraps`: pytest would look through it and ask for a fixture `w`.
    test.__name__, test.__qualname__, test.__module__ = play.__name__, play.__qualname__, play.__module__
    return test
