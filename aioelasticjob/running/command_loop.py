"""Goes through the steps of a job: it has each command performed, and sends the answer in.

A pass is a generator of commands.  It is resumed in turns of the scheduler, so no task waits between two steps.  When
the registry answers, or the moment of a claim comes, the next turn is asked for.  Only work in which a task has to
wait, such as a run of handlers, gets a task, and the steps that follow it are made there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias

from aioelasticjob.errors import RegistryError
from aioelasticjob.running.commands import Command, Steps
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.scheduler import Activity, Work

Pass: TypeAlias = Steps[float | None]
"""Its result is the seconds until the next pass; None if that is to begin at once."""


@dataclass(slots=True)
class Awaited:
    """The answer to a command is still to come, and no task waits for it."""

    conclude: Callable[[], object]
    """Returns the answer, or what is to be awaited next, when the answer is there."""
    future: Future[Any] | None = None
    """When it is done, it calls this object.  If it is None, the part that has the answer calls ``come``."""
    is_there: bool = False
    activity: Activity | None = None
    """Gets a turn when the answer is there."""

    def come(self) -> None:
        """Note that the answer is there."""
        self.is_there = True
        if self.activity is not None:
            self.activity.go_on()

    def __call__(self, future: Future[Any]) -> None:
        """Note that the future is done; this object is its callback."""
        if not future.cancelled():
            future.exception()  # it was looked at, so asyncio need not warn of it
        self.come()


@dataclass(slots=True)
class NextTurn:
    """The next step is made when the other jobs that can go on now have had their turns."""

    step: Callable[[], object]


@dataclass(slots=True)
class InTask:
    """The answer to a command takes work in which a task has to wait."""

    work: Callable[[], Awaitable[object]]


class CommandLoop(ABC):
    """Makes the passes of one job, one after another."""

    def __init__(self, state: StateDriver, activity: Activity) -> None:
        self._state = state
        self.activity = activity
        """Asks the process's scheduler for turns."""
        self._steps: Pass | None = None
        self._awaited: Awaited | None = None
        self._again = False
        """Whether a turn was asked for while an answer was awaited."""

    @abstractmethod
    def _begin(self) -> Pass:
        """Begin a pass."""

    @abstractmethod
    def _perform(self, command: Command) -> object:
        """Perform a command, and return its answer, or how it is to be awaited.

        That is an ``Awaited``, a ``NextTurn`` or an ``InTask``.
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
        found = self._go_on(None if awaited is None else awaited.conclude)
        return found if isinstance(found, float) else partial(self._work, found)

    def close(self) -> None:
        """End the present pass."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self._awaited = None

    def _go_on(
        self, step: Callable[[], object] | None, answer: object = None, error: RegistryError | None = None
    ) -> float | InTask:
        """Make steps, beginning with this one, until a task is needed, an answer is awaited, or a pass has to wait.

        The clocks are read before the first command.
        """
        is_first = True
        while True:
            if step is not None:
                answer = error = None
                try:
                    answer = step()
                except RegistryError as failure:
                    error = failure
                except BaseException:
                    self.close()
                    raise
            if isinstance(answer, InTask):
                return answer
            if isinstance(answer, Awaited):
                self._await(answer)
                return inf
            if isinstance(answer, NextTurn):
                self._await(coming := Awaited(answer.step))
                coming.come()
                return inf
            if is_first:
                self._state.now()
                is_first = False
            command = self._next(answer, error)
            if isinstance(command, float):
                again, self._again = self._again, False
                return 0.0 if again else command
            step = partial(self._perform, command)

    def _await(self, answer: Awaited) -> None:
        self._awaited, answer.activity = answer, self.activity
        if answer.future is not None:
            answer.future.add_done_callback(answer, context=self.activity.context)

    def _next(self, answer: object, error: RegistryError | None) -> Command | float:
        """Send an answer in, and return the next command, or the seconds until the next pass."""
        steps, self._steps = self._steps, None  # an error ends it
        try:
            while True:
                try:
                    if steps is None:
                        steps, answer = self._begin(), None
                    command = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration as end:
                    steps = error = None
                    if end.value is not None:
                        return float(end.value)
                else:
                    self._steps = steps
                    return command
        except RegistryError as failure:
            return self._refused(failure)
        finally:
            self._state.say_all()

    async def _work(self, task: InTask) -> float:
        """Do work, and go on after it; return the seconds until the next turn."""
        found: float | InTask = task
        while isinstance(found, InTask):
            answer = error = None
            try:
                answer = await found.work()
            except RegistryError as failure:
                error = failure
            except BaseException:  # also a cancellation
                self.close()
                raise
            found = self._go_on(None, answer, error)
        return found
