"""The world of the bare tree: a registry, processes, and a seed that says whose step is next."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from anyio import sleep

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import SWITCHES, Layout
from aioelasticjob.core.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.events import JobEvent, Misfired
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.registry.transaction import Create, Op
from aioelasticjob.registry.tree import Node, Tree
from tests.simulation.bare.judge import Judge
from tests.simulation.bare.loop import SteppedLoop
from tests.simulation.bare.process import Process, describe
from tests.simulation.bare.registry import BareRegistry, Before
from tests.simulation.bare.server import Past
from tests.simulation.bare.session import BareSession

UNDER_FIRE = 6.0
"""Seconds in which everything may happen."""
AT_PEACE = 5
"""Moments within which everything has to come to rest when nothing happens any more."""
MOST = 7
"""Processes at a time."""
LAYOUT = Layout("job")
STRATEGIES = ("average", "average-by-name", "odevity", "round-robin", "single-balance", "sticky")


STEPS = {"* * * * * ?": 1000, "0/2 * * * * ?": 2000}
"""The schedules that the job may have, each with the milliseconds between two of its moments."""


@cache
def configured(**settings: object) -> JobConfig:
    """Return the job's configuration with these settings."""
    return JobConfig.build(job_name="job", sharding_quiet=0, reconcile_interval=1, **settings)


def is_mirrored(path: str) -> bool:
    """Whether an instance follows a node.  Of the servers, it sees less: only their names."""
    return any(path == root or path.startswith(f"{root}/") for root in (*LAYOUT.mirrored, SWITCHES))


class _Clocked(BareRegistry):
    """A registry whose clock is the loop's."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        super().__init__()

    @property
    def now(self) -> float:
        """The registry's time: everybody's clock is right here."""
        return self._loop.start + self._loop.boot_time()

    @now.setter
    def now(self, _ignored: float) -> None: ...


class World:
    """The registry, the processes and everything that befalls them."""

    def __init__(self, loop: SteppedLoop, dice: Random, *, traced: bool = False) -> None:
        self.loop, self.dice = loop, dice
        self.layout, self.registry = LAYOUT, _Clocked(loop)
        self.settings: dict[str, object] = {
            "sharding_total_count": dice.randint(1, 8),
            "failover": dice.random() < 0.75,
            "misfire": dice.random() < 0.7,
            "cron": dice.choice([*STEPS]),
            "catch_up": dice.choice([0, 0, 3.0]),
            "sharding_strategy": dice.choice(STRATEGIES),
            "shutdown_timeout": dice.choice([0.2, 30]),
        }
        self.config = configured(**self.settings)
        self.views: list[tuple[int, JobView]] = []
        self.trace: list[str] | None = [] if traced else None
        self.peaceful = False
        self.processes: list[Process] = []
        self.zombies: list[BareSession] = []
        """Sessions of the dead, which the registry has yet to end."""
        self._sessions = 0
        self._past, self._mirrored = Past(self.registry), Tree()
        self.judge = Judge(self.registry, LAYOUT, self.views, steps=STEPS, say=self.say)
        self.registry.observers += [self._keep, self.judge.observe]
        self.registry.commit([*map(Create, LAYOUT.skeleton), Create(LAYOUT.config, self.config.to_json())])
        self._often = dice.choice([1.5, 3.0, 6.0])

    # What processes tell it.

    def begin(self, process: Process, run: ItemContext, incarnation: int) -> None:
        """Note a handler's first step."""
        self.say(f"{process.number} runs {run.item}: {run.source} {run.fire.slot} fence {run.fence}")
        self.judge.begin(process, run, incarnation)

    def end(self, process: Process, item: int, outcome: str) -> None:
        """Note that a handler is over."""
        self.say(f"{process.number} ends {item}: {outcome}")
        self.judge.end(process, item, outcome)

    def report(self, process: Process, event: JobEvent) -> None:
        """Note what a job tells about itself."""
        self.say(f"{process.number} {describe(event)}")
        if isinstance(event, Misfired):
            self.judge.report(event)

    def left(self, process: Process) -> None:
        """End the session of a process that has ended by itself."""
        self.say(f"{process.number} has left")
        self._remove(process)
        if not process.session.over:
            self.judge.left(process)
            process.session.expire()

    def say(self, text: str) -> None:
        """Add to the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(f"{self.loop.steps:6} {self.loop.boot_time():7.3f}  {text}")

    # What happens to it.

    async def live(self, happen: Callable[[World], None]) -> None:
        """Let everything happen in any order, then come to rest; ``happen`` breaks something, or does it by hand."""
        for number in range(1, self.dice.randint(3, 7) + 1):
            self.start(number)
        while self.loop.time() < UNDER_FIRE:
            await sleep(self.dice.expovariate(self._often))
            happen(self)
        await self._come_to_rest()

    async def _come_to_rest(self) -> None:
        """Mend everything, let some moments come and go, and see what it has come to."""
        self.peaceful = True
        self.say("=== peace")
        for session in self.zombies:
            session.expire()
        for process in self.processes:
            process.session.calm = True
            if process.body.paused:
                process.body.paused = False
                process.session.wake()
            if not process.session.is_connected:
                self.mend(process)
        if not any(not process.leaving for process in self.processes):
            self.start(self.free_number())
        now = self.registry.now
        await sleep(int(now) + AT_PEACE + 0.8 - now)
        self.judge.at_peace(self.views[-1][1], int(self.registry.now) * 1000, self.processes)

    def _remove(self, process: Process) -> None:
        self.processes.remove(process)
        self.judge.killed(process)

    def kill(self, process: Process) -> None:
        """End a process where it stands; its session lives on for a while."""
        process.session.cut()
        self._remove(process)
        self.loop.retain_tasks(process.body)
        process.body.kill()
        if not process.session.over:
            self.zombies.append(process.session)

    def start(self, number: int) -> None:
        """Start a process on a host of its own."""
        session = BareSession(self.registry, self._past, self.dice, self._fresh())
        session.calm = self.peaceful
        process = Process(self, number, session, self.dice, self.judge.names)
        self.processes.append(process)
        self.judge.processes[session.incarnation] = process
        self.say(f"{number} starts")
        process.start()

    def _fresh(self) -> int:
        self._sessions += 1
        return self._sessions

    def free_number(self) -> int:
        """Return the number of a host without a process."""
        return min(set(range(1, 9)) - {process.number for process in self.processes})

    def mend(self, process: Process) -> None:
        """Connect a process again, under a new session if the old one is over."""
        process.session.mend(self._fresh() if process.session.over else 0)
        self.judge.processes[process.session.incarnation] = process
        self.say(f"{process.number} is connected, session {process.session.incarnation}")

    def by_hand(self, *operations: Op) -> None:
        """Do something by hand, if it can be done."""
        try:
            self.registry.commit(operations)
        except Conflict:
            return

    def _keep(self, session: int, before: Before) -> None:
        """Keep a view of every state of what is mirrored."""
        nodes = self.registry.nodes
        if self.trace is not None:
            changed = (_change(path, nodes.get(path), was) for path, was in before.items())
            self.say(f"  by {session}: {', '.join(changed)}")
        if changes := {path: nodes.get(path) for path in before if is_mirrored(path)}:
            self._mirrored = self._mirrored.replace(changes, self.registry.zxid)
            self.views.append((self.registry.zxid, read(self._mirrored, LAYOUT, self.config)))
            self.judge.times.append(self.registry.now)


def _change(path: str, node: Node | None, was: Node | None) -> str:
    if node is None:
        return f"-{path}"
    if was is not None and was.stat.mzxid == node.stat.mzxid:
        return f"({path})"
    return f"{'+' if was is None else ''}{path}={node.data.decode()[:300]}"
