"""A server of the bare tree: it may lag behind the others, and keeps ZooKeeper's promises to the session it serves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from functools import partial
from itertools import starmap
from random import Random
from typing import Final

from aioelasticjob.registry.codec import CHANGED, CREATED, DELETED
from aioelasticjob.registry.tree import Node, Tree, parent
from aioelasticjob.registry.watches import Watches
from tests.simulation.bare.registry import BareRegistry, Before

LAG = 6
"""States of the registry, the newest one included, that a server may show."""
CHILDREN: Final = 4
"""The kind of event that a shallow watch is told of when a node below its own comes or goes."""


class Past:
    """The last few states of the registry, for servers that lag behind, and what each transaction has changed."""

    def __init__(self, registry: BareRegistry) -> None:
        self.events: list[tuple[tuple[int, str], ...]] = []
        """Of each transaction; so many there were when a state is called by that number."""
        self._registry = registry
        self._states = deque([registry.tree()], maxlen=LAG)
        registry.observers.append(self._keep)

    def state(self, number: int) -> Tree:
        """Return one of the last few states."""
        return self._states[number - len(self.events) - 1]

    def choose(self, number: int, dice: Random) -> int:
        """Return the number of one of the last few states, ``number`` or a later one, mostly of the newest."""
        newest = len(self.events)
        if dice.random() < 0.7:
            return newest
        return dice.randint(max(number, newest + 1 - len(self._states)), newest)

    def first(self, zxid: int) -> int:
        """Return the number of the oldest state that shows all transactions up to this one."""
        return len(self.events) - max(sum(state.zxid >= zxid for state in self._states) - 1, 0)

    def _keep(self, _session: int, before: Before) -> None:
        nodes = self._registry.nodes
        self.events.append(tuple(_events(before, nodes)))
        self._states.append(self._states[-1].replace({path: nodes.get(path) for path in before}, self._registry.zxid))


class Connection:
    """A connection to one of the servers, which knows what the session has ``seen`` and perhaps not much more.

    Requests reach it in the order in which they were sent, and what it sends, answers and events, arrives in the order
    in which it was sent.  The events of a transaction come before any answer that shows it.
    """

    def __init__(self, past: Past, seen: int, watches: Watches, dice: Random, takes: Callable[[], float]) -> None:
        self.requests, self.replies = _Way(takes), _Way(takes)
        self._past, self._watches, self._dice, self._takes = past, watches, dice, takes
        self._state = past.first(seen)
        self._watched: dict[str, bool] = {}
        self._is_catching_up = False

    @property
    def zxid(self) -> int:
        """The newest transaction that the server knows."""
        return self._past.state(self._state).zxid

    def close(self) -> None:
        """Drop what is under way."""
        self.requests.close()
        self.replies.close()

    def read(self) -> Tree:
        """Return the nodes as the server has them, which may have learned of some transactions meanwhile."""
        return self._show(self._past.choose(self._state, self._dice))

    def sync(self) -> Tree:
        """Return the nodes as they are."""
        return self._show(len(self._past.events))

    def watch(self, asked: Mapping[str, bool | None]) -> None:
        """Ask for the watches of some roots: whether a shallow one is enough, or None for no watch any more."""
        self.requests.send(partial(self._watch, asked))

    def hear(self) -> None:
        """Let the server learn of the newest transaction after a while, if it has to tell something about that."""
        if self.replies.is_open and any(starmap(self._tells, self._past.events[-1])):
            self._catch_up_soon()

    def _watch(self, asked: Mapping[str, bool | None]) -> None:
        self._watched = {root: shallow for root, shallow in {**self._watched, **asked}.items() if shallow is not None}
        self._catch_up_soon()  # what it has yet to learn is news for these watches

    def _catch_up_soon(self) -> None:
        if not self._is_catching_up and self._state < len(self._past.events):
            self._is_catching_up = True
            outside(asyncio.get_running_loop().time() + self._takes(), self._catch_up)

    def _catch_up(self) -> None:
        self._is_catching_up = False
        if self.replies.is_open:
            self.read()
            self._catch_up_soon()

    def _show(self, number: int) -> Tree:
        for events in self._past.events[self._state : number]:
            if told := [event for event in events if self._tells(*event)]:
                for part in [told] if self._dice.random() < 0.9 else [[event] for event in told]:
                    self.replies.send(partial(self._tell, part))
        self._state = number
        return self._past.state(number)

    def _tell(self, events: list[tuple[int, str]]) -> None:
        for event in events:
            self._watches.dispatch(*event)

    def _tells(self, kind: int, path: str) -> bool:
        shallow = self._watched.get(path)
        if shallow or kind == CHILDREN:
            return bool(shallow)
        while shallow is not False and path != "/":
            path = parent(path)
            shallow = self._watched.get(path)
        return shallow is False


class _Way:
    """One direction of a connection: what is sent arrives after a while, in the order in which it was sent."""

    def __init__(self, takes: Callable[[], float]) -> None:
        self.is_open = True
        self._takes, self._arrives = takes, 0.0
        self._under_way = deque[Callable[[], object]]()

    def send(self, arrive: Callable[[], object]) -> None:
        """Call ``arrive`` when everything that was sent before has arrived; never, if this is closed before."""
        if not self.is_open:
            return
        self._arrives = max(self._arrives, asyncio.get_running_loop().time() + self._takes())
        self._under_way.append(arrive)
        outside(self._arrives, self._deliver)

    def close(self) -> None:
        """Drop what is under way."""
        self.is_open = False
        self._under_way.clear()

    def _deliver(self) -> None:
        if self._under_way:
            self._under_way.popleft()()


def outside(when: float, callback: Callable[[], object]) -> None:
    """Call something at a time in the name of no process: one that sleeps does not keep it from happening."""
    asyncio.get_running_loop().call_at(when, callback, context=Context())


def _events(before: Before, nodes: Mapping[str, Node]) -> Iterator[tuple[int, str]]:
    for path, was in before.items():
        now = nodes.get(path)
        if was is None or now is None or was.stat.czxid != now.stat.czxid:
            if was is not None:
                yield DELETED, path
            if now is not None:
                yield CREATED, path
            yield CHILDREN, parent(path)
        elif was.stat.mzxid != now.stat.mzxid:  # otherwise only its children are others
            yield CHANGED, path
