"""Script jobs: each run executes a command line, logs its output, and takes its exit code as the outcome.

All processes that the script has started are ended with the run.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated

from anyio import CancelScope, create_task_group, current_time, wait_readable
from pydantic import BeforeValidator, Field, field_validator, model_validator

from aioelasticjob.config.types import DURATION
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.credentials import SECRET
from aioelasticjob.host.guard import Start, until_this_process_ends
from aioelasticjob.jobs.context import AnyContext, ItemContext, described, run_lease, run_limited_log
from aioelasticjob.jobs.kinds import Kind, Options
from aioelasticjob.jobs.process_group import gone
from aioelasticjob.jobs.shell_signs import command_words, shell_sign
from aioelasticjob.jobs.start_errors import start_error
from aioelasticjob.logging import logger, output_line

CONTEXT_VARIABLE = "AIOELASTICJOB_CONTEXT"
"""The variable that holds the whole context as JSON."""
MAX_LINE_CHARACTERS = 8_192
"""Characters of output that make one line of the log; a longer line is logged in pieces."""
STDERR_LINES_QUOTED = 5
"""Lines of stderr that a failure quotes."""
READ_BYTES = 16_384
"""Bytes read before other tasks have their turn: a script that writes without end does not block the event loop."""
OUTPUT_TIMEOUT = 1.0
"""Seconds that the output may stay open after the script's group has ended: its holder has left the group."""
SELF_EXIT_TIME = 0.1
"""Seconds that processes started by the script have, after its end, to end by themselves."""
KILL_TIMEOUT = 5.0
"""Seconds that a process may take to end after SIGKILL."""
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "python", "perl", "ruby")
"""Programs whose first argument is a file to run, unless it is an option."""

log = logger(__name__)


class ScriptFailed(ElasticJobError):
    """A script could not be started, or ended with an exit code that means failure."""

    explains_itself = True

    def __init__(self, reason: str, exit_code: int | None = None) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        """The exit code; the negative number of a signal if that ended the script; None if it was never started."""


class ScriptStillRuns(ScriptFailed):
    """Processes of a script cannot be killed, so the script is not started again in this run."""

    is_final = True


class Script(Options):
    """The settings that only script jobs have."""

    # after a change of settings or of texts below them: python -m tests.generate
    command: Annotated[str | list[str], BeforeValidator(command_words)]
    """The program and its arguments, as a list or a string. A string is split into arguments as a shell would do it,
    without any other expansion: no shell is used."""
    shell: bool = False
    """Give the string to `/bin/sh` as it is."""
    pass_context: bool = True
    """Append the context as JSON, as the last argument (`$1` with `shell`). The environment has it in any case."""
    directory: str | None = None
    """The directory in which the script runs; `None` is the current directory of the process."""
    environment: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Environment variables that are added to those of the process."""
    exit_codes: list[Annotated[int, Field(ge=0, le=255)]] = Field(default=[0], min_length=1)
    """The exit codes that mean success."""
    encoding: str = "utf-8"
    """The encoding of its output; invalid bytes become U+FFFD."""
    grace: Annotated[float, Field(ge=0, le=60), DURATION] = 2
    """Seconds between SIGTERM and SIGKILL when the run is cut off; fewer if the session may end before that."""

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str) -> str:
        try:
            b"YQ==".decode(encoding, "replace")  # encodings such as base64 do not decode to text
            codecs.getincrementaldecoder(encoding)
        except (LookupError, ValueError):
            raise ValueError("must be an encoding such as utf-8, latin-1 or gb18030") from None
        return encoding

    @field_validator("environment")
    @classmethod
    def _are_variables(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} is no name of a variable, or its value has a NUL in it")
        return environment

    @model_validator(mode="after")
    def _can_be_a_command(self) -> Script:
        if self.shell and not isinstance(self.command, str):
            raise InvalidSetting("command", self.command, "must be one string when shell = True")
        try:
            words = self.words
        except ValueError as error:  # raised by shlex
            raise InvalidSetting("command", self.command, f"cannot be split: {error}; or write a list") from None
        if not words or not words[0].strip():
            raise InvalidSetting("command", self.command, "must name a program")
        if any("\0" in word for word in words):
            raise InvalidSetting("command", self.command, "must have no NUL in it")
        return self

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The command as the operating system takes it, without the context."""
        if isinstance(self.command, list):
            return tuple(self.command)
        if self.shell:
            if not self.command.strip():
                return ()
            return ("/bin/sh", "-c", self.command, "script")
        return tuple(shlex.split(self.command))


def check(options: Script) -> None:
    """Check that the script exists on this host.

    Raises:
        InvalidSetting: it is not, or cannot be executed.
    """
    if os.name != "posix":
        raise InvalidSetting("kind", "script", "needs a system with process groups, such as Linux or macOS")
    if not options.shell and isinstance(options.command, str):
        sign = shell_sign(options.command)
        if sign is not None:
            wrong = f"without a shell, {sign!r} is an argument: set shell = True"
            raise InvalidSetting("command", options.command, wrong)
    place = Path(options.directory or ".")
    if not place.is_dir():
        raise InvalidSetting("directory", options.directory, "is no directory on this host")
    program, *arguments = options.words
    is_path = "/" in program
    path = place / program if is_path else _on_the_path(program, options)
    if path is None or not path.exists():
        where = "" if is_path else f" on the PATH; a file beside you is written ./{program}"
        raise InvalidSetting("command", options.command, f"there is no program {program!r}{where}")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise InvalidSetting("command", options.command, f"{str(path)!r} cannot be executed: chmod +x it")
    is_shell = path.name.rstrip("0123456789.") in _SHELLS
    if is_shell and arguments and not options.shell:
        script = arguments[0]
        if not script.startswith("-") and not (place / script).exists():
            raise InvalidSetting("command", options.command, f"there is no file {script!r} for {program} to run")


async def run(context: AnyContext, options: Script) -> None:
    """Run the script once.

    Raises:
        ScriptFailed: it could not be started, or its exit code means failure.
    """
    description = described(context)
    last_words = deque[str](maxlen=STDERR_LINES_QUOTED)
    words = options.words
    if options.pass_context:
        words = (*words, description)
    variables = {**_variables(context), CONTEXT_VARIABLE: description}
    has_ended = True
    try:
        with _pipe() as (out, out_end), _pipe() as (err, err_end):
            async with _guarded() as start:
                process = await _start(words, options, {**variables, **start.variables}, out_end, err_end)
                start.leads(process.pid)
                out_end.close()
                err_end.close()
                logged = CancelScope(shield=True)  # output that it writes while it is being ended is logged, too
                async with create_task_group() as tasks:
                    tasks.start_soon(_log_both, context, options.encoding, out, err, last_words, logged)
                    try:
                        await process.wait()
                    finally:
                        with CancelScope(shield=True):
                            has_ended = await _end(process, options.grace, context.job_name)
                        logged.deadline = current_time() + OUTPUT_TIMEOUT
    finally:
        if not has_ended:  # also if the run was cancelled: then this error is its outcome
            raise ScriptStillRuns("\n".join(["the script could not be killed", *last_words]))
    _judge(process.returncode, options, last_words)


def _variables(context: AnyContext) -> Mapping[str, str]:
    """Return environment variables for shell scripts, which cannot parse JSON easily."""
    variables = {
        "JOB_NAME": context.job_name,
        "TASK_ID": context.task_id,
        "JOB_PARAMETER": context.job_parameter,
        "FIRE_TIME": context.fire_time.isoformat(),
        "SOURCE": context.source.value,
        "ATTEMPT": str(context.attempt),
        "ITEMS": ",".join(map(str, context.claimed)),
    }
    if isinstance(context, ItemContext):
        variables["ITEM"] = str(context.item)
        variables["PARAMETER"] = context.parameter or ""
        variables["FENCE"] = str(context.fence)
    return {f"AIOELASTICJOB_{name}": value.replace("\0", "") for name, value in variables.items()}


def _guarded() -> AbstractAsyncContextManager[Start]:
    """Have the script ended when the session of the run may end, and when this process ends."""
    claimed = run_lease.get()
    return until_this_process_ends() if claimed is None else claimed.starting()


async def _start(
    words: tuple[str, ...], options: Script, variables: Mapping[str, str], out: IO[bytes], err: IO[bytes]
) -> asyncio.subprocess.Process:
    """Start the program as the leader of a group of its own.

    The pipes are ours, not asyncio's: its ``wait`` would also wait for every process that holds their other end.
    """
    environment = {**os.environ, **options.environment, **variables}
    try:
        # not cancelled here: a program that was started must be known, so that it can be ended
        with CancelScope(shield=True):
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=options.directory,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise ScriptFailed(start_error(error, words, environment, variables[CONTEXT_VARIABLE])) from error
    return process


async def _log_both(
    context: AnyContext, encoding: str, out: IO[bytes], err: IO[bytes], last_words: deque[str], scope: CancelScope
) -> None:
    no_words = deque[str](maxlen=0)
    with scope:
        async with create_task_group() as tasks:
            tasks.start_soon(_log_lines, context, logging.INFO, "stdout", _lines(out, encoding), no_words)
            tasks.start_soon(_log_lines, context, logging.WARNING, "stderr", _lines(err, encoding), last_words)


async def _log_lines(
    context: AnyContext, level: int, stream: str, lines: AsyncIterator[str], last_words: deque[str]
) -> None:
    async for line in lines:
        said = output_line(line)
        last_words.append(said.shown)
        context.log.log(level, "%s", said, extra={"stream": stream})


async def _lines(source: IO[bytes], encoding: str) -> AsyncIterator[str]:
    """Yield a stream's lines, very long ones in pieces; the last line may lack its newline."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = ""
    while data := await _read(source):
        *whole, rest = (rest + decoder.decode(data)).split("\n")
        for line in whole:
            for piece in _pieces(line.removesuffix("\r")):
                yield piece
        *pieces, rest = _pieces(rest)
        for piece in pieces:
            yield piece
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


async def _read(source: IO[bytes]) -> bytes:
    """Return what can be read from a pipe, as soon as there is something; nothing at its end.

    The pipe is not given to the loop as a transport: uvloop closes its descriptor twice.  Between the two, another
    thread may have opened a file that got the same number, and the second close would close that file.
    """
    os.set_blocking(source.fileno(), False)
    while True:
        await wait_readable(source)
        with suppress(BlockingIOError):
            return os.read(source.fileno(), READ_BYTES)


def _pieces(line: str) -> Iterator[str]:
    """Yield a line in pieces; each state of one that overwrites itself stays whole, unless it is very long itself."""
    while len(line) > MAX_LINE_CHARACTERS:
        end = line.rfind("\r", 0, MAX_LINE_CHARACTERS) + 1
        if not end:  # there is no carriage return
            end = MAX_LINE_CHARACTERS
        yield line[:end]
        line = line[end:]
    yield line


async def _end(process: asyncio.subprocess.Process, grace: float, job: str) -> bool:
    """End the whole group, so that nothing of the script runs after its attempt; False if that is impossible."""
    group = process.pid
    if process.returncode is not None:
        if await gone(group, SELF_EXIT_TIME):
            return True
        text = "a script has ended; the processes that it left are ended too"
        if _admits(job, text):
            log.warning("%s: %s: group %d", job, text, group, extra={"job": job, "group": group})
    claimed = run_lease.get()
    _signal(group, signal.SIGTERM)
    has_ended = await gone(group, grace, claimed)
    if not has_ended:
        _signal(group, signal.SIGKILL)
        has_ended = await gone(group, KILL_TIMEOUT)
    if not has_ended:
        text = "the processes of a script cannot be killed"
        if _admits(job, text):
            log.error("%s: %s: group %d", job, text, group, extra={"job": job, "group": group})
        return False
    await process.wait()
    return True


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _admits(job: str, text: str) -> bool:
    limited_log = run_limited_log.get()
    return limited_log is None or limited_log.admits(log, job, text)


def _judge(code: int | None, options: Script, last_words: deque[str]) -> None:
    if code in options.exit_codes:
        return
    if code is not None and code < 0:
        reason = f"the script was ended by {_signal_name(-code)}"
    else:
        reason = f"the script ended with exit code {code}"
    raise ScriptFailed("\n".join([reason, *last_words]), code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _on_the_path(program: str, options: Script) -> Path | None:
    found = shutil.which(program, path=options.environment.get("PATH"))
    return None if found is None else Path(found)


@contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as source, open(writing, "wb", buffering=0) as end:
        yield source, end


KIND = Kind(Script, run, check)
