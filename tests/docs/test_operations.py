"""What the how-to pages tell operators to type into ZooKeeper's shell is typed into it, while the job runs."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from aioelasticjob import ElasticJob, FireSource, ItemContext, operations
from aioelasticjob.clock import SystemClock
from aioelasticjob.operations import JobStatus
from aioelasticjob.registry.session import Session
from aioelasticjob.testing import VirtualClock, run
from aioelasticjob.zookeeper.server import serve
from tests.docs.pages import blocks, execute
from tests.support.embedded import EmbeddedServer

ZKCLI = Path("/usr/share/zookeeper/bin/zkCli.sh")
"""ZooKeeper's shell, of Debian's package."""
PAGE = "docs/how-to/operate.md"
ID = "10.0.0.5@-@4711-0a1b2c3d"
ENDS = re.compile(r'"until": \d+')
"""When a pause ends: the page names a date, and the test one that has yet to come."""


@asynccontextmanager
async def _shell(server: EmbeddedServer) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        ZKCLI, "-server", server.address, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        yield process
        await process.communicate(b"quit\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _until(session: Session, holds: Callable[[JobStatus], bool]) -> None:
    async with asyncio.timeout(90):
        while not holds(await operations.job(session, "report", now=0)):
            await asyncio.sleep(0.02)


@pytest.mark.zookeeper
@pytest.mark.process
def test_what_operators_type_has_the_effect_told(embedded: EmbeddedServer) -> None:
    lines = [line for block in blocks(PAGE, "text") for line in block.text.splitlines()]
    runs: list[FireSource] = []

    def effects() -> list[Callable[[JobStatus], bool]]:
        """Return what is to be seen after each of the page's lines."""
        on_and_off: list[Callable[[JobStatus], bool]] = [
            lambda job: job.state == "switched off",
            lambda job: job.state == "waiting",
        ]
        one_item: list[Callable[[JobStatus], bool]] = [
            lambda job: [item.item for item in job.items if item.disabled] == [2],
            lambda job: not any(item.disabled for item in job.items),
        ]
        parents = on_and_off[1:] * 2  # those of the node for all jobs change nothing yet
        return [
            *(on_and_off * 4),
            *parents,
            *on_and_off,
            *one_item,
            lambda _: runs == [FireSource.TRIGGER] * 3,
            lambda job: not job.instances,
        ]

    async def main() -> None:
        app = ElasticJob(f"zk://{embedded.address}/billing")

        @app.job(sharding_total_count=3)
        async def report(context: ItemContext) -> None:
            runs.append(context.source)

        async with _shell(embedded) as shell, app.running() as session:
            assert shell.stdin is not None
            await _until(session, lambda job: job.state == "waiting" and len(job.items) == 3)
            (me,) = (await operations.job(session, "report", now=0)).instances
            for line, effect in zip(lines, effects(), strict=True):
                typed = line.replace(ID, me.id).replace("10.0.0.5", me.ip)
                typed = ENDS.sub(f'"until": {round((SystemClock().now() + 3600) * 1000)}', typed)
                shell.stdin.write(typed.encode() + b"\n")
                await _until(session, effect)
            shell.stdin.write(b"deleteall /billing/report\n")
            async with asyncio.timeout(90):
                while await operations.names(session):
                    await asyncio.sleep(0.02)

    asyncio.run(main())


def test_the_programs_shown_pause_a_server_and_list_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    maintenance = execute(*blocks(PAGE, "python"))["maintenance"]
    (listing,) = blocks("docs/reference/operations.md", "python")

    async def main() -> None:
        app = ElasticJob("zk://127.0.0.1:2181/billing", clock=VirtualClock())

        @app.job(cron="0/10 * * * * ?")
        async def report(context: ItemContext) -> None:
            await anyio.sleep(7)

        async with serve("0.0.0.0", 2181, clock=VirtualClock().now), app.running():
            await anyio.sleep(12)
            await maintenance("127.0.0.1")
            assert VirtualClock().now() % 10 >= 7  # the run that was under way has ended in peace
            await execute(listing)["main"]()

    run(main)
    paused, over, listed = capsys.readouterr().out.splitlines()
    assert paused == "server 127.0.0.1: paused in all jobs (it is known to report)"
    assert over == "nothing runs on 127.0.0.1 any more"
    assert listed.startswith("report switched off ")
