"""What befalls the processes of the bare tree: what breaks, and what operators do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.core.requests import CANCELLED, Request, Span, changed, encode, encode_cancellation
from aioelasticjob.model import FireSource
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.schedules.made import schedule
from tests.simulation.bare.judge import ITEMS
from tests.simulation.bare.process import Process
from tests.simulation.bare.world import LAYOUT, MOST, STEPS, World, configured


def happen(world: World) -> None:
    """Let one thing happen to somebody."""
    if world.processes:
        world.dice.choices(_EVENTS, _WEIGHTS)[0](world, world.dice.choice(world.processes))
    else:
        world.start(world.free_number())


def cut(world: World, process: Process) -> None:
    """Break a connection, or mend it."""
    if not process.session.is_connected:
        world.mend(process)
        return
    world.say(f"{process.number} loses its connection")
    process.session.cut()
    if world.dice.random() < 0.5:
        world.mend(process)


def expire(world: World, process: Process) -> None:
    """Let the registry end the session of somebody who is dead, cut off or asleep."""
    if world.zombies and world.dice.random() < 0.7:
        session = world.zombies.pop()
        world.say(f"the session {session.incarnation} of a dead process ends")
        session.expire()
    elif not process.session.over:
        world.say(f"{process.number}'s session ends")
        process.session.expire()
        if world.dice.random() < 0.4:
            world.mend(process)


def miss_deadline(world: World, process: Process) -> None:
    """Stay cut off for so long that handlers are cancelled."""
    if not process.session.is_connected:
        world.say(f"{process.number} gives up its handlers")
        process.session.lose_proof()


def pause(world: World, process: Process) -> None:
    """Let a process fall asleep, or wake it."""
    if process.body.paused:
        process.body.paused = False
        process.session.wake()
        world.say(f"{process.number} wakes")
    else:
        process.body.paused = True
        process.session.fall_asleep()
        world.say(f"{process.number} falls asleep")


def crash(world: World, process: Process) -> None:
    """Kill a process; its session lives on for a while."""
    world.say(f"{process.number} crashes")
    world.kill(process)


def start(world: World, _process: Process) -> None:
    """Start another process."""
    if len(world.processes) < MOST:
        world.start(world.free_number())


def leaves(world: World, process: Process) -> None:
    """Ask a process to leave."""
    world.say(f"{process.number} shall leave")
    process.leave()


def switch_server(world: World, process: Process) -> None:
    """Disable, pause, enable or resume a server, in the job or in all jobs, or the whole job."""
    everywhere = [server_switch(process.ip, "disabled"), server_switch(process.ip, "paused")]
    here = [LAYOUT.server_disabled(process.ip), LAYOUT.server_paused(process.ip), LAYOUT.paused]
    path, nodes = world.dice.choice([*here, *everywhere]), world.registry.nodes
    parents = [above for above in (SWITCHES, server_switch(process.ip)) if path in everywhere and above not in nodes]
    world.by_hand(*([Delete(path)] if path in nodes else [*map(Create, parents), Create(path)]))


def switch_item(world: World, _process: Process) -> None:
    """Disable or enable an item."""
    path = LAYOUT.item(world.dice.randrange(ITEMS)).disabled
    world.by_hand(Delete(path) if path in world.registry.nodes else Create(path))


def reconfigure(world: World, _process: Process) -> None:
    """Change the count or the schedule, or switch failover or misfire."""
    name = world.dice.choice(["sharding_total_count", "sharding_total_count", "failover", "misfire", "cron"])
    match name:
        case "sharding_total_count":
            world.settings[name] = world.dice.randint(1, 8)
        case "cron":
            world.settings[name] = world.dice.choice([*STEPS])
        case _:
            world.settings[name] = not world.settings[name]
    world.config = configured(**world.settings)
    world.by_hand(Set(LAYOUT.config, world.config.to_json(), -1))


def ask(world: World, _process: Process) -> None:
    """Ask for a run of some items, or of all, or for a backfill of the last seconds; or cancel a request."""
    dice, now, asked = world.dice, round(world.registry.now * 1000), len(world.judge.asked)
    if asked and dice.random() < 0.2:
        path = LAYOUT.request(f"r{dice.randrange(asked)}")
        if path in world.registry.nodes:
            world.by_hand(Set(path, changed(world.registry.nodes[path].data, stopped=CANCELLED), -1))
        return
    count = world.config.sharding_total_count
    some = tuple(sorted(dice.sample(range(count), dice.randint(1, count)))) if dice.random() < 0.5 else None
    later = now + dice.randint(1, 3000) if dice.random() < 0.2 else 0
    request = Request(f"r{asked}", FireSource.TRIGGER, count, now, some, at=later)
    if dice.random() < 0.4:
        first = now - dice.randint(1000, 4000)
        span = Span(first, now, schedule("* * * * * ?"), dice.choice([0, 0, 1, 2]))
        request = replace(request, source=FireSource.BACKFILL, at=0, span=span)
    world.judge.asked.append(request)
    if LAYOUT.requests not in world.registry.nodes:
        world.by_hand(Create(LAYOUT.requests))
    world.by_hand(Create(LAYOUT.request(request.id), encode(request)))


def stop(world: World, _process: Process) -> None:
    """Cancel a run that is under way, by its fence."""
    item = world.dice.randrange(ITEMS)
    lock = world.registry.nodes.get(LAYOUT.item(item).running)
    if lock is None or LAYOUT.requests not in world.registry.nodes:
        return
    world.judge.cancelled.add((item, lock.stat.czxid))
    data = encode_cancellation({item: lock.stat.czxid}, round(world.registry.now * 1000), "")
    world.by_hand(Create(LAYOUT.request(f"c{world.registry.zxid}"), data))


def dismiss(world: World, process: Process) -> None:
    """Ask an instance to leave through the registry, or remove its node."""
    if process.id:
        remove = Delete(LAYOUT.instance(process.id))
        world.by_hand(remove if world.dice.random() < 0.3 else Create(LAYOUT.shutdown(process.id)))


def meddle(world: World, _process: Process) -> None:
    """Remove a mark by hand."""
    item = LAYOUT.item(world.dice.randrange(ITEMS))
    marks = [item.orphan, item.failover, LAYOUT.necessary, LAYOUT.processing, LAYOUT.host]
    there = [path for path in marks if path in world.registry.nodes]
    if there:
        world.by_hand(Delete(world.dice.choice(there)))


_CHANCES: dict[Callable[[World, Process], None], int] = {
    cut: 8,
    expire: 6,
    miss_deadline: 2,
    pause: 6,
    crash: 7,
    start: 6,
    leaves: 4,
    switch_server: 3,
    switch_item: 2,
    reconfigure: 3,
    ask: 4,
    stop: 3,
    dismiss: 1,
    meddle: 3,
}
_EVENTS, _WEIGHTS = tuple(_CHANCES), tuple(_CHANCES.values())
