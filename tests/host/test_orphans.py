"""Orphans, with real processes: process 1 waits for what others have started, and takes no status from anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pid_namespaces import start_as_process_1
from tests.support.processes import ROOT, Workers

pytestmark = pytest.mark.process

BEGIN = """
import asyncio, os, subprocess, sys
from pathlib import Path

from aioelasticjob import ElasticJob
from aioelasticjob.host import orphans
from aioelasticjob.jobs.script import Script, ScriptFailed, run
from aioelasticjob.engine.executors import Processes
from tests.support.contexts import of_item
from tests.support.loops import run_async

def children(state=None):
    "The children of this process in this state: their ids and names."
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (path / "stat").read_text().rpartition(")")
        except OSError:
            continue
        now, parent, *_ = rest.split()
        if parent == "1" and state in (None, now):
            found[int(path.name)] = head.partition("(")[2]
    return found

async def until(what):
    "Wait until something holds; the test has a time limit."
    while not what():
        await asyncio.sleep(0.02)

async def script(command, **options):
    await run(of_item(), Script(command=command, shell=True, pass_context=False, **options))
"""


def run_as_process_1(workers: Workers, program: str, *arguments: str) -> str:
    """Run a program as process 1 until it ends; return what it has written."""
    child = start_as_process_1(workers, "-c", BEGIN + program, *arguments, environment={"PYTHONPATH": str(ROOT)})
    code = child.wait()
    assert code == 0, child.output
    return child.output


SCRIPTS = """
def users_programs():
    "Run programs one after another, and note each wrong exit code."
    for number in range(100):
        code = subprocess.run(["sh", "-c", f"exit {number}"], start_new_session=number % 2 == 0).returncode
        if code != number:
            wrong.append((number, code))

async def users_async_programs():
    for number in range(20):
        started = await asyncio.create_subprocess_exec("sh", "-c", f"exit {number}", start_new_session=number % 2 == 0)
        if await started.wait() != number:
            wrong.append((number, started.returncode))

async def look():
    while True:
        orphans.orphans.collect()
        await asyncio.sleep(0)

async def main():
    looking = asyncio.create_task(look())
    beside = asyncio.create_task(asyncio.to_thread(users_programs))
    beside_async = asyncio.create_task(users_async_programs())
    for number in range(10):
        try:
            await script(f"sleep 100 & sh -c 'sleep 100 & sleep 100' & exit {number}", exit_codes=[number + 1])
        except ScriptFailed as failed:
            codes.append(failed.exit_code)
        try:
            async with asyncio.timeout(0.2):
                await script("sleep 100 & sh -c 'sleep 100; true'")
        except TimeoutError:
            pass
    await beside
    await beside_async
    looking.cancel()

wrong, codes = [], []
run_async(sys.argv[1], main)
assert wrong == [], wrong
assert codes == list(range(10)), codes
assert children("Z") == {}, children("Z")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_scripts_leave_behind_is_no_zombie_and_every_exit_status_reaches_who_waits_for_it(
    worker_processes: Workers, loop: str
) -> None:
    run_as_process_1(worker_processes, SCRIPTS, loop)


DAEMONS = """
app = ElasticJob("embedded://")

@app.job(cron="0 0 0 1 1 ?")
async def job(context):
    pass

async def main():
    os.chdir(sys.argv[2])
    os.mkfifo("ready")
    os.mkfifo("go")
    go = os.open("go", os.O_RDWR)
    lives_on = "sh -c 'echo > ready; read x < go' > /dev/null 2>&1"
    async with app.running(), asyncio.timeout(60):
        await script(f"setsid {lives_on} & read x < ready")
        await script(f'setsid sh -c "{lives_on} &" & read x < ready')
        processes = Processes(1)
        async with processes.open():
            await processes.call(subprocess.call, ["sh", "-c", f"{lives_on} & read x < ready"])
            left = [pid for pid, name in children().items() if name == "sh"]
            assert len(left) == 3, children()
            assert children("Z") == {}, children("Z")
            os.write(go, b"\\n" * 3)
            await until(lambda: not children().keys() & set(left))

orphans.LOOK_EVERY = 0.05
run_async(sys.argv[1], main)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_application_collects_what_ends_long_after_the_script_or_function_that_has_started_it(
    worker_processes: Workers, loop: str, tmp_path: Path
) -> None:
    """A program that has called setsid, a child of such a program, and one that a function has left in a process."""
    run_as_process_1(worker_processes, DAEMONS, loop, str(tmp_path))


NOT_ASKED_FOR = """
proc = subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=True)
direct = subprocess.Popen(["sh", "-c", "exit 8"])
os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOWAIT)
os.waitid(os.P_PID, direct.pid, os.WEXITED | os.WNOWAIT)
orphans.orphans.collect()
assert (proc.wait(), direct.wait()) == (7, 8), "a status was taken"
"""


def test_the_status_of_a_child_that_nobody_has_asked_for_yet_is_kept(worker_processes: Workers) -> None:
    run_as_process_1(worker_processes, NOT_ASKED_FOR)
