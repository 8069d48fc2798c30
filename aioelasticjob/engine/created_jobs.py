"""The created jobs of a process: those that name a handler which the process has.

The index ``~handlers/{handler}/jobs`` says which jobs name a handler.  Each process follows the indexes of its
handlers, so it is woken by changes of such jobs only.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import Final

from anyio import create_task_group

from aioelasticjob.clock import Clock
from aioelasticjob.core.handlers import is_being_removed, missing_parents, process_note
from aioelasticjob.core.layout import HandlerPaths, Layout
from aioelasticjob.core.processes import Author
from aioelasticjob.core.view import parse
from aioelasticjob.engine.ending import Stage
from aioelasticjob.engine.health import JobHealth
from aioelasticjob.engine.local_jobs import Host, LocalJob, LocalJobs
from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.engine.tree_follower import follow_roots
from aioelasticjob.errors import (
    Conflict,
    ElasticJobError,
    InvalidSetting,
    OutcomeUnknown,
    RegistryError,
    SessionEnded,
    Suspended,
)
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.handlers import CreatedJobHandler
from aioelasticjob.logging import logger
from aioelasticjob.registry.session import Session, SessionState, SessionStatus
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import Node, Tree, changed_below

READ_INDEX: Final = "to read which jobs name a handler"
READ_CONFIGURATIONS: Final = "to read the configurations of created jobs"
PUBLISH: Final = "to note that this process has a handler"
"""The purposes of the requests, for the log line if the registry refuses them."""
READ_AT_ONCE: Final = 500
"""Jobs whose configurations are read before the first of them join."""
REMOVED: Final = "the job was removed"
BEING_REMOVED: Final = "the job is being removed"
DECLARED_HERE: Final = "code of this process declares a job of this name"
STILL_LEAVES: Final = "a job of this name still leaves this process"

NOTHING: Final = frozenset[str]()

log = logger(__name__)


class CreatedJobs:
    """Lets the jobs that name a handler of this process join, and leave again."""

    def __init__(self, session: Session, jobs: LocalJobs, host: Host, clock: Clock, limited_log: LimitedLog) -> None:
        self._session = session
        self._jobs = jobs
        self._host = host
        self._clock = clock
        self._limited_log = limited_log
        self._handlers = list[_JobsOfHandler]()
        self._tasks = create_task_group()

    @property
    def refused(self) -> list[JobHealth]:
        """The jobs that name a handler of this process and do not run in it, each with the reason."""
        found = list[JobHealth]()
        for one in self._handlers:
            found += [JobHealth(name, problem=why, dismissed=True) for name, why in one.refused.items()]
        return found

    @asynccontextmanager
    async def open(self, handlers: Iterable[CreatedJobHandler]) -> AsyncIterator[None]:
        """Let jobs join and leave while the block is open; it begins when those have joined that were there."""
        async with self._tasks as tasks:
            for handler in handlers:
                self.add(handler)
            for one in self._handlers:
                await one.first_note.wait()
                await one.first_look.wait()
            for one in self._handlers:
                await one.all_joined()
            yield
            tasks.cancel_scope.cancel()

    def add(self, handler: CreatedJobHandler) -> None:
        """Let the jobs that name another handler join, too."""
        one = _JobsOfHandler(handler, self._session, self._jobs, self._host, self._clock, self._limited_log)
        self._handlers.append(one)
        self._tasks.start_soon(one.publish)
        self._tasks.start_soon(one.follow)


class _JobsOfHandler:
    """The jobs that name one handler of this process."""

    def __init__(
        self,
        handler: CreatedJobHandler,
        session: Session,
        jobs: LocalJobs,
        host: Host,
        clock: Clock,
        limited_log: LimitedLog,
    ) -> None:
        self._handler = handler
        self._session = session
        self._jobs = jobs
        self._host = host
        self._limited_log = limited_log
        self._paths = HandlerPaths(handler.name)
        self._refusals = Refusals(self._paths.root, clock, limited_log)
        self._index = Latest(Tree())
        self._noted = self._index.value
        """The index as it was seen last."""
        self._woken = Event()
        self._index.listen(self._woken.set)
        self._to_judge = dict[str, None]()
        """The jobs whose nodes have changed, or whose former job has left this process."""
        self._seen = dict[str, int]()
        """The jobs of the index as it was seen last, each with the transaction that created it."""
        self.refused = dict[str, str]()
        """Those of them that do not run here, each with the reason; the others have joined, or were let leave here."""
        self.first_note = Event()
        """Set once the registry says that this process has the handler, or has refused that."""
        self.first_look = Event()
        """Set once the jobs that were there have begun to join, or the registry has refused to say which there are."""

    async def publish(self) -> None:
        """Note in each session that this process has the handler, and which parameter it takes."""
        failures = 0
        written = 0

        def is_news(status: SessionStatus) -> bool:
            is_connected = status.state is SessionState.CONNECTED and status.incarnation != written
            return is_connected or status.state is SessionState.CLOSED

        while True:
            status = await self._session.status.until(is_news)
            if status.state is SessionState.CLOSED:
                self.first_note.set()
                return
            try:
                await self._write_note(status.incarnation)
            except RegistryError as error:
                if not isinstance(error, Conflict | OutcomeUnknown | Suspended | SessionEnded):
                    self._refusals.refused(PUBLISH, error)
                    self.first_note.set()
                await self._session.back_off(failures)
                failures += 1
                continue
            self._refusals.accepted(PUBLISH)
            self.first_note.set()
            written = status.incarnation
            failures = 0

    async def _write_note(self, incarnation: int) -> None:
        host = self._host
        id = Author(host.ip, host.name, host.pid, incarnation).id
        path = self._paths.process(id)
        paths = (*self._paths.parents, path)
        nodes = await self._session.get_many(paths)
        there = {one for one, node in zip(paths, nodes, strict=True) if node is not None}
        if path in there:  # the reply to an earlier attempt was lost
            return
        note = process_note(host.ip, host.name, host.pid, self._handler.schema, self._handler.options)
        operations = [*missing_parents(self._paths, there), Create(path, note, ephemeral=True)]
        await self._session.commit(operations, incarnation=incarnation)

    async def follow(self) -> None:
        """Follow the index until the session is closed, and let jobs join and leave as it says."""
        session = self._session
        async with create_task_group() as tasks:
            await tasks.start(follow_roots, session, (self._paths.jobs,), self._index, self._refusals, READ_INDEX)
            failures = 0
            while True:
                try:
                    await self._judge_all()
                except Suspended:
                    await session.connected()
                except SessionEnded:
                    self.first_look.set()
                    return
                except RegistryError as error:
                    self._refusals.refused(READ_CONFIGURATIONS, error)
                    self.first_look.set()
                    await session.back_off(failures)
                    failures += 1
                else:
                    self._refusals.accepted(READ_CONFIGURATIONS)
                    self.first_look.set()
                    failures = 0
                    await self._woken.wait()
                    self._woken.clear()

    async def all_joined(self) -> None:
        """Wait until the jobs that were let join have joined, or have to wait."""
        for name in tuple(self._seen):
            if name not in self.refused:
                with suppress(KeyError, ElasticJobError):  # it leaves again, say because it was removed
                    await self._jobs.joined(name)

    async def _judge_all(self) -> None:
        """Let each job join or leave whose node in the index has changed, or whose former job has left."""
        self._note_changes()
        while self._to_judge:
            names = list(islice(self._to_judge, READ_AT_ONCE))
            nodes = await self._session.get_many([Layout(name).config for name in names])
            for name, stored in zip(names, nodes, strict=True):
                del self._to_judge[name]
                self._judge(name, stored)
            self._note_changes()  # after the reads: what has changed meanwhile is judged again

    def _note_changes(self) -> None:
        """Note the jobs whose nodes have changed since the last call."""
        tree = self._index.value
        if tree is self._noted:
            return
        self._noted = tree
        changed = tree.derive(partial(_changed_jobs, self._paths.jobs), NOTHING)
        present = set(tree.children(self._paths.jobs))
        removed = self._seen.keys() - present  # of a tree that was read anew, ``changed`` has only what is there
        self._to_judge |= dict.fromkeys(sorted(changed | removed))

    def _judge(self, name: str, stored: Node | None) -> None:
        """Let a job join, or leave; ``stored`` is its configuration in the registry."""
        index = self._noted.get(self._paths.job(name))
        if index is None:
            self._seen.pop(name, None)
            self.refused.pop(name, None)
            self._dismiss(name, REMOVED)
            return
        was_let_join = self._seen.get(name) == index.stat.czxid and name not in self.refused
        self._seen[name] = index.stat.czxid
        job = self._judged(name, index, stored)
        if not isinstance(job, Job):
            self._refuse(name, job)
            self._dismiss(name, job)
        elif not was_let_join:  # otherwise it runs here, or somebody has let it leave this process
            self._let_join(job)

    def _judged(self, name: str, index: Node, stored: Node | None) -> Job | str:
        """Return a job as this process runs it, or why it does not run it."""
        if is_being_removed(index):
            return BEING_REMOVED
        if stored is None:
            return REMOVED
        try:
            config = parse(stored.data, Layout(name))
            if config.handler != self._handler.name:
                return f"its configuration names the handler {config.handler}, not {self._handler.name}"
            return self._handler.job(config)
        except InvalidSetting as mistake:
            return str(mistake)

    def _let_join(self, job: Job) -> None:
        """Let a job join, once a former job of the same name has left this process."""
        name = job.config.job_name
        former = self._jobs.get(name)
        if former is not None and former.handler is None:
            self._refuse(name, DECLARED_HERE)
            return
        self._dismiss(name, REMOVED)
        if self._jobs.get(name) is None:
            self.refused.pop(name, None)
            self._jobs.add(job)
        elif former is not None:
            self.refused[name] = STILL_LEAVES
            former.ending.listen(partial(self._former_ends, former))

    def _dismiss(self, name: str, why: str) -> None:
        """Let a job of this handler leave, if this process has it."""
        job = self._jobs.get(name)
        if job is not None and job.handler == self._handler.name:
            self._jobs.dismiss(name, why)

    def _former_ends(self, former: LocalJob) -> None:
        """Judge a job again once the former one of the same name has left."""
        if former.ending.value.stage is Stage.GONE:
            self._to_judge[former.name] = None
            self._woken.set()

    def _refuse(self, name: str, why: str) -> None:
        """Note why a job does not run here; the log has it unless it is being removed."""
        if self.refused.get(name) != why and why not in (BEING_REMOVED, REMOVED):
            kind = "created jobs do not run in this process"
            text = f"the job does not run in this process: {why}"
            self._limited_log.warning(log, name, kind, text, each=MOST)
        self.refused[name] = why


def _changed_jobs(root: str, _: Tree, before: Collection[str], changed: Collection[str]) -> frozenset[str]:
    """Return the jobs whose nodes below ``root`` have changed between two trees; what was found before is over."""
    return changed_below(root, changed)
