"""Names of members that move are looked up anew each time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aioelasticjob.registry.host_names import addresses
from tests.chaos.worker import LookingUp


def test_a_name_has_the_address_that_the_file_gives_it_now(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"

    async def look() -> None:
        for address in ("127.0.1.1", "127.0.1.6"):
            hosts.write_text(json.dumps({"member-1.ensemble": address}))
            assert await addresses("member-1.ensemble", 2181) == [address]
        assert await addresses("127.0.0.1", 2181) == ["127.0.0.1"]

    with asyncio.Runner(loop_factory=lambda: LookingUp(str(hosts))) as runner:
        runner.run(look())


def test_without_a_file_names_are_the_systems() -> None:
    async def look() -> None:
        with pytest.raises(OSError, match=r"member-1\.invalid has no address"):
            await addresses("member-1.invalid", 2181)

    with asyncio.Runner(loop_factory=lambda: LookingUp("")) as runner:
        runner.run(look())
