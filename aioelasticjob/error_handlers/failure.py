"""A run's failure, the type of error handlers, and the three error handlers that send no message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Final, Literal, TypeAlias

from aioelasticjob.config.types import AlertKind
from aioelasticjob.errors import LONGEST_STACK, ElasticJobError, error_line, stack_text, without_middle
from aioelasticjob.events import run_id_of
from aioelasticjob.logging import logger

log = logger(__package__)  # one logger for all messages about failures, in whichever module they are written

Options: TypeAlias = Mapping[str, str]
NAMED_ALERTS: Final = 50
"""So many alerts of a message are named in its text."""


@dataclass(frozen=True, slots=True)
class AlertPart:
    """One alert of a message: a fault that is there, or one that is over."""

    kind: AlertKind
    job: str
    """Empty if the fault belongs to no job."""
    status: Literal["firing", "resolved"]
    since: str
    """When it began, as ISO 8601."""
    until: str
    """When it was over; empty while it is there."""
    text: str
    link: str
    """The page of the console about it; empty if the command does not know where the console is."""

    @property
    def line(self) -> str:
        """The alert in one line."""
        return f"{self.status}: {self.text}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A run or a record that failed, a run that was given up, missed moments, or what ``aioelasticjob alert`` tells."""

    job: str
    instance: str
    """The instance that ran the items, or that reports missed moments; empty if no instance is up."""
    items: tuple[int, ...]
    task_id: str
    """The run; empty if there was none."""
    fire_time: str
    """The moment of the run, or the newest that was missed; empty if no instance is up."""
    error: Exception
    reported_at: float = 0.0
    """When the failure was given to its error handler, in seconds since the epoch; 0 before that."""
    attempts: int = 1
    """How many attempts the run has had."""
    what: AlertKind = "failed"
    """Which of the values of ``alert_on`` it is, or which fault that belongs to no job."""
    note: str = ""
    """A note for the error handler about failures that are left out because there are too many."""
    part: str = ""
    """What has failed if it is not the whole run, such as ``a record`` of a dataflow job; empty if the run failed."""
    run_goes_on: bool = False
    """Whether the run goes on, because only a part of it has failed."""
    namespace: str = ""
    """The namespace of the job's registry, known when the failure is given to its error handler; empty at its root."""

    links: Mapping[str, str] = field(default_factory=dict)
    """The links of the job, by their names, as far as they can be filled in."""
    link: str = ""
    """The console's page about it: that of the run, else of the job.  Empty if nobody knows where the console is."""
    alerts: tuple[AlertPart, ...] = ()
    """The alerts that a message of ``aioelasticjob alert`` is about: one, or all that a limit has held back."""
    undelivered: int = 0
    """How many times it could not be delivered: an alert that is no failed run is sent again."""

    @property
    def run_id(self) -> str:
        """The ``run_id`` of the run's context, which log records and events have as well; empty if there was no run."""
        return run_id_of(self.job, self.task_id)

    @property
    def subject(self) -> str:
        """The failure in one line."""
        if not self.is_of_a_run:
            return f"{self.job}: {self.error}" if self.job else str(self.error)
        then = f" ({self.then})" if self.part else ""
        return f"{self.runs} failed{then}: {error_line(self.error)}"

    @property
    def runs(self) -> str:
        """The job, what of it has failed, its items, and the number of attempts if there was more than one."""
        which = "item" if len(self.items) == 1 else "items"
        if self.part:
            which = f"{self.part} of {which}"
        items = ", ".join(map(str, self.items))
        after = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{self.job}: {which} {items}{after}"

    @property
    def then(self) -> str:
        """What becomes of the run of which a part has failed."""
        return "the run goes on" if self.run_goes_on else "the run ends: max_failures is exceeded"

    @property
    def is_of_a_run(self) -> bool:
        """Whether a run, or a part of it, has failed or was given up."""
        return self.what in ("failed", "given-up")

    @property
    def explains_itself(self) -> bool:
        """Whether the error's text says all there is to say, so that its stack helps nobody."""
        return isinstance(self.error, ElasticJobError) and self.error.explains_itself

    @property
    def text(self) -> str:
        """The failure as text, with its stack."""
        facts = {
            "namespace": self.namespace,
            "fire time": self.fire_time,
            "instance": self.instance,
            "task": self.task_id,
            "run": self.run_id,
            "console": self.link if len(self.alerts) < 2 else "",
        }
        facts |= {name: address for name, address in self.links.items() if name not in facts}
        lines = "\n".join(f"{name} {value}" for name, value in facts.items() if value)
        stack = self.stack if self.is_of_a_run else ""
        paragraphs = (self.subject, lines, stack, self._named_alerts, self.note)
        return "\n\n".join(filter(None, paragraphs))

    @property
    def _named_alerts(self) -> str:
        """The alerts, one in a line, if there are several."""
        if len(self.alerts) < 2:
            return ""
        lines = [f"{one.line} {one.link}".rstrip() for one in self.alerts[:NAMED_ALERTS]]
        if len(self.alerts) > NAMED_ALERTS:
            lines.append(f"… and {len(self.alerts) - NAMED_ALERTS:,} more")
        return "\n".join(lines)

    @property
    def stack(self) -> str:
        """The error as Python prints it; only its text if that says all, as that of a script's exit code does."""
        if self.explains_itself:
            return without_middle(str(self.error))
        return stack_text(self.error)


ErrorHandler: TypeAlias = Callable[[Failure, Options], Awaitable[None]]


class Undelivered(ElasticJobError):
    """An error handler could not deliver a failure."""


class Escalated(Exception):  # used between modules only; users never see it
    """Carries a failure that is to end the application."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.subject)
        self.failure = failure


def log_failure(failure: Failure, why: str = "", **fields: object) -> None:
    """Log a failure with its stack; ``why`` says why it was not delivered, if it should have been."""
    then = f"; the failure was not delivered: {why}" if why else ""
    _log_with_stack(failure, then, **fields)


def log_ending(failure: Failure) -> None:
    """Log a failure that ends the application, with its stack: the error itself names neither job nor run."""
    _log_with_stack(failure, "; the application ends (error handler raise)")


def _log_with_stack(failure: Failure, then: str, **fields: object) -> None:
    error = failure.error
    page = ""
    if isinstance(error, ElasticJobError) and error.explains_itself:
        page = f" ({error.reference})"  # otherwise the stack names it
    text = f"{_line(failure)}{page}{then}"
    extra = {**_about(failure), **fields}
    if failure.explains_itself:
        log.error("%s", text, extra=extra)
    elif _is_short(error):
        log.error("%s", text, exc_info=error, extra=extra)
    else:
        log.error("%s\n%s", text, failure.stack.rstrip(), extra=extra)


def _is_short(error: BaseException) -> bool:
    """Whether the log can print an error with its stack: its class may keep it from that, or it may be very long."""
    try:
        return sum(map(len, format_exception(error))) <= LONGEST_STACK
    except Exception:
        return False


def announce_failure(failure: Failure, handler: str) -> None:
    """Log a failure in one line before its delivery, which takes time: the process may be killed before it is done."""
    log.warning("%s; the error handler %s is called", _line(failure), handler, extra=_about(failure))


def _line(failure: Failure) -> str:
    if not failure.is_of_a_run:
        return failure.subject
    which = f"on {failure.instance} in the run of {failure.fire_time}"
    if failure.part:
        which += f" ({failure.then})"
    return f"{failure.runs} failed {which}: {error_line(failure.error)}"


def _about(failure: Failure) -> dict[str, object]:
    fields: dict[str, object] = {
        "job": failure.job,
        "items": failure.items,
        "fire_time": failure.fire_time,
        "task_id": failure.task_id,
    }
    if failure.run_id:
        fields["run_id"] = failure.run_id
    return fields


async def to_log(failure: Failure, options: Options) -> None:
    """Log the failure with its stack; this is the default error handler."""
    log_failure(failure)


async def ignore(failure: Failure, options: Options) -> None:
    """Do nothing; the item's outcome still says that it failed."""


async def escalate(failure: Failure, options: Options) -> None:
    """Raise the error out of the application, for programs that should end at the first failure."""
    raise Escalated(failure)
