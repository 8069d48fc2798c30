"""Plain functions for processes of their own: this module is imported there, so it imports little."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.processes import TIMEOUT

log = logging.getLogger("tests.plain")


class Awkward(Exception):
    """Cannot be made again from its own arguments, and so not be sent."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Panic(BaseException):
    """What a Rust extension raises."""


class Spiteful(Exception):
    """Raises what is no Exception when it is to be sent, or printed."""

    def __str__(self) -> str:
        raise Panic("not me")

    def __reduce__(self) -> tuple[object, ...]:
        raise Panic("not me")


def pid(*given: object) -> int:
    return os.getpid()


def fork(*_: object) -> int | str:
    """Return the exit code of a fork that returns from here as well."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(20)  # a fork that goes on ends after all
    return "I am the fork"


def fork_that_logs(text: str) -> int:
    """Have a fork log, and return its exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    log.warning(text)
    os._exit(0)


def meet(directory: Path, number: int) -> int:
    """Come to the meeting and wait until so many are there."""
    (directory / str(os.getpid())).touch()
    deadline = time.monotonic() + TIMEOUT
    while len(list(directory.iterdir())) < number:
        assert time.monotonic() < deadline, "nobody comes"
        time.sleep(0.01)
    return os.getpid()


def alone(_: object, directory: Path) -> None:
    """Fail unless nobody else is here meanwhile."""
    with (directory / "here").open("x"):
        time.sleep(0.05)
    (directory / "here").unlink()


def hang(path: Path) -> None:
    """Start a program, write down our pid and its, and wait for ever."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    written = path.with_suffix(".new")
    written.write_text(f"{os.getpid()} {program.pid}")
    written.rename(path)
    time.sleep(600)


def hang_at(context: Any) -> None:
    """Hang, as a job's handler."""
    hang(Path(context.job_parameter))


def withstand(*signals: int) -> str:
    """Take signals that are meant for the whole group."""
    for number in signals:
        os.kill(os.getpid(), number)
    return "still here"


def fail(how: str) -> object:
    match how:
        case "error":
            raise ValueError("bad record")
        case "exit":
            sys.exit(3)
        case "panic":
            raise Panic("index out of bounds")
        case "spiteful":
            raise Spiteful
        case "spiteful result":
            return Spiteful()
        case "awkward":
            raise Awkward(1, 2)
        case "interrupt":
            raise KeyboardInterrupt
        case "vanish":
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "unsendable":
            return lambda: None
    return how


def speak(*given: object) -> None:
    log.debug("not wanted")
    try:
        raise ValueError("bad record")
    except ValueError:
        log.warning("said %d times", 2, extra={"files": 3}, exc_info=True)
    logging.getLogger("tests.chatty").debug("wanted")


def look(context: Any) -> dict[str, object]:
    context.log.warning("looking")
    return {"fence": context.fence, "offset": context.offset, "task_id": context.task_id, "at": context.fire_time}


def offsets(context: Any) -> dict[int, str]:
    return dict(context.offsets)


def save(context: Any) -> None:
    context.save_offset("7")


def write(context: Any, name: str) -> None:
    """Write down in a file who we are, as a job's handler that is given a name."""
    with Path(context.job_parameter).open("a") as file:
        file.write(f"{context.item} {os.getpid()} {name}\n")


def hang_once(context: Any) -> None:
    """Note our pid, and whether the process of the attempt before is still there; the first one that notes hangs."""
    noted = Path(context.job_parameter)
    before = noted.read_text().split() if noted.exists() else []
    with noted.open("a") as file:
        file.write(f"{os.getpid()} {'alone' if not before or not Path(f'/proc/{before[-2]}').exists() else 'beside'}\n")
    if not before:
        time.sleep(TIMEOUT)
