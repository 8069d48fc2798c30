"""Where a chaos run takes place: an ensemble of three, and workers that each reach it through proxies of their own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aioelasticjob import JobConfig
from aioelasticjob.host import watchdog
from tests.chaos.checker import Excuse
from tests.chaos.worker import GAVE_UP, JOBS, Order
from tests.support.history import Entry, Fault, Held, Started, Stopped
from tests.support.processes import ChildProcess, Workers
from tests.support.proxy import Proxy, proxy_to
from tests.support.real_zookeeper import Ensemble, RealServer
from tests.support.worker_journal import HOST, START, TrueTime

SESSION_TIMEOUT: Final = 5.0
NAMESPACE: Final = "/chaos"
RECOVERED: Final = SESSION_TIMEOUT + 2
"""Seconds after which a worker that was disturbed counts as well again."""
LOOK_EVERY: Final = 0.1
ERRORS: Final = ("Traceback (most recent call last)", " ERROR ", " CRITICAL ")
WATCHDOG: Final = watchdog.__name__
LEAVE: Final = "leave"
"""The kind of fault that lasts from when a worker is asked to leave until it has left."""
LEAVING: Final = 25.0
"""Seconds that a worker may take to leave when it is asked to."""
ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = f"""
import importlib, sys
import aioelasticjob
print("runs", aioelasticjob.__path__[0], flush=True)
sys.path.insert(0, {str(ROOT)!r})
importlib.import_module(sys.argv[2]).main()
"""
"""The program of a worker: a module of this checkout, on the package that it finds first."""


@dataclass
class Seat:
    """A worker that is replaced whenever it ends, and its ways to the members of the ensemble."""

    name: str
    proxies: Sequence[Proxy]
    child: ChildProcess
    lives: int = 1
    busy: bool = False
    """Whether something is being done to it."""
    well_since: float = 0.0

    @property
    def process(self) -> str:
        """The present process's name in the history."""
        return f"{self.name}.{self.lives}"


@dataclass
class Stage:
    """The ensemble, the workers, and everything that is done to them."""

    ensemble: Ensemble
    starter: Workers
    journal: Path
    jobs: Sequence[JobConfig] = JOBS
    program: str = "tests.chaos.worker"
    """The module whose ``main`` is a worker."""
    leaving: float = LEAVING
    servers: str = ""
    """The members as the workers know them; empty: by proxies, one for each worker and member."""
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """What else an ``Order`` says: its fields and their values."""
    clock: TrueTime = field(default_factory=TrueTime.of_this_machine)
    seats: list[Seat] = field(default_factory=list)
    processes: dict[str, ChildProcess] = field(default_factory=dict)
    """All workers that there have been, by their names in the history."""
    actions: list[Entry] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    """How often each kind of thing was done."""
    excuses: list[Excuse] = field(default_factory=list)
    """What was done that takes away what promises rest on."""
    deaths: list[str] = field(default_factory=list)
    """Workers that ended though nobody asked them to."""
    lost: list[str] = field(default_factory=list)
    """Workers that gave up because the registry did not let them start; they are started again."""

    @asynccontextmanager
    async def seated(self, count: int) -> AsyncIterator[None]:
        """Start workers; at the end their ways to the ensemble are closed."""
        async with AsyncExitStack() as stack:
            for number in range(count):
                members = () if self.servers else self.ensemble.members
                proxies = [await stack.enter_async_context(proxy_to(one.host, one.port)) for one in members]
                name = f"worker-{number}"
                seat = Seat(name, proxies, self._start(f"{name}.1", proxies), well_since=self.clock.now())
                self.seats.append(seat)
            yield

    def _start(self, process: str, proxies: Sequence[Proxy]) -> ChildProcess:
        servers = self.servers or ",".join(proxy.address for proxy in proxies)
        place = f"zk://{servers}{NAMESPACE}", str(self.journal)
        order = Order(process, *place, self.clock.epoch, SESSION_TIMEOUT, **self.surroundings)
        self.actions.append(Started(self.clock.now(), process, HOST))
        self.fault(START, detail=process)
        command = ("-P", "-c", PROGRAM, order.to_json(), self.program)
        found = self.processes[process] = self.starter.start(*command, environment={"PYTHONPATH": str(ROOT)})
        return found

    def replace(self, seat: Seat) -> None:
        """Start a worker in the place of one that has ended."""
        seat.lives += 1
        seat.child = self._start(seat.process, seat.proxies)

    def fault(self, kind: str, over: bool = False, detail: str = "") -> None:
        """Note that something in the network or the ensemble is broken, or mended."""
        self.actions.append(Fault(self.clock.now(), kind, (detail,), over=over))

    def kill(self, seat: Seat) -> None:
        """Kill a worker; it counts as dead from before the signal."""
        killed = self.clock.now()
        seat.child.kill()
        self.actions.append(Stopped(killed, seat.process, HOST, "crashed"))

    def pause(self, seat: Seat) -> None:
        """Stop a worker in its tracks."""
        self.actions.append(Held(self.clock.now(), seat.process, paused=True))
        seat.child.pause()

    def resume(self, seat: Seat) -> None:
        """Let a worker go on."""
        self.actions.append(Held(self.clock.now(), seat.process, paused=False))
        seat.child.resume()

    async def leave(self, seat: Seat) -> None:
        """Ask a worker to leave and wait until it has."""
        self.fault(LEAVE, detail=seat.process)
        await self._left(seat)
        self.fault(LEAVE, over=True, detail=seat.process)

    async def _left(self, seat: Seat) -> None:
        if seat.child.exit_code is None:
            os.kill(seat.child.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(self.leaving):
                while (code := seat.child.exit_code) is None:
                    await asyncio.sleep(LOOK_EVERY)
        except TimeoutError:
            self.deaths.append(f"{seat.process} does not leave:\n{_last_words(seat.child)}")
            self.kill(seat)
            return
        if code == GAVE_UP:
            self.lost.append(seat.process)
        elif code and code != -signal.SIGTERM:  # so it ends while its interpreter is still starting
            self.deaths.append(f"{seat.process} left with {code}:\n{_last_words(seat.child)}")
        self.actions.append(Stopped(self.clock.now(), seat.process, HOST, "left"))

    async def replace_the_dead(self) -> None:
        """Start a worker anew when it has ended by itself; run until cancelled."""
        while True:
            for seat in self.seats:
                if seat.busy or (code := seat.child.exit_code) is None:
                    continue
                self.actions.append(Stopped(self.clock.now(), seat.process, HOST, f"ended with {code}"))
                if code == GAVE_UP:
                    self.lost.append(seat.process)
                else:
                    self.deaths.append(f"{seat.process} ended with {code}:\n{_last_words(seat.child)}")
                seat.well_since = self.clock.now()
                self.replace(seat)
            await asyncio.sleep(LOOK_EVERY)

    def victims(self) -> list[Seat]:
        """Return the workers that may be disturbed now: one that is well is always left."""
        now = self.clock.now()
        free = [seat for seat in self.seats if not seat.busy]
        well = [seat for seat in free if now - seat.well_since > RECOVERED]
        return [seat for seat in free if len(well) > (seat in well)]

    async def leader(self) -> RealServer | None:
        """Return the member that leads, None if none does."""
        for member in self.ensemble.members:
            if await asyncio.to_thread(member.mode) == "leader":
                return member
        return None

    def errors(self) -> list[str]:
        """Return what the workers' logs hold that should not be there.

        A worker that was stopped rightly complains of a blocked loop when it goes on.
        """
        return [
            f"{child.log.name}: {line}"
            for child in self.starter.children
            for line in child.output.splitlines()
            if any(mark in line for mark in ERRORS) and WATCHDOG not in line
        ]


def _last_words(child: ChildProcess) -> str:
    return "\n".join(child.output.splitlines()[-12:])
