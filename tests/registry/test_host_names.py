"""Names of servers in simulated time: several addresses, moved members, a resolver that fails or hangs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioelasticjob.errors import RegistryUnreachable
from aioelasticjob.registry.host_names import addresses
from aioelasticjob.registry.session import Session, SessionState, open_session
from aioelasticjob.testing import VirtualClock, run
from tests.support.loops import LoopKind, run_async
from tests.support.simulated_registry import SimulatedRegistry, settings, simulated

Answer = list[str] | Exception | None


class Names:
    """The resolver of the present simulation: the addresses of each name, an error, or None if no answer comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **names: Answer) -> None:
        self.names: dict[str, Answer] = dict(names)
        self.asked: list[str] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.resolve)

    async def resolve(self, name: str, port: int, **_options: Any) -> list[tuple[Any, ...]]:
        self.asked.append(name)
        found = self.names[name]
        if found is None:
            await asyncio.get_running_loop().create_future()
        if not isinstance(found, list):
            raise found or AssertionError
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


def in_a_world(use: Callable[[SimulatedRegistry], Coroutine[Any, Any, None]], servers: int = 1) -> None:
    async def main() -> None:
        async with simulated(servers) as world:
            await use(world)

    run(main)


def session(address: str, seed: int = 0, **options: Any) -> Any:
    return open_session(settings(f"zk://{address}/test", **options), clock=VirtualClock(), seed=seed)


def peer(session: Session) -> str:
    assert session._keeper.connection is not None
    return session._keeper.connection.peer


@pytest.mark.parametrize("seed", range(4))
def test_all_addresses_of_a_name_are_tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: SimulatedRegistry) -> None:
        world.faults.half_open("127.0.0.1", "10.0.0.8")
        Names(monkeypatch, zk=["10.0.0.8", "10.0.0.9", "10.0.0.1"])  # mute, without a server, and the right one
        async with session("zk", seed) as opened:
            assert peer(opened) == "10.0.0.1:2181"

    in_a_world(use)


def test_a_member_that_has_moved_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: SimulatedRegistry) -> None:
        names = Names(monkeypatch, zk=["10.0.0.1"])
        async with session("zk", session_timeout=6) as opened:
            names.names["zk"] = ["10.0.0.2"]  # another pod, and the old one is gone
            world.faults.partition(["127.0.0.1"], ["10.0.0.1"])
            await opened.status.until(lambda status: status.state is not SessionState.CONNECTED)
            await opened.status.until(lambda status: status.state is SessionState.CONNECTED)
            assert peer(opened) == "10.0.0.2:2181"

    in_a_world(use, 2)


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "Name or service not known"), None])
def test_a_name_without_an_answer_costs_no_more_than_its_turn(
    answer: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(world: SimulatedRegistry) -> None:
        names = Names(monkeypatch, lost=answer, zk=["10.0.0.1"])
        for seed in range(8):
            async with session("lost,zk", seed) as opened:
                assert peer(opened) == "10.0.0.1:2181"
        assert "lost" in names.asked

    in_a_world(use)


def test_a_name_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: SimulatedRegistry) -> None:
        Names(monkeypatch, lost=socket.gaierror(-2, "Name or service not known"))
        with pytest.raises(RegistryUnreachable, match="lost has no address: Name or service not known"):
            async with session("lost"):
                pass

    in_a_world(use)


def test_the_real_resolver_knows_this_host(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        assert set(await addresses("localhost", 1)) <= {"127.0.0.1", "::1"}

    run_async(real_loop_kind, main)
