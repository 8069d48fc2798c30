"""Faults of a simulation: hosts that hang, die or are suspended, and networks that delay, lose or block packets.

Every fault takes effect at once, at the present moment of simulated time.  So a schedule of faults is an ordinary
coroutine; if it draws from ``loop.random``, the seed determines it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.testing.loop import VirtualLoop
from aioelasticjob.testing.network import Link
from aioelasticjob.testing.process import Main, Process
from aioelasticjob.testing.suspension import suspend, wake
from aioelasticjob.testing.transport import Endpoint

Farewell = Literal["fin", "reset", "silent"]
"""How peers learn of a crash: by a FIN or a reset of the kernel, or, if the whole host is gone, not at all."""


def simulated_loop() -> VirtualLoop:
    """Return the loop that runs the caller.

    Raises: InvalidSetting when it is not a simulated one, or when none runs.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if not isinstance(loop, VirtualLoop):
        raise InvalidSetting(
            "event loop",
            "not simulated",
            "start the cluster in the `async def` test that has the fixture virtual_cluster, not in asyncio.run and not"
            " in an async fixture, which other loops run: such a test has plain fixtures only; without pytest, start it"
            " in a coroutine that simulated or run of aioelasticjob.testing runs",
        )
    return loop


class Faults:
    """Causes and ends faults in one simulation.

    Raises: InvalidSetting when it is made outside of simulated time.
    """

    def __init__(self) -> None:
        self.loop = simulated_loop()
        self.network = self.loop.network

    # -- processes

    def start(self, name: str, address: str, main: Main, *, skew: float = 0.0) -> Process:
        """Start ``main()`` as a process on the host ``address``, which is powered on if need be."""
        self.network.unpowered.discard(address)
        self.network.links_changed()
        return Process(name, address, skew=skew).start(main)

    def crash(self, process: Process, farewell: Farewell = "fin") -> None:
        """Kill a process as ``kill -9`` does (``fin``, ``reset``), or as a power cut of its host (``silent``)."""
        self.loop.retain_tasks(process)
        process.kill()
        if farewell == "silent":
            self.network.unpowered.add(process.address)
        for listener in self.network.listeners_of(process):
            listener.close()
        for connection in list(self.network.connections.values()):
            for end in connection.ends():
                if end.process is process:
                    _end(end, farewell)

    def pause(self, process: Process) -> None:
        """Stop a process (SIGSTOP); its kernel goes on taking bytes for it."""
        process.pause()

    def resume(self, process: Process) -> None:
        """Let a paused process go on (SIGCONT): everything that came due meanwhile happens now."""
        self.loop.resume(process)

    def suspend(self, process: Process) -> None:
        """Suspend the machine of a process: its monotonic clock stands still, and its kernel takes nothing."""
        suspend(self.loop, process)
        self.network.unpowered.add(process.address)

    def wake(self, process: Process) -> None:
        """Let a suspended machine go on, with its timers as far ahead as they were."""
        wake(self.loop, process)
        self.network.unpowered.discard(process.address)
        self.network.links_changed()

    # -- the network

    def delay(self, a: str, b: str, latency: float, jitter: float = 0.0) -> None:
        """Make every packet between two hosts take ``latency`` seconds and up to ``jitter`` more."""
        for source, target in ((a, b), (b, a)):
            link = self.network.link(source, target)
            self._change(source, target, replace(link, latency=latency, jitter=jitter))

    def drop(self, source: str, target: str, *, both: bool = True) -> None:
        """Lose every packet from ``source`` to ``target``, and those back if ``both``."""
        self._cut(source, target)
        if both:
            self._cut(target, source)

    def partition(self, *sides: Iterable[str]) -> None:
        """Let no packet pass between hosts of different sides."""
        hosts = [tuple(side) for side in sides]
        for one, other in itertools.combinations(hosts, 2):
            for a, b in itertools.product(one, other):
                self.drop(a, b)

    def reset(self, a: str, b: str) -> None:
        """Break all connections between two hosts; both ends see a reset."""
        for connection in self.network.between(a, b):
            connection.reset()

    def half_open(self, a: str, b: str) -> None:
        """Lose all further packets of the present connections between two hosts, as a restarted NAT does."""
        for connection in self.network.between(a, b):
            connection.severed = True

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Restore the links between two hosts, of one host, or all: what TCP held back arrives."""
        named = {host for host in (a, b) if host}
        for pair in list(self.network.links):
            if named <= set(pair):
                del self.network.links[pair]
        self.network.links_changed()

    def _cut(self, source: str, target: str) -> None:
        link = self.network.link(source, target)
        self._change(source, target, replace(link, up=False))

    def _change(self, source: str, target: str, link: Link) -> None:
        self.network.links[source, target] = link


def _end(end: Endpoint, farewell: Farewell) -> None:
    match farewell:
        case "fin":
            end.close_after_kill()
        case "reset":
            end.abort()
        case "silent":
            end.vanish()
