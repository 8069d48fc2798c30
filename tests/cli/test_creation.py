"""`aioelasticjob create`, and `remove` of created jobs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aioelasticjob import operations
from aioelasticjob.core.layout import HandlerPaths, Layout
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer

YEARLY = "cron=0 0 0 1 1 ?"


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/shop"


def jobs_file(directory: Path, number: int, **settings: object) -> str:
    file = directory / "jobs.json"
    jobs = [{"job_name": f"report-{one}", "handler": "report", **settings} for one in range(number)]
    file.write_text(json.dumps({"jobs": jobs}))
    return str(file)


def names(address: str, handler: str) -> tuple[str, ...]:
    """Return the jobs in the index of a handler."""

    async def read() -> tuple[str, ...]:
        async with open_session(ConnectionSettings.parse(address)) as session:
            return await session.children(HandlerPaths(handler).jobs)

    return asyncio.run(read())


def test_a_job_is_created_once_and_removed(address: str, command: Command) -> None:
    typed = ("create", "report-17", YEARLY, 'jobParameter={"tenant": 17}', "--handler", "report", "-r", address)
    assert command(*typed).stdout == "report-17: created for the handler report\n"
    assert command(*typed).stdout == "report-17: exists with these settings already\n"
    other = command("create", "report-17", "--handler", "report", "-r", address)
    assert other.exit_code == 2
    assert "job_name = 'report-17': is there already with other settings (cron, job_parameter)" in other.stderr
    shown = command("job", "report-17", "-r", address).stdout
    assert "created for the handler report" in shown
    assert "no instance is there: no process has the handler report" in shown
    assert "report-17: removed" in command("remove", "report-17", "--yes", "-r", address).stdout
    assert names(address, "report") == ()


def test_thousands_of_jobs_are_created_from_a_file_and_a_second_time_only_what_is_missing(
    address: str, command: Command, tmp_path: Path
) -> None:
    few = jobs_file(tmp_path, 700, job_parameter={"tenant": 1})
    assert "created: 700 (report-0, " in command("create", "--from", few, "-r", address).stdout
    many = jobs_file(tmp_path, 2000, job_parameter={"tenant": 1})
    again = command("create", "--from", many, "-r", address)
    assert "created: 1,300 (report-700, " in again.stdout
    assert "700 exist with these settings already" in again.stdout
    assert len(names(address, "report")) == 2000
    other = command("create", "--from", jobs_file(tmp_path, 3000, every=60), "-r", address)
    assert other.exit_code == 2
    assert len(names(address, "report")) == 2000


def test_what_an_export_has_is_created_again_by_an_import(address: str, command: Command, tmp_path: Path) -> None:
    command("create", "report-1", YEARLY, "--handler", "report", "-r", address)
    exported = tmp_path / "exported.json"
    exported.write_text(command("export", "-r", address).stdout)
    command("remove", "report-1", "--yes", "-r", address)
    assert "1 new (report-1)" in command("import", str(exported), "-r", address).stdout
    assert names(address, "report") == ("report-1",)


def test_a_file_without_handlers_takes_that_of_the_command(address: str, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n- job_name: a\n  job_parameter: {tenant: 17}\n- job_name: b\n  handler: other\n")
    refused = command("create", "--from", str(file), "-r", address)
    assert "handler = None: a: say which handler runs it" in refused.stderr
    assert command("create", "--from", str(file), "--handler", "report", "-r", address).exit_code == 0
    assert (names(address, "report"), names(address, "other")) == (("a",), ("b",))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "name a job and its --handler, or give --from FILE"),
        (("report",), "name a job and its --handler"),
        (("report", "--from", "x.json", "--handler", "report"), "give either a name or --from"),
        (("report", "corn=1", "--handler", "report"), "did you mean cron"),
        (("report", "handler=other", "--handler", "report"), "is given when the job is created and never changes"),
        (("report", "--handler", "a b"), "handler = 'a b'"),
    ],
)
def test_what_makes_no_sense_is_refused(address: str, command: Command, words: tuple[str, ...], expected: str) -> None:
    refused = command("create", *words, "-r", address)
    assert refused.exit_code == 2
    assert expected in refused.stderr


def test_removing_says_who_has_not_left_in_time(address: str, command: Command) -> None:
    command("create", "report-1", "--handler", "report", "-r", address)
    layout = Layout("report-1")
    here = "10.0.0.5@-@1-a"

    async def scene() -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            await write_instance(session, layout, here)
            refused = await asyncio.to_thread(command, "remove", "report-1", "--within", "0.1s", "--yes", "-r", address)
            assert refused.exit_code == 1
            assert f"report-1: not removed within 0.1 s, because instances have not left: {here};" in refused.stderr
            forced = await asyncio.to_thread(command, "remove", "report-1", "--force", "--yes", "-r", address)
            assert forced.exit_code == 0
            assert await operations.names(session) == ()

    asyncio.run(scene())
    assert names(address, "report") == ()


async def write_instance(session: Session, layout: Layout, instance: str) -> None:
    nodes = [Create(layout.instances), Create(layout.instance(instance), b"{}", ephemeral=True)]
    await session.commit(nodes, incarnation=session.incarnation)
