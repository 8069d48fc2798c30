"""The passes of a job: each is a generator of commands, which are performed, and whose answers are sent in.

A pass is resumed in turns of the scheduler, so no task waits between two steps.  When the registry answers, or the
moment of a claim comes, the next turn is asked for.  Only work in which a task has to wait, such as a run of handlers,
gets a task, and the steps that follow it are made there.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVarTuple

from aioelasticjob.core.commands import Command, Steps
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.turns import Activity, TaskScope, Work
from aioelasticjob.errors import RegistryError

Ts = TypeVarTuple("Ts")
Pass: TypeAlias = Steps[float | None]
"""Its result is the seconds until the next pass; None if that is to begin at once."""


@dataclass(slots=True)
class Awaited:
    """The answer to a command is not there yet, or is looked at in the next turn; no task waits for it."""

    conclude: Callable[..., object]
    """Returns the answer, or what is to be awaited next, when the answer is there."""
    about: tuple[Any, ...] = ()
    """The arguments of ``conclude``."""
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


class CommandedJob(Protocol):
    """The job whose passes are made: it decides what a pass does, and performs the commands."""

    def begin(self) -> Pass:
        """Begin a pass."""

    def perform(self, command: Command) -> object:
        """Perform a command, and return its answer, or how it is to be awaited.

        That is an ``Awaited`` or an ``InTask``.
        """

    def refused(self, error: RegistryError) -> float:
        """Return the seconds until the next pass after an error of the registry has ended one."""


class Passes:
    """The passes of one job, one after another."""

    __slots__ = ("_again", "_awaited", "_driver", "_job", "_steps", "activity")

    def __init__(self, job: CommandedJob, driver: StateDriver, tasks: TaskScope) -> None:
        self._job = job
        self._driver = driver
        self.activity = Activity(tasks, self, is_urgent=False)
        """Asks the process's scheduler for turns."""
        self._steps: Pass | None = None
        self._awaited: Awaited | None = None
        self._again = False
        """Whether a turn was asked for while an answer was awaited."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no pass is under way."""
        return self._steps is None

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
            answer = self._answer(self._job.perform, command)

    def _next(self, answer: object) -> Command | float:
        """Send an answer or an error in, and return the next command, or the seconds until the next pass."""
        steps = self._steps
        self._steps = None  # an error ends it
        try:
            while True:
                try:
                    if steps is None:
                        steps = self._job.begin()
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
            return self._job.refused(error)
        finally:
            if self._driver.state.reports:
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
