"""Mirrors: always a tree that was true, and in the end the newest one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import Any

import pytest
from anyio import move_on_after, sleep_forever

from aioelasticjob.errors import Conflict, NotPermitted, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.registry import codec as wire
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.mirror import Follower, mirror
from aioelasticjob.registry.session import Session, SessionState, open_session
from aioelasticjob.registry.settings import MAX_REQUEST
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import UNREAD_NODE, Tree
from aioelasticjob.testing import VirtualClock, run
from tests.support.loops import LoopKind, run_async
from tests.support.real_zookeeper import RealServer
from tests.support.simulated_registry import PORT, SimulatedRegistry, expire, fresh, settings, simulated

ROOTS = ("/job/config", "/job/servers", "/job/missing")


async def write(session: Session, *ops: Op) -> int:
    return (await session.commit(ops, incarnation=session.incarnation)).zxid


def outline(tree: Tree, shallow: tuple[str, ...]) -> Tree:
    """Return what a mirror shows of a tree when some of its roots are shallow."""
    found = {}
    for path in tree:
        levels = [path[len(root) :].count("/") for root in shallow if path.startswith(f"{root}/")]
        if not levels or levels[0] < 2:
            found[path] = tree.get(path)
        elif levels[0] == 2:
            found[path] = UNREAD_NODE
    return Tree({path: node for path, node in found.items() if node}, tree.zxid)


async def agree(session: Session, trees: Any, roots: tuple[str, ...] = ROOTS, *, shallow: tuple[str, ...] = ()) -> None:
    """Wait until a mirror shows what is there."""
    await session.sync()
    zxid = await write(session, Create("/mark"))
    await write(session, Delete("/mark"))
    truth = outline(await session.subtree(roots), shallow)
    assert await trees.until(lambda tree: tree == truth) == truth
    assert zxid


@asynccontextmanager
async def tree_world() -> AsyncIterator[Session]:
    """Open a session with a simulated registry."""
    async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
        yield session


async def create_nodes(session: Session) -> None:
    await write(session, Create("/job"), Create("/job/config", b"1"), Create("/job/servers"), Create("/job/other"))


def test_the_first_tree_is_whole_and_changes_follow(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with open_session(settings(registry_address)) as session:
            await create_nodes(session)
            before = session.zxid
            async with mirror(session, ROOTS) as trees:
                assert trees.value == await session.subtree(ROOTS)
                assert list(trees.value) == ["/job/config", "/job/servers"]
                assert trees.value.zxid >= before
                zxid = await write(
                    session, Create("/job/servers/a"), Create("/job/servers/a/x", b"x"), Set("/job/config", b"2", 0)
                )
                tree = await trees.until(lambda tree: tree.zxid >= zxid)
                assert tree == await session.subtree(ROOTS)  # parents too: their Stat tells of their children
                zxid = await write(session, Create("/job/missing"), Delete("/job/servers/a/x"), Delete("/job/config"))
                tree = await trees.until(lambda tree: tree.zxid >= zxid)
                assert list(tree) == ["/job/missing", "/job/servers", "/job/servers/a"]
                await agree(session, trees)
            assert session._keeper.watches.roots == ()

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("length", [1, 900], ids=["read in one request", "read in several"])
def test_a_transaction_shows_entirely_or_not_at_all(
    length: int, registry_address: str, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        async with (
            open_session(settings(registry_address)) as session,
            open_session(settings(registry_address)) as writer,
        ):
            await create_nodes(session)
            names = [f"/job/servers/{number:0{length}}" for number in range(40)]
            assert len(wire.chunked(names)) == (1 if length == 1 else 2)
            await write(session, *(Create(name, b"0") for name in names))
            async with mirror(session, ROOTS) as trees:
                done = asyncio.Event()

                async def change() -> None:
                    for number in range(1, 60):
                        await write(writer, *(Set(name, str(number).encode(), -1) for name in names))
                    done.set()

                seen: list[set[bytes]] = []
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(change())
                    async for tree in trees:
                        seen.append({tree.get(name).data for name in names})  # type: ignore[union-attr]
                        if seen[-1] == {b"59"}:
                            break
            assert all(len(values) == 1 for values in seen)
            assert done.is_set()

    run_async(real_loop_kind, main)


def interpose(session: Session, change: Callable[[], Awaitable[object]]) -> None:
    """Have ``change`` made between the first and the second request of each read, as another client may do it."""
    read_all = session._client.read_all

    async def split(opcode: int, render: Callable[[], Sequence[bytes]]) -> list[wire.Reply]:
        if opcode != wire.MULTI_READ:
            return await read_all(opcode, render)
        first, *others = render()
        replies = await read_all(opcode, lambda: [first])
        await change()
        return replies + await read_all(opcode, lambda: others)

    session._client.read_all = split  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "max_request", [MAX_REQUEST, 100_000], ids=["which one large request reads", "more than any request reads"]
)
def test_no_half_of_a_transaction_is_shown_however_often_one_comes_between_two_reads(max_request: int) -> None:
    """Real servers showed it: fifty times in a row something had changed while the mirror was reading."""
    transactions = 200
    names = [f"/job/servers/{number:0900}" for number in range(40)]

    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(max_request=max_request), clock=VirtualClock(), seed=1) as session,
            open_session(world.settings(), clock=VirtualClock(), seed=2) as writer,
        ):
            assert not session.is_one_request(names)
            assert session.is_one_request(names, large=True) is (max_request == MAX_REQUEST)
            await create_nodes(session)
            await write(writer, *(Create(name, b"0") for name in names))
            async with mirror(session, ROOTS) as trees:
                numbers = iter(range(1, transactions + 1))

                async def change() -> None:
                    if (number := next(numbers, None)) is not None:
                        await write(writer, *(Set(name, b"%d" % number, -1) for name in names))

                interpose(session, change)
                await change()
                seen = [trees.value]
                while seen[-1].get(names[0]).data != b"%d" % transactions:  # type: ignore[union-attr]
                    seen.append(await trees.changed())
                shown = [{tree.get(name).data for name in names} for tree in seen]  # type: ignore[union-attr]
                assert all(len(values) == 1 for values in shown)
                is_shown_meanwhile = len(shown) > 2
                assert is_shown_meanwhile is (max_request == MAX_REQUEST)

    run(main)


def test_what_did_not_change_is_not_read(real_loop_kind: LoopKind, registry_address: str) -> None:
    class Counting(list[int]):
        def call(self, connection: Connection, opcode: int, body: bytes) -> asyncio.Future[wire.Reply]:
            self.append(opcode)
            return Connection.call(connection, opcode, body)

    async def main() -> None:
        async with open_session(settings(registry_address)) as session:
            await create_nodes(session)
            async with mirror(session, ROOTS) as trees:
                calls, connection = Counting(), session._keeper.connection
                assert connection is not None
                connection.call = lambda opcode, body: calls.call(connection, opcode, body)  # type: ignore[method-assign]
                zxid = await write(session, *(Create(f"/job/servers/{number}") for number in range(50)))
                await trees.until(lambda tree: tree.zxid >= zxid)
                await write(session, Create("/job/other/unseen"))
                await session.sync()
                assert 1 <= calls.count(wire.MULTI_READ) <= 3  # the events may come in several packets
                assert set(calls) <= {wire.MULTI_READ, wire.MULTI, wire.SYNC}

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("shallow", [(), ("/job/servers", "/job/missing")], ids=["deep", "shallow"])
@pytest.mark.parametrize("seed", range(12))
def test_a_mirror_is_equal_to_the_tree_after_any_changes_and_faults(
    seed: int, shallow: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # two or three paths fill a request
        monkeypatch.setattr(wire, "CHUNK", 200)
    dice = random.Random(seed)

    async def change(session: Session) -> None:
        """Make a random change that may or may not be possible."""
        parts = dice.choices("abc", k=dice.randint(1, 3))
        path = dice.choice(["/job/servers/", "/job/missing/", "/job/missing/"]) + "/".join(parts)
        path = dice.choice([path, path, "/job/missing", "/job/config"])
        op: Op = dice.choice(
            [Create(path), Create(path, ephemeral=True), Set(path, dice.randbytes(3), -1), Delete(path)]
        )
        with suppress(Conflict, OutcomeUnknown, Suspended, SessionEnded):
            await write(session, op)

    async def harm(world: SimulatedRegistry, session: Session) -> None:
        fault = dice.choice([world.reset, world.half_open, world.partition, None])
        if fault is None:
            with suppress(AssertionError, OSError):  # a session that is being replaced right now
                await expire(session, world.servers[0].host, PORT)
        else:
            fault()
        await asyncio.sleep(dice.uniform(0, 6))
        world.heal()

    async def main() -> None:
        async with simulated() as world, AsyncExitStack() as stack:
            clock, loop = VirtualClock(), asyncio.get_running_loop()
            session = await stack.enter_async_context(
                open_session(world.settings(session_timeout=4), clock=clock, seed=seed)
            )
            writer_settings = world.settings(session_timeout=4)
            await create_nodes(session)
            trees = await stack.enter_async_context(mirror(session, ROOTS, shallow=shallow))
            versions: list[Tree] = []

            async def note() -> None:
                async for tree in trees:
                    versions.append(tree)  # noqa: PERF401  # a comprehension shows nothing before it ends

            noting = asyncio.ensure_future(note())
            stack.callback(noting.cancel)

            async def writing() -> None:
                async with open_session(writer_settings, clock=clock, seed=seed) as writer:
                    while loop.time() < 60:
                        await change(writer)
                        await asyncio.sleep(dice.uniform(0, 0.05))

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(writing())
                for _ in range(8):
                    await asyncio.sleep(dice.uniform(0, 4))
                    await harm(world, session)
            await session.connected()
            await agree(session, trees, shallow=shallow)
            if shallow:  # nobody is left watching what has gone
                children = {path for path in trees.value if path.count("/") == 3}
                assert set(session._keeper.watches.roots) == {*ROOTS, *children}
            zxids = [tree.zxid for tree in versions]
            assert len(zxids) > 100
            assert zxids == sorted(zxids)

    run(main, seed=seed)


class Ear:
    """Notes all events that reach a session."""

    def __init__(self, session: Session) -> None:
        self.heard: list[tuple[int, str]] = []
        dispatch = session._keeper.watches.dispatch

        def noted(kind: int, path: str) -> None:
            self.heard.append((kind, path))
            dispatch(kind, path)

        session._keeper.watches.dispatch = noted  # type: ignore[method-assign]


def test_what_was_read_under_its_watch_is_not_read_again() -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            await write(session, Create("/job/servers/a"), Create("/job/servers/b"))
            with closing(Follower(session, ROOTS, ("/job/servers",), lambda: None)) as follower:
                await follower.catch_up()
                assert not follower.is_behind
                assert follower.trees.value.zxid == session.zxid

    run(main)


async def refuse(*_: object, **size: bool) -> Tree:
    raise NotPermitted("/job/config")


async def hang(*_: object, **size: bool) -> Tree:
    await sleep_forever()
    raise AssertionError


def test_a_follower_follows_further_roots_and_later_others_in_place_of_these() -> None:
    async def main() -> None:
        async with tree_world() as session:
            for path in ("/one", "/two", "/three"):
                await write(session, Create(path, b"a"))
            news = asyncio.Event()
            with closing(Follower(session, ["/one"], (), news.set)) as follower:
                await follower.catch_up()
                for roots in (("/two",), ("/three",), ()):
                    news.clear()
                    follower.follow_besides(roots)
                    assert news.is_set()
                    await follower.catch_up()
                    assert set(follower.trees.value) == {"/one", *roots}
                    follower.follow_besides(roots)
                    assert not follower.is_behind  # nothing has changed
                    for root in ("/one", *roots):
                        await write(session, Set(root, b"b", -1))
                        await follower.catch_up()
                        node = follower.trees.value.get(root)
                        assert node is not None
                        assert node.data == b"b"
                await write(session, Set("/two", b"c", -1))
                await session.sync()
                assert not follower.is_behind  # nobody watches it any more

    run(main)


@pytest.mark.parametrize("fails", [refuse, hang], ids=["refused", "cancelled"])
def test_a_read_that_did_not_end_is_made_again(
    fails: Callable[..., Awaitable[Tree]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            with closing(Follower(session, ROOTS, (), lambda: None)) as follower:
                for read in ("subtree", "list_many"):
                    with monkeypatch.context() as patch:
                        patch.setattr(session, read, fails)
                        with pytest.raises(NotPermitted) if fails is refuse else move_on_after(1):
                            await follower.catch_up()
                    assert follower.is_behind
                    await follower.catch_up()
                    assert not follower.is_behind
                    await agree(session, follower.trees)
                    await write(session, Set("/job/config", b"newer", -1))

    run(main)


def test_an_expected_child_is_read_together_with_its_parent_whenever_it_is_made() -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            with closing(Follower(session, ROOTS, ("/job/servers",), lambda: None, ("/job/servers/a",))) as follower:
                await follower.catch_up()
                for data in (b"host", b"another host"):
                    await write(session, Create("/job/servers/a", data), Create("/job/servers/a/flag"))
                    before = session.requests
                    await follower.catch_up()
                    assert session.requests == before + 1
                    tree = follower.trees.value
                    made = tree.get("/job/servers/a")
                    assert made is not None
                    assert made.data == data
                    assert tree.get("/job/servers/a/flag") == UNREAD_NODE
                    await write(session, Delete("/job/servers/a/flag"), Delete("/job/servers/a"))
                    await follower.catch_up()
                    assert list(follower.trees.value) == [*ROOTS[:2]]
            assert session._keeper.watches.roots == ()

    run(main)


def test_what_is_deep_in_a_shallow_root_costs_nothing_but_its_coming_and_going(
    registry_address: str, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        async with (
            open_session(settings(registry_address)) as session,
            open_session(settings(registry_address)) as writer,
        ):
            await create_nodes(session)
            await write(writer, Create("/job/servers/a", b"host"), Create("/job/servers/a/count", b"0"))
            async with mirror(session, ROOTS, shallow=("/job/servers",)) as trees:
                assert list(trees.value) == [*ROOTS[:2], "/job/servers/a", "/job/servers/a/count"]
                assert trees.value.get("/job/servers/a/count") == UNREAD_NODE
                await write(writer, Create("/job/servers/b"), Create("/job/servers/b/flag"))
                await agree(session, trees, shallow=("/job/servers",))
                await write(writer, Create("/job/servers/a/flag"), Set("/job/servers/b", b"host", -1))
                await agree(session, trees, shallow=("/job/servers",))
                ear = Ear(session)
                for number in range(20):
                    await write(
                        writer, *(Set(f"/job/servers/{one}", b"%d" % number, -1) for one in ("a/count", "b/flag"))
                    )
                    await write(writer, Create("/job/servers/a/flag/deeper"), Delete("/job/servers/a/flag/deeper"))
                await agree(session, trees, shallow=("/job/servers",))
                assert ear.heard == []
                flags = [Delete(f"/job/servers/{path}") for path in ("a/flag", "a/count", "a", "b/flag")]
                zxid = await write(writer, *flags, Set("/job/config", b"2", -1))
                tree = await trees.until(lambda tree: tree.zxid >= zxid)
                assert list(tree) == [*ROOTS[:2], "/job/servers/b"]
                await agree(session, trees, shallow=("/job/servers",))
                await write(writer, Delete("/job/servers/b"), Delete("/job/servers"))
                await agree(session, trees, shallow=("/job/servers",))
                await write(writer, *(Create(f"/job/servers{path}", b"new") for path in ("", "/b", "/b/count")))
                await agree(session, trees, shallow=("/job/servers",))
            assert session._keeper.watches.roots == ()

    run_async(real_loop_kind, main)


def test_deep_and_shallow_mirrors_of_one_root_share_a_session(
    registry_address: str, real_loop_kind: LoopKind, request: pytest.FixtureRequest
) -> None:
    """A server keeps one watch for each path and connection: the deep one, for as long as anybody needs it.

    ZooKeeper 3.9 and newer keep both, and the deep one goes with the last that needs any.
    """
    is_real = request.node.callspec.params["registry_server"] == "zookeeper"
    keeps_both = is_real and not request.getfixturevalue("real_zookeeper").version.startswith(("3.6", "3.7", "3.8"))
    host, port = registry_address.removeprefix("zk://").partition("/")[0].split(":")

    async def main() -> None:
        async with (
            open_session(settings(registry_address)) as session,
            open_session(settings(registry_address)) as writer,
        ):
            await create_nodes(session)
            numbers = iter(range(1000))
            roots = ("/job/servers",)

            async def change() -> None:
                """Change everything that one of them may have to hear of."""
                number = next(numbers)
                await write(writer, Create(f"/job/servers/{number}"), Create(f"/job/servers/{number}/x"))
                await write(writer, Create(f"/job/servers/{number}/x/y"), Set(f"/job/servers/{number}/x", b"1", -1))
                await write(writer, Create(f"/job/servers/{number}/z"), Delete(f"/job/servers/{number}/x/y"))

            async with mirror(session, roots, shallow=roots) as shallow:
                await change()
                async with mirror(session, roots) as deep, mirror(session, ["/job"]) as whole:
                    for _ in range(2):
                        await change()
                        await agree(session, deep, roots)
                        await agree(session, whole, ("/job",))
                        await agree(session, shallow, roots, shallow=roots)
                        old = session.incarnation
                        await expire(session, host, int(port))
                        await session.status.until(lambda status: status.incarnation != old)  # noqa: B023  # awaited
                        await session.connected()
                await change()
                await agree(session, shallow, roots, shallow=roots)
                ear = Ear(session)
                await write(writer, Set("/job/servers/0/x", b"unheard", -1))
                await agree(session, shallow, roots, shallow=roots)
                assert ear.heard == ([(wire.CHANGED, "/job/servers/0/x")] if keeps_both else [])

    run_async(real_loop_kind, main)


def test_a_mirror_follows_its_session_into_the_next_one(registry_address: str, real_loop_kind: LoopKind) -> None:
    host, port = registry_address.removeprefix("zk://").partition("/")[0].split(":")

    async def main() -> None:
        async with (
            open_session(settings(registry_address)) as session,
            open_session(settings(registry_address)) as other,
        ):
            await create_nodes(session)
            async with mirror(session, ROOTS) as trees:
                for number in range(3):
                    old = session.incarnation
                    await write(session, Create("/job/servers/mine", ephemeral=True))
                    await expire(session, host, int(port))
                    await session.status.until(lambda status: status.incarnation != old)  # noqa: B023  # awaited here
                    await trees.until(lambda tree: "/job/servers/mine" not in tree)
                    zxid = await write(other, Set("/job/config", str(number).encode(), -1))
                    tree = await trees.until(lambda tree: tree.zxid >= zxid)  # noqa: B023  # awaited here
                    assert tree == await session.subtree(ROOTS)

    run_async(real_loop_kind, main)


def test_hundreds_of_mirrors_share_a_session_and_survive_its_connection() -> None:
    count = 300

    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(session_timeout=10), clock=VirtualClock(), seed=1) as session,
            open_session(world.settings(session_timeout=10), clock=VirtualClock(), seed=2) as writer,
            AsyncExitStack() as stack,
        ):
            # long names, so that setting them again takes more than one request
            roots = [f"/{number}-{'x' * 200}" for number in range(count)]
            for start in range(0, count, 100):
                await write(writer, *(Create(root) for root in roots[start : start + 100]))
            mirrors = [
                await stack.enter_async_context(mirror(session, [root, f"{root}-missing", f"{root}/b"]))
                for root in roots
            ]
            assert len(session._codec.watch(dict.fromkeys(session._keeper.watches.roots, False), 0)) > 3
            for _ in range(2):
                world.reset()
                await asyncio.sleep(0.5)
                await session.connected()
                for root in roots[::3]:
                    await write(writer, Set(root, b"new", -1), Create(f"{root}/b"))
                for root, trees in zip(roots[::3], mirrors[::3], strict=True):
                    await trees.until(lambda tree, root=root: f"{root}/b" in tree)  # type: ignore[misc]
                    assert list(trees.value) == [root, f"{root}/b"]
                for root, trees in zip(roots[1::3], mirrors[1::3], strict=True):
                    assert list(trees.value) == [root]
                for root in roots[::3]:
                    await write(writer, Delete(f"{root}/b"))
        assert session._keeper.watches.roots == ()

    run(main)


def test_a_tree_is_outdated_from_a_new_connection_until_it_is_read_again() -> None:
    async def main() -> None:
        async with (
            simulated() as world,
            open_session(world.settings(session_timeout=10), clock=VirtualClock(), seed=1) as session,
        ):
            await write(session, Create("/job"), Create("/job/config"))
            async with mirror(session, ROOTS) as trees:
                before = trees.value
                assert not before.outdated
                world.reset()
                await session.status.until(lambda status: status.state is SessionState.SUSPENDED)
                await session.connected()
                assert trees.value is before
                assert before.outdated
                after = await trees.until(lambda tree: not tree.outdated)
                assert after == before

    run(main)


def test_a_mirror_that_changes_never_end_still_shows_newer_trees() -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            async with mirror(session, ROOTS) as trees:
                follower = next(iter(session._keeper.watches._watchers["/job/config"]))
                read = session.list_many

                async def disturbed(*asked: Any, **size: bool) -> Any:
                    found = await read(*asked, **size)
                    follower.changed(wire.CHANGED, "/job/config")  # something new before any read is over
                    return found

                session.list_many = disturbed  # type: ignore[method-assign]
                zxid = await write(session, Set("/job/config", b"2", -1))
                tree = await trees.until(lambda tree: tree.zxid >= zxid)
                assert tree.get("/job/config").data == b"2"  # type: ignore[union-attr]

    run(main)


def test_what_is_not_ours_to_read_is_said_at_once(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        root = registry_address.rpartition("/")[0]
        async with open_session(settings(root, digest="me:secret")) as owner, open_session(settings(root)) as stranger:
            name = f"/locked-{owner.incarnation}"
            await write(owner, Create(name))
            with pytest.raises(NotPermitted, match=name):
                async with mirror(stranger, [name]):
                    pass
            assert stranger._keeper.watches.roots == ()
            await write(owner, Delete(name))

    run_async(real_loop_kind, main)


def test_roots_below_other_roots_are_watched_once() -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            async with mirror(session, ["/job", "/job/config", "/job", "/jobs"]) as trees:
                assert session._keeper.watches.roots == ("/job", "/jobs")
                assert "/job/config" in trees.value
            async with mirror(session, ["/job", "/"]) as trees:
                assert session._keeper.watches.roots == ("/",)
                await agree(session, trees, ("/",))

    run(main)


async def fail_inside(session: Session) -> None:
    async with mirror(session, ROOTS):
        raise LookupError("mine")


async def lose_the_right_to_read(session: Session) -> None:
    async def refuse(*asked: Any, **size: bool) -> Any:
        raise NotPermitted("/job/config")

    async with mirror(session, ROOTS):
        session.list_many = refuse  # type: ignore[method-assign]
        await write(session, Set("/job/config", b"2", -1))
        await asyncio.sleep(10)


@pytest.mark.zookeeper
def test_a_mirror_leaves_no_watch_at_the_server(real_zookeeper: RealServer) -> None:
    async def watched() -> str:
        return await asyncio.to_thread(real_zookeeper.ask, "wchp")

    async def main() -> None:
        async with open_session(fresh(real_zookeeper.address)) as session:
            name = session.settings.namespace
            async with mirror(session, ROOTS), mirror(session, ROOTS):
                await session.sync()
                now = await watched()
                assert all(f"/{name}{root}" in now for root in ROOTS)
            await session.sync()
            assert name not in await watched()

    asyncio.run(main())


def test_what_ends_a_mirror_ends_its_block_with_that_error() -> None:
    async def main() -> None:
        async with tree_world() as session:
            await create_nodes(session)
            with pytest.raises(LookupError, match="mine"):
                await fail_inside(session)
            with pytest.raises(NotPermitted):
                await lose_the_right_to_read(session)

    run(main)
