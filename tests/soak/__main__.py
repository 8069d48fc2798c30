"""A long run of everything at once: ``python -m tests.soak [--minutes M] [--seed N] [--keep DIR]``.

Four workers run a hundred jobs of all kinds on an ensemble of three ZooKeepers, with an event store and the web console
attached.  Workers and members are restarted one after the other all the time.  The history is held to the promises of a
chaos run, the memory of each process is followed, and each log line at WARNING or above has to have a cause.
Exit code 1 on a violation or on a line without a cause.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from tests.chaos.__main__ import trace
from tests.chaos.actions import kill_worker, restart_worker, to_worker
from tests.chaos.acts import act, judged
from tests.chaos.checker import Span
from tests.chaos.report import Played
from tests.chaos.stage import NAMESPACE, SESSION_TIMEOUT, Stage
from tests.chaos.worker import Order
from tests.simulation.facts import Violation
from tests.soak.causes import CAUSES, MEMBER
from tests.soak.jobs import SOAK_JOBS
from tests.soak.log import BUSY, BUSY_MEMBER, LogLine, action_spans, examine, problem_lines
from tests.soak.memory import Memory, waited_for_processor
from tests.soak.report import Soaked, page
from tests.support.history import Fault
from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess, Workers, workers
from tests.support.real_zookeeper import Ensemble, RealServer, ensemble
from tests.support.worker_journal import START

WORKERS: Final = 4
PATIENCE: Final = 600.0
"""Seconds within which every item has to run twice: many, for workers may get little of a processor, and waiting costs
nothing where the runs come."""
LEAVING: Final = 120.0
"""Seconds that a worker may take to leave: it ends a hundred jobs, and may get little of a processor meanwhile."""
CONSOLE: Final = "console"
ACTIONS: Final = 60
"""Restarts in a run, unless they would come too soon one after the other."""
SHORTEST_PAUSE: Final = 8.0
"""Seconds between two restarts at least: a worker that was killed is missed only after its session."""
SAMPLES: Final = 600
"""Samples of memory in a run, one a second at most."""
WARM_UP: Final = 300.0
"""Seconds of a process's life that say nothing about its memory's growth; in short runs a quarter of the run."""
ANSWER: Final = 10.0
"""Seconds that the console may take to answer."""
BETWEEN_VISITS: Final = 2.0
SERVER_ERROR: Final = 500
LOOK_EVERY: Final = 0.5
WAITED: Final = 0.2
"""The part of the time that a process may wait for a processor without being noted."""
KILLED: Final = 0.3
"""The part of the workers that is killed; the others are asked to leave."""


def play(directory: Path, *, seconds: float, seed: int) -> Soaked:
    """Let everything run for so long, judge and examine it; history and logs stay in ``directory``."""
    with ensemble(directory) as members, workers(directory) as starter, reserved_ports(2) as (http, console):
        store = f"sqlite:///{directory / 'events.db'}"
        surroundings = {"requests": f"http://127.0.0.1:{http}", "event_store": store}
        stage = Stage(members, starter, directory / "journal", servers=members.addresses, surroundings=surroundings)
        stage.jobs, stage.program = tuple(job.config for job in SOAK_JOBS), "tests.soak.worker"
        stage.leaving = LEAVING
        order = Order("", "", str(stage.journal), stage.clock.epoch, SESSION_TIMEOUT)
        attached = {
            "server of HTTP jobs": starter.start("-m", "tests.soak.server", str(http), order.to_json()),
            CONSOLE: _console(starter, members, console, store, directory),
        }
        stage.fault(START, detail=CONSOLE)
        soak = Soak(stage, attached, f"http://127.0.0.1:{console}/", seconds, random.Random(seed))
        span, unserved = asyncio.run(soak.play())
        arranged, verdict = judged(stage, span, unserved)
        verdict.violations += [Violation("nobody dies", span.stop, death) for death in soak.ended()]
    examined = examine(soak.problem_lines(), action_spans(arranged.entries), CAUSES)
    played = Played(seed, seconds, stage.jobs, stage, arranged, span, verdict, "Soak")
    memory = soak.memory
    return Soaked(played, memory.slopes(min(WARM_UP, seconds / 4)), len(memory.samples), examined)


def _console(starter: Workers, members: Ensemble, port: int, store: str, directory: Path) -> ChildProcess:
    where = ("--registry", f"zk://{members.addresses}{NAMESPACE}", "--event-store", store)
    place = ("--port", str(port), "--data-dir", str(directory / "console"))
    return starter.start("-m", "aioelasticjob", "console", *where, *place)


@dataclass
class Soak:
    """What is done and watched while the workers run."""

    stage: Stage
    attached: dict[str, ChildProcess]
    console: str
    """The console's address."""
    seconds: float
    rng: random.Random
    memory: Memory = field(default_factory=Memory)
    unanswered: list[str] = field(default_factory=list)
    """What the console did not answer."""

    async def play(self) -> tuple[Span, list[Violation]]:
        """Restart everything in turn for so long, while processes are watched; return what ``act`` returns."""
        async with asyncio.TaskGroup() as tasks:
            every = max(1.0, self.seconds / SAMPLES)
            watching = [
                tasks.create_task(self.memory.watch(self.stage.clock.now, self._processes, every)),
                tasks.create_task(self._visit()),
                tasks.create_task(self._watch_processors()),
            ]
            found = await act(self.stage, WORKERS, self._roll, PATIENCE)
            for task in watching:
                task.cancel()
        return found

    async def _roll(self) -> None:
        """Restart a worker, a member, the next worker, and so on; the first worker is left alone."""
        end, pause = self.stage.clock.now() + self.seconds, max(SHORTEST_PAUSE, self.seconds / ACTIONS)
        seats, members = cycle(self.stage.seats[1:]), cycle(self.stage.ensemble.members)
        for turn in count():
            left = end - self.stage.clock.now()
            await asyncio.sleep(min(pause, max(0.0, left)))
            if left <= pause:
                return
            if turn % 2:
                await self._restart_member(next(members))
                continue
            seat = next(seats)
            seat.busy = True
            await to_worker(kill_worker if self.rng.random() < KILLED else restart_worker, self.stage, seat, self.rng)

    async def _restart_member(self, member: RealServer) -> None:
        self.stage.done[MEMBER] += 1
        self.stage.fault(MEMBER, detail=str(member.number))
        await asyncio.to_thread(member.process.terminate)
        member.start()
        await asyncio.to_thread(member.wait_until_serving)
        self.stage.fault(MEMBER, over=True, detail=str(member.number))

    async def _visit(self) -> None:
        """Ask the console for a page again and again, as a browser would, and note what it does not answer."""
        self.unanswered.append("the console did not start")
        async with ClientSession(timeout=ClientTimeout(ANSWER)) as browser:
            while await self.unanswered_by(browser) is not None:
                await asyncio.sleep(BETWEEN_VISITS)
            self.unanswered.clear()
            self.stage.fault(START, over=True, detail=CONSOLE)
            while True:
                if (wrong := await self.unanswered_by(browser)) is not None:
                    self.unanswered.append(wrong)
                await asyncio.sleep(BETWEEN_VISITS)

    async def unanswered_by(self, browser: ClientSession) -> str | None:
        """Ask once; return what is wrong with the answer, None if nothing is."""
        try:
            async with browser.get(self.console) as answer:
                await answer.read()
                return f"the console answered with {answer.status}" if answer.status >= SERVER_ERROR else None
        except (ClientError, TimeoutError) as error:
            return f"the console did not answer: {error!r}"

    async def _watch_processors(self) -> None:
        """Note when a process had to wait for a processor: then its loop stands still, and that is not its fault."""
        looked: dict[int, tuple[float, Mapping[int, float]]] = {}
        while True:
            for name, pid in self._processes().items():
                now, waited = self.stage.clock.now(), waited_for_processor(pid)
                since, before = looked.get(pid, (now, waited))
                looked[pid] = now, waited
                longest = max((seconds - before.get(thread, 0.0) for thread, seconds in waited.items()), default=0.0)
                if longest > WAITED * (now - since):
                    kind = BUSY_MEMBER if name in self._members() else BUSY
                    self.stage.actions += [Fault(since, kind, (name,)), Fault(now, kind, (name,), over=True)]
            await asyncio.sleep(LOOK_EVERY)

    def _processes(self) -> Mapping[str, int]:
        """Return the processes that run now, by name."""
        found = self._members() | {seat.process: seat.child for seat in self.stage.seats} | self.attached
        return {name: child.pid for name, child in found.items()}

    def _members(self) -> dict[str, ChildProcess]:
        return {f"member-{one.number} of {one.process.pid}": one.process for one in self.stage.ensemble.members}

    def ended(self) -> list[str]:
        """Return what attached processes did wrong: they ended, or did not answer."""
        attached = self.attached.items()
        return [f"{name} ended:\n{one.output}" for name, one in attached if one.exit_code is not None] + self.unanswered

    def problem_lines(self) -> list[LogLine]:
        """Return the lines at WARNING or above of all processes, the oldest first."""
        start = self.stage.actions[0].at
        children = self._members() | self.stage.processes | self.attached
        found = [line for name, child in children.items() for line in problem_lines(child.output, name, start)]
        return sorted(found, key=lambda line: line.at)


def main() -> None:
    """Play, print the page, and exit with 1 if a promise was broken or a log line has no cause."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long everything is restarted in turn (30)")
    parser.add_argument("--seed", type=int, help="of the choice between killing and asking; by default another one")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for logs and history")
    asked = parser.parse_args()
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    directory = asked.keep or Path(mkdtemp(prefix="soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    soaked = play(directory, seconds=60 * asked.minutes, seed=seed)
    with suppress(BrokenPipeError):
        print(page(soaked))
    (directory / "history").write_text(trace(soaked.played.arranged.entries, soaked.played.span.start))
    print(f"history and logs: {directory}", file=sys.stderr)
    sys.exit(not soaked.good)


if __name__ == "__main__":
    main()
