"""The code of a worker process that runs plain functions for its parent, and ends when its parent ends.

It imports as little as possible, so that workers start fast.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from aioelasticjob.errors import ElasticJobError, InvalidSetting, error_text, stack_text
from aioelasticjob.host.forks import ending_forks
from aioelasticjob.host.signals import stopping_signals


@dataclass(frozen=True, slots=True)
class Returned:
    """A function returned a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A function raised an error."""

    error: BaseException
    stack: str


class FromProcess(Exception):
    """Carries the stack of an error from the worker process in which it was raised."""

    def __str__(self) -> str:
        return f"in a process of its own:\n{self.args[0]}"


class Unsendable(ElasticJobError):
    """What a function returned or raised in a worker process cannot be sent back, or would end more than its run."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The offsets of a run as they were when it began, for a function that runs where the session is not."""

    executor: str
    offsets: Mapping[int, str | None]

    def get(self, item: int) -> str | None:
        """Return the offset last saved, None if there is none."""
        return self.offsets.get(item)

    def save(self, item: int, value: str) -> NoReturn:
        """Raise InvalidSetting: the session is elsewhere."""
        raise InvalidSetting(
            "executor", self.executor, "offsets are saved where the session is: use executor = 'thread'"
        )


class _Sender(logging.Handler):
    """Sends answers and the log records of all threads to the parent, one at a time: a handler has a lock.

    Forks of this process share the connection, but not the lock: their records are shown on stderr instead.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._pid = os.getpid()
        self._of_forks = logging.StreamHandler()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its message and traceback as text: objects and frames cannot be sent."""
        if self._pid != os.getpid():
            self._of_forks.handle(record)
            return
        try:
            record.msg = record.getMessage()
            record.args = None
            if record.exc_info:
                record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
                record.exc_info = None
            self._connection.send(record)
        except Exception:
            self.handleError(record)

    def answer(self, pickled: bytes) -> None:
        """Send the outcome of a function call."""
        self.acquire()
        try:
            self._connection.send_bytes(pickled)
        finally:
            self.release()


def serve(connection: Connection, levels: Mapping[str, int]) -> None:
    """Run one function after the other until the parent closes the connection.

    Messages are pickles: the parent sends ``(function, arguments, named arguments)``; the worker sends log records, and
    then an answer.
    """
    _stand_alone()
    sender = _Sender(connection)
    logging.getLogger().addHandler(sender)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    with suppress(EOFError, OSError):
        while True:
            request = connection.recv_bytes()
            sender.answer(_answer(request))


def _stand_alone() -> None:
    """Ignore signals of a terminal or an init system, which the parent handles; end when the parent ends.

    The processes that functions have started here end as well, if the platform has process groups.
    """
    for number in stopping_signals():
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs started here would inherit
    own_group = False
    with suppress(OSError, AttributeError):
        os.setsid()  # with the session, process 1 recognises what functions have left behind, see orphans.py
        own_group = True
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def follow() -> None:
        wait([sentinel])
        if own_group:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=follow, name="aioelasticjob-parent", daemon=True).start()


def _answer(request: bytes) -> bytes:
    """Call a function and return its outcome as a pickle.  No error that it raises ends the process."""
    answer: Returned | Raised
    try:
        function, arguments, named = pickle.loads(request)
        with ending_forks("the function"):  # both would answer
            answer = Returned(function(*arguments, **named))
    except BaseException as error:
        answer = _raised(error)
    try:
        return bytes(ForkingPickler.dumps(answer))
    except BaseException as error:
        return pickle.dumps(_raised(Unsendable(f"the result cannot be pickled: {error_text(error)}")))


def _raised(error: BaseException) -> Raised:
    stack = stack_text(error).rstrip()
    if not isinstance(error, Exception | SystemExit):  # such as KeyboardInterrupt, which would end the application
        error = Unsendable(f"the function raised what would end more than its run: {error_text(error)}")
    try:
        pickle.loads(pickle.dumps(error))  # some error classes can be pickled but not loaded
    except BaseException:  # a class's own __reduce__ may raise anything
        error = Unsendable(error_text(error))
    return Raised(error.with_traceback(None), stack)
