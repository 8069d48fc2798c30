"""Long outages, shaky beginnings and a minute of everything, in simulated time against the embedded server."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from itertools import count
from struct import pack
from unittest import mock

import pytest

from aioelasticjob.errors import AuthenticationFailed, OutcomeUnknown, RegistryUnreachable, SessionEnded, Suspended
from aioelasticjob.ground.limited_log import INTERVAL, MOST
from aioelasticjob.registry import session_keeper
from aioelasticjob.registry.codec import CHILDREN, Codec
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session, SessionState, open_session
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualClock, run
from tests.registry.test_network_faults import T, reached, with_session
from tests.support.clocks import block_loop
from tests.support.deadlines import deadline
from tests.support.simulated_registry import OUR_HOST, PORT, SimulatedRegistry, settings, simulated


@pytest.mark.parametrize("ends", ["same session", "next session"])
def test_mirrors_and_waits_outlive_any_outage(ends: str) -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        old = session.incarnation
        await session.commit([Create("/mine"), Create("/a", b"1")], incarnation=old)
        async with (
            open_session(world.settings(session_timeout=40), clock=VirtualClock(), seed=5) as writer,
            mirror(session, ["/a", "/b"]) as trees,
        ):
            waiting = asyncio.ensure_future(session.wait_deleted("/mine"))
            await session.sync()
            for _ in range(2):  # the second time while everything is being read again
                world.partition()
                world.reset()
                await asyncio.sleep(1 if ends == "same session" else 5 * T)
                world.heal()
                await session.connected()
            assert (session.incarnation == old) is (ends == "same session")
            await asyncio.sleep(5)
            assert not waiting.done()
            await writer.connected()
            zxid = (
                await writer.commit([Delete("/mine"), Create("/b"), Set("/a", b"2", 0)], incarnation=writer.incarnation)
            ).zxid
            await waiting
            tree = await trees.until(lambda tree: tree.zxid >= zxid)
            assert list(tree) == ["/a", "/b"]
            assert tree == await session.subtree(["/a", "/b"])

    with_session(use, max_retries=0)


def test_a_node_that_was_made_anew_during_an_outage_counts_as_gone() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        await session.commit([Create("/mine")], incarnation=session.incarnation)
        waiting = asyncio.ensure_future(session.wait_deleted("/mine"))
        await session.sync()

        async def make_anew() -> None:
            async with open_session(world.settings(), clock=VirtualClock(), seed=7) as other:
                await other.commit([Delete("/mine"), Create("/mine")], incarnation=other.incarnation)

        world.partition()
        await world.faults.start("another", "10.0.1.1", make_anew).wait()
        assert not waiting.done()
        world.reset()
        world.heal()
        async with asyncio.timeout(2):
            await waiting
        assert await session.exists("/mine") is not None

    with_session(use)


def test_a_server_that_failed_is_asked_last_next_time() -> None:
    async def main() -> None:
        async with simulated(3) as world:
            mute = world.servers[0].host
            world.faults.drop(OUR_HOST, mute)
            for seed in range(12):
                start = asyncio.get_running_loop().time()
                async with open_session(world.settings(session_timeout=6), clock=VirtualClock(), seed=seed) as session:
                    if asyncio.get_running_loop().time() - start < 6 / 6:  # the mute one was not asked yet
                        continue
                    kept = session._keeper
                    assert kept.connection is not None
                    order = [f"{host}:{port}" for host, port in kept._hosts]
                    assert order[-1] == kept.connection.peer  # if this one fails, the others come first
                    assert f"{mute}:{PORT}" in order[1:-1]
                    return
            raise AssertionError("no seed asked the mute server first")

    run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_registry_that_comes_up_late_and_shakily_is_joined(seed: int) -> None:
    async def main() -> None:
        async with simulated() as world, asyncio.TaskGroup() as tasks:
            world.partition()

            async def shake() -> None:
                await asyncio.sleep(3)
                world.heal()
                for _ in range(40):
                    await asyncio.sleep(0.01)
                    world.reset()

            tasks.create_task(shake())
            async with open_session(world.settings(max_retries=0), clock=VirtualClock(), seed=seed) as session:
                assert await session.children("/") == ()

    run(main, seed=seed)


def test_a_server_that_grants_no_session_is_no_registry() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        class Miser(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                answer = pack("!iiqi16s?", 0, 0, 0, 16, bytes(16), False)
                transport.write(pack("!i", len(answer)) + answer)  # type: ignore[attr-defined]

        await loop.create_server(Miser, "127.0.0.1", PORT)
        with pytest.raises(RegistryUnreachable, match="refused"):
            async with open_session(settings(f"zk://127.0.0.1:{PORT}", connection_timeout=3)):
                pass

    run(main)


def test_what_is_no_zookeeper_is_no_registry() -> None:
    async def main() -> None:
        class Web(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # type: ignore[attr-defined]

        await asyncio.get_running_loop().create_server(Web, "127.0.0.1", PORT)
        with pytest.raises(RegistryUnreachable, match="not ZooKeeper's protocol"):
            async with open_session(settings(f"zk://127.0.0.1:{PORT}", connection_timeout=3)):
                pass

    run(main)


def test_a_refused_watch_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Ear:
        def changed(self, kind: int, path: str) -> None: ...

        def reset(self) -> None: ...

    async def use(world: SimulatedRegistry, session: Session) -> None:
        monkeypatch.setattr(session_keeper, "WATCH", CHILDREN)  # answered with an error, as there is no such node
        monkeypatch.setattr(Codec, "watch", lambda codec, roots, zxid, most: [*map(codec.watching, roots)])
        with session.watching(["/nowhere"], Ear()):
            await session.sync()

    with caplog.at_level(logging.ERROR):
        with_session(use)
    assert [record.message for record in caplog.records] == [
        "the registry refused a watch, with error -101; changes may be noticed late"
    ]


def test_watches_that_are_refused_again_and_again_are_logged_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ear:
        def changed(self, kind: int, path: str) -> None: ...

        def reset(self) -> None: ...

    async def use(world: SimulatedRegistry, session: Session) -> None:
        monkeypatch.setattr(session_keeper, "WATCH", CHILDREN)
        monkeypatch.setattr(Codec, "watch", lambda codec, roots, zxid, most: [*map(codec.watching, roots)])
        with session.watching([f"/nowhere-{number}" for number in range(30)], Ear()):
            await session.sync()
        await asyncio.sleep(INTERVAL)

    with caplog.at_level(logging.WARNING):
        with_session(use)
    refused, counted = caplog.messages
    assert refused.startswith("the registry refused a watch, with error -101")
    assert counted == "29 more lines were left out: the registry refuses watches, with error -101"


def _lines_about_the_connection(
    caplog: pytest.LogCaptureFixture, break_it: Callable[[SimulatedRegistry, Session], Coroutine[object, object, None]]
) -> list[str]:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        await asyncio.sleep(INTERVAL)  # the interval of the first connection is over
        caplog.clear()
        await break_it(world, session)
        await session.connected()
        assert not any("left out" in line for line in caplog.messages)
        await asyncio.sleep(2 * INTERVAL)
        assert any("left out" in line for line in caplog.messages)

    with caplog.at_level(logging.INFO, session_keeper.log.name):
        with_session(use)
    return caplog.messages


def test_a_connection_that_comes_and_goes_fills_no_log_and_the_newest_state_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sessions = list[int]()

    async def flap(world: SimulatedRegistry, session: Session) -> None:
        for _ in range(50):
            world.reset()
            await reached(session, SessionState.SUSPENDED)
            await reached(session, SessionState.CONNECTED)
            await asyncio.sleep(1.1)
        sessions.append(session.incarnation)

    *lines, counted = _lines_about_the_connection(caplog, flap)
    place, session = f"the registry at zk://10.0.0.1:{PORT}/test", f"{sessions[0]:#x}"
    connected = f"connected to {place}, with the session {session}"
    assert lines[1::2] == [connected] * (MOST // 2)
    assert [line.partition(":")[0] for line in lines[::2]] == ["the connection to the registry was lost"] * (MOST // 2)
    left_out = 2 * 50 - MOST
    summary = f"{left_out} more lines were left out: the connection to {place} comes and goes"
    assert counted == f"{summary}; the newest: {connected}"


def test_reasons_why_there_is_no_connection_that_take_turns_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(world: SimulatedRegistry, session: Session) -> None:
        numbers = count()

        async def unreadable(*_: object) -> object:
            raise AuthenticationFailed(f"reason {next(numbers) % 2}")

        with mock.patch.object(session_keeper, "read_access", unreadable):
            world.reset()
            await asyncio.sleep(30)

    lines = _lines_about_the_connection(caplog, fail)
    assert sum("cannot connect to the registry: reason" in line for line in lines) == MOST - 1
    assert lines[-1].partition("; the newest: ")[2].startswith("connected to the registry")


@pytest.mark.parametrize("seed", range(3))
def test_a_minute_of_chaos_leaves_no_call_behind(seed: int) -> None:
    dice = random.Random(seed)

    async def use(world: SimulatedRegistry, session: Session) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.get_running_loop().time() + 60
        done, longest = {"read": 0, "written": 0, "unknown": 0}, 0.0

        async def work(number: int) -> None:
            nonlocal longest
            path = f"/{number}"
            while loop.time() < end:
                start = loop.time()
                try:
                    if await session.exists(path) is None:
                        await session.commit([Create(path, ephemeral=True)], incarnation=session.incarnation)
                    else:
                        await session.commit([Delete(path)], incarnation=session.incarnation)
                    done["written"] += 1
                except OutcomeUnknown:
                    done["unknown"] += 1
                except (Suspended, SessionEnded):
                    await session.connected()
                done["read"] += 1
                longest = max(longest, loop.time() - start)
                await asyncio.sleep(dice.uniform(0, 0.2))

        async def harm() -> None:
            faults: list[Callable[[], object]] = [world.reset, world.half_open, world.partition]
            while loop.time() < end:
                dice.choice(faults)()
                await asyncio.sleep(dice.uniform(0, 3))
                world.heal()
                await asyncio.sleep(dice.uniform(0, 3))

        async with asyncio.TaskGroup() as tasks:
            jobs: list[Coroutine[object, object, None]] = [work(number) for number in range(6)]
            for job in [*jobs, harm()]:
                tasks.create_task(job)
        world.heal()
        await session.connected()
        await session.sync()
        assert done["written"] > 300
        assert longest < 12
        assert session._keeper.connection is not None
        assert len(session._keeper.connection._pending) <= 1  # a heartbeat

    with_session(use, seed=seed)


def test_after_a_suspension_nothing_is_written_before_the_session_is_proven_again() -> None:
    """The machine sleeps for longer than the session lives without heartbeats; its loop's clock stands still."""

    async def use(_world: SimulatedRegistry, session: Session) -> None:
        incarnation, lease = session.incarnation, session._keeper.lease
        with mock.patch.object(lease, "now", side_effect=lambda awake=lease.now: awake() + 60):
            with deadline(session, incarnation) as running:
                with pytest.raises(Suspended, match="so the session may have ended; nothing was written"):
                    await session.commit([Create("/late")], incarnation=incarnation)
                assert running.cancel_called
                assert session.status.value.state is SessionState.SUSPENDED
            await session.connected()
            assert session.is_proven()
            assert await session.exists("/late") is None
            await session.commit([Create("/late")], incarnation=incarnation)  # the server has seen no suspension

    with_session(use)


def test_the_registry_s_time_goes_on_in_a_suspension() -> None:
    async def use(_world: SimulatedRegistry, session: Session) -> None:
        await session.server_time("/systemTime/current")
        lease, wall = session._keeper.lease, VirtualClock.now
        with (
            mock.patch.object(lease, "now", side_effect=lambda awake=lease.now: awake() + 3600),
            mock.patch.object(VirtualClock, "now", lambda self: wall(self) + 3600),
        ):
            assert session.clock_skew == pytest.approx(0, abs=0.1)

    with_session(use)


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_the_silence_of_a_registry_while_the_event_loop_was_blocked_is_no_outage(share: float) -> None:
    async def use(_world: SimulatedRegistry, session: Session) -> None:
        keeper = session._keeper
        with deadline(session, session.incarnation), mock.patch.object(session_keeper.log, "warning") as warning:
            await asyncio.sleep(60)
            block_loop(share * keeper.lease.timeout)
            await reached(session, SessionState.SUSPENDED)
            await reached(session, SessionState.CONNECTED)
        assert "was lost: this process stood still (its event loop was blocked" in str(warning.call_args_list[0])
        ((began, ended),) = keeper.ages_of_outages()
        assert began - ended < 1

    with_session(use)


def test_a_connection_is_lost_because_of_a_silent_server_even_if_the_event_loop_was_blocked_for_a_moment() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        keeper = session._keeper
        world.partition()
        await asyncio.sleep(0.3 * keeper.lease.timeout)
        block_loop(0.2 * keeper.lease.timeout)
        await reached(session, SessionState.SUSPENDED)
        assert keeper.reason == session_keeper.SILENT_REASON
        ((began, _),) = keeper.ages_of_outages()
        assert began >= keeper.lease.timeout / 2
        world.heal()

    with_session(use)


def test_an_outage_before_a_suspension_is_dated_before_it() -> None:
    async def use(world: SimulatedRegistry, session: Session) -> None:
        world.partition()
        world.reset()
        await session.status.until(lambda status: status.state is SessionState.SUSPENDED)
        world.heal()
        await session.connected()
        keeper = session._keeper
        ((began, ended),) = keeper.ages_of_outages()
        lease = keeper.lease
        with mock.patch.object(lease, "now", side_effect=lambda awake=lease.now: awake() + 3600):
            assert keeper.ages_of_outages() == (pytest.approx((began + 3600, ended + 3600)),)

    with_session(use)
