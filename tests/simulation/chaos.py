"""The script of a simulation: what goes wrong, what an operator does, when, and how it is all mended again."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from anyio import create_task_group, sleep

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout, server_switch
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import ChangedMeanwhile, NotPossible
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing.faults import Farewell
from tests.simulation.cluster import Cluster, Host
from tests.simulation.facts import REGISTRY
from tests.simulation.scheduling import other_schedule
from tests.simulation.switches import closing, set_flag

OFTEN = 0.45
"""How many faults begin in a second."""
FAREWELLS: tuple[Farewell, ...] = ("fin", "reset", "silent")


@dataclass(frozen=True, slots=True)
class Chaos:
    """The dice, and what they may break."""

    cluster: Cluster
    dice: Random

    def host(self) -> Host:
        """Pick a host."""
        return self.dice.choice(self.cluster.hosts)

    def layout(self) -> Layout:
        """Pick a job."""
        return self.dice.choice(list(self.cluster.layouts.values()))

    def span(self) -> float:
        """Return a number of seconds: half of them end within the session timeout, half long after."""
        timeout = self.cluster.plan.session_timeout
        return timeout * (self.dice.uniform(0.02, 0.6) if self.dice.random() < 0.5 else self.dice.uniform(1.0, 2.2))


async def crash(chaos: Chaos) -> None:
    """A process dies; another starts on that host after a while."""
    host, farewell = chaos.host(), chaos.dice.choice(FAREWELLS)
    chaos.cluster.break_("crash", host.address, detail=farewell)
    host.crash(farewell)
    await sleep(chaos.span())
    host.start()
    chaos.cluster.mend("crash", host.address)


async def pause(chaos: Chaos) -> None:
    """A process sleeps, long enough to become a zombie or not."""
    host = chaos.host()
    chaos.cluster.break_("pause", host.address)
    host.delay(True)
    await sleep(chaos.span())
    host.delay(False)
    chaos.cluster.mend("pause", host.address)


async def drop(chaos: Chaos) -> None:
    """Some hosts do not get through to the registry, or do not hear its answers."""
    hosts = chaos.dice.sample(chaos.cluster.hosts, chaos.dice.randint(1, len(chaos.cluster.hosts)))
    addresses, way = [host.address for host in hosts], chaos.dice.choice(["both", "there", "back"])
    chaos.cluster.break_("drop", *addresses, detail=way)
    for address in addresses:
        source, target = (REGISTRY, address) if way == "back" else (address, REGISTRY)
        chaos.cluster.faults.drop(source, target, both=way == "both")
    await sleep(chaos.span())
    for address in addresses:
        chaos.cluster.faults.heal(address)
    chaos.cluster.mend("drop", *addresses)


async def delay(chaos: Chaos) -> None:
    """The way to the registry becomes long."""
    host, latency = chaos.host(), chaos.dice.uniform(0.02, 0.6)
    chaos.cluster.break_("delay", host.address, detail=f"{latency:.3f} s")
    chaos.cluster.faults.delay(host.address, REGISTRY, latency, latency * chaos.dice.random())
    await sleep(chaos.dice.uniform(2, 12))
    chaos.cluster.faults.heal(host.address)
    chaos.cluster.mend("delay", host.address)


async def reset(chaos: Chaos) -> None:
    """Connections break."""
    host = chaos.host()
    chaos.cluster.break_("reset", host.address)
    chaos.cluster.faults.reset(host.address, REGISTRY)
    chaos.cluster.mend("reset", host.address)


async def half_open(chaos: Chaos) -> None:
    """Connections are forgotten on the way."""
    host = chaos.host()
    chaos.cluster.break_("half-open", host.address)
    chaos.cluster.faults.half_open(host.address, REGISTRY)
    await sleep(chaos.cluster.plan.session_timeout)
    chaos.cluster.mend("half-open", host.address)


async def expire(chaos: Chaos) -> None:
    """A session is ended behind its owner's back."""
    host = chaos.host()
    chaos.cluster.break_("expire", host.address)
    await chaos.cluster.expire(host)
    chaos.cluster.mend("expire", host.address)


async def clock(chaos: Chaos) -> None:
    """A clock is set, by a little for good or by much for a while."""
    host, far = chaos.host(), chaos.dice.random() < 0.3
    by = chaos.dice.uniform(-60, 60) if far else chaos.dice.uniform(-1.5, 1.5)
    chaos.cluster.break_("clock", host.address, detail=f"{by:+.3f} s")
    host.turn_clock(by)
    await sleep(chaos.dice.uniform(1, 10))
    if far:
        host.turn_clock(-by)
    chaos.cluster.mend("clock", host.address)


async def restart_registry(chaos: Chaos) -> None:
    """The registry dies and comes back with what it has on disk."""
    farewell = chaos.dice.choice(FAREWELLS)
    chaos.cluster.break_("registry down", REGISTRY, detail=farewell)
    chaos.cluster.registry.crash(farewell)
    await sleep(chaos.dice.uniform(0.05, 1.2) * chaos.cluster.plan.session_timeout)
    if chaos.cluster.registry.process is None or not chaos.cluster.registry.process.alive:
        chaos.cluster.registry.start()
    chaos.cluster.mend("registry down", REGISTRY)


async def stall_registry(chaos: Chaos) -> None:
    """The registry's process sleeps."""
    process = chaos.cluster.registry.process
    if process is None or not process.alive:
        return
    chaos.cluster.break_("registry stalled", REGISTRY)
    chaos.cluster.faults.pause(process)
    await sleep(chaos.dice.uniform(0.05, 1.5) * chaos.cluster.plan.session_timeout)
    if process.alive:
        chaos.cluster.faults.resume(process)
    chaos.cluster.mend("registry stalled", REGISTRY)


async def leave(chaos: Chaos) -> None:
    """A process ends gracefully; another starts on that host after a while."""
    host = chaos.host()
    chaos.cluster.break_("leave", host.address)
    host.leave()
    await sleep(chaos.dice.uniform(0.1, 15))
    host.start()
    chaos.cluster.mend("leave", host.address)


async def take_out(chaos: Chaos) -> None:
    """A program leaves a job while its other jobs run, and adds it again after a while."""
    host = chaos.host()
    job = chaos.dice.choice(chaos.cluster.plan.jobs)
    seconds = chaos.dice.uniform(0.0, 5.0)
    chaos.cluster.break_("leave", host.address, detail=host.instance(job.name) or "no instance")
    host.take_out(job, seconds)
    await sleep(seconds)
    chaos.cluster.mend("leave", host.address)


async def reconfigure(chaos: Chaos) -> None:
    """An operator changes the number of items, the schedule, or both."""
    layout, dice = chaos.layout(), chaos.dice
    count = dice.randint(1, 9) if dice.random() < 0.7 else None
    cron = dice.choice(["* * * * * ?", "0/2 * * * * ?", "0/3 * * * * ?", "0/5 * * * * ?", "1/10 * * * * ?"])
    cron = cron if count is None or dice.random() < 0.3 else ""
    other: dict[str, object] = {"cron": cron}
    if chaos.cluster.plan.streams:  # streams have no schedule
        other = {"concurrency": len(cron)}
    if chaos.cluster.plan.schedules and cron:
        other = other_schedule(Random(f"{cron} {dice.random()}"))
    settings = ({"shardingTotalCount": count} if count else {}) | (other if cron else {})
    await operate(
        chaos, f"config of {layout.job}: {count or ''} {cron}", lambda session: set_config(session, layout, settings)
    )


async def switch(chaos: Chaos) -> None:
    """An operator switches something on or off that decides on how what went wrong is answered."""
    layout, dice = chaos.layout(), chaos.dice
    what: tuple[str, object] = dice.choice(
        [
            ("failover", dice.random() < 0.7),
            ("misfire", dice.random() < 0.5),
            ("catchUp", dice.choice([0, 5, 60])),
            ("timeout", dice.choice([None, 0.5, 3.0])),
        ]
    )
    settings = dict([what])
    await operate(chaos, f"config of {layout.job}: {settings}", lambda session: set_config(session, layout, settings))


async def close_server(chaos: Chaos) -> None:
    """An operator disables or pauses a server, and opens it again unless it stays closed."""
    layout, host = chaos.layout(), chaos.host()
    paused = chaos.dice.random() < 0.5
    flag = layout.server_paused(host.address) if paused else layout.server_disabled(host.address)
    await _raise_and_lower(chaos, flag, host.address)


async def close_widely(chaos: Chaos) -> None:
    """An operator pauses a whole job, or switches a server off in all jobs, and undoes that unless it stays so."""
    host = chaos.host().address
    if chaos.dice.random() < 0.5:
        return await _raise_and_lower(chaos, chaos.layout().paused)
    flag = server_switch(host, chaos.dice.choice(["paused", "disabled"]))
    await _raise_and_lower(chaos, flag, host)


async def pause_a_while(chaos: Chaos) -> None:
    """An operator pauses a whole job, or a server in all jobs, until a time: nobody touches the pause at its end."""
    job, host, seconds = chaos.layout().job, chaos.host().address, chaos.dice.uniform(0.5, 12)
    is_whole = chaos.dice.random() < 0.5
    hosts = () if is_whole else (host,)

    async def act(session: Session) -> None:
        until = moment(session.registry_time + seconds)
        with suppress(InvalidSetting, NotPossible, ChangedMeanwhile):  # nobody knows the server yet
            if is_whole:
                await operations.pause(session, job, until=until)
            else:
                await operations.pause_server(session, host, until=until)

    chaos.cluster.break_("flag", *hosts, detail=job if is_whole else host)
    await operate(chaos, f"pause {job if is_whole else host} for {seconds:.1f} s", act)
    await sleep(seconds)
    chaos.cluster.mend("flag", *hosts)


async def close_item(chaos: Chaos) -> None:
    """An operator disables an item, and enables it again unless it stays so."""
    layout = chaos.layout()
    await _raise_and_lower(chaos, layout.item(chaos.dice.randrange(5)).disabled)


async def trigger(chaos: Chaos) -> None:
    """An operator wants a job run now."""
    layout, name = chaos.layout(), f"by-hand-{chaos.dice.randrange(10**6)}"

    async def act(session: Session) -> None:
        made = Create(layout.request(name), b'{"kind": "TRIGGER"}')
        await session.commit([made], incarnation=session.incarnation)

    await operate(chaos, f"trigger {layout.job}", act)


async def dismiss(chaos: Chaos) -> None:
    """An operator asks an instance to leave."""
    layout = chaos.layout()

    async def act(session: Session) -> None:
        names = [name for name in await session.children(layout.instances) if "nonsense" not in name]
        if names:
            name = chaos.dice.choice(names)
            _mark_dismissed(chaos.cluster, name)
            await session.commit([Create(layout.shutdown(name))], incarnation=session.incarnation)

    await operate(chaos, f"dismiss an instance of {layout.job}", act)


async def depose(chaos: Chaos) -> None:
    """An operator removes the leader from its seat by hand."""
    layout = chaos.layout()
    await operate(chaos, f"depose the leader of {layout.job}", lambda session: _delete(session, layout.host))


async def coup(chaos: Chaos) -> None:
    """An operator removes leader after leader while everybody is slow and members come and go."""
    cluster, dice = chaos.cluster, chaos.dice
    hosts = [host.address for host in cluster.hosts]
    cluster.break_("coup", *hosts)
    for host in hosts:
        latency = dice.uniform(0.005, 0.5)
        cluster.faults.delay(host, REGISTRY, latency, latency / 2)
    for _ in range(3):
        await expire(chaos)
        await sleep(dice.uniform(0.5, 4))
        for layout in cluster.layouts.values():
            await cluster.operate(lambda session, layout=layout: _delete(session, layout.host))  # type: ignore[misc]
    for host in hosts:
        cluster.faults.heal(host)
    cluster.mend("coup", *hosts)


async def evict(chaos: Chaos) -> None:
    """An operator removes an instance's node by hand."""
    layout = chaos.layout()

    async def act(session: Session) -> None:
        names = [name for name in await session.children(layout.instances) if "nonsense" not in name]
        if names:
            name = chaos.dice.choice(names)
            _mark_dismissed(chaos.cluster, name)
            await _delete(session, layout.instance(name))

    await operate(chaos, f"evict an instance of {layout.job}", act)


Kinds: TypeAlias = Mapping[str, tuple[int, Callable[[Chaos], Coroutine[object, object, None]]]]

KINDS: Kinds = {
    "crash": (5, crash),
    "pause": (5, pause),
    "drop": (5, drop),
    "delay": (4, delay),
    "reset": (3, reset),
    "half-open": (2, half_open),
    "expire": (4, expire),
    "clock": (3, clock),
    "restart-registry": (2, restart_registry),
    "stall-registry": (2, stall_registry),
    "leave": (3, leave),
    "reconfigure": (4, reconfigure),
    "close-server": (3, close_server),
    "close-item": (3, close_item),
    "trigger": (3, trigger),
    "dismiss": (2, dismiss),
    "depose": (2, depose),
    "coup": (1, coup),
    "evict": (1, evict),
}
"""What can happen, and how often compared to the rest."""

AT_RUN_TIME: Kinds = {"take-out": (20, take_out)}
"""What else can happen if programs leave jobs, and add them again, while they run."""

WILD: Kinds = {"switch": (6, switch), "close-widely": (5, close_widely)}
"""What else can happen in a wild plan: seeds from before there were any live as they did."""


PAUSES: Kinds = {"pause-a-while": (20, pause_a_while)}
"""What else can happen in a plan that names it."""


async def rage(
    cluster: Cluster, dice: Random, seconds: float, known: Kinds | None = None, often: float = OFTEN
) -> None:
    """Let things happen for a while, several at a time; what is still broken at the end stays so.

    ``known`` is what can happen, by default what the plan says; ``often`` is how many of them begin in a second.
    """
    chaos, end = Chaos(cluster, dice), cluster.history.now() + seconds
    if known is None:
        known = {**KINDS, **(WILD if cluster.plan.wild else {}), **(AT_RUN_TIME if cluster.plan.at_run_time else {})}
        known |= {kind: PAUSES[kind] for kind in PAUSES.keys() & set(cluster.plan.kinds)}
    kinds = [kind for kind in known if not cluster.plan.kinds or kind in cluster.plan.kinds]
    if not kinds:
        await sleep(seconds)
        return
    weights = [known[kind][0] for kind in kinds]
    async with create_task_group() as tasks:
        while (left := end - cluster.history.now()) > 0.001:  # a clock since 1970 does not show much shorter waits
            await sleep(min(left, dice.expovariate(often)))
            (kind,) = dice.choices(kinds, weights)
            tasks.start_soon(known[kind][1], chaos)
        tasks.cancel_scope.cancel()


async def mend(cluster: Cluster, dice: Random) -> None:
    """Repair everything: what runs from now on runs undisturbed, and on every host."""
    cluster.faults.heal()
    registry = cluster.registry.process
    if registry is None or not registry.alive:
        cluster.registry.start()
    elif registry.paused:
        cluster.faults.resume(registry)
    for host in cluster.hosts:
        host.delay(False)
        host.turn_clock(min(0.0, 1.5 - host.skew))
        host.start()
    open_again = dice.choice(cluster.hosts)
    await sleep(2 * cluster.plan.session_timeout)
    for name in cluster.layouts:  # somebody has to be there for the work
        for flag in closing(name, open_again.address):
            await cluster.operate(lambda session, flag=flag: _delete_if_there(session, flag))  # type: ignore[misc]
    for host in cluster.hosts:
        if host.dismissed:
            cluster.break_("leave", host.address)
            host.leave()
            cluster.mend("leave", host.address)
    await sleep(4)
    for host in cluster.hosts:
        host.start()


async def operate(chaos: Chaos, what: str, act: Callable[[Session], Awaitable[object]]) -> bool:
    """Do what an operator would, and note it."""
    chaos.cluster.break_("operator", detail=what)

    async def run(session: Session) -> None:
        await act(session)

    return await chaos.cluster.operate(run)


async def _raise_and_lower(chaos: Chaos, flag: str, *hosts: str) -> None:
    stays = chaos.dice.random() < 0.2
    chaos.cluster.break_("flag", *hosts, detail=flag)
    await operate(chaos, f"set {flag}", lambda session: set_flag(session, flag))
    await sleep(chaos.dice.uniform(0.2, 12))
    if not stays:
        await operate(chaos, f"remove {flag}", lambda session: _delete(session, flag))
    chaos.cluster.mend("flag", *hosts)


def _mark_dismissed(cluster: Cluster, instance: str) -> None:
    address = instance.partition("@-@")[0]
    for host in cluster.hosts:
        host.dismissed = host.dismissed or host.address == address


async def set_config(session: Session, layout: Layout, settings: Mapping[str, object]) -> None:
    """Change settings in a job's configuration."""
    node = await session.get(layout.config)
    try:
        JobConfig.from_json(node.data, layout.job)
        data = json.dumps(json.loads(node.data) | settings).encode()
        JobConfig.from_json(data, layout.job)
    except InvalidSetting:  # somebody has written nonsense there, or the settings contradict each other
        return
    await session.commit([Set(layout.config, data, node.stat.version)], incarnation=session.incarnation)


async def _delete(session: Session, path: str) -> None:
    await session.commit([Delete(path)], incarnation=session.incarnation)


async def _delete_if_there(session: Session, path: str) -> None:
    if await session.exists(path) is not None:
        await _delete(session, path)
