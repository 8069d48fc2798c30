"""Servers that refuse requests since they are overloaded, sessions that move, and elections that take long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise

import anyio
import pytest

from aioelasticjob import ItemContext
from aioelasticjob.doctor import Verdict, examine
from aioelasticjob.errors import Overloaded, RegistryError, Suspended
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.codec import GET, MULTI, MULTI_READ, SYNC, WATCH, attach, attached
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import ConnectionSettings, Session, SessionState, open_session
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.testing import VirtualClock, run
from aioelasticjob.zookeeper import replies
from aioelasticjob.zookeeper.codes import ErrorCode
from aioelasticjob.zookeeper.connection import Connection as ServerConnection
from aioelasticjob.zookeeper.jute import Reader
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.server import Server
from aioelasticjob.zookeeper.settings import Settings
from tests.support import real_zookeeper
from tests.support.deadlines import deadline
from tests.support.real_zookeeper import Changes, Ensemble, RealServer
from tests.support.simulated_jobs import SimulatedJobs, simulate
from tests.support.simulated_registry import simulated

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


class Overload:
    """Lets embedded servers refuse some operations as ZooKeeper's request throttler does, and counts those."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.operations: frozenset[int] = frozenset()
        self.times = 0
        """How many more requests are refused."""
        self.refused = 0
        answer = Processor._answer

        def answer_or_refuse(
            processor: Processor, connection: ServerConnection, xid: int, op: int, reader: Reader
        ) -> None:
            if op not in self.operations or not self.times:
                return answer(processor, connection, xid, op, reader)
            self.times -= 1
            self.refused += 1
            return processor.send(connection, replies.reply(xid, processor.tree.zxid, ErrorCode.THROTTLED_OP))

        patch.setattr(Processor, "_answer", answer_or_refuse)

    def refuse(self, *operations: int, times: int = 1 << 30) -> None:
        self.operations, self.times = frozenset(operations), times


@pytest.fixture
def overload(monkeypatch: pytest.MonkeyPatch) -> Overload:
    return Overload(monkeypatch)


def test_a_read_is_sent_again_after_a_pause_and_given_up_after_some_retries(overload: Overload) -> None:
    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(base_sleep_time=1, max_sleep_time=3), clock=VirtualClock()) as session,
        ):
            await session.commit([Create("/a", b"x")], incarnation=session.incarnation)
            overload.refuse(GET, times=2)
            before = anyio.current_time()
            assert (await session.get("/a")).data == b"x"
            assert (overload.refused, anyio.current_time() - before > 1) == (2, True)
            overload.refuse(GET, MULTI_READ)
            for read in (session.get("/a"), session.get_many(["/a"])):
                with pytest.raises(Suspended, match="the registry is overloaded, after 3 retries"):
                    await read
            assert overload.refused == 2 + 2 * 4
            assert session.status.value.state is CONNECTED

    run(main)


def test_a_write_was_not_written_and_is_not_repeated(overload: Overload) -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock()) as session:
            overload.refuse(MULTI, times=1)
            with pytest.raises(Overloaded, match="/a: the registry is overloaded"):
                await session.commit([Create("/a")], incarnation=session.incarnation)
            assert overload.refused == 1
            assert await session.exists("/a") is None

    run(main)


def test_transactions_of_one_round_are_refused_together_and_are_not_repeated(overload: Overload) -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock()) as session:
            overload.refuse(MULTI)
            commits = [session.commit([Create(f"/{n}")], incarnation=session.incarnation) for n in range(3)]
            outcomes = await asyncio.gather(*commits, return_exceptions=True)
            assert [type(one) for one in outcomes] == [Overloaded] * 3
            assert len({id(one) for one in outcomes}) == 3
            assert overload.refused == 1

    run(main)


def test_a_start_waits_until_the_namespace_can_be_made(overload: Overload) -> None:
    async def main() -> None:
        async with simulated() as world:
            overload.refuse(MULTI, times=2)
            async with open_session(world.settings(), clock=VirtualClock()) as session:
                assert overload.refused == 2
                assert await session.children("/") == ()

    run(main)


def test_a_refused_heartbeat_proves_nothing(overload: Overload) -> None:
    """Servers refuse it without asking the leader, so one that has lost the leader would prove a session that ended."""

    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(session_timeout=10), clock=VirtualClock()) as session,
        ):
            incarnation = session.incarnation
            overload.refuse(SYNC)
            before = anyio.current_time()
            with deadline(session, incarnation) as scope:
                await anyio.sleep(60)
            assert scope.cancelled_caught
            assert 5 < anyio.current_time() - before < 10
            assert overload.refused >= 4
            overload.refuse()
            await session.status.until(lambda status: status.state is CONNECTED)
            assert session.is_proven()
            assert session.incarnation == incarnation

    run(main)


@pytest.mark.parametrize(("reconnects", "times"), [(False, 1), (True, 2)])
def test_a_refused_watch_is_set_again_with_all_others(overload: Overload, reconnects: bool, times: int) -> None:
    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(session_timeout=10), clock=VirtualClock()) as session,
            open_session(world.settings(), clock=VirtualClock()) as other,
        ):
            incarnation = session.incarnation
            await other.commit([Create("/a")], incarnation=other.incarnation)
            overload.refuse(WATCH, times=0 if reconnects else times)
            async with mirror(session, ["/a"]) as trees:
                await trees.until(lambda tree: "/a" in tree)
                if reconnects:
                    overload.refuse(WATCH, times=times)
                    world.servers[0].clients[_of(world.servers[0], incarnation)].transport.abort()
                with anyio.fail_after(60):
                    while overload.refused < times:
                        await anyio.sleep(0.1)
                await session.status.until(lambda status: status.state is CONNECTED)
                await other.commit([Set("/a", b"new", -1)], incarnation=other.incarnation)
                with anyio.fail_after(5):
                    await trees.until(lambda tree: getattr(tree.get("/a"), "data", None) == b"new")
            assert session.incarnation == incarnation

    run(main)


def _of(server: Server, session: int) -> ServerConnection:
    return server.processor.connections[session]


def test_jobs_go_on_when_everything_was_refused_for_a_while(overload: Overload) -> None:
    """A run that the overload has cut off may be rescued; no two runs of an item overlap."""
    runs = Runs()

    async def scene(here: SimulatedJobs) -> None:
        for name, host in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
            here.faults.start(name, host, runs.worker(here, session_timeout=10, work=3))
        await here.until(25)
        overload.refuse(GET, MULTI, MULTI_READ, SYNC, WATCH)
        await here.until(65)
        assert overload.refused > 20
        overload.refuse()
        await here.until(150)

    simulate(scene)
    runs.check(first=10, last=130)


class Runs:
    """What handlers did: from when to when each ran, and how."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, float, float]] = []
        """Item, beginning and end in seconds after the start."""
        self.cancelled = 0

    def worker(self, here: SimulatedJobs, *, session_timeout: float, work: float) -> Callable[[], object]:
        async def handler(context: ItemContext) -> None:
            began = here.now()
            try:
                await anyio.sleep(work)
            except BaseException:
                self.cancelled += 1
                raise
            finally:
                self.spans.append((context.item, began, here.now()))

        async def main() -> None:
            app = here.app(handler, cron="0/10 * * * * ?", sharding_total_count=2, failover=True)
            app._registry = app._registry.changed(session_timeout=session_timeout)
            async with app.running():
                await anyio.sleep_forever()

        return main

    def check(self, first: float, last: float) -> None:
        """See that both items ran before and after, and never at two places at the same time."""
        for item in range(2):
            spans = sorted(span[1:] for span in self.spans if span[0] == item)
            assert spans[0][0] <= first + 1
            assert spans[-1][0] >= last
            assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), spans


class Election:
    """An ensemble without a leader: no request and no new connection is answered, and sessions end only afterwards."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._servers: list[Server] = []
        self._goes_on = False
        run_clocks, expire, receive = Server.run_clocks, Processor.expire, Processor.receive

        def note(server: Server) -> None:
            self._servers.append(server)
            run_clocks(server)

        def expire_unless(processor: Processor, now: int) -> None:
            if not self._goes_on:
                expire(processor, now)

        def receive_unless(processor: Processor, connection: ServerConnection, frame: bytes, now: int) -> None:
            if self._goes_on:
                processor.close(connection)
            else:
                receive(processor, connection, frame, now)

        patch.setattr(Server, "run_clocks", note)
        patch.setattr(Processor, "expire", expire_unless)
        patch.setattr(Processor, "receive", receive_unless)

    def begin(self) -> None:
        self._goes_on = True
        for server in self._servers:
            for client in list(server.clients.values()):
                client.transport.abort()

    def end(self) -> None:
        """The new leader gives every session its whole timeout, as ZooKeeper's does."""
        self._goes_on = False
        for server in self._servers:
            sessions = server.processor.sessions
            for session, timeout in sessions.timeouts.items():
                sessions.touch(session, timeout, server.now())


@pytest.mark.parametrize(("session_timeout", "cancelled"), [(10, True), (40, False)])
def test_an_election_of_twenty_seconds_ends_runs_only_where_the_session_timeout_is_shorter(
    monkeypatch: pytest.MonkeyPatch, session_timeout: float, cancelled: bool
) -> None:
    monkeypatch.setattr(Settings, "session_timeouts", (2_000, 60_000))
    election, runs = Election(monkeypatch), Runs()

    async def scene(here: SimulatedJobs) -> None:
        observer = here.observer.incarnation
        for name, host in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
            here.faults.start(name, host, runs.worker(here, session_timeout=session_timeout, work=28))
        await here.until(12)
        election.begin()
        await here.until(32)
        election.end()
        await here.until(60)
        assert (runs.cancelled > 0) is cancelled
        await here.until(200)
        assert here.observer.incarnation == observer

    simulate(scene)
    runs.check(first=10, last=130)


# Debian's ZooKeeper


@pytest.fixture(scope="module")
def read_only_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three members that serve readers when they have lost the others."""
    changes = Changes(properties={"readonlymode.enabled": "true"})
    with real_zookeeper.ensemble(tmp_path_factory.mktemp("read-only"), changes=changes) as members:
        yield members


def parsed(members: Ensemble, name: str, timeout: float) -> ConnectionSettings:
    return ConnectionSettings.parse(f"zk://{members.addresses}/{name}", session_timeout=timeout, connection_timeout=60)


async def state(session: Session, wanted: SessionState) -> None:
    async with asyncio.timeout(90):
        await session.status.until(lambda status: status.state is wanted)


async def mode(server: RealServer, wanted: str) -> None:
    async with asyncio.timeout(90):
        while await asyncio.to_thread(server.mode) != wanted:
            await asyncio.sleep(0.05)


@pytest.mark.zookeeper
def test_a_read_only_member_is_no_registry_and_the_session_goes_on_when_it_is_one_again(
    read_only_ensemble: Ensemble,
) -> None:
    ensemble = read_only_ensemble

    async def main() -> None:
        async with open_session(parsed(ensemble, "moods", 60)) as session:
            incarnation, states = session.incarnation, list[SessionState]()
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            first, second, rest = ensemble.members
            for one in (first, second):
                await asyncio.to_thread(one.kill)
            await state(session, SUSPENDED)
            await mode(rest, "read-only")
            watching = asyncio.create_task(note(session, states))
            with pytest.raises(RegistryError):  # it must not answer with what it has: that may be old
                await session.get("/mine")
            with pytest.raises(Suspended):
                await session.commit([Set("/mine", b"", -1)], incarnation=incarnation)
            assert CONNECTED not in states
            report = await examine(Address.parse(f"zk://{rest.address}/moods", connection_timeout=60.0))
            assert (report.findings[0].topic, report.findings[0].verdict) == ("connection", Verdict.BAD)
            assert f"lost contact to the others: {rest.address}." in report.findings[0].seen
            await asyncio.to_thread(ensemble.repair)
            await state(session, CONNECTED)
            watching.cancel()
            assert (await session.exists("/mine")) is not None
            assert session.incarnation == incarnation

    asyncio.run(main())


async def note(session: Session, states: list[SessionState]) -> None:
    await session.status.until(lambda status: bool(states.append(status.state)))  # type: ignore[func-returns-value]


@pytest.mark.zookeeper
def test_a_session_that_moved_to_another_member_comes_back(real_ensemble: Ensemble) -> None:
    async def main() -> None:
        async with open_session(parsed(real_ensemble, "moved", 20)) as session:
            incarnation, keeper = session.incarnation, session._keeper
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            assert keeper.connection is not None
            peer = keeper.connection.peer
            with deadline(session, incarnation) as scope:
                for member in real_ensemble.members:
                    if not peer.endswith(f":{member.port}"):
                        await take_over(member, incarnation, keeper._password)
                async with asyncio.timeout(60):
                    while not await written(session):
                        await session.connected()
                assert (await session.exists("/mine")) is not None
                assert session.incarnation == incarnation
            assert not scope.cancelled_caught

    asyncio.run(main())


async def take_over(member: RealServer, session: int, password: bytes) -> None:
    """Attach a session to a member, as a late packet of an earlier attempt to connect would."""
    connection = Connection(Lease(), lambda _: None, lambda _: None)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: connection, member.host, member.port)
    answer = await connection.greet(attach(session, password, 20, 0))
    assert attached(answer)[0] == session
    connection.abort("closed by the test")


async def written(session: Session) -> bool:
    try:
        await session.commit([Set("/mine", b"new", -1)], incarnation=session.incarnation)
    except RegistryError:
        return False
    return True
