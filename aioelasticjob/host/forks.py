"""Ends the forks of users' code that come back out of it: they share their parent's event loop and connections.

It imports as little as possible, since worker processes need it, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aioelasticjob.logging import logger

log = logger(__name__)


@contextmanager
def ending_forks(what: str) -> Iterator[None]:
    """End a process that the block has forked where it leaves the block, also in a thread."""
    pid = os.getpid()
    try:
        yield
    except BaseException as error:
        end_if_forked(pid, what, error)
        raise
    end_if_forked(pid, what)


def end_if_forked(pid: int, what: str, error: BaseException | None = None) -> None:
    """End this process if it is not the one that has called users' code, but a fork that the call has made."""
    if pid == os.getpid():
        return
    code = 1
    seen = set[int]()
    wanted = error
    while wanted is not None and not isinstance(wanted, SystemExit) and id(wanted) not in seen:
        seen.add(id(wanted))
        wanted = wanted.__context__  # a scope in the fork fails because no loop runs there
    try:
        if not isinstance(wanted, SystemExit):
            text = "%s forked, and the fork has to end itself, by os._exit(); it ends now"
            about = {"handler": what}
            log.error(text, what, exc_info=error, extra=about)
        elif wanted.code is None or isinstance(wanted.code, int):
            code = wanted.code or 0
        else:
            print(wanted.code, file=sys.stderr)  # as Python does at the end of a process
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it may be closed
                stream.flush()
    finally:
        os._exit(code & 0xFF)  # also if the text cannot be written
