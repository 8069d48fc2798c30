"""Careless operators: they write nonsense into znodes and mend it, or remove whole jobs, which are then made anew."""

from __future__ import annotations

from contextlib import suppress

from anyio import sleep

from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import Conflict, NodeMissing
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.simulation.chaos import Chaos, operate
from tests.simulation.cluster import Cluster

NONSENSE = (b"{nonsense", b'["nonsense"]', b'{"nonsense": 1}', b"\xff\xfenonsense", b'{"slot": "nonsense"}')
"""Data that is no configuration, no record, no mark and no offset of ours."""
FOREIGN = ("nonsense", "-7nonsense", "99999999999999999999nonsense", "10.0.1.1@-@nonsense")
"""Names that no node of ours has."""
ITEMS = 5


def is_nonsense(path: str, data: bytes | None) -> bool:
    """Say whether a node, or its data, is of the making of a careless operator."""
    return data in NONSENSE or any(part in FOREIGN for part in path.split("/"))


async def nonsense(chaos: Chaos) -> None:
    """An operator writes nonsense into a node, or makes one where none belongs, and mends it after a while."""
    layout, dice = chaos.layout(), chaos.dice
    data, stays = dice.choice(NONSENSE), dice.uniform(0.5, 10)
    if dice.random() < 0.35:
        await _stray(chaos, f"{dice.choice(_parents(layout))}/{dice.choice(FOREIGN)}", data, stays)
    else:
        await _garble(chaos, layout, data, stays)


async def remove_job(chaos: Chaos) -> None:
    """An operator removes a job with all its nodes; later its processes are restarted and make it anew."""
    layout, cluster = chaos.layout(), chaos.cluster
    cluster.break_("remove job", detail=layout.job)
    await operate(chaos, f"remove {layout.job}", lambda session: _remove(session, layout))
    for host in cluster.hosts:
        host.dismissed = True  # if the faults end before it is its turn, it is restarted then
    await sleep(chaos.dice.uniform(1, 6))
    for host in cluster.hosts:
        cluster.break_("leave", host.address)
        host.leave()
        for _ in range(24):
            if not host.up:
                break
            await sleep(0.5)
        host.start()
        cluster.mend("leave", host.address)
    cluster.mend("remove job")


def _parents(layout: Layout) -> tuple[str, ...]:
    return (
        *(layout.sharding, layout.execution, layout.offsets, layout.orphans, layout.instances),
        *(layout.servers, layout.requests, layout.shutdowns, layout.started, layout.root),
    )


async def _stray(chaos: Chaos, path: str, data: bytes, stays: float) -> None:
    async def make(session: Session) -> None:
        await session.commit([Create(path, data)], incarnation=session.incarnation)

    chaos.cluster.garbled.setdefault(path, None)
    await operate(chaos, f"make {path}", make)
    await sleep(stays)
    await mend_nonsense(chaos.cluster, path)


async def _garble(chaos: Chaos, layout: Layout, data: bytes, stays: float) -> None:
    dice, garbled = chaos.dice, chaos.cluster.garbled
    paths, number = layout.item(dice.randrange(ITEMS)), dice.random()
    what = dice.choice((layout.config, layout.guarantee, "instance", paths.execution, paths.offset, paths.instance))
    place = ""

    async def garble(session: Session) -> None:
        nonlocal place
        names = await session.children(layout.instances) if what == "instance" else ()
        place = layout.instance(names[int(number * len(names))]) if names else what
        node = await session.get(place)
        if place not in garbled and not is_nonsense(place, node.data):
            garbled[place] = node.data
            await session.commit([Set(place, data, node.stat.version)], incarnation=session.incarnation)

    await operate(chaos, f"garble {what} with {data!r}", garble)
    if place in garbled:
        await sleep(stays)
        await mend_nonsense(chaos.cluster, place)


async def mend_nonsense(cluster: Cluster, path: str) -> None:
    """Remove a stray node, or put back what was there before the nonsense, if that is still there."""
    before = cluster.garbled.get(path)

    async def mend(session: Session) -> None:
        with suppress(NodeMissing):
            node = await session.get(path)
            if is_nonsense(path, node.data):
                write = Delete(path, node.stat.version) if before is None else Set(path, before, node.stat.version)
                await session.commit([write], incarnation=session.incarnation)

    for _ in range(20):
        if await cluster.operate(mend):
            break
        await sleep(1)
    cluster.garbled.pop(path, None)


async def _remove(session: Session, layout: Layout) -> None:
    """Remove a subtree as it is, again if it has changed meanwhile."""
    for _ in range(20):
        tree = await session.subtree([layout.root])
        paths = sorted(tree, key=lambda path: path.count("/"), reverse=True)
        if not paths:
            return
        with suppress(Conflict):
            await session.commit([Delete(path) for path in paths], incarnation=session.incarnation)
