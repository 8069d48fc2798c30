"""All errors of this package, as one tree.

ElasticJobError
├── InvalidSetting            a setting is wrong: names it, its value and what would be right
│   ├── JobConflict           the name is already used by another kind of job
│   └── ForeignData           a znode or directory holds data that is not ours
├── InvalidState              what was called cannot be done now: the application runs, or does not run
├── ClockSkew                 this host and the registry disagree about the time
├── NotAnException            users' code raised SystemExit, a panic, or a cancellation of its own
├── GivenUp                   a run was cut off again and again, so it is rescued no more
├── MissedRuns                scheduled moments passed without a run on time
├── FaultAlert                a fault of a job or of the registry, of which people are notified while it lasts
└── RegistryError
    ├── RegistryUnreachable   no server answered in time
    ├── TlsFailed             no encrypted connection to the registry could be made
    │   ├── CertificateMissing    a file with a certificate or key is missing, or the server asks for a certificate
    │   ├── CertificateExpired    a certificate has expired: ours, the server's, or that of its CA
    │   └── CertificateRefused    a certificate or key is not the right one
    ├── AuthenticationFailed  the registry refused the digest, or the user and password of SASL
    ├── NotPermitted          an ACL forbids the operation
    ├── SessionEnded          the session under which a write was decided is over; nothing was written
    ├── Suspended             no connection at the moment, or no answer to a read; nothing was written
    ├── Overloaded            the registry refuses requests for the time being; nothing was written
    ├── Fenced                a run that is over tried to save something; nothing was written
    ├── OutcomeUnknown        the connection broke between a write and its reply
    ├── NodeMissing           a node that was read does not exist
    ├── NodeTooLarge          a request would exceed max_request, or what the servers take
    └── Conflict              a transaction's condition did not hold; nothing was written

Other modules define more of them, such as those of the kinds of jobs.  Each class has a page, ``docs/errors/NAME.md``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import copysign
from typing import ClassVar, Final

LONGEST_VALUE: Final = 500
"""Characters of a wrong value that an error shows: a value may be a file that somebody has pasted."""
LONGEST_TEXT: Final = 2_000
"""The most characters that an error says about what would be right, and that a line of the log has of an error."""
LONGEST_STACK: Final = 32_000
"""The most characters of an error's text or stack that go into messages, logs and stores: users' code raises any."""
_LEFT_OUT: Final = "\n… ({:,} characters left out) …\n"
PAGES: Final = "errors/"
"""Where the pages of errors are, on the site and below ``docs``; the address of the site can be put in front of it."""


class ElasticJobError(Exception):
    """Base of all errors of this package."""

    explains_itself: ClassVar[bool] = False
    """Whether the text says all there is to say, so that a failure is logged without the stack."""
    is_final: ClassVar[bool] = False
    """Whether a run that raises it has no further attempt, because something of this attempt still runs."""
    page: ClassVar[str] = f"{PAGES}ElasticJobError"
    """The page that says what has happened and what to do; a class of another package has the page of its base."""
    names_page: ClassVar[bool] = True
    """Whether tracebacks, log lines and the command line name the page; not if the text says which line to correct."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.partition(".")[0] == __package__:
            cls.page = f"{PAGES}{cls.__name__}"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if self.names_page:
            self.add_note(self.reference)

    @property
    def reference(self) -> str:
        """The page as tracebacks and lines name it."""
        return f"docs: {self.page}"

    def with_page(self) -> str:
        """Return the text, and its page, for a line of the log or of the command line."""
        return f"{self} ({self.reference})" if self.names_page else str(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args), self.__dict__  # constructors take facts, args has the text


def _shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def _shown(value: object) -> str:
    """Return a wrong value as text, whatever it is: text of an integer may be too long for Python."""
    try:
        if isinstance(value, tuple) and value and all(isinstance(one, int) for one in value):  # items, say
            return _shortened(", ".join(map(repr, value)))
        return _shortened(repr(value))
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _made_again(kind: type[ElasticJobError], args: tuple[object, ...]) -> ElasticJobError:
    return kind.__new__(kind, *args)


class InvalidSetting(ElasticJobError, ValueError):
    """A setting is wrong."""

    names_page: ClassVar[bool] = False

    def __init__(self, setting: str, value: object, expected: str) -> None:
        super().__init__(f"{_shortened(setting)} = {_shown(value)}: {_shortened(expected, LONGEST_TEXT)}")
        self.setting = setting
        self.value = value
        self.expected = expected


class JobConflict(InvalidSetting):
    """The job's name is already used in this namespace by another kind of job, or by a job with other settings."""

    names_page: ClassVar[bool] = True


class ForeignData(InvalidSetting):
    """A znode or directory that is meant for our data holds other data, which was left as it is."""

    names_page: ClassVar[bool] = True


class InvalidState(ElasticJobError, RuntimeError):
    """What was called cannot be done now, or not here: say the application runs already, or it does not run yet."""


class ClockSkew(ElasticJobError):
    """This host and the registry disagree about the time."""

    def __init__(self, skew: timedelta, tolerated: timedelta) -> None:
        self.skew = skew
        self.tolerated = tolerated
        super().__init__(
            f"this host's clock and the registry's differ by {abs(self.seconds):.1f} s, tolerated are "
            f"{tolerated.total_seconds():g} s: check NTP or max_time_diff_seconds"
        )

    @property
    def seconds(self) -> float:
        """The difference to a tenth of a second, as it is shown: always more than what is tolerated."""
        skew = self.skew.total_seconds()
        least = self.tolerated.total_seconds() + 0.1
        return copysign(round(max(abs(skew), least), 1), skew)

    @classmethod
    def of(cls, seconds: float, tolerated: float) -> ClockSkew:
        """Return the error for a difference in seconds."""
        return cls(timedelta(seconds=seconds), timedelta(seconds=tolerated))


class NotAnException(ElasticJobError):
    """Users' code raised something that is no Exception and would have ended the process; only its call has ended.

    ``__cause__`` is what was raised.
    """

    def __init__(self, what: str, error: BaseException, *, is_cancelled: bool) -> None:
        super().__init__(
            f"{what} was cancelled from within, not by us" if is_cancelled else f"{what} raised {error_text(error)}"
        )


class GivenUp(ElasticJobError):
    """A run was cut off several times in a row, because its instances died or stopped; it is not rescued any more."""

    def __init__(self, rescues: int, instance: str) -> None:
        super().__init__(
            f"given up: its run and {rescues} rescue{'' if rescues == 1 else 's'} in a row were cut off,"
            f" the last one on {instance};"
            " see whether the handler ends its process, then trigger the job, or raise max_rescues"
        )
        self.rescues = rescues
        self.instance = instance


class MissedRuns(ElasticJobError):
    """Scheduled moments passed without a run on time; error handlers that hear of this are given it."""

    explains_itself: ClassVar[bool] = True

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class FaultAlert(ElasticJobError):
    """A fault of a job or of the registry, or its end; ``aioelasticjob alert`` gives it to error handlers."""

    explains_itself: ClassVar[bool] = True


class RegistryError(ElasticJobError):
    """The registry could not do what was asked."""


class RegistryUnreachable(RegistryError):
    """No server of the registry answered in time, or one answers too slowly."""

    def __init__(self, hosts: str, seconds: float, reason: str, *, is_slow: bool = False) -> None:
        absent = f"no registry at {hosts} within {seconds:g} s ({reason}): check the address, or start one"
        slow = f"the registry at {hosts} answers too slowly to open a session within {seconds:g} s"
        super().__init__(f"{slow}: raise connection_timeout, or --timeout of a command" if is_slow else absent)
        self.hosts = hosts
        self.seconds = seconds
        self.reason = reason


class TlsFailed(RegistryError):
    """No encrypted connection to the registry could be made; ``file`` is the PEM file that it depends on, if any."""

    def __init__(self, message: str, file: str | None = None) -> None:
        super().__init__(message)
        self.file = file


class CertificateMissing(TlsFailed):
    """A file with a certificate or a key cannot be read, or the registry asks for a certificate and we have none."""


class CertificateExpired(TlsFailed):
    """A certificate has expired: ours, the registry's, or that of its CA."""


class CertificateRefused(TlsFailed):
    """A certificate or a key is not the right one: another CA, another name, another key."""


class AuthenticationFailed(RegistryError):
    """The registry refused the credentials given as digest, or those given as sasl."""


class NotPermitted(RegistryError):
    """An access control list forbids the operation."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"not permitted at {path}: give the digest or SASL user ('user:password') the node was made with"
        )
        self.path = path


class SessionEnded(RegistryError):
    """The session under which a write was decided is over; nothing was written."""


class Suspended(RegistryError):
    """There is no connection at the moment, or an overloaded registry goes on refusing a read; nothing was written."""


class Overloaded(RegistryError):
    """The registry has more requests than it can bear, and refuses some for the time being; nothing was written."""


class Fenced(RegistryError):
    """A run that has ended or was cut off tried to save something; nothing was written."""

    def __init__(self, item: int) -> None:
        super().__init__(
            f"the run of item {item} has ended or was cut off: another may be under way, so nothing is saved"
        )
        self.item = item


class OutcomeUnknown(RegistryError):
    """The connection broke between a write and its reply: the registry may or may not have written it."""


class NodeMissing(RegistryError):
    """A node that was read does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no node {path}")
        self.path = path


class NodeTooLarge(RegistryError):
    """A request would exceed max_request, or the jute.maxbuffer of the servers, which close the connection then."""

    def __init__(self, path: str, size: int, limit: int, *, is_found: bool = False) -> None:
        not_allowed = (
            f"request for {path} is {size} bytes, and max_request allows {limit}: "
            "shorten it, or raise jute.maxbuffer of the servers and then max_request"
        )
        not_taken = (
            f"request for {path} is {size} bytes, and the servers close the connection on more than {limit}: "
            "shorten it, or raise their jute.maxbuffer"
        )
        super().__init__(not_taken if is_found else not_allowed)
        self.path = path
        self.size = size
        self.limit = limit


class Conflict(RegistryError):
    """A transaction's condition did not hold; nothing was written."""

    def __init__(self, index: int, path: str, reason: str) -> None:
        super().__init__(f"operation {index} on {path}: {reason}")
        self.index = index
        self.path = path
        self.reason = reason


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the only error of a task group as it is; of several errors raise one, preferably one of this package."""
    try:
        yield
    except BaseExceptionGroup as group:
        errors = list(leaf_errors(group))
        typed = [error for error in errors if isinstance(error, ElasticJobError)]
        if len(errors) > 1 and not typed:
            raise
        error = (typed or errors)[0]
        raise error from error.__cause__  # the error keeps its own cause; the group itself tells nothing more


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups inside it, each once; an error that is no group is yielded itself.

    Groups of users' code may be nested more deeply than Python's stack reaches.
    """
    waiting = [error]
    seen = set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, BaseExceptionGroup):
            waiting.extend(reversed(found.exceptions))
        else:
            yield found


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error of users' code, unless its class prevents that."""
    with suppress(Exception):
        error.add_note(note)


def stack_text(error: BaseException, *, whole: bool = True) -> str:
    """Return an error as Python prints it, without its stack unless ``whole``; if its class prevents it, say that.

    Of a very long one the middle is left out: the beginning says where it was raised, and the end why.
    """
    try:
        text = "".join(traceback.format_exception(error) if whole else traceback.format_exception_only(error))
        return without_middle(text)
    except Exception as own:  # before CPython 3.13 an odd ``__getattr__`` is enough
        return f"{error_text(error)}\n(its stack cannot be printed: {type(own).__name__})\n"


def error_text(error: BaseException) -> str:
    """Return an error's class, and its text unless that is empty; if its ``__str__`` fails, say that.

    Of a very long text the middle is left out.
    """
    return without_middle(_whole_text(error))


def error_line(error: BaseException) -> str:
    """Return an error's class and the beginning of its text, which may be very long, for a line of the log."""
    return _shortened(_whole_text(error), LONGEST_TEXT)


def without_middle(text: str) -> str:
    """Return a text, or its beginning and its end if it is longer than ``LONGEST_STACK``."""
    if len(text) <= LONGEST_STACK:
        return text
    half = LONGEST_STACK // 2
    return text[:half] + _LEFT_OUT.format(len(text) - 2 * half) + text[-half:]


def _whole_text(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be had: __str__ failed)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
