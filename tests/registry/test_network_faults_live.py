"""The same faults on real sockets: a proxy before either server, and an ensemble that loses members.

How long it takes to notice them is held by ``test_network_faults``, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import isfinite

import pytest

from aioelasticjob.errors import OutcomeUnknown, Suspended
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session, SessionState, open_session
from aioelasticjob.registry.session_keeper import SILENT_REASON
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.registry.tree import Tree
from tests.support.deadlines import deadline
from tests.support.loops import LoopKind, run_async
from tests.support.proxy import Proxy, proxy_to
from tests.support.real_zookeeper import Ensemble, RealServer
from tests.support.simulated_registry import fresh, settings

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
T = 6.0
"""Seconds of a session timeout that a test waits for in part."""
LONG = 20.0
"""Seconds of a session timeout that no test waits for; a busy machine may hold a process up for some of them."""


def place(server: str) -> tuple[str, int]:
    host, port = server.split(":")
    return host, int(port)


@asynccontextmanager
async def tapped(server: str, session_timeout: float = T) -> AsyncIterator[tuple[Proxy, Session]]:
    """Open a session through a proxy."""
    async with (
        proxy_to(*place(server)) as proxy,
        open_session(fresh(proxy.address, session_timeout=session_timeout)) as session,
    ):
        yield proxy, session


async def until(session: Session, state: SessionState) -> None:
    async with asyncio.timeout(90):
        await session.status.until(lambda status: status.state is state)


def connection_of(session: Session) -> Connection:
    assert session._keeper.connection is not None
    return session._keeper.connection


@pytest.mark.parametrize("end", ["cut", "reset"])
def test_an_ended_connection_is_noticed_at_once_and_the_session_goes_on(
    registry_server: str, real_loop_kind: LoopKind, end: str
) -> None:
    async def main() -> None:
        async with tapped(registry_server, LONG) as (proxy, session):
            incarnation = session.incarnation
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            with deadline(session, incarnation) as scope:
                for _ in range(3):
                    connection = connection_of(session)
                    getattr(proxy, end)()
                    await until(session, SUSPENDED)
                    assert connection.reason != SILENT_REASON
                    await until(session, CONNECTED)
                    assert await session.exists("/mine") is not None
                    assert session.incarnation == incarnation
            assert not scope.cancelled_caught

    run_async(real_loop_kind, main)


def test_a_write_whose_reply_is_lost_has_an_unknown_outcome(registry_server: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with tapped(registry_server) as (proxy, session):
            incarnation = session.incarnation
            await session.commit([Create("/a")], incarnation=incarnation)
            proxy.swallow("down")
            with pytest.raises(OutcomeUnknown):
                await session.commit([Set("/a", b"arrived", 0)], incarnation=incarnation)
            with pytest.raises(Suspended):
                await session.commit([Set("/a", b"not sent", -1)], incarnation=incarnation)
            proxy.heal()
            node = await session.get("/a")
            assert (node.data, node.stat.version) == (b"arrived", 1)

    run_async(real_loop_kind, main)


def test_work_ends_before_the_server_ends_the_session(registry_server: str, real_loop_kind: LoopKind) -> None:
    """Measured from the server's side: by one who watches the ephemeral node go."""

    async def watched(proxy: Proxy) -> float:
        options = fresh(proxy.address, session_timeout=T)
        async with (
            open_session(options) as session,
            open_session(settings(f"zk://{registry_server}/{options.namespace}")) as observer,
        ):
            await session.commit([Create("/mine", ephemeral=True)], incarnation=session.incarnation)
            waiting = asyncio.ensure_future(observer.wait_deleted("/mine"))
            with deadline(session, session.incarnation) as scope:
                proxy.swallow("up", "down")
                await asyncio.sleep(10)
            assert scope.cancelled_caught
            lease = session._keeper.lease
            had_to_end = lease.now() + lease.left  # a busy machine may have cancelled it somewhat later
            assert isfinite(had_to_end)
            await waiting
            ended = lease.now()
            proxy.heal()
            old = session.incarnation
            await session.status.until(lambda status: status.state is CONNECTED and status.incarnation != old)
            return ended - had_to_end

    async def main() -> None:
        async with proxy_to(*place(registry_server)) as proxy:
            assert await watched(proxy) > 0.05

    run_async(real_loop_kind, main)


def test_a_mute_host_is_passed_over(registry_server: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with proxy_to(*place(registry_server)) as mute, proxy_to(*place(registry_server)) as good:
            mute.swallow("up", "down")
            for seed in range(3):
                options = fresh(f"{mute.address},{good.address}", session_timeout=T)
                async with open_session(options, seed=seed) as session:
                    assert session.status.value.state is CONNECTED
            assert mute.passed == {"up": 0, "down": 0}

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("state", ["connected", "swallowed", "suspended"])
def test_a_session_is_closed_whatever_the_network_does(
    registry_server: str, real_loop_kind: LoopKind, state: str
) -> None:
    async def main() -> None:
        async with tapped(registry_server) as (proxy, session):
            if state != "connected":
                proxy.swallow("up", "down")
            if state == "suspended":
                await until(session, SUSPENDED)
        assert session.status.value.state is SessionState.CLOSED

    run_async(real_loop_kind, main)


async def steady(session: Session, work: asyncio.Event) -> int:
    """Write until told to stop, return how often it went well."""
    done = 0
    while not work.is_set():
        try:
            await session.commit([Set("/a", b"", -1)], incarnation=session.incarnation)
            done += 1
            await asyncio.sleep(0.01)
        except (Suspended, OutcomeUnknown):
            await session.connected()
    return done


def version_in(tree: Tree) -> int:
    node = tree.get("/a")
    return -1 if node is None else node.stat.version


def member_of(ensemble: Ensemble, session: Session) -> RealServer:
    return next(member for member in ensemble.members if member.address == connection_of(session).peer)


@pytest.mark.zookeeper
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_member_that_dies_or_freezes_costs_no_session(
    real_ensemble: Ensemble, real_loop_kind: LoopKind, fault: str
) -> None:
    async def main() -> None:
        async with open_session(fresh(real_ensemble.addresses, session_timeout=LONG)) as session:
            incarnation, stop = session.incarnation, asyncio.Event()
            while member_of(real_ensemble, session) is real_ensemble.leader():  # a follower is to fall
                connection_of(session).abort("moving on")
                await until(session, CONNECTED)
            await session.commit([Create("/a"), Create("/mine", ephemeral=True)], incarnation=incarnation)
            async with mirror(session, ["/a"]) as trees, asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(steady(session, stop))
                with deadline(session, incarnation) as scope:
                    member, connection = member_of(real_ensemble, session), connection_of(session)
                    lost = tasks.create_task(until(session, SUSPENDED))  # that may be over before the kill returns
                    if fault == "kill":
                        await asyncio.to_thread(member.kill)
                    else:
                        member.process.pause()
                    await lost
                    assert (connection.reason == SILENT_REASON) is (fault == "freeze")
                    await until(session, CONNECTED)
                    written = (await session.get("/a")).stat.version
                    await trees.until(lambda tree: version_in(tree) > written)  # writing goes on
                assert not scope.cancelled_caught  # work was not even disturbed
                assert session.incarnation == incarnation
                stop.set()
                assert await writing >= written
                version = (await session.get("/a")).stat.version
                await trees.until(lambda tree: version_in(tree) == version)

    run_async(real_loop_kind, main)


@pytest.mark.zookeeper
def test_a_follower_without_its_leader_is_found_out_though_it_answers_reads(real_ensemble: Ensemble) -> None:
    async def main() -> None:
        leader = await asyncio.to_thread(real_ensemble.leader)
        followers = ",".join(member.address for member in real_ensemble.members if member is not leader)
        async with open_session(fresh(followers, session_timeout=T)) as session:
            await session.commit([Create("/a", b"old")], incarnation=session.incarnation)
            leader.process.pause()
            proven = session._keeper.lease.proven
            assert (await session.get("/a")).data == b"old"  # nothing wrong to be seen
            assert session._keeper.lease.proven == proven  # but it proves nothing
            await until(session, SUSPENDED)
            assert session._keeper.lease.proven == proven

    asyncio.run(main())


@pytest.mark.zookeeper
def test_an_election_costs_no_session(real_ensemble: Ensemble) -> None:
    async def main() -> None:
        async with open_session(fresh(real_ensemble.addresses, session_timeout=LONG)) as session:
            incarnation = session.incarnation
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            leader = await asyncio.to_thread(real_ensemble.leader)
            await asyncio.to_thread(leader.kill)
            await until(session, SUSPENDED)
            async with asyncio.timeout(90):
                while True:
                    with suppress(Suspended, OutcomeUnknown):
                        await session.commit([Create("/after")], incarnation=incarnation)
                        break
                    await session.connected()
            assert session.incarnation == incarnation
            stat = await session.exists("/mine")
            assert stat is not None
            assert stat.ephemeral_owner == incarnation

    asyncio.run(main())
