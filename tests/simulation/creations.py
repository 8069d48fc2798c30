"""Created jobs in a simulated cluster: operators create, change and remove them, and handlers come and go.

The judges of declared jobs do not look at them, since their moments begin and end with their creation.  They are judged
here: what is removed is over, what is there runs where it can, and nobody but operators writes configurations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from anyio import sleep
from pydantic import BaseModel

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.handlers import is_being_removed
from aioelasticjob.core.layout import HANDLERS, HandlerPaths, Layout
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.operations.creation import RemovalUnfinished
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Stat
from tests.simulation.facts import Facts, Violation
from tests.support.history import Entry

if TYPE_CHECKING:
    from aioelasticjob.app import ElasticJob
    from tests.simulation.cluster import Cluster, Host

HANDLER: Final = HandlerPaths("report")
NAMES: Final = tuple(f"created-{number}" for number in range(4))
PARAMETERS: Final[Sequence[Mapping[str, int]]] = ({"old": 1}, {"new": 1}, {"old": 1, "new": 1})
SETTLED: Final = 10.0
"""Seconds at the end of a simulation in which everything has to be as it should."""
ATTEMPTS: Final = 8
"""How often an operator repeats what has to be so at the end."""


class Old(BaseModel):
    """The model before a rollout."""

    old: int


class New(BaseModel):
    """The model after it."""

    new: int


MODELS: Final[Sequence[type[BaseModel]]] = (Old, New)


@dataclass(slots=True)
class CreatedRun:
    """A run of a created job."""

    job: str
    process: str
    begun: float
    end: float = float("inf")
    how: str = "going on"


@dataclass(frozen=True, slots=True)
class Removal:
    """A job that is gone for certain, until somebody may have created it again."""

    job: str
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class Creations:
    """What operators have done to created jobs, and what ran of them."""

    cluster: Cluster
    runs: list[CreatedRun] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    models: dict[str, type[BaseModel]] = field(default_factory=dict)
    """The model of each process that has the handler."""
    wanted: dict[str, JobConfig | None] = field(default_factory=dict)
    """What has to be in the registry at the end; None for a job that was removed."""
    _dice: Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = Random(f"created {self.cluster.plan.seed}")

    def register(self, app: ElasticJob, host: Host) -> None:
        """Give most processes the handler, with one model or the other."""
        if self._dice.random() < 0.2:
            return
        model = self._dice.choice(MODELS)
        process = host.name
        self.models[process] = model
        dice = Random(f"handler {process}")

        @app.handler(HANDLER.handler, parameter=model)
        async def report(context: ItemContext) -> None:
            await self._run(process, context, dice.choice([0.0, 0.2, 2.5]))

    async def _run(self, process: str, context: ItemContext, seconds: float) -> None:
        now = self.cluster.history.now
        run = CreatedRun(context.job_name, process, now())
        self.runs.append(run)
        try:
            run.how = "refused"
            _ = context.parameters
            run.how = "cut off"
            await sleep(seconds)
            run.how = "completed"
        finally:
            run.end = now()

    async def create(self, session: Session, job: str, settings: Mapping[str, object]) -> None:
        """Create a job; it may be there from now on, whatever comes of it."""
        self._may_be_there(job)
        await operations.create(session, job, settings, handler=HANDLER.handler)

    async def remove(self, session: Session, job: str, timeout: float) -> None:
        """Remove a job, and note when that is certain."""
        try:
            await operations.remove_created(session, job, timeout=timeout)
        except InvalidSetting:  # there is no such job
            return
        self.removals.append(Removal(job, self.cluster.history.now()))

    def _may_be_there(self, job: str) -> None:
        now = self.cluster.history.now()
        for number, one in enumerate(self.removals):
            if one.job == job and one.until > now:
                self.removals[number] = Removal(job, one.since, now)

    async def end(self) -> None:
        """Have each job be there, or not, when everything is repaired."""
        for job in NAMES:
            exists = self._dice.random() < 0.6
            settings = any_settings(self._dice)
            models = [self.models[host.name] for host in self.cluster.hosts if host.name in self.models]
            if not any(_takes(model, str(settings["job_parameter"])) for model in models):
                settings["job_parameter"] = json.dumps({"old": 1, "new": 1})  # one that nobody takes is refused
            await self._insist(partial(self._remove_for_good, job=job))
            self.wanted[job] = None
            if exists:
                await self._insist(partial(self.create, job=job, settings=settings))
                self.wanted[job] = JobConfig.build(job_name=job, handler=HANDLER.handler, **settings)

    async def _insist(self, act: Callable[[Session], Coroutine[object, object, None]]) -> None:
        """Do something until it has succeeded."""
        for _ in range(ATTEMPTS):
            with suppress(ElasticJobError):
                if await self.cluster.operate(act):
                    return
            await sleep(1)

    async def _remove_for_good(self, session: Session, job: str) -> None:
        with suppress(RemovalUnfinished):
            await self.remove(session, job, 4.0)
        if await session.exists(Layout(job).root) is not None:
            raise operations.NotPossible(f"{job} is still there")

    def check(self, entries: Sequence[Entry]) -> Iterator[Violation]:
        """Yield what was not as it should be."""
        facts = Facts(entries)
        yield from self._over(facts)
        for at, path in self.cluster.registry.tree.configured:
            yield Violation("operators configure", at, f"a process has written {path}")
        for job, config in self.wanted.items():
            if config is None:
                yield from self._gone(job, facts.end)
            else:
                yield from self._there(job, config, facts)
        living = {self._host(process) for process in facts.living if process in self.models}
        found = {name.partition("@-@")[0] for name in self._below(HANDLER.processes)}
        if found != living:
            yield Violation(
                "handlers are published", facts.end, f"published by {sorted(found)}, had by {sorted(living)}"
            )

    def _over(self, facts: Facts) -> Iterator[Violation]:
        """A job that was removed neither begins nor completes anything until it may have been created again."""
        for removal in self.removals:
            for run in self.runs:
                if run.job != removal.job:
                    continue
                if removal.since < run.begun < removal.until:
                    yield Violation(
                        "removed jobs are over", run.begun, f"{run.process} begins {run.job}, which is gone"
                    )
                held = any(a < run.end and run.begun < b for a, b in facts.paused.get(run.process, ()))
                if run.begun < removal.since < run.end and run.how == "completed" and not held:
                    yield Violation("removals wait", removal.since, f"{run.process} still ran {run.job}")

    def _gone(self, job: str, at: float) -> Iterator[Violation]:
        if self._node(Layout(job).root) is not None or self._node(HANDLER.job(job)) is not None:
            yield Violation("removals end", at, f"nodes of {job} are left")

    def _there(self, job: str, config: JobConfig, facts: Facts) -> Iterator[Violation]:
        node = self._node(Layout(job).config)
        index = self._node(HANDLER.job(job))
        if node is None or index is None or is_being_removed(index):
            yield Violation("created jobs are there", facts.end, f"{job} is not")
            return
        stored = JobConfig.from_json(node.data, job)
        if stored != config or node.stat.version:
            yield Violation("operators configure", facts.end, f"{job} is {stored}, version {node.stat.version}")
        able = set[str]()
        for process in facts.living:
            model = self.models.get(process)
            if model is not None and _takes(model, config.job_parameter):
                able.add(self._host(process))
        joined = {name.partition("@-@")[0] for name in self._below(Layout(job).instances)}
        if joined != able:
            yield Violation("created jobs are joined", facts.end, f"{job} by {sorted(joined)}, not {sorted(able)}")
        recent = [run for run in self.runs if run.job == job and run.begun > facts.end - SETTLED]
        if able and not recent:
            yield Violation("created jobs run", facts.end, f"{job} does not")
        for run in recent:
            if run.how == "refused":
                yield Violation("models are asked", run.begun, f"{run.process} ran {job}, whose parameter it refuses")

    def _host(self, process: str) -> str:
        return process.partition("#")[0]

    def _below(self, path: str) -> list[str]:
        prefix = f"/sim{path}/"
        return [one.removeprefix(prefix) for one in self.cluster.registry.tree.nodes if one.startswith(prefix)]

    def _node(self, path: str) -> Node | None:
        found = self.cluster.registry.tree.nodes.get(f"/sim{path}")
        if found is None:
            return None
        return Node.of(found.data or b"", Stat.of((0, 0), (0.0, 0.0), found.version))


def is_created(path: str) -> bool:
    """Whether a path belongs to created jobs, or to their handlers."""
    return path.startswith((f"{HANDLERS}", "/created-"))


def _takes(model: type[BaseModel], text: str) -> bool:
    try:
        model.model_validate_json(text)
    except ValueError:
        return False
    return True


def any_settings(dice: Random) -> dict[str, object]:
    """Return settings of a created job."""
    return {
        "cron": dice.choice(["* * * * * ?", "0/2 * * * * ?"]),
        "job_parameter": json.dumps(dice.choice(PARAMETERS)),
        "sharding_total_count": dice.randint(1, 3),
        "sharding_quiet": 0,
        "shutdown_timeout": 4,
    }
