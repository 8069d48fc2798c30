"""Assigning 10,000 items to 100 instances: deciding, writing, and how large what is written is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import uvloop

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.effects import Assign, BecomeLeader, to_transactions
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.rules import RuleInput, decide
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import join, leave
from aioelasticjob.ground.latest import Latest
from aioelasticjob.model import instance_id
from aioelasticjob.registry.codec import Codec
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.tree import Tree
from benchmarks.report import Figure
from benchmarks.servers import Server, measured_servers

NAME: Final = "assignment"


@dataclass(slots=True)
class Timed:
    """One assignment; times in seconds."""

    deciding: float = 0.0
    writing: list[float] = field(default_factory=list)
    """Of each transaction."""
    operations: int = 0
    largest: int = 0
    """Bytes of the largest transaction."""
    mirrored: float = 0.0
    """From the last answer until an instance's mirror shows it all."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    items, instances = (100, 3) if quick else (10_000, 100)
    for start in measured_servers(quick=quick):
        with ExitStack() as stack:
            server = stack.enter_context(start())
            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            for strategy in ("average", "sticky"):
                first, second = runner.run(_assign(server, strategy, items, instances))
                case = f"{items:,} items, {instances} instances, {server.name}"
                if strategy == "average":
                    yield from _figures(f"{case}: first", first)
                yield from _figures(f"{case}: one leaves, {strategy}", second)


def _figures(case: str, timed: Timed) -> Iterator[Figure]:
    yield Figure(NAME, case, "deciding", 1000 * timed.deciding, "ms")
    yield Figure(NAME, case, "operations", timed.operations, "")
    yield Figure(NAME, case, "transactions", len(timed.writing), "")
    yield Figure(NAME, case, "largest transaction", timed.largest / 1024, "KiB", "< 1,024")
    yield Figure(NAME, case, "writing", 1000 * sum(timed.writing), "ms")
    yield Figure(NAME, case, "longest transaction", 1000 * max(timed.writing, default=0), "ms")
    yield Figure(NAME, case, "until mirrored", 1000 * timed.mirrored, "ms")


async def _assign(server: Server, strategy: str, items: int, instances: int) -> tuple[Timed, Timed]:
    """Return the first assignment, and the one after an instance has left."""
    config = JobConfig.build(job_name=strategy, sharding_total_count=items, sharding_strategy=strategy)
    layout = Layout(config.job_name)
    settings = ConnectionSettings.parse(f"zk://{server.address}/assignment")
    async with open_session(settings) as session, mirror(session, layout.mirrored) as trees:
        members = [
            Member(
                session,
                layout,
                instance_id(f"10.0.{n // 250}.{n % 250 + 1}", n, "x"),
                f"10.0.0.{n}",
                "",
                n,
                session.incarnation,
            )
            for n in range(instances)
        ]
        for member in members:
            await join(member, config, trees)
        me = members[0]  # it has joined a job without a leader, and so it leads
        first = await _timed(me, read(trees.value, layout, config), trees)
        await leave(members[-1])  # and the seat is empty: all of them live in one session
        second = await _timed(me, await _lead(me, trees, config), trees)
    return first, second


async def _lead(me: Member, trees: Latest[Tree], config: JobConfig) -> JobView:
    """Take the leader's seat and return the view in which it is taken."""
    vacant = await trees.until(lambda tree: me.layout.host not in tree)
    zxid = 0
    for transaction in to_transactions(BecomeLeader(me.id), read(vacant, me.layout, config)):
        zxid = (await me.session.commit(transaction, incarnation=me.incarnation)).zxid
    return await _caught_up(trees, zxid, me.layout, config)


async def _timed(me: Member, view: JobView, trees: Latest[Tree]) -> Timed:
    """Do what the leader does with an assignment that is asked for, and take the times."""
    session, timed = me.session, Timed()
    codec = Codec(session.settings.namespace, private=False)
    started = time.perf_counter()
    effects = decide(RuleInput(view, me.id, quiet=True))
    transactions = [part for effect in effects if isinstance(effect, Assign) for part in to_transactions(effect, view)]
    timed.deciding = time.perf_counter() - started
    zxid = 0
    for transaction in transactions:
        timed.operations += len(transaction)
        timed.largest = max(timed.largest, len(codec.multi(transaction)))
        started = time.perf_counter()
        zxid = (await session.commit(transaction, incarnation=session.incarnation)).zxid
        timed.writing.append(time.perf_counter() - started)
    started = time.perf_counter()
    settled = await _caught_up(trees, zxid, view.layout, view.config)
    timed.mirrored = time.perf_counter() - started
    if not settled.assignment_stands or len(settled.assignment) != view.config.sharding_total_count:
        raise RuntimeError("the assignment was not written")
    return timed


async def _caught_up(trees: Latest[Tree], zxid: int, layout: Layout, config: JobConfig) -> JobView:
    return read(await trees.until(lambda tree: tree.zxid >= zxid), layout, config)
