"""The signals that stop a process, and what they do before anybody waits for them.

It imports as little as possible, since each command, and the embedded server, imports it first.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop this process: SIGTERM, SIGINT, and SIGHUP if the system has it.

    A process that ignored SIGHUP from its start, as ``nohup`` has it, goes on ignoring it.
    """
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, hangup


def end_process_1_on_signals() -> None:
    """Let signals end this process if it is process 1, as the command of a container is: Linux would ignore them.

    This is what happens to every other process until its jobs, or its server, can stop gracefully.  Modules of jobs may
    take seconds to be imported, and ``docker stop`` would wait ten seconds, and kill the jobs that had been started.
    """
    if os.getpid() != 1:
        return
    for number in stopping_signals():
        if signal.getsignal(number) is signal.SIG_DFL:  # Python handles SIGINT: it raises KeyboardInterrupt
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it is closed, or the signal has interrupted a write
            stream.flush()
    os._exit(128 + number)
