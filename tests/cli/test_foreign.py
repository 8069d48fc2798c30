"""Commands on a job of Elastic-Job for Java: it is listed, and everything that would change it is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import Result

from aioelasticjob.registry.session import ConnectionSettings, open_session
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer
from tests.support.java_trees import ID, IP, RELEASES, java_job


@pytest.mark.parametrize("release", RELEASES)
def test_commands_list_a_job_of_java_and_refuse_to_change_it(
    release: str, embedded: EmbeddedServer, command: Command, tmp_path: Path
) -> None:
    address, file = f"zk://{embedded.address}/java-{release[0]}", tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": [{"jobName": "job", "cron": "0/5 * * * * ?"}]}))
    whose = f"is of Elastic-Job {release} for Java"

    def typed(*words: str) -> Result:
        return command(*words, "-r", address)

    def scene() -> None:
        assert "foreign" in typed("jobs").stdout
        (listed,) = json.loads(typed("jobs", "--json").stdout)
        assert (listed["state"], listed["foreign"]) == ("foreign", True)
        shown = typed("job", "job").stdout
        assert "another program's job, foreign" in shown
        assert whose in " ".join(shown.split())
        assert json.loads(typed("job", "job", "--json").stdout)["foreign"]
        for words in (
            ("trigger", "job"),
            ("pause", "job"),
            ("resume", "job"),
            ("disable", "job", "--item", "1"),
            ("enable", "job", "--server", IP),
            ("pause", "--server", IP, "--yes"),
            ("shutdown", "job", "--instance", ID, "--yes"),
            ("set", "job", "cron=0/7 * * * * ?"),
            ("cancel", "job"),
            ("remove", "job", "--yes", "--force"),
            ("remove", "--server", IP, "--yes"),
            ("import", str(file), "--overwrite", "-y"),
            ("import", str(file)),
        ):
            refused = typed(*words)
            assert refused.exit_code == 2, (words, refused.output)
            assert whose in " ".join(refused.stderr.split()), (words, refused.output)
            assert "errors/ForeignData" in refused.stderr
        assert "nothing was asked of any job" in typed("requests", "list").stdout

    async def main() -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            await session.commit(java_job(release, is_up=True), incarnation=session.incarnation)
            before = await session.subtree(["/"])
            await asyncio.to_thread(scene)
            assert await session.subtree(["/"]) == before

    asyncio.run(main())
