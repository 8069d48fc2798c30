"""Scripts as they are run: real processes, most of them gone within milliseconds."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from errno import EAGAIN, EIO, ENOMEM, ENOTDIR
from pathlib import Path
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, InvalidSetting, ItemContext, Outcome
from aioelasticjob.engine import cancellation
from aioelasticjob.events import Ended
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.host.guard import Start, until_this_process_ends
from aioelasticjob.jobs import script
from aioelasticjob.jobs.context import run_lease, run_limited_log
from aioelasticjob.jobs.script import Script, ScriptFailed, check, run
from aioelasticjob.jobs.start_errors import start_error
from aioelasticjob.logging import JsonFormatter, TextFormatter
from tests.support.contexts import of_instance, of_item
from tests.support.loops import LoopKind, run_async
from tests.support.processes import ROOT, Workers

Lines = list[tuple[str, str, str]]
"""Level, stream and text of each line that was logged."""


def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return [
        (record.levelname, record.__dict__["stream"], record.getMessage())
        for record in caplog.records
        if record.name == "aioelasticjob.job"
    ]


def printed(caplog: pytest.LogCaptureFixture, stream: str = "stdout") -> list[str]:
    return [text for _, given, text in lines(caplog) if given == stream]


@pytest.fixture
def ran(real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Runs a script once, on each kind of loop."""
    caplog.set_level(logging.INFO)

    def ran(context: ItemContext | InstanceContext | None = None, **options: Any) -> None:
        run_async(real_loop_kind, lambda: run(context or of_item(), Script.model_validate(options)))

    return ran


def shell(text: str) -> dict[str, Any]:
    return {"command": text, "shell": True}


def test_each_line_is_a_line_of_the_log_and_carries_the_run(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(**shell("echo one; echo; printf 'two\\r\\nthree'; echo bad >&2"))
    assert sorted(lines(caplog)) == [
        ("INFO", "stdout", ""),
        ("INFO", "stdout", "one"),
        ("INFO", "stdout", "three"),
        ("INFO", "stdout", "two"),
        ("WARNING", "stderr", "bad"),
    ]
    assert printed(caplog) == ["one", "", "two", "three"]
    assert {(record.__dict__["job"], record.__dict__["item"]) for record in caplog.records} == {("backup", 4)}


def test_output_that_is_no_utf8_costs_a_character_and_not_the_run(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(**shell(r"printf 'a\377b\n\303'; printf '\344' >&2"))
    assert printed(caplog) == ["a�b", "�"]
    assert printed(caplog, "stderr") == ["�"]
    caplog.clear()
    ran(**shell(r"printf '\344\366\374'"), encoding="latin-1")
    assert printed(caplog) == ["äöü"]


def test_a_line_without_end_is_logged_in_pieces(ran: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    ran(command=[sys.executable, "-c", "print('x' * 100_000); print('end')"])
    *pieces, end = printed(caplog)
    assert max(map(len, pieces)) == script.MAX_LINE_CHARACTERS
    assert "".join(pieces) == "x" * 100_000
    assert end == "end"


def test_control_characters_are_shown_by_logs_for_people_and_kept_by_logs_for_programs(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(**shell(r"printf '\033[31mred\033[0m\0end\n'; printf '\233H' >&2"), encoding="latin-1")
    assert printed(caplog) == ["␛[31mred␛[0m␀end"]
    assert printed(caplog, "stderr") == ["\N{REPLACEMENT CHARACTER}H"]
    for record, raw in zip(caplog.records, ["\x1b[31mred\x1b[0m\0end", "\x9bH"], strict=True):
        assert TextFormatter().format(record).isprintable()
        assert json.loads(JsonFormatter().format(record))["message"] == raw


def test_of_a_line_that_overwrites_itself_logs_for_people_have_the_last_state(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(**shell(r"printf ' 10%%\r 50%%\r100%%\r\ndone\r\n\r\n'"))
    assert printed(caplog) == ["100%", "done", ""]
    (first, *_) = caplog.records
    assert " 100%  job=" in TextFormatter().format(first)
    assert json.loads(JsonFormatter().format(first))["message"] == " 10%\r 50%\r100%"


def test_a_progress_bar_without_line_ends_is_logged_in_whole_states(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(command=[sys.executable, "-c", "for n in range(10_000): print(f'{n:6} of 10000', end='\\r')"])
    states = printed(caplog)
    assert [state for state in states if len(state) != len("     0 of 10000")] == []
    assert states[-1] == "  9999 of 10000"
    messages = [json.loads(JsonFormatter().format(record))["message"] for record in caplog.records]
    assert max(map(len, messages)) <= script.MAX_LINE_CHARACTERS
    assert "".join(messages) == "".join(f"{n:6} of 10000\r" for n in range(10_000))


def test_the_last_words_of_a_failure_control_no_terminal(ran: Callable[..., None]) -> None:
    with pytest.raises(ScriptFailed) as caught:
        ran(**shell(r"printf ' 10%%\r 20%%\n\033[31merror\033[0m\n' >&2; exit 3"))
    assert str(caught.value).splitlines() == ["the script ended with exit code 3", " 20%", "␛[31merror␛[0m"]


READER = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def test_arguments_and_environment_carry_the_context(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(command=[sys.executable, "-c", READER, "--full"], environment={"PORT": 8080})
    arguments, environment = json.loads("".join(printed(caplog)))
    context = json.loads(environment["AIOELASTICJOB_CONTEXT"])
    assert arguments[0] == "--full"
    assert json.loads(arguments[1]) == context
    assert context == {
        "jobName": "backup",
        "runId": "backup@20251120T100000Z",
        "taskId": "backup@-@4@-@READY@-@10.0.0.5@-@4711-ab@-@20251120T100000Z.11",
        "instance": "10.0.0.5@-@4711-ab",
        "shardingTotalCount": 6,
        "jobParameter": "nightly",
        "fireTime": "2025-11-20T10:00:00+00:00",
        "source": "SCHEDULE",
        "attempt": 1,
        "shardingItem": 4,
        "shardingParameter": "Beijing",
        "fence": 17,
        "offset": "offset 4",
    }
    assert environment["PORT"] == "8080"
    assert environment["PATH"] == os.environ["PATH"]
    given = {name.removeprefix("AIOELASTICJOB_"): value for name, value in environment.items()}
    assert (given["ITEM"], given["PARAMETER"], given["FENCE"], given["ITEMS"]) == ("4", "Beijing", "17", "4")
    assert (given["JOB_NAME"], given["JOB_PARAMETER"], given["SOURCE"]) == ("backup", "nightly", "SCHEDULE")
    assert given["ATTEMPT"] == "1"


def test_one_call_for_all_items_is_told_of_them(ran: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    ran(of_instance(), **shell('echo "$1"; echo "$AIOELASTICJOB_ITEMS ${AIOELASTICJOB_ITEM-none}"'))
    context, items = printed(caplog)
    assert items == "0,1 none"
    assert {name: json.loads(context)[name] for name in ("shardingItems", "shardingItemParameters", "offsets")} == {
        "shardingItems": [0, 1],
        "shardingItemParameters": {"0": "city 0", "1": "city 1"},
        "offsets": {"0": "offset 0", "1": "offset 1"},
    }


def test_the_context_is_no_argument_where_none_is_wanted(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(command='printf "%s|" "a b" c', pass_context=False)
    assert printed(caplog) == ["a b|c|"]


def test_a_string_is_no_shells_unless_asked(ran: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    ran(command="echo $HOME; echo *", pass_context=False)
    assert printed(caplog) == ["$HOME; echo *"]


def test_it_runs_where_it_is_told_to(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    program = tmp_path / "where.sh"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    options = {"command": "./where.sh", "directory": str(tmp_path)}
    check(Script.model_validate(options))
    ran(**options)
    assert printed(caplog) == [str(tmp_path)]


def test_the_exit_code_is_the_outcome_and_the_last_words_are_quoted(ran: Callable[..., None]) -> None:
    with pytest.raises(ScriptFailed) as caught:
        ran(**shell("for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 3"))
    assert caught.value.exit_code == 3
    assert str(caught.value).splitlines() == ["the script ended with exit code 3", *(f"line {n}" for n in range(3, 8))]
    with pytest.raises(ScriptFailed, match="was ended by SIGKILL"):
        ran(**shell("kill -9 $$"))
    ran(**shell("exit 24"), exit_codes=[0, 24])
    with pytest.raises(ScriptFailed, match="exit code 0"):
        ran(command="true", exit_codes=[1])


@pytest.mark.parametrize(
    ("command", "sign"),
    [("ls | wc -l", "|"), ("true && false", "&&"), ("echo a; echo b", ";"), ("ls >out", ">"), ("ls 2>&1", "2>&1")],
)
def test_what_only_a_shell_acts_upon_is_refused_without_one(command: str, sign: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"without a shell, {sign!r} is an argument")):
        check(Script(command=command))
    check(Script(command=command, shell=True))
    check(Script(command=["echo", command]))


@pytest.mark.parametrize(
    "command", ["echo 'a | b'", 'echo "a; \\" b"', "echo http://host/?a=1&b=2", r"echo \| b", "echo it\\'s 'a|b'"]
)
def test_a_sign_that_is_an_argument_is_no_mistake(command: str) -> None:
    check(Script(command=command))


def broken(directory: Path) -> dict[str, Path]:
    texts = {"no_interpreter": "#!/no/such/interpreter\n", "no_first_line": "echo hello\n"}
    paths = {name: directory / name for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
        path.chmod(0o755)
    return paths


def test_what_cannot_be_started_says_why(
    ran: Callable[..., None], tmp_path: Path, real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture
) -> None:
    paths = broken(tmp_path)
    for command, says in (
        (str(paths["no_interpreter"]), "No such file.*interpreter in the script's first line does not exist"),
        (str(tmp_path / "gone"), "No such file"),
        (str(tmp_path), "Permission denied"),
    ):
        with pytest.raises(ScriptFailed, match=says) as caught:
            ran(command=[command])
        assert caught.value.exit_code is None
    if real_loop_kind == "uvloop":  # takes it for a shell's, as shells do
        ran(command=[str(paths["no_first_line"])])
        assert printed(caplog) == ["hello"]
    else:
        with pytest.raises(ScriptFailed, match=r"begins with a line like #!/bin/sh"):
            ran(command=[str(paths["no_first_line"])])


def test_a_context_that_no_argument_can_hold_says_so(ran: Callable[..., None]) -> None:
    with pytest.raises(ScriptFailed, match=r'Argument list too long .the context has .*per="item"') as caught:
        ran(of_instance(20_000), command="true")
    assert "#!" not in str(caught.value)


def test_a_job_parameter_or_an_argument_that_is_too_large_is_named(ran: Callable[..., None]) -> None:
    with pytest.raises(ScriptFailed) as caught:
        ran(replace(of_item(), job_parameter="x" * 200_000), command="true", pass_context=False)
    said = str(caught.value)
    assert re.search(
        r"the context has 200,\d{3} bytes, and 200,002 of them are jobParameter: write a file's name", said
    )
    assert "#!" not in said
    for options in ({"command": ["true", "x" * 150_000]}, {"command": "true", "environment": {"ROWS": "x" * 150_000}}):
        with pytest.raises(ScriptFailed) as caught:
            ran(**options)
        where = "the environment variable ROWS" if "environment" in options else "argument 1"
        assert f"Argument list too long ({where} has 150,000 bytes; Linux takes 131,072" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "says"),
    [(EAGAIN, "as many processes as it may have"), (ENOMEM, "too little memory"), (ENOTDIR, "is a file and no")],
)
def test_a_lack_of_the_host_is_not_blamed_on_the_first_line_of_the_script(number: int, says: str) -> None:
    said = start_error(OSError(number, os.strerror(number)), ["backup"], {}, "{}")
    assert said.startswith(f"cannot start 'backup': {os.strerror(number)} (")
    assert says in said
    assert start_error(OSError(EIO, ""), ["backup"], {}, "{}") == f"cannot start 'backup': {os.strerror(EIO)}"


@pytest.mark.parametrize(
    ("options", "setting", "says"),
    [
        ({"command": "no-such-program --full"}, "command", r"no program 'no-such-program' on the PATH.*\./no-such"),
        ({"command": "./backup.sh"}, "command", "no program './backup.sh'"),
        ({"command": "python3 backup.py"}, "command", "no file 'backup.py' for python3 to run"),
        ({"command": ["sh", "backup.sh"]}, "command", "no file 'backup.sh' for sh"),
        ({"command": "/etc/passwd"}, "command", r"cannot be executed: chmod \+x"),
        ({"command": "/tmp"}, "command", "cannot be executed"),
        ({"command": "true", "directory": "/no/such/place"}, "directory", "is no directory"),
        ({"command": "echo 'a"}, "command", "No closing quotation"),
        ({"command": "  "}, "command", "must name a program"),
        ({"command": []}, "command", "must name a program"),
        ({"command": ["echo", True]}, "command", "a list of strings"),
        ({"command": ["echo", "\0"]}, "command", "NUL"),
        ({"command": ["echo"], "shell": True}, "command", "one string when shell"),
        ({"command": "true", "encoding": "klingon"}, "encoding", "such as utf-8"),
        ({"command": "true", "encoding": "base64"}, "encoding", "such as utf-8"),
        ({"command": "true", "exit_codes": [256]}, "exit_codes.0", "less than or equal to 255"),
        ({"command": "true", "exit_codes": []}, "exit_codes", "at least 1"),
        ({"command": "true", "environment": {"A=B": "c"}}, "environment", "is no name of a variable"),
        ({"command": "true", "grace": -1}, "grace", "greater than or equal to 0"),
        ({"comand": "true", "command": "true"}, "comand", "did you mean command"),
        ({"command": "true", "crom": "@daily"}, "crom", "did you mean cron"),
        ({"command": "true", "options": {}}, "options", "by its own name"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_when_it_is_declared(
    options: dict[str, Any], setting: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match=says) as caught:
        ElasticJob("embedded://").kind("script", "backup", **options)
    assert caught.value.setting == setting


async def wait_for(path: Path) -> str:
    """Return what a script has written into a file, once it has."""
    with anyio.fail_after(90):
        while not (path.exists() and path.read_text().endswith("\n")):
            await anyio.sleep(0.01)
    return path.read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the second one if it ends between opening and reading
        return False


async def cut(options: dict[str, Any], until: Callable[[], Awaitable[object]]) -> None:
    """Run a script and cancel the run at some moment."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, of_item(), Script.model_validate(options))
        await until()
        tasks.cancel_scope.cancel()


def test_a_cancelled_run_takes_children_and_grandchildren_with_it(
    real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    family = tmp_path / "family"
    program = f"""
        trap 'echo ending; exit 0' TERM
        sh -c 'sleep 1000 & echo $! $$ >{family}.part; mv {family}.part {family}; wait' &
        while :; do sleep 0.02; done
    """
    run_async(real_loop_kind, lambda: cut(shell(program), lambda: wait_for(family)))
    pids = [int(pid) for pid in family.read_text().split()]
    assert len(pids) == 2
    assert not any(map(alive, pids))
    assert printed(caplog) == ["ending"], "what it says while it is being ended is logged"


def test_who_does_not_listen_is_killed_after_its_grace(real_loop_kind: LoopKind, tmp_path: Path) -> None:
    family = tmp_path / "family"
    program = f"trap '' TERM; echo $$ >{family}.part; mv {family}.part {family}; while :; do sleep 0.05; done"

    async def main() -> float:
        async def there() -> None:
            nonlocal began
            await wait_for(family)
            began = anyio.current_time()

        began = 0.0
        await cut({**shell(program), "grace": 0.2}, there)
        return anyio.current_time() - began

    took = run_async(real_loop_kind, main)
    assert not alive(int(family.read_text()))
    assert took >= 0.2


@dataclass
class Lasting:
    """A session that is certain to live for so many looks at it, and no more."""

    looks: int
    margin: float = 2.0

    @property
    def left(self) -> float:
        self.looks -= 1
        return 60.0 if self.looks >= 0 else 0.1

    def starting(self) -> AbstractAsyncContextManager[Start]:
        return until_this_process_ends()


@pytest.mark.parametrize("looks", [0, 3])
def test_a_script_is_killed_before_its_session_may_have_ended_whatever_its_grace(
    real_loop_kind: LoopKind, tmp_path: Path, looks: int
) -> None:
    family = tmp_path / "family"
    program = f"trap '' TERM; echo $$ >{family}.part; mv {family}.part {family}; while :; do sleep 0.05; done"

    async def main() -> None:
        async def there() -> None:
            nonlocal began
            await wait_for(family)
            began = anyio.current_time()

        began = 0.0
        run_lease.set(Lasting(looks))
        await cut({**shell(program), "grace": 60}, there)
        assert anyio.current_time() - began < 60

    run_async(real_loop_kind, main)
    assert not alive(int(family.read_text()))


def test_a_script_whose_session_lives_has_the_grace_that_is_configured(
    real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    family = tmp_path / "family"
    program = f"""
        trap 'sleep 0.3; echo ended by itself; exit 0' TERM
        echo $$ >{family}.part; mv {family}.part {family}; while :; do sleep 0.02; done
    """

    async def main() -> None:
        run_lease.set(Lasting(10_000, margin=0.1))
        await cut({**shell(program), "grace": 60}, lambda: wait_for(family))

    caplog.set_level(logging.INFO)
    run_async(real_loop_kind, main)
    assert printed(caplog) == ["ended by itself"]


def test_what_a_script_leaves_running_is_ended_with_it(
    ran: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    ran(**shell("sleep 1000 & echo $!"))
    (pid,) = printed(caplog)
    assert not alive(int(pid))
    assert any("the processes that it left are ended" in record.getMessage() for record in caplog.records)


def test_a_script_that_leaves_something_running_each_time_has_one_line_about_it(
    real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        limited_log = LimitedLog()
        run_limited_log.set(limited_log)
        for _ in range(3):
            await run(of_item(), Script.model_validate(shell("sleep 1000 &")))
        limited_log.close()

    run_async(real_loop_kind, main)
    text = "a script has ended; the processes that it left are ended too"
    line, count = [line for line in caplog.messages if text in line]
    assert line.startswith(f"backup: {text}: group ")
    assert count == f"2 more lines were left out, about 1 job: {text}"


def test_a_script_that_writes_without_end_stops_nobody(
    real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> int:
        turns = 0

        async def others_have_their_turn() -> None:
            nonlocal turns
            while turns < 20:
                await anyio.sleep(0.001)
                turns += 1

        with anyio.fail_after(90):
            await cut({"command": "yes"}, others_have_their_turn)
        return turns

    caplog.set_level(logging.ERROR)
    assert run_async(real_loop_kind, main) == 20


async def first_outcome(**settings: Any) -> Outcome:
    """Run a script every second until its first run has ended, and return how."""
    app = ElasticJob("embedded://")
    app.script("slow", cron="* * * * * ?", sharding_quiet=0, **settings)
    with app.events() as events, anyio.fail_after(90):
        async with app.running():
            async for event in events:
                if isinstance(event, Ended):
                    return event.outcome
    raise AssertionError("it has not run")


def test_a_run_that_takes_too_long_times_out(real_loop_kind: LoopKind) -> None:
    async def main() -> Outcome:
        return await first_outcome(command="sleep 1000", pass_context=False, timeout=0.05)

    assert run_async(real_loop_kind, main) is Outcome.TIMED_OUT


def test_a_script_that_uses_its_grace_is_no_handler_that_swallows_its_cancellation(
    real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "UNHEEDED_AFTER", 0.01)
    caplog.set_level(logging.WARNING)

    async def main() -> Outcome:
        return await first_outcome(**shell("trap '' TERM; while :; do sleep 0.05; done"), timeout=0.3, grace=0.4)

    assert run_async(real_loop_kind, main) is Outcome.TIMED_OUT
    assert not [one for one in caplog.records if "after it was cancelled" in one.getMessage()]


@pytest.mark.process
def test_the_script_of_a_process_that_was_killed_is_ended_too(tmp_path: Path, worker_processes: Workers) -> None:
    family = tmp_path / "family"
    program = f"sleep 1000 & echo $! $$ >{family}; echo family; wait"
    (tmp_path / "user_jobs.py").write_text(
        "from aioelasticjob import ElasticJob\n"
        "app = ElasticJob('embedded://')\n"
        f"app.script('long', command={program!r}, shell=True, cron='* * * * * ?', grace=0)\n"
    )
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    worker = worker_processes.start("-m", "aioelasticjob", "run", "user_jobs:app", environment=paths)
    worker.wait_for_output("family")  # output is logged only after the guard knows of the script
    worker.kill()
    pids = [int(pid) for pid in family.read_text().split()]

    async def gone() -> None:
        with anyio.fail_after(90):
            while any(map(alive, pids)):
                await anyio.sleep(0.02)

    anyio.run(gone)


def test_the_end_of_a_stream_closes_nobody_elses_descriptor(real_loop_kind: LoopKind) -> None:
    async def read_to_the_end() -> None:
        with script._pipe() as (source, end):
            number = source.fileno()
            end.write(b"one\ntwo")
            end.close()
            assert [line async for line in script._lines(source, "utf-8")] == ["one", "two"]
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        assert number in others
        for _ in range(10):  # a loop may close what it has been given in one of its next rounds
            await asyncio.sleep(0)
        for other in others:
            os.close(other)

    run_async(real_loop_kind, read_to_the_end)
