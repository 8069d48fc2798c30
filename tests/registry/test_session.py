"""A session against the embedded and the real server, on every kind of loop with sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from anyio import CancelScope

from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import (
    AuthenticationFailed,
    Conflict,
    NodeMissing,
    NodeTooLarge,
    NotPermitted,
    RegistryError,
    RegistryUnreachable,
    SessionEnded,
)
from aioelasticjob.registry.session import ATTEMPTS, Session, SessionState, open_session
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock, run
from tests.support.deadlines import deadline
from tests.support.loops import LoopKind, run_async
from tests.support.simulated_registry import settings, simulated

Use = Callable[[Session], Awaitable[None]]


@pytest.fixture
def with_session(registry_address: str, real_loop_kind: LoopKind) -> Callable[[Use], None]:
    """Run a function with an open session in a namespace of its own."""

    def run(use: Use) -> None:
        async def main() -> None:
            async with open_session(settings(registry_address, session_timeout=2)) as session:
                await use(session)

        run_async(real_loop_kind, main)

    return run


async def commit(session: Session, *ops: Op) -> Committed:
    return await session.commit(ops, incarnation=session.incarnation)


def test_a_reading_of_the_clocks_says_which_transaction_is_the_newest(
    with_session: Callable[[Use], None],
) -> None:
    async def use(session: Session) -> None:
        for op in (Create("/a"), Set("/a", b"dated", 0)):  # the second answer says what the registry's time is
            await commit(session, op)
            assert session.read_clocks().zxid == session.zxid > 0

    with_session(use)


def test_a_session_knows_what_it_is(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        assert session.status.value.state is SessionState.CONNECTED
        assert session.status.value.incarnation == session.incarnation != 0
        assert session.timeout == 2
        assert session.host == "127.0.0.1"
        assert await session.children("/") == ()

    with_session(use)


def test_what_was_committed_is_read_back(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        ops = [Create("/a", b"1"), Create("/a/b", "ünï☃".encode()), Create("/a/c"), Set("/a", b"2", 0), Check("/a", 1)]
        done = await commit(session, *ops, Delete("/a/c", 0))
        assert done.versions == (0, 0, 0, 1, -1, -1)
        node = await session.get("/a")
        assert (node.data, node.stat.version, node.stat.num_children) == (b"2", 1, 1)
        assert node.stat.czxid == node.stat.mzxid == done.zxid <= session.zxid
        assert await session.children("/a") == ("b",)
        assert await session.exists("/a/c") is None
        found = await session.exists("/a/b")
        assert found is not None
        assert await session.get_many(["/a/b", "/nowhere", "/a"]) == [await session.get("/a/b"), None, node]
        assert await session.get_many([]) == []

    with_session(use)


def test_a_missing_node_is_named(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        for read in (session.get, session.children):
            with pytest.raises(NodeMissing, match="/nowhere"):
                await read("/nowhere")

    with_session(use)


def test_a_subtree_is_read_whole_and_missing_roots_are_absent(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        paths = ["/a", *(f"/a/{i}" for i in range(700)), *(f"/a/{i}/x" for i in range(0, 700, 7)), "/b"]
        for start in range(0, len(paths), 300):
            await commit(session, *(Create(path, path.encode()) for path in paths[start : start + 300]))
        before = session.zxid
        tree = await session.subtree(["/a", "/missing"])
        assert list(tree) == sorted(set(paths) - {"/b"})
        assert all(tree.get(path) is not None and tree.get(path).data == path.encode() for path in tree)  # type: ignore[union-attr]
        assert tree.zxid == before
        assert list(await session.subtree(["/"])) == sorted(["/", *paths])

    with_session(use)


@pytest.mark.parametrize(
    ("ops", "index", "reason"),
    [
        ([Check("/a"), Create("/a")], 1, "exists"),
        ([Create("/new"), Set("/nowhere", b"", -1), Delete("/a")], 1, "missing"),
        ([Set("/a", b"", 9)], 0, "version"),
        ([Check("/a/b"), Delete("/a")], 1, "not empty"),
        ([Create("/e", ephemeral=True), Create("/e/x")], 1, "no ephemeral children"),
    ],
)
def test_a_conflict_says_where_and_why_and_nothing_is_written(
    with_session: Callable[[Use], None], ops: list[Op], index: int, reason: str
) -> None:
    async def use(session: Session) -> None:
        await commit(session, Create("/a"), Create("/a/b"))
        with pytest.raises(Conflict) as caught:
            await commit(session, *ops)
        assert (caught.value.index, caught.value.path, caught.value.reason) == (index, ops[index].path, reason)
        assert await session.children("/") == ("a",)

    with_session(use)


def test_writes_of_many_tasks_keep_their_order(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        await commit(session, Create("/a"))
        done: list[int] = []

        async def write(number: int) -> None:
            done.append((await commit(session, Set("/a", str(number).encode(), number))).versions[0])

        async with asyncio.TaskGroup() as tasks:  # each demands the version its predecessor left
            for number in range(300):
                tasks.create_task(write(number))
        assert done == list(range(1, 301))

    with_session(use)


def test_too_much_for_one_request_is_refused_before_it_is_sent(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        with pytest.raises(NodeTooLarge) as caught:
            await commit(session, Create("/small"), Create("/large", bytes(1_000_000)))
        assert caught.value.path == "/large"
        assert caught.value.limit == 1_000_000 < caught.value.size
        assert "max_request allows 1000000" in str(caught.value)
        await commit(session, Create("/large", bytes(999_000)))
        assert len((await session.get("/large")).data) == 999_000
        assert session.status.value.state is SessionState.CONNECTED

    with_session(use)


def test_another_incarnations_write_is_refused(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        for incarnation in (session.incarnation + 1, 0):
            with pytest.raises(SessionEnded):
                await session.commit([Create("/a")], incarnation=incarnation)
        assert await session.children("/") == ()

    with_session(use)


def test_an_ephemeral_node_ends_with_its_session(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(registry_address)) as session:
            async with open_session(settings(registry_address)) as other:
                await commit(other, Create("/here", ephemeral=True))
                stat = await session.exists("/here")
                assert stat is not None
                assert stat.ephemeral_owner == other.incarnation
                waiting = asyncio.ensure_future(session.wait_deleted("/here"))
                await session.sync()
                assert not waiting.done()
            await waiting
            assert await session.exists("/here") is None

    run_async(real_loop_kind, main)


def test_waiting_for_the_end_of_a_node_that_is_not_there_is_over_at_once(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        await session.wait_deleted("/nowhere")

    with_session(use)


def test_the_end_is_noticed_though_the_node_is_made_anew(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        await commit(session, Create("/a"))
        waiting = asyncio.ensure_future(session.wait_deleted("/a"))
        await session.sync()
        await commit(session, Delete("/a"), Create("/a"))
        await waiting

    with_session(use)


def test_a_wait_that_is_cancelled_leaves_no_watch(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        await commit(session, Create("/a"))
        waiting = asyncio.ensure_future(session.wait_deleted("/a"))
        await session.sync()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert session._keeper.watches.roots == ()

    with_session(use)


def test_the_registrys_clock_is_read_and_the_difference_known(registry_address: str, real_loop_kind: LoopKind) -> None:
    class Ahead:
        def now(self) -> float:
            return SystemClock().now() + 100

    async def main() -> None:
        async with open_session(settings(registry_address), clock=Ahead()) as session:
            assert session.clock_skew is None
            before = SystemClock().now()
            server_time = await session.server_time("/job/systemTime/current")
            after = SystemClock().now()
            assert before - 0.1 <= server_time <= after + 0.1
            assert session.clock_skew == pytest.approx(100, abs=0.1 + after - before)
            assert await session.exists("/job/systemTime/current") is not None
            await session.server_time("/systemTime/current")
            assert "systemTime" in await session.children("/")

    run_async(real_loop_kind, main)


def test_a_namespace_of_many_levels_is_made_and_may_be_the_root(registry_server: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(f"zk://{registry_server}")) as root:
            name = f"deep-{root.incarnation}"
            async with open_session(settings(f"zk://{registry_server}/{name}/b/c")) as session:
                await commit(session, Create("/x"))
            async with open_session(settings(f"zk://{registry_server}/{name}/b/c")) as session:
                assert await session.children("/") == ("x",)
            assert await root.children(f"/{name}/b") == ("c",)

    run_async(real_loop_kind, main)


def test_nodes_made_under_a_digest_are_open_to_it_alone(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(registry_address, digest="me:secret")) as session:
            await commit(session, Create("/a", b"mine"))
            await session.get("/a")
        async with open_session(settings(registry_address, digest="me:secret")) as session:
            assert (await session.get("/a")).data == b"mine"
        with pytest.raises(AuthenticationFailed, match="digest does not open"):
            async with open_session(settings(registry_address, digest="me:wrong")):
                pass
        with pytest.raises(NotPermitted):
            async with open_session(settings(registry_address)):
                pass

    run_async(real_loop_kind, main)


def test_foreign_nodes_are_not_permitted(registry_server: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(f"zk://{registry_server}", digest="me:secret")) as owner:
            await commit(owner, Create("/locked"), Create("/locked/a"))
            async with open_session(settings(f"zk://{registry_server}")) as stranger:
                for attempt in (
                    stranger.get("/locked"),
                    stranger.get_many(["/", "/locked/a"]),
                    stranger.subtree(["/locked"]),
                    commit(stranger, Check("/"), Create("/locked/b")),
                ):
                    with pytest.raises(NotPermitted) as caught:
                        await attempt
                    assert caught.value.path.startswith("/locked")
            await commit(owner, Delete("/locked/a"), Delete("/locked"))

    run_async(real_loop_kind, main)


def test_a_registry_that_is_not_there_is_named_with_the_reason(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        with pytest.raises(RegistryUnreachable) as caught:
            async with open_session(settings("zk://127.0.0.1:1,127.0.0.1:2/x", connection_timeout=0.3)):
                pass
        assert caught.value.hosts == "127.0.0.1:1,127.0.0.1:2"
        assert "111" in caught.value.reason

    run_async(real_loop_kind, main)


def test_an_error_of_the_block_leaves_it_bare(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        with_session(use)


def test_after_closing_everything_is_refused_and_nothing_waits(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(registry_address)) as session:
            incarnation = session.incarnation
        assert session.status.value.state is SessionState.CLOSED
        assert session.incarnation == incarnation
        for attempt in (session.get("/"), session.sync(), session.connected(), session.wait_deleted("/")):
            with pytest.raises(SessionEnded):
                await attempt
        with pytest.raises(SessionEnded):
            await session.commit([Create("/a")], incarnation=incarnation)
        with deadline(session, incarnation) as scope:
            await asyncio.sleep(1)
        assert scope.cancelled_caught
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_async(real_loop_kind, main)


def test_a_handler_that_outlasts_the_session_of_a_stopping_process_is_named_as_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with simulated() as world:
            with CancelScope() as everything:
                async with open_session(world.settings(session_timeout=6), clock=VirtualClock(), seed=1) as session:
                    with CancelScope() as work:
                        session.bind(work, session.incarnation)
                        everything.cancel()
                        with CancelScope(shield=True):
                            await asyncio.sleep(10)

    run(main)
    lost = [record.getMessage() for record in caplog.records if "was lost" in record.getMessage()]
    reason = "this process is stopping, and sends no heartbeats any more"
    assert lost == [f"the connection to the registry was lost: {reason}"]


def test_below_an_ephemeral_node_no_node_is_made_over_and_over(with_session: Callable[[Use], None]) -> None:
    async def use(session: Session) -> None:
        await commit(session, Create("/job"), Create("/job/systemTime", ephemeral=True))
        before = session.requests
        with pytest.raises(
            RegistryError, match=r"/job/systemTime/current cannot be made: /job/systemTime is ephemeral"
        ):
            await session.server_time("/job/systemTime/current")
        assert session.requests - before == 4  # the write, two looks at what is missing, and the attempt to make it

    with_session(use)


def test_a_node_that_is_removed_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    async def main() -> None:
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
            monkeypatch.setattr("aioelasticjob.registry.session._make", nothing)
            with pytest.raises(RegistryError, match=f"/gone could not be made within {ATTEMPTS} attempts"):
                await session.server_time("/gone")

    run(main)


def test_a_slow_answer_changes_what_is_known_of_the_registrys_clock_only_as_far_as_it_must() -> None:
    async def main() -> None:
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
            await session.server_time("/systemTime/current")
            note_time, true = session._client._note_time, VirtualClock().now
            assert session.clock_skew == pytest.approx(0, abs=0.05)
            note_time(true(), 20.0)  # a request that was long on its way
            note_time(true() - 20, 20.0)  # an answer that was
            assert session.clock_skew == pytest.approx(0, abs=0.05)
            note_time(true() + 60 - 20, 20.0)  # the registry's clock was set by a minute: by 40 seconds at least
            assert session.clock_skew == pytest.approx(-40, abs=0.05)
            note_time(true() + 60, 0.01)
            assert session.clock_skew == pytest.approx(-60, abs=0.05)
            note_time(true() - 60, 20.0)
            assert session.clock_skew == pytest.approx(40, abs=0.05)

    run(main)
