"""From ``kill -9`` of the leader's process to the next correct assignment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView, read
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import ConnectionSettings, open_session
from benchmarks.member import JOB
from benchmarks.report import Figure
from benchmarks.servers import Server, measured_server
from tests.support.processes import ChildProcess, Workers, workers

NAME: Final = "kill -9 of the leader"
PROCESSES, ITEMS = 3, 12
SESSION_TIMEOUT: Final = 4.0
TICK_TIME: Final = 500


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    rounds = 1 if quick else 5
    with ExitStack() as stack:
        server = stack.enter_context(measured_server(quick=quick, tick_time=TICK_TIME))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-")))
        starter = stack.enter_context(workers(directory))
        measured = asyncio.run(_rounds(server, starter, rounds))
    case = f"{PROCESSES} processes, {ITEMS} items"
    expiry, own = (median(part) for part in zip(*measured, strict=True))
    yield Figure(NAME, case, f"until ZooKeeper ended its session (timeout {SESSION_TIMEOUT:g} s)", expiry, "s")
    yield Figure(NAME, case, "from there to the new assignment, sharding_quiet included", own, "s")
    yield Figure(NAME, case, "of which sharding_quiet", JobConfig.build(job_name=JOB).sharding_quiet, "s")
    yield Figure(NAME, case, "in all", median(sum(one) for one in measured), "s")


async def _rounds(server: Server, starter: Workers, rounds: int) -> list[tuple[float, float]]:
    """Kill the leader again and again; return what each time took: until its seat was empty, and from there on."""
    address = f"zk://{server.address}/takeover"
    arguments = ("-m", "benchmarks.member", address, str(ITEMS), str(SESSION_TIMEOUT))
    layout, config = Layout(JOB), JobConfig.build(job_name=JOB, sharding_total_count=ITEMS)
    members = [starter.start(*arguments) for _ in range(PROCESSES)]
    measured = []
    settings = ConnectionSettings.parse(address)
    async with open_session(settings) as session, mirror(session, layout.mirrored) as trees:

        async def seen(*, without: str = "", seat_empty: bool = False) -> JobView:
            """Return the first view in which the assignment is right again, or the leader's seat no longer its."""
            async for tree in trees:
                view = read(tree, layout, config)
                done = view.leader != without if seat_empty else _right(view, without)
                if done:
                    return view
            raise AssertionError("the mirror ended")

        for _ in range(rounds):
            leader = (await seen()).leader or ""
            victim = _process(members, (await seen()).instances[leader].pid)
            await asyncio.sleep(0.1)
            killed = time.perf_counter()
            victim.kill()
            await seen(without=leader, seat_empty=True)
            expired = time.perf_counter()
            await seen(without=leader)
            measured.append((expired - killed, time.perf_counter() - expired))
            members.remove(victim)
            members.append(starter.start(*arguments))
    return measured


def _right(view: JobView, without: str) -> bool:
    """Whether every item is held by a living instance, evenly, and nobody wants it otherwise; the first time by all."""
    alive = set(view.eligible)
    shares = [list(view.assignment.values()).count(one) for one in alive]
    enough = len(alive) == PROCESSES if not without else bool(alive) and without not in alive
    return (
        enough
        and view.assignment_stands
        and view.leader in alive
        and set(view.assignment.values()) <= alive
        and sum(shares) == ITEMS
        and max(shares) - min(shares) <= 1
    )


def _process(members: list[ChildProcess], pid: int) -> ChildProcess:
    return next(member for member in members if member.pid == pid)
