"""An ensemble whose members are replaced, one by one, by new ones at other addresses; names follow them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.chaos.operators import operating
from tests.support.ports import reserved_ports
from tests.support.real_zookeeper import Changes, Ensemble, RealServer

MOVABLE: Final = {"reconfigEnabled": "true", "standaloneEnabled": "false"}
CONFIG: Final = "/zookeeper/config"


class MovingEnsemble(Ensemble):
    """Servers at addresses of their own, by number; a place in the ensemble has a name, which moves with its server."""

    def __init__(self, directory: Path, size: int, ports: list[int], stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._quorum, self._election, self._client, self._secure = ports
        self._last = size
        self.hosts = directory / "hosts.json"
        """The file that says which name has which address."""
        numbers = tuple(range(1, size + 1))
        super().__init__([self._start(number, numbers) for number in numbers])
        for member in self.members:
            member.wait_until_serving()
        self._write_hosts()

    @property
    def names(self) -> str:
        """All members by name, as in a connect string."""
        return ",".join(f"{_name(place)}:{self._client}" for place in range(len(self.members)))

    async def move(self, place: int) -> None:
        """Put a new server, with no data, at a new address, into the place of a member, and end the old one."""
        self._last += 1
        old = self.members[place]
        numbers = (*(member.number for member in self.members), self._last)
        new = self._start(self._last, numbers)
        await asyncio.to_thread(new.wait_until_serving)

        def replace(client: KazooClient) -> None:
            data, _ = client.get(CONFIG)
            if f"server.{new.number}=".encode() not in data:  # a lost answer may have come after the change
                client.reconfig(f"server.{new.number}={self._line(new.number)}", str(old.number), None)

        async with operating(self.addresses) as operator:
            await operator.do(replace)
        self.members[place] = new
        self._write_hosts()
        await asyncio.to_thread(old.process.terminate)

    def _start(self, number: int, numbers: tuple[int, ...]) -> RealServer:
        lines = {one: self._line(one) for one in numbers}
        changes = Changes(MOVABLE, {"zookeeper.skipACL": "yes"}, _address(number))
        ports = self._client, self._secure
        server = RealServer(self._directory / f"member-{number}", ports, lines, number, changes=changes)
        self._stack.callback(server.kill)
        server.start()
        return server

    def _line(self, number: int) -> str:
        address = _address(number)
        return f"{address}:{self._quorum}:{self._election}:participant;{address}:{self._client}"

    def _write_hosts(self) -> None:
        hosts = {_name(place): member.host for place, member in enumerate(self.members)}
        written = self.hosts.with_suffix(".new")
        written.write_text(json.dumps(hosts))
        written.rename(self.hosts)


@contextmanager
def moving_ensemble(directory: Path, size: int = 5) -> Iterator[MovingEnsemble]:
    """Yield an ensemble of which all members serve."""
    with reserved_ports(4) as ports, ExitStack() as stack:
        yield MovingEnsemble(directory, size, ports, stack)


def _name(place: int) -> str:
    return f"member-{place + 1}.ensemble"


def _address(number: int) -> str:
    """Return an address of loopback that nobody else has: the ports are the same for all servers of a run."""
    return f"127.0.1.{number}"
