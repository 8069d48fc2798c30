"""An ensemble that was restored from an older copy, as docs/how-to/backup.md tells to do it: what goes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from aioelasticjob.errors import RegistryError
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create
from tests.support.processes import TIMEOUT
from tests.support.real_zookeeper import Ensemble, ensemble

pytestmark = [pytest.mark.process, pytest.mark.zookeeper]

EPOCHS = ("currentEpoch", "acceptedEpoch")


def data(member: int, directory: Path) -> Path:
    return directory / f"member-{member}" / "version-2"


def stop(servers: Ensemble) -> None:
    for member in servers.members:
        member.kill()


def start(servers: Ensemble) -> None:
    for member in servers.members:
        member.start()
    for member in servers.members:
        member.wait_until_serving()


async def fence(servers: Ensemble, name: str) -> int:
    """Make a node and return the number of the write, which is what a fence is."""
    with anyio.fail_after(TIMEOUT):
        while True:
            try:
                settings = ConnectionSettings.parse(f"zk://{servers.addresses}/restored", session_timeout=5)
                async with open_session(settings) as session:
                    written = await session.commit([Create(f"/{name}")], incarnation=session.incarnation)
                    return written.zxid
            except RegistryError:  # the members have just elected a leader
                continue


async def names(servers: Ensemble) -> tuple[str, ...]:
    settings = ConnectionSettings.parse(f"zk://{servers.addresses}/restored", session_timeout=5)
    async with open_session(settings) as session:
        return await children(session)


async def children(session: Session) -> tuple[str, ...]:
    await session.sync()
    return await session.children("/")


@pytest.mark.parametrize("raised", [False, True], ids=["as copied", "with the epoch raised"])
def test_fences_go_back_after_a_restore_unless_the_epoch_is_raised(tmp_path: Path, raised: bool) -> None:
    copy = tmp_path / "copy"

    async def main(servers: Ensemble) -> None:
        await fence(servers, "before")
        await anyio.to_thread.run_sync(stop, servers)
        shutil.copytree(data(1, tmp_path), copy)
        for _ in range(3):  # elections after the copy, of which it knows nothing
            await anyio.to_thread.run_sync(start, servers)
            seen = await fence(servers, f"after-{_}")
            await anyio.to_thread.run_sync(stop, servers)
        last_epoch = int((data(1, tmp_path) / "currentEpoch").read_text())
        for member in (1, 2, 3):
            shutil.rmtree(data(member, tmp_path))
            shutil.copytree(copy, data(member, tmp_path))
            if raised:
                for file in EPOCHS:
                    (data(member, tmp_path) / file).write_text(f"{last_epoch + 1}\n")
        await anyio.to_thread.run_sync(start, servers)
        assert await names(servers) == ("before",), "what was written after the copy is gone"
        again = await fence(servers, "restored")
        assert (again > seen) is raised

    with ensemble(tmp_path) as servers:
        anyio.run(main, servers)
