"""The command that prints a job's dump."""

from __future__ import annotations

import asyncio

from aioelasticjob import ElasticJob
from aioelasticjob.core.layout import Layout
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.support.embedded import EmbeddedServer


def test_the_command_prints_it(embedded: EmbeddedServer, command: Command) -> None:
    address = f"zk://{embedded.address}/shop"

    async def main() -> None:
        app = ElasticJob(address)
        app.add(lambda _: None, name="report", cron=None)
        async with app.running() as session:
            there = Layout("report")
            await session.commit([Create(there.item(7).offset, b"a\nb")], incarnation=session.incarnation)
            plain, masked, unknown = [
                await asyncio.to_thread(command, "dump", *words, "--registry", address)
                for words in (["report"], ["report", "--mask"], ["nobody"])
            ]
        assert plain.exit_code == masked.exit_code == 0
        assert "/report/offset/7 | a\\nb | v0\n" in plain.output
        assert "/report/servers/127.0.0.1" in plain.output
        assert "/report/servers/ip1 | host1 | " in masked.output
        assert "127.0.0.1" not in masked.output
        assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
        assert "there is no such job" in unknown.output

    asyncio.run(main())
