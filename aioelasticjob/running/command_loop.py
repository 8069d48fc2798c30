"""Goes through the steps of a job: it has each command performed, and sends the answer in.

A pass is a generator of commands.  It is resumed in turns of the scheduler, so no task waits between two steps.  An
answer of the registry, or the moment of a claim, is a future that asks for the next turn.  Only work in which a task
has to wait, such as a run of handlers, gets a task, and the steps that follow it are made there.
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
from aioelasticjob.running.scheduler import Work

Pass: TypeAlias = Steps[float | None]
"""Its result is the seconds until the next pass; None if that is to begin at once."""


@dataclass(slots=True)
class Awaited:
    """The answer to a command is still to come, and no task waits for it."""

    future: Future[Any] | None
    """None: the answer is there when the other jobs that can go on now have had their turns."""
    conclude: Callable[[], object]
    """Returns the answer, or what is to be awaited next, when the future is done."""
    is_asked_for: bool = False
    """Whether a turn was asked for."""

    def is_there(self) -> bool:
        """Whether the answer is there."""
        return self.is_asked_for if self.future is None else self.future.done()


@dataclass(slots=True)
class InTask:
    """The answer to a command takes work in which a task has to wait."""

    work: Callable[[], Awaitable[object]]


class CommandLoop(ABC):
    """Makes the passes of one job, one after another."""

    def __init__(self, state: StateDriver) -> None:
        self._state = state
        self._steps: Pass | None = None
        self._awaited: Awaited | None = None
        self._again = False
        """Whether a turn was asked for while an answer was awaited."""

    @abstractmethod
    def _begin(self) -> Pass:
        """Begin a pass."""

    @abstractmethod
    def _perform(self, command: Command) -> object:
        """Perform a command, and return its answer, or how it is to be awaited: ``Awaited`` or ``InTask``."""

    @abstractmethod
    def _refused(self, error: RegistryError) -> float:
        """Return the seconds until the next pass after an error of the registry has ended one."""

    @abstractmethod
    def _go_on_after(self, future: Future[Any] | None) -> None:
        """Ask for a turn when a future is done; if it is None, when other jobs have had theirs."""

    def turn(self) -> float | Work:
        """Make steps until the job has to wait; return the seconds until the next turn, or work for a task."""
        awaited, self._awaited = self._awaited, None
        if awaited is not None and not awaited.is_there():
            self._awaited, self._again = awaited, True
            return inf
        found = self._go_on(awaited)
        return found if isinstance(found, float) else partial(self._work, found)

    def close(self) -> None:
        """End the present pass."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self._awaited = None

    def _go_on(self, answer: object, error: RegistryError | None = None) -> float | InTask:
        """Make steps until an answer is awaited, or a pass returns when the next one begins.

        The clocks are read before the first step.
        """
        is_first = True
        while not isinstance(answer, InTask):
            perform: Callable[[], object]
            if not isinstance(answer, Awaited):
                if is_first:
                    self._state.now()
                    is_first = False
                command = self._next(answer, error)
                if isinstance(command, float):
                    again, self._again = self._again, False
                    return 0.0 if again else command
                perform = partial(self._perform, command)
            elif answer.is_there():
                perform = answer.conclude
            else:
                self._awaited, answer.is_asked_for = answer, True
                self._go_on_after(answer.future)
                return inf
            answer = error = None
            try:
                answer = perform()
            except RegistryError as failure:
                error = failure
            except BaseException:
                self.close()
                raise
        return answer

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
            found = self._go_on(answer, error)
        return found
