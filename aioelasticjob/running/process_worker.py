"""The inside of a process that runs plain functions for another one; ends with it.  Imports next to nothing."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from aioelasticjob.errors import ElasticJobError, InvalidSetting, error_text


@dataclass(frozen=True, slots=True)
class Returned:
    """A function came to its end."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A function raised an error."""

    error: BaseException
    stack: str

    def reraise(self) -> NoReturn:
        """Raise the error here, with where it came from as its cause."""
        raise self.error from FromProcess(self.stack)


class FromProcess(Exception):
    """Carries the stack of an error from the process it was raised in."""

    def __str__(self) -> str:
        return f"in a process of its own:\n{self.args[0]}"


class Unsendable(ElasticJobError):
    """What a function returned or raised in a process of its own cannot be brought back from there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The offsets of a run as they were when it began."""

    offsets: Mapping[int, str | None]

    def get(self, item: int) -> str | None:
        """Return the offset last saved, None if there is none."""
        return self.offsets.get(item)

    async def save(self, item: int, value: str) -> None:
        """Refuse: the session is in another process."""
        raise InvalidSetting("executor", "process", "offsets are saved where the session is: use executor = 'thread'")


class _Sender(QueueHandler):
    """Sends log records as they are but for what cannot be: the caller's objects, and the frames of a traceback."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with its message and its traceback as text, once each."""
        record.msg, record.args = record.getMessage(), None
        if record.exc_info:
            record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record


class _ResultPipe:
    """The way back, shared by what the function logs in its threads and what it returns."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def put_nowait(self, message: object) -> None:
        """Send a message; the name is what logging's handler calls."""
        with self._lock:
            self._connection.send(message)

    def answer(self, pickled: bytes) -> None:
        """Send what a function came to."""
        with self._lock:
            self._connection.send_bytes(pickled)


def serve(connection: Connection, levels: Mapping[str, int]) -> None:
    """Run one function after the other until there is nobody to run them for.

    Messages are pickles: ``(function, arguments, named arguments)`` in, log records and at last an answer out.
    """
    _stand_alone()
    line = _ResultPipe(connection)
    logging.getLogger().addHandler(_Sender(line))  # type: ignore[arg-type]  # it puts and does nothing else
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    with suppress(EOFError, OSError):
        while True:
            request = connection.recv_bytes()
            line.answer(_answer(request))


def _stand_alone() -> None:
    """Leave the signals of a terminal or an init system to the parent, but end when it does, with all begun here."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs started here would inherit
    own_group = False
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)
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
    """Call a function and return what it came to, as it is sent; whatever is raised on the way ends no process."""
    answer: Returned | Raised
    try:
        function, arguments, named = pickle.loads(request)
        answer = Returned(function(*arguments, **named))
    except BaseException as error:
        answer = _raised(error)
    try:
        return bytes(ForkingPickler.dumps(answer))
    except BaseException as error:
        return pickle.dumps(_raised(Unsendable(f"the result cannot be pickled: {error_text(error)}")))


def _raised(error: BaseException) -> Raised:
    stack = "".join(traceback.format_exception(error)).rstrip()
    try:
        if not isinstance(error, Exception | SystemExit):
            raise TypeError("would end more than the run")
        pickle.loads(pickle.dumps(error))  # some can be made with their own arguments only
    except BaseException:  # whatever its own way to be pickled raises
        error = Unsendable(error_text(error))
    return Raised(error.with_traceback(None), stack)
