"""What a chaos run does to workers, network and ensemble: each action breaks something, waits, and mends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias, TypeVarTuple

from tests.chaos.operators import ON_JOBS, ON_SETTINGS, operating, pick_job
from tests.chaos.stage import SESSION_TIMEOUT, Seat, Stage
from tests.support.processes import ChildProcess
from tests.support.proxy import Direction
from tests.support.real_zookeeper import RealServer

OnWorker: TypeAlias = Callable[[Stage, Seat, random.Random], Awaitable[None]]
OnEnsemble: TypeAlias = Callable[[Stage, random.Random], Awaitable[None]]
Action: TypeAlias = Callable[..., Awaitable[None]]
Ts = TypeVarTuple("Ts")
BETWEEN: Final = (1.0, 3.5)
"""Seconds between two actions, from and to."""
WAYS: Final[Sequence[tuple[Direction, ...]]] = (("up",), ("down",), ("up", "down"))


async def rage(stage: Stage, rng: random.Random, seconds: float, kinds: Collection[str] = ()) -> None:
    """Do one thing after the other for so long, only of these kinds if any; return when everything is mended."""
    end = stage.clock.now() + seconds
    actions = {action: weight for action, weight in ACTIONS.items() if not kinds or name_of(action) in kinds}
    mending, changing = asyncio.Lock(), asyncio.Lock()  # one thing at a time: a majority is there most of the time
    async with operating(stage.ensemble.addresses) as operator, asyncio.TaskGroup() as tasks:
        while stage.clock.now() < end:
            action = rng.choices(list(actions), list(actions.values()))[0]
            if action in ON_WORKERS:
                if victims := stage.victims():
                    seat = rng.choice(victims)
                    seat.busy = True
                    tasks.create_task(to_worker(action, stage, seat, rng))
            elif action in ON_ENSEMBLE and not mending.locked():
                await mending.acquire()
                tasks.create_task(_once(action, mending, stage, "", stage, rng))
            elif action in ON_JOBS and not changing.locked():
                await changing.acquire()
                job = pick_job(rng)
                tasks.create_task(_once(action, changing, stage, job.job_name, stage, operator, job, rng))
            await asyncio.sleep(rng.uniform(*BETWEEN))


def name_of(action: Action) -> str:
    """Return what a kind of action is called on the command line, as ``kill-worker``."""
    return str(getattr(action, "__name__", action)).replace("_", "-")


async def to_worker(action: OnWorker, stage: Stage, seat: Seat, rng: random.Random) -> None:
    """Do something to a worker, and note when it was done and when it was mended."""
    name = name_of(action)
    stage.done[name] += 1
    stage.fault(name, detail=seat.process)
    await action(stage, seat, rng)
    stage.fault(name, over=True, detail=seat.process)
    seat.busy, seat.well_since = False, stage.clock.now()


async def _once(
    action: Callable[[*Ts], Awaitable[None]], lock: asyncio.Lock, stage: Stage, detail: str, *arguments: *Ts
) -> None:
    name = name_of(action)
    stage.done[name] += 1
    stage.fault(name, detail=detail)
    try:
        await action(*arguments)
    finally:
        lock.release()
    stage.fault(name, over=True, detail=detail)


async def kill_worker(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """``kill -9``, and another one after a while."""
    stage.kill(seat)
    await asyncio.sleep(rng.uniform(0.2, 7))
    stage.replace(seat)


async def pause_worker(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """SIGSTOP and SIGCONT, within the session or beyond it."""
    stage.pause(seat)
    within, beyond = rng.uniform(0.3, 0.6 * SESSION_TIMEOUT), rng.uniform(SESSION_TIMEOUT, 2 * SESSION_TIMEOUT)
    await asyncio.sleep(rng.choice((within, beyond)))
    stage.resume(seat)


async def restart_worker(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """SIGTERM, and another one when it has left."""
    await stage.leave(seat)
    stage.replace(seat)


async def cut_connections(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """End its connections in order, or with a reset."""
    orderly = rng.random() < 0.5
    for proxy in seat.proxies:
        (proxy.cut if orderly else proxy.reset)()


async def refuse_connections(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """End its connections and refuse new ones for a while."""
    for proxy in seat.proxies:
        proxy.refusing = True
        proxy.cut()
    await asyncio.sleep(rng.uniform(0.5, 1.6 * SESSION_TIMEOUT))
    for proxy in seat.proxies:
        proxy.heal()


async def delay_packets(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """Keep everything back for a moment, both ways."""
    delay = rng.uniform(0.05, 1.2)
    for proxy in seat.proxies:
        proxy.delay = delay
    await asyncio.sleep(rng.uniform(1, 6))
    for proxy in seat.proxies:
        proxy.heal()


async def swallow_packets(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """Let what it says, what it is told, or both disappear; no such connection goes on afterwards."""
    way = rng.choice(WAYS)
    for proxy in seat.proxies:
        proxy.swallow(*way)
    await asyncio.sleep(rng.uniform(0.5, 1.6 * SESSION_TIMEOUT))
    for proxy in seat.proxies:
        proxy.reset()
        proxy.heal()


async def half_close_connections(stage: Stage, seat: Seat, rng: random.Random) -> None:
    """End one direction of its connections; the other one stays open."""
    direction: Direction = rng.choice(("up", "down"))
    for proxy in seat.proxies:
        proxy.half_close(direction)


async def kill_member(stage: Stage, rng: random.Random) -> None:
    """``kill -9`` of any member of the ensemble, which comes back on its data."""
    await _down(rng.choice(stage.ensemble.members), rng)


async def kill_leading_member(stage: Stage, rng: random.Random) -> None:
    """``kill -9`` of the member that leads: the others elect a new one."""
    leader = await stage.leader()
    await _down(leader or rng.choice(stage.ensemble.members), rng)


async def pause_member(stage: Stage, rng: random.Random) -> None:
    """SIGSTOP and SIGCONT of any member."""
    frozen: ChildProcess = rng.choice(stage.ensemble.members).process
    frozen.pause()
    await asyncio.sleep(rng.uniform(0.5, 6))
    frozen.resume()


async def take_the_majority(stage: Stage, rng: random.Random) -> None:
    """``kill -9`` of two members: nothing is written until one is back."""
    async with asyncio.TaskGroup() as tasks:
        for member in rng.sample(stage.ensemble.members, 2):
            tasks.create_task(_down(member, rng))


async def _down(member: RealServer, rng: random.Random) -> None:
    await asyncio.to_thread(member.kill)
    await asyncio.sleep(rng.uniform(0.2, 4))
    member.start()
    await asyncio.to_thread(member.wait_until_serving, 60)


ON_WORKERS: Final[Mapping[OnWorker, int]] = {
    kill_worker: 6,
    pause_worker: 5,
    restart_worker: 4,
    cut_connections: 2,
    refuse_connections: 2,
    delay_packets: 2,
    swallow_packets: 3,
    half_close_connections: 2,
}
"""What is done to one worker, and how often in comparison."""
ON_ENSEMBLE: Final[Mapping[OnEnsemble, int]] = {
    kill_member: 2,
    kill_leading_member: 2,
    pause_member: 2,
    take_the_majority: 1,
}
ACTIONS: Final[Mapping[Action, int]] = {**ON_WORKERS, **ON_ENSEMBLE, **ON_SETTINGS, **ON_JOBS}
KINDS: Final = tuple(name_of(action) for action in ACTIONS)
