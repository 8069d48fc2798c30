"""A run's failure, what a handler of failures is, and the three handlers that tell nobody."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aioelasticjob.errors import ElasticJobError, in_words

log = logging.getLogger(__package__)  # one logger for all that is said of failures, whichever module says it

Options: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed."""

    job: str
    instance: str
    items: tuple[int, ...]
    task_id: str
    fire_time: str
    error: Exception
    told_at: float = 0.0
    """When a handler is told, in seconds since the epoch; 0 before."""

    @property
    def subject(self) -> str:
        """One line for people."""
        which = "item" if len(self.items) == 1 else "items"
        items = ", ".join(map(str, self.items))
        return f"{self.job}: {which} {items} failed: {in_words(self.error)}"

    @property
    def text(self) -> str:
        """All there is to know, with the stack."""
        head = f"{self.subject}\n\nfire time {self.fire_time}\ninstance {self.instance}\ntask {self.task_id}"
        return f"{head}\n\n{self.stack}"

    @property
    def stack(self) -> str:
        """The error as Python prints it."""
        return "".join(traceback.format_exception(self.error))


ErrorHandler: TypeAlias = Callable[[Failure, Options], Awaitable[None]]


class Undelivered(ElasticJobError):
    """Nobody could be told of a failure."""


class Escalated(Exception):  # a message between rooms, never seen by users
    """Carries a failure that is to end the application."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.subject)
        self.failure = failure


def logged(failure: Failure, why: str = "", **fields: object) -> None:
    """Log a failure with its stack, and why nobody was told if somebody should have been."""
    message = f"item failed, and nobody was told: {why}" if why else "item failed"
    log.error("%s", message, exc_info=failure.error, extra={**_about(failure), **fields})


def announced(failure: Failure, handler: str) -> None:
    """Log a failure in one line before anybody is told: that may take a while, and the process may be killed."""
    log.warning("item failed: %s (telling %s)", in_words(failure.error), handler, extra=_about(failure))


def _about(failure: Failure) -> dict[str, object]:
    return {"job": failure.job, "items": failure.items, "fire_time": failure.fire_time, "task_id": failure.task_id}


async def to_log(failure: Failure, options: Options) -> None:
    """Log the failure with its stack: what happens unless another handler is chosen."""
    logged(failure)


async def ignore(failure: Failure, options: Options) -> None:
    """Do nothing: the item's outcome still says that it failed."""


async def escalate(failure: Failure, options: Options) -> None:
    """Raise the error out of the application, for programs that would rather end than go on."""
    raise Escalated(failure)
