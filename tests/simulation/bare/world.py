"""The world of the bare tree: a registry, processes, and a seed that says whose step is next."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from random import Random

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.events import JobEvent
from aioelasticjob.layout import Layout
from aioelasticjob.model import Claim
from aioelasticjob.registry.tree import Node
from aioelasticjob.registry.txn import Create, Op
from tests.simulation.bare.judge import Judge
from tests.simulation.bare.process import Process, describe
from tests.simulation.bare.registry import BareRegistry, Before
from tests.simulation.bare.session import BareSession, Past, Ready, Task

START = 1_000_000_000.0
STEPS = 600
"""Steps under fire."""
AT_REST = 6_000
"""Steps within which everything has to come to rest when nothing happens any more."""
MOST = 7
"""Processes at a time."""
LAYOUT = Layout("job")
STRATEGIES = ("average", "odevity", "round-robin", "single-balance", "sticky")


@cache
def configured(**settings: object) -> JobConfig:
    """Return the job's configuration with these settings."""
    return JobConfig.build(job_name="job", cron="* * * * * ?", sharding_quiet=0, **settings)


class World:
    """The registry, the processes and everything that befalls them."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.dice = dice = Random(f"bare {seed}")
        self.layout, self.registry = LAYOUT, BareRegistry(START + dice.random())
        self.settings: dict[str, object] = {
            "sharding_total_count": dice.randint(1, 8),
            "failover": dice.random() < 0.75,
            "misfire": dice.random() < 0.7,
            "sharding_strategy": dice.choice(STRATEGIES),
        }
        self.config = configured(**self.settings)
        self.registry.commit([Create(path) for path in LAYOUT.skeleton])
        self.registry.commit([Create(LAYOUT.config, self.config.to_json())])
        self.views: list[tuple[int, JobView]] = []
        self.trace: list[str] | None = [] if traced else None
        self.tick, self.peaceful, self.steps = 0, False, 0
        self.tasks: list[Task] = []
        self.processes: list[Process] = []
        self.zombies: list[BareSession] = []
        """Sessions of the dead, which the registry has yet to end."""
        self._sessions = 0
        self._tree = self.registry.tree().replace({LAYOUT.root: None}, 0)
        self.judge = Judge(self.registry, LAYOUT, self.views, say=self.say)
        self._keep(0, dict.fromkeys(self.registry.nodes))
        self.registry.observers += [self._keep, self.judge.observe]
        self._past = Past(self.registry)
        self._restless = dice.choice([0.02, 0.05, 0.1])
        for number in range(1, dice.randint(3, 7) + 1):
            self.start(number)

    # What processes see of it.

    def now(self) -> float:
        """Return the time: everybody's clock is right here."""
        return self.registry.now

    def newest(self) -> int:
        """Return the number of the newest view."""
        return len(self.views) - 1

    def view(self, seen: int) -> JobView:
        """Return a view by its number."""
        return self.views[seen][1]

    def spawn(self, owner: object, body: Coroutine[Ready, None, object]) -> None:
        """Let a coroutine take its steps among the others."""
        self.tasks.append(Task(owner, body))

    def begin(self, process: Process, item: int, claim: Claim) -> None:
        """Note a handler's first step."""
        self.say(f"{process.number} runs {item}: {claim.fire.source} {claim.fire.slot} fence {claim.fences[item]}")
        self.judge.begin(process, item, claim)

    def end(self, process: Process, item: int, outcome: str) -> None:
        """Note that a handler is over."""
        self.say(f"{process.number} ends {item}: {outcome}")
        self.judge.end(process, item)

    def told(self, process: Process, event: JobEvent) -> None:
        """Note what a job tells about itself."""
        self.say(f"{process.number} {describe(event)}")

    def say(self, text: str) -> None:
        """Add to the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.registry.now - START:7.3f}  {text}")

    # What happens to it.

    def storm(self, happen: Callable[[World], None]) -> None:
        """Let everything happen in any order; ``happen`` breaks something or does something by hand."""
        for _ in range(STEPS):
            self.steps += 1
            self.registry.now += self.dice.random() * 0.03
            if self.dice.random() < self._restless:
                happen(self)
            else:
                self._step()

    def peace(self) -> None:
        """Mend everything, let two moments come and go, and see what it has come to."""
        self.peaceful = True
        self.say("=== peace")
        for session in self.zombies:
            session.expire()
        for process in self.processes:
            process.paused = False
            if not process.session.connected:
                self.mend(process)
        if not any(not process.gone and not process.leaving for process in self.processes):
            self.start(self.free_number())
        for _ in range(4):
            self.tick += 1
            self._rest()
            self.registry.now = int(self.registry.now) + 1.4
        moment = int(self.registry.now) * 1000
        for _ in range(3):
            self._rest()
            self.tick += 1
        self._rest()
        present = [process for process in self.processes if not process.gone]
        self.judge.at_peace(self.views[-1][1], moment, present)

    def _rest(self) -> None:
        for _ in range(AT_REST):
            self.steps += 1
            if not self._step():
                return
        self.judge.break_("silence", f"no rest within {AT_REST} steps")

    def _step(self) -> bool:
        """Let one task that is ready take a step; False if there is none."""
        tasks = self.tasks
        first = self.dice.randrange(len(tasks)) if tasks else 0
        for n in range(first, first + len(tasks)):
            task = tasks[n % len(tasks)]
            owner = task.owner
            if isinstance(owner, Process) and not owner.paused and task.ready():
                task.step()
                if task.over:
                    tasks.remove(task)
                    if owner.gone:
                        self._bury(owner)
                return True
        return False

    def _bury(self, process: Process) -> None:
        """End the session of a process that has left."""
        if process in self.processes:
            self.processes.remove(process)
            self.stop(process)
            if not process.session.over:
                self.judge.left(process)
                self.registry.expire(process.session.incarnation)
            self.say(f"{process.number} has left")

    def stop(self, process: Process) -> None:
        """End a process where it stands."""
        process.gone = True
        for task in [task for task in self.tasks if task.owner is process]:
            task.stop()
            self.tasks.remove(task)
        self.judge.killed(process)

    def start(self, number: int) -> None:
        """Start a process on a host of its own."""
        session = BareSession(self.registry, self._past, self.dice, self._fresh())
        process = Process(self, number, session, self.dice)
        self.processes.append(process)
        self._introduce(process)
        self.spawn(process, process.main())
        self.say(f"{number} starts")

    def _fresh(self) -> int:
        self._sessions += 1
        return self._sessions

    def _introduce(self, process: Process) -> None:
        self.judge.processes[process.session.incarnation] = process
        self.judge.names[process.session.incarnation] = process.id

    def free_number(self) -> int:
        """Return the number of a host without a process."""
        return min(set(range(1, 9)) - {process.number for process in self.processes})

    def _keep(self, session: int, before: Before) -> None:
        """Keep a view of every state of what is mirrored."""
        nodes = self.registry.nodes
        busy = (LAYOUT.execution, LAYOUT.offsets, LAYOUT.guarantee)
        changes: dict[str, Node | None] = {
            path: nodes.get(path) for path in before if not path.startswith(busy) and path not in ("/", LAYOUT.root)
        }
        if self.trace is not None:
            self.say(
                f"  by {session}: " + ", ".join(_change(path, nodes.get(path), was) for path, was in before.items())
            )
        if changes:
            self._tree = self._tree.replace(changes, self.registry.zxid)
            self.views.append((self.registry.zxid, read(self._tree, LAYOUT, self.config)))

    def mend(self, process: Process) -> None:
        """Connect a process again, under a new session if the old one is over."""
        fresh = self._fresh() if process.session.over else 0
        process.session.mend(fresh)
        self._introduce(process)
        self.say(f"{process.number} is connected, session {process.session.incarnation}")

    def by_hand(self, *operations: Op) -> None:
        """Do something by hand, if it can be done."""
        try:
            self.registry.commit(operations)
        except Conflict:
            return


def _change(path: str, node: Node | None, was: Node | None) -> str:
    if node is None:
        return f"-{path}"
    if was is not None and was.stat.mzxid == node.stat.mzxid:
        return f"({path})"
    return f"{'+' if was is None else ''}{path}={node.data.decode()[:300]}"
