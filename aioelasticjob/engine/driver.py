"""Drives the state of a job: performs its commands, and passes it the facts, which are answers and clock readings.

A pass is a generator of commands.  It is resumed in turns of the scheduler, so no task waits between two steps.  When
the registry answers, or the moment of a claim comes, the next turn is asked for.  Only work in which a task has to
wait, such as a run of handlers, gets a task, and the steps that follow it are made there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVarTuple, assert_never

from aioelasticjob.core.account import JobState, Past
from aioelasticjob.core.commands import (
    AnyReport,
    Command,
    NodeCommand,
    NoteAnswer,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    Report,
    SayAhead,
    SayLowered,
    SayRefused,
    Steps,
    WriteAccounts,
)
from aioelasticjob.core.request_runs import matching_request
from aioelasticjob.core.requests import decode
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.offsets import Offsets
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.engine.turns import Activity, Work
from aioelasticjob.errors import RegistryError
from aioelasticjob.model import Record, Requested

Ts = TypeVarTuple("Ts")


class StateDriver:
    """Reads clocks and nodes for the state of a job, writes what it commands, and makes its reports.

    It decides nothing.
    """

    def __init__(self, member: Member, view: JobView, stats: ExecutionStats, past: Past) -> None:
        self.state = JobState(member.id, view, member.session.read_clocks(), past)
        self.member = member
        self.stats = stats
        self.reader = ItemReader(member)
        self.offsets = Offsets(member, self.reader)

    def now(self) -> int:
        """Read the clocks, and return the time that the job uses, in milliseconds."""
        state = self.state
        refusals = self.member.refusals
        now = state.clock.take(self.member.session.read_clocks())
        if refusals.open or refusals.past:
            state.refusals = refusals.ages(state.clock.host)
        return now

    def released(self, item: int) -> None:
        """Tell the state that the item's run on another instance has ended."""
        self.now()
        self.state.released(item)
        self.say_all()

    async def perform(self, command: NodeCommand) -> object:
        """Perform a command that reads or writes nodes of the job, and return its answer."""
        member = self.member
        match command:
            case ReadOffsets(items):
                return await self.offsets.read(items)
            case ReadItems(items, are_recorded):
                # first the records: the offsets read next are then those of runs that have ended
                found = await self.reader.read(items) if are_recorded else {}
                await self.offsets.read(items)
                return found
            case WriteAccounts(view, records):
                return await write_accounts(member, view, records)
            case ReadRequested(lost):
                return await _read_requested(member, lost)
            case _:
                assert_never(command)

    def say_all(self) -> None:
        """Make the reports that are left."""
        while self.state.reports:
            self._say(self.state.reports.pop(0))

    def _say(self, report: AnyReport) -> None:
        match report:
            case Report():
                self.stats.missed_reports.put(self.state.view.config, report)
            case SayAhead():
                self.stats.missed_reports.ahead(self.member.layout.job, report)
            case SayLowered():
                self.stats.missed_reports.lowered(self.member.layout.job, report)
            case SayRefused(why, again):
                self.stats.refused(why, again=again)
            case NoteAnswer(purpose, error):
                if error is None:
                    self.member.refusals.accepted(purpose)
                else:
                    self.member.refusals.refused(purpose, error)
            case _:
                assert_never(report)


async def _read_requested(member: Member, lost: Mapping[int, Record]) -> dict[int, Requested]:
    """Return the requests for which lost runs of items were made, without those that are over."""
    layout = member.layout
    found = dict[int, Requested]()
    requests = [layout.request(record.request) for record in lost.values()]
    progress = [layout.request_item(record.request, item) for item, record in lost.items()]
    nodes = await member.session.get_many(requests + progress)
    of_requests = nodes[: len(lost)]
    of_progress = nodes[len(lost) :]
    for (item, record), node, came in zip(lost.items(), of_requests, of_progress, strict=True):
        request = None if node is None else decode(record.request, node)
        requested = matching_request(item, record, request, came)
        if requested is not None:
            found[item] = requested
    return found


Pass: TypeAlias = Steps[float | None]
"""Its result is the seconds until the next pass; None if that is to begin at once."""


@dataclass(slots=True)
class Awaited:
    """The answer to a command is not there yet, or is looked at in the next turn; no task waits for it."""

    conclude: Callable[..., object]
    """Returns the answer, or what is to be awaited next, when the answer is there."""
    about: tuple[Any, ...] = ()
    """The arguments of ``conclude``.  A ``partial`` would be three more objects for the garbage collector."""
    future: Future[Any] | None = None
    """When it is done, it calls this object.  If it is None, the part that has the answer calls ``come``."""
    is_there: bool = False
    """Whether the answer is there.  If it is at once, the other jobs that can go on have their turns first."""
    activity: Activity | None = None
    """Gets a turn when the answer is there."""

    def come(self) -> None:
        """Note that the answer is there."""
        self.is_there = True
        if self.activity is not None:
            self.activity.scheduler.go_on(self.activity)

    def __call__(self, future: Future[Any]) -> None:
        """Note that the future is done; this object is its callback."""
        if not future.cancelled():
            future.exception()  # it was looked at, so asyncio need not warn of it
        self.come()


@dataclass(slots=True)
class InTask:
    """The answer to a command takes work in which a task has to wait."""

    work: Callable[[], Awaitable[object]]


class CommandLoop(ABC):
    """Makes the passes of one job, one after another."""

    def __init__(self, driver: StateDriver, activity: Activity) -> None:
        self._driver = driver
        self._state = driver.state
        self.activity = activity
        """Asks the process's scheduler for turns."""
        self._steps: Pass | None = None
        self._awaited: Awaited | None = None
        self._again = False
        """Whether a turn was asked for while an answer was awaited."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no pass is under way."""
        return self._steps is None

    @abstractmethod
    def _begin(self) -> Pass:
        """Begin a pass."""

    @abstractmethod
    def _perform(self, command: Command) -> object:
        """Perform a command, and return its answer, or how it is to be awaited.

        That is an ``Awaited`` or an ``InTask``.
        """

    @abstractmethod
    def _refused(self, error: RegistryError) -> float:
        """Return the seconds until the next pass after an error of the registry has ended one."""

    def turn(self) -> float | Work:
        """Make steps until the job has to wait; return the seconds until the next turn, or work for a task."""
        awaited = self._awaited
        if awaited is not None and not awaited.is_there:
            self._again = True
            return inf
        self._awaited = None
        found = self._go_on(None if awaited is None else self._answer(awaited.conclude, *awaited.about))
        return found if isinstance(found, float) else partial(self._work, found)

    def end_pass(self) -> None:
        """End the present pass, if one is under way."""
        if self._steps is not None:
            self._steps.close()
        self._steps = None
        self._awaited = None

    def _answer(self, function: Callable[[*Ts], object], *args: *Ts) -> object:
        """Return what a function returns, or the registry's error; after any other error the pass has ended."""
        try:
            return function(*args)
        except RegistryError as error:
            return error
        except BaseException:
            self.end_pass()
            raise

    def _go_on(self, answer: object) -> float | InTask:
        """Send this answer in, and make steps until a task is needed, an answer is awaited, or a pass has to wait.

        The clocks are read before the first command.
        """
        is_first = True
        while True:
            if isinstance(answer, InTask):
                return answer
            if isinstance(answer, Awaited):
                self._awaited = answer
                answer.activity = self.activity
                if answer.future is not None:
                    answer.future.add_done_callback(answer, context=self.activity.scheduler.context)
                elif answer.is_there:
                    answer.come()
                return inf
            if is_first:
                self._driver.now()
                is_first = False
            command = self._next(answer)
            if isinstance(command, float):
                again = self._again
                self._again = False
                return 0.0 if again else command
            answer = self._answer(self._perform, command)

    def _next(self, answer: object) -> Command | float:
        """Send an answer or an error in, and return the next command, or the seconds until the next pass."""
        steps = self._steps
        self._steps = None  # an error ends it
        try:
            while True:
                try:
                    if steps is None:
                        steps = self._begin()
                        answer = None
                    command = steps.throw(answer) if isinstance(answer, RegistryError) else steps.send(answer)
                except StopIteration as end:
                    steps = None
                    if end.value is not None:
                        return float(end.value)
                else:
                    self._steps = steps
                    return command
        except RegistryError as error:
            return self._refused(error)
        finally:
            if self._state.reports:
                self._driver.say_all()

    async def _work(self, task: InTask) -> float:
        """Do work, and go on after it; return the seconds until the next turn."""
        found: float | InTask = task
        while isinstance(found, InTask):
            try:
                answer = await found.work()
            except RegistryError as error:
                answer = error
            except BaseException:  # also a cancellation
                self.end_pass()
                raise
            found = self._go_on(answer)
        return found
