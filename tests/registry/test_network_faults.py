"""A session while the way to the registry breaks, in simulated time against the embedded server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import anyio
import pytest
from aiozk import protocol

from aioelasticjob.errors import AuthenticationFailed, OutcomeUnknown, RegistryUnreachable, SessionEnded, Suspended
from aioelasticjob.registry import codec as wire
from aioelasticjob.registry import session_keeper
from aioelasticjob.registry.session import Session, SessionState, SessionStatus, open_session
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.testing import VirtualClock, run
from aioelasticjob.zookeeper.server import serve
from tests.support.deadlines import deadline
from tests.support.simulated_registry import OUR_HOST, PORT, SimulatedRegistry, expire, simulated

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
T = 4.0


def with_session(
    use: Callable[[SimulatedRegistry, Session], Awaitable[None]],
    *,
    seed: int = 0,
    servers: int = 1,
    **options: float | str,
) -> None:
    async def main() -> None:
        async with simulated(servers) as world:
            settings = world.settings(**{"session_timeout": T, **options})
            async with open_session(settings, clock=VirtualClock(), seed=seed) as session:
                await use(world, session)

    run(main, seed=seed)


async def reached(session: Session, state: SessionState) -> float:
    """Return how long it takes until the session is in ``state``."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await session.status.until(lambda status: status.state is state)
    return loop.time() - start


def test_a_half_open_connection_is_noticed_and_replaced_within_the_session() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        incarnation, loop = session.incarnation, asyncio.get_running_loop()
        await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
        with deadline(session, incarnation) as scope:
            world.half_open()
            start = loop.time()
            stat = await session.exists("/mine")  # asked on the dead connection, answered on the next
            assert stat is not None
            assert T / 2 - T / 6 <= loop.time() - start <= T / 2 + 0.1
            await asyncio.sleep(3 * T)
        assert not scope.cancelled_caught
        assert session.status.value == SessionStatus(CONNECTED, incarnation)

    with_session(use)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_way_that_swallows_one_direction_is_found_out(direction: str) -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        host = world.servers[0].host
        world.faults.drop(*((OUR_HOST, host) if direction == "up" else (host, OUR_HOST)), both=False)
        assert await reached(session, SUSPENDED) <= T / 2
        with pytest.raises(Suspended):
            await session.commit([Create("/a")], incarnation=session.incarnation)
        world.heal()
        await reached(session, CONNECTED)
        await session.sync()

    with_session(use)


def test_every_pending_call_ends_with_its_connection_and_only_reads_are_asked_again() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        loop, incarnation = asyncio.get_running_loop(), session.incarnation
        await session.commit([Create("/a")], incarnation=incarnation)
        world.faults.drop(world.servers[0].host, OUR_HOST, both=False)
        writes = [asyncio.ensure_future(session.commit([Set("/a", b"", n)], incarnation=incarnation)) for n in range(9)]
        reads = [asyncio.ensure_future(session.get("/a")) for _ in range(9)]
        await asyncio.sleep(0.5)
        start = loop.time()
        world.reset()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown] * 9
        assert loop.time() - start < 0.1
        world.heal()
        nodes = await asyncio.gather(*reads)
        assert {node.stat.version for node in nodes} == {9}  # all had happened; none happened twice

    with_session(use)


def test_nothing_is_sent_while_suspended() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        world.partition()
        world.reset()
        assert await reached(session, SUSPENDED) < 0.1
        with pytest.raises(Suspended, match="nothing was written"):
            await session.commit([Create("/a")], incarnation=session.incarnation)
        world.heal()
        await reached(session, CONNECTED)
        await asyncio.sleep(1)
        assert await session.exists("/a") is None

    with_session(use)


def test_reads_give_up_after_their_retries() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        world.partition()
        world.reset()
        await reached(session, SUSPENDED)
        start = asyncio.get_running_loop().time()
        with pytest.raises(Suspended, match="after 3 retries"):
            await session.get("/")
        assert (1 + 2 + 3) / 2 <= asyncio.get_running_loop().time() - start <= 1 + 2 + 3

    with_session(use)


def test_an_expired_session_is_reported_and_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        old, seen = session.incarnation, list[SessionStatus]()

        async def note() -> None:
            async for status in session.status:
                seen.append(status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            await session.commit([Create("/mine", ephemeral=True)], incarnation=old)
            with deadline(session, old) as scope:
                world.partition()
                await asyncio.sleep(3 * T)
            assert scope.cancelled_caught
            await asyncio.sleep(2 * T)
            assert session.status.value == SessionStatus(SUSPENDED, old)  # nobody has told us otherwise
            world.heal()
            await reached(session, CONNECTED)
            await asyncio.sleep(0)
            tasks.cancel_scope.cancel()
        new = session.incarnation
        states = [(CONNECTED, old), (SUSPENDED, old), (EXPIRED, old), (CONNECTED, new)]
        assert [(status.state, status.incarnation) for status in seen] == states
        assert new != old
        assert await session.exists("/mine") is None
        with pytest.raises(SessionEnded):
            await session.commit([Create("/late")], incarnation=old)
        with deadline(session, old) as scope:
            await asyncio.sleep(1)
        assert scope.cancelled_caught
        await session.commit([Create("/mine", ephemeral=True)], incarnation=new)
        assert f"the session {old:#x} has expired; a new one is opened" in caplog.messages  # also where there is no job

    with_session(use)


def test_a_session_ended_by_another_hand_ends_its_work_at_once() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        old, loop = session.incarnation, asyncio.get_running_loop()
        start = loop.time()
        with deadline(session, old) as scope:
            await expire(session, world.servers[0].host, PORT)
            await asyncio.sleep(T)
        assert scope.cancelled_caught
        assert loop.time() - start < 0.2
        await reached(session, CONNECTED)
        assert session.incarnation != old

    with_session(use)


@pytest.mark.parametrize("seed", range(40))
def test_work_ends_before_the_registry_ends_the_session(seed: int) -> None:
    """Whatever breaks whenever: seen from the registry, nobody works any more when the ephemeral node goes."""
    dice = random.Random(seed)

    async def use(world: SimulatedRegistry, session: Session) -> None:
        server, loop = world.servers[0], asyncio.get_running_loop()
        await session.commit([Create("/mine", ephemeral=True)], incarnation=session.incarnation)
        await asyncio.sleep(dice.uniform(0, 10))
        fault = dice.choice(["partition", "half open", "up", "down"])
        with deadline(session, session.incarnation) as scope:
            if fault == "partition":
                world.partition()
            elif fault == "half open":
                world.half_open()
                world.partition()
            else:
                world.faults.drop(*((OUR_HOST, server.host) if fault == "up" else (server.host, OUR_HOST)), both=False)
            await asyncio.sleep(100)
        assert scope.cancelled_caught
        ended = loop.time()
        assert "/test/mine" in server.processor.tree.nodes
        while "/test/mine" in server.processor.tree.nodes:
            await asyncio.sleep(0.01)
        assert loop.time() - ended >= 0.2  # the slack of the margin

    with_session(use, seed=seed)


def test_a_process_that_was_stopped_writes_nothing_under_its_old_session() -> None:
    outcomes: list[str] = []

    async def main() -> None:
        async with simulated() as world:
            ready, stopped = asyncio.Event(), asyncio.Event()

            async def worker() -> None:
                async with open_session(world.settings(session_timeout=T), seed=1) as session:
                    old = session.incarnation
                    await session.commit([Create("/mine", ephemeral=True)], incarnation=old)
                    with deadline(session, old) as scope:
                        ready.set()
                        await stopped.wait()
                        try:  # a zombie: it does not know yet how late it is
                            await session.commit([Create("/late")], incarnation=old)
                            outcomes.append("written")
                        except (SessionEnded, Suspended, OutcomeUnknown) as error:
                            outcomes.append(type(error).__name__)
                        await asyncio.sleep(10)
                    outcomes.append("cancelled" if scope.cancelled_caught else "went on")
                    await reached(session, CONNECTED)
                    outcomes.append("new" if session.incarnation != old else "old")
                    outcomes.append(str(await session.exists("/late")))

            process = world.faults.start("worker", "10.0.1.1", worker)
            await ready.wait()
            await asyncio.sleep(1)
            world.faults.pause(process)
            await asyncio.sleep(3 * T)
            assert "/test/mine" not in world.servers[0].processor.tree.nodes
            stopped.set()
            world.faults.resume(process)
            await process.wait()

    run(main, seed=1)
    assert outcomes[-3:] == ["cancelled", "new", "None"]
    assert "written" not in outcomes


def test_credentials_are_sent_again_before_anything_else() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        server = world.servers[0]
        await session.commit([Create("/mine")], incarnation=session.incarnation)
        for number in range(20):
            if number % 5 == 4:
                await expire(session, server.host, PORT)
            else:
                world.reset()
            reads = [asyncio.ensure_future(session.get("/mine")) for _ in range(5)]
            await asyncio.gather(*reads)
            await asyncio.sleep(number % 3)

    with_session(use, digest="me:secret")


def test_a_mute_server_does_not_keep_us_from_the_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seed in range(8):
            async with simulated(2) as world:
                mute, good = world.servers
                world.faults.pause(world.faults.network._listeners[mute.host, PORT].process)  # type: ignore[arg-type]
                start = loop.time()
                async with open_session(world.settings(session_timeout=6), seed=seed) as session:
                    assert loop.time() - start <= 6 / 6 + 0.1
                    assert session._keeper.connection is not None
                    assert session._keeper.connection.peer == f"{good.host}:{PORT}"
            world.faults.network._listeners.clear()

    run(main)


def test_a_registry_that_answers_nothing_is_said_in_time() -> None:
    async def main() -> None:
        async with simulated() as world:
            world.partition()
            start = asyncio.get_running_loop().time()
            with pytest.raises(RegistryUnreachable) as caught:
                async with open_session(world.settings(connection_timeout=7)):
                    pass
            assert asyncio.get_running_loop().time() - start == pytest.approx(7, abs=0.1)
            assert "no answer" in caught.value.reason

    run(main)


def test_a_registry_that_answers_too_slowly_is_not_said_to_be_absent() -> None:
    async def main() -> None:
        async with simulated() as world:
            world.faults.delay(OUR_HOST, world.servers[0].host, 0.55)
            with pytest.raises(RegistryUnreachable, match="answers too slowly to open a session within 5 s: raise"):
                async with open_session(world.settings(connection_timeout=5)):
                    pass

    run(main)


def test_refused_credentials_are_raised_to_those_who_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = wire.render(protocol.AuthRequest(type=0, scheme="unknown", auth=b"me:secret"))
    monkeypatch.setattr(
        session_keeper, "credentials", lambda digest: unknown
    )  # any digest is a good one: no server refuses it

    async def main() -> None:
        async with simulated() as world:
            start = asyncio.get_running_loop().time()
            with pytest.raises(AuthenticationFailed):
                async with open_session(world.settings(digest="me:secret")):
                    pass
            assert asyncio.get_running_loop().time() - start < 1

    run(main)


def test_a_registry_that_was_wiped_is_joined_anew() -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(session_timeout=T), seed=1) as session:
            for number in range(50):
                await session.commit([Create(f"/{number}")], incarnation=session.incarnation)
            old = session.incarnation
            host = world.servers[0].host
            process = world.faults.network._listeners[host, PORT].process
            assert process is not None
            world.faults.crash(process, "reset")

            async def anew() -> None:
                async with serve(host, PORT, tick_time=500, clock=VirtualClock().now):
                    await asyncio.get_running_loop().create_future()

            world.faults.start("registry, wiped", host, anew)
            await session.status.until(lambda status: status.state is CONNECTED and status.incarnation != old)
            assert asyncio.get_running_loop().time() < 4 * T

    run(main)


@pytest.mark.parametrize("state", ["connected", "partitioned", "suspended", "refused"])
def test_closing_takes_no_longer_than_a_moment(state: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with simulated() as world:
            async with open_session(world.settings(session_timeout=T), seed=1) as session:
                waiting = asyncio.ensure_future(session.wait_deleted("/"))
                if state in ("partitioned", "suspended"):
                    world.partition()
                if state == "suspended":
                    await reached(session, SUSPENDED)
                elif state == "refused":
                    process = world.faults.network._listeners[world.servers[0].host, PORT].process
                    assert process is not None
                    world.faults.crash(process)
                    await reached(session, SUSPENDED)
                start = loop.time()
            assert loop.time() - start <= min(2, T / 3) + 0.01
            with pytest.raises(SessionEnded):
                await waiting
            await asyncio.sleep(0.1)
            others = [task for task in asyncio.all_tasks() if "open_session" in repr(task) or "keep" in repr(task)]
            assert not others

    run(main)


def test_a_server_that_ends_connections_at_once_is_not_hammered() -> None:
    async def main() -> None:
        tries: list[float] = []
        loop = asyncio.get_running_loop()

        class Closer(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                tries.append(loop.time())
                transport.close()

        async with simulated() as world, open_session(world.settings(session_timeout=T), seed=1) as session:
            host = world.servers[0].host
            process = world.faults.network._listeners[host, PORT].process
            assert process is not None
            world.faults.crash(process)

            async def close_all() -> None:
                await loop.create_server(Closer, host, PORT)
                await loop.create_future()

            world.faults.start("closer", host, close_all)
            await reached(session, SUSPENDED)
            await asyncio.sleep(60)
        early = [time for time in tries if time < T]
        assert 6 <= len(early) <= 14  # 30 ms, doubling up to a second
        assert 20 <= len(tries) - len(early) <= 45  # and up to three once the session cannot be rescued

    run(main)
