"""What operators do by command: said in a sentence or as JSON, refused in one line, asked about before it destroys."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from errno import EBUSY, ENOSPC
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aioelasticjob import JobConfig, operations
from aioelasticjob.cli.application import application
from aioelasticjob.core.layout import Layout
from aioelasticjob.operations import JobStatus
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer

LAYOUT = Layout("report")
ME = "10.0.0.5@-@1-a"
CONFIG = JobConfig(job_name="report", cron="0 0 2 * * ?", sharding_total_count=2)


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/shop"


@pytest.fixture
def typed_at_a_job(address: str, command: Command) -> Callable[[Callable[[Command], None]], JobStatus]:
    """Lets somebody type commands while a job's one instance, made by hand, is there; returns the job afterwards."""

    async def main(scene: Callable[[Command], None]) -> JobStatus:
        def typed(*words: str) -> Result:
            return command(*words, "-r", address)

        async with open_session(ConnectionSettings.parse(address)) as session:
            nodes = [Create(path) for path in LAYOUT.skeleton]
            nodes += [Create(LAYOUT.config, CONFIG.to_json()), Create(LAYOUT.server("10.0.0.5"), b"alpha")]
            nodes += [Create(LAYOUT.instance(ME), b"{}", ephemeral=True)]
            nodes += [Create(LAYOUT.item(0).sharding), Create(LAYOUT.item(0).instance, ME.encode())]
            await session.commit(nodes, incarnation=session.incarnation)
            await asyncio.to_thread(scene, typed)
            return await operations.job(session, "report", now=0)

    return lambda scene: asyncio.run(main(scene))


def said(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout.strip()


def test_each_action_says_what_it_did_and_what_is_so_already(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus],
) -> None:
    def scene(typed: Command) -> None:
        for words, sentence in (
            (("trigger", "report", "--id", "r"), "report: asked to run all its items, as the request r"),
            (("trigger", "report", "--id", "r"), "report: asked already: all its items, as the request r"),
            (("pause", "report"), "report: paused"),
            (("pause", "report"), "report: is paused already"),
            (("pause", "report", "--server", "10.0.0.5"), "report: paused on 10.0.0.5"),
            (("pause", "report", "--server", "10.0.0.5"), "report: is paused on 10.0.0.5 already"),
            (("resume", "--server", "10.0.0.5", "-y"), "is not paused in all jobs; it is still paused in report"),
            (("resume", "report"), "report: resumed; it is still paused on 10.0.0.5"),
            (("pause", "--server", "10.0.0.5", "--yes"), "paused in all jobs (it is known to report)"),
            (("resume", "report", "--server", "10.0.0.5"), "on 10.0.0.5; 10.0.0.5 is paused in all jobs"),
            (("resume", "--server", "10.0.0.5", "--yes"), "server 10.0.0.5: resumed in all jobs"),
            (("disable", "report", "--item", "1"), "report: item 1 is disabled"),
            (("enable", "report", "--item", "1"), "report: item 1 is enabled"),
            (("disable", "report"), "report: paused (for a whole job disabling is the same as pausing)"),
            (("enable", "report"), "report: enabled"),
            (("disable", "--server", "10.0.0.5", "--yes"), "disabled in all jobs (it is known to report)"),
            (("enable", "--server", "10.0.0.5", "-y"), "server 10.0.0.5: enabled in all jobs"),
            (("shutdown", "report", "--yes"), f"report: asked {ME} to leave"),
            (("shutdown", "report", "--instance", ME, "-y"), "was asked to leave already"),
        ):
            assert sentence in said(typed(*words)), words

    status = typed_at_a_job(scene)
    assert (status.servers[0].paused, status.servers[0].disabled, status.items[1].disabled) == (False, False, False)


def test_programs_get_json(typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus]) -> None:
    def scene(typed: Command) -> None:
        done = json.loads(said(typed("pause", "report", "--json")))
        assert done["summary"] == "report: paused"
        assert (done["changed"], done["paths"]) == (True, [LAYOUT.operator, LAYOUT.paused])
        typed("pause", "report", "--server", "10.0.0.5")
        typed("disable", "--server", "10.0.0.5", "--yes")
        assert done["zxid"] > 0
        (server,) = json.loads(said(typed("servers", "--json")))
        assert server == {
            "ip": "10.0.0.5",
            "host": "alpha",
            "jobs": ["report"],
            "instances": 1,
            "items": 1,
            "disabled": True,
            "paused": False,
            "disabledIn": [],
            "pausedIn": ["report"],
            "pausedSince": None,
            "pausedUntil": None,
            "pausedBy": "",
            "pauseNote": "",
            "runs": [],
        }
        printed = json.loads(said(typed("job", "report", "--json")))
        assert printed["paused"]
        assert datetime.fromisoformat(printed["pausedSince"]).timestamp() > 0
        assert [printed["servers"][0][name] for name in ("paused", "disabledInAllJobs", "pausedInAllJobs")] == [
            True,
            True,
            False,
        ]
        change = json.loads(said(typed("set", "report", "shardingTotalCount=1", "--dry-run", "--json")))
        assert change["done"] is None
        assert change["preview"]["changed"] == {"sharding_total_count": {"before": 2, "after": 1}}
        (job,) = json.loads(said(typed("jobs", "--json")))
        assert (job["state"], job["configVersion"], job["lastRun"], job["orphanedItems"]) == (
            "switched off",
            0,
            None,
            [],
        )

    typed_at_a_job(scene)


def test_servers_are_listed_with_what_was_said_about_them(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus],
) -> None:
    def scene(typed: Command) -> None:
        typed("pause", "report", "--server", "10.0.0.5")
        typed("disable", "--server", "10.0.0.5", "--yes")
        line = " ".join(said(typed("servers")).splitlines()[-1].split())
        assert line == "10.0.0.5 alpha 1 1 1 disabled in all jobs; paused by itself in report"
        typed("enable", "--server", "10.0.0.5", "--yes")
        typed("pause", "--server", "10.0.0.5", "--yes", "--until", "2h", "--note", "new disks")
        assert re.search(r"paused in all jobs until 20\S+\+00:00 \(new disks\)", said(typed("servers")))
        printed = said(typed("server", "10.0.0.5"))
        paused = r"the server was paused in all jobs by \S+@\S+ .* ago: nothing is run until 20\S+\+00:00 \(new disks\)"
        assert re.search(paused, printed)
        server = json.loads(said(typed("server", "10.0.0.5", "--json")))
        assert (server["paused"], server["pauseNote"], server["pausedUntil"][:2]) == (True, "new disks", "20")
        typed("disable", "--server", "10.0.0.5", "--yes")
        typed("pause", "report")
        printed = said(typed("job", "report"))
        assert re.search(r"the whole job was paused by \S+@\S+ \d.* ago: nothing is run until it is resumed", printed)
        assert "server 10.0.0.5 alpha is paused and disabled in all jobs" in printed
        changed = said(typed("pause", "report", "--until", "2h", "--note", "the bank is closed"))
        assert "report: its pause was changed: paused until 20" in changed
        printed = said(typed("job", "report"))
        assert re.search(r"nothing is run until 20\S+\+00:00 \(the bank is closed\)", printed)
        job = json.loads(said(typed("job", "report", "--json")))
        assert (job["pauseNote"], job["pausedUntil"][:2]) == ("the bank is closed", "20")

    typed_at_a_job(scene)


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("pause", "Its items stay there and are not run."),
        ("resume", "Its items are run again where nothing else is off."),
        ("disable", "Its items move to other servers."),
        ("enable", "Items move there again where nothing else is off."),
    ],
)
def test_before_something_is_done_to_a_server_in_all_jobs_it_is_asked_what_that_concerns(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], address: str, word: str, outcome: str
) -> None:
    async def during_a_run(ask: Callable[[], None]) -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            lock = Create(LAYOUT.item(0).running, ME.encode(), ephemeral=True)
            await session.commit([Create(LAYOUT.item(0).execution), lock], incarnation=session.incarnation)
            await asyncio.to_thread(ask)

    def scene(typed: Command) -> None:
        asyncio.run(during_a_run(partial(ask, typed)))

    def ask(typed: Command) -> None:
        refused = typed(word, "--server", "10.0.0.5")  # nobody answers
        assert (refused.exit_code, refused.stdout.strip()) == (1, "")
        question = (
            "10.0.0.5 is known to 1 job (report) and holds 1 item. Running there now, and not interrupted: report/0. "
            f"{outcome} {word.capitalize()} it in all jobs? [y/N]"
        )
        assert question in refused.stderr
        assert "No job knows 10.0.0.6." in typed(word, "--server", "10.0.0.6").stderr

    assert typed_at_a_job(scene).servers[0].flags == ()


def test_a_change_is_shown_before_it_is_made(typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus]) -> None:
    change = ("set", "report", "cron=0 0 3 * * ?", "time_zone=Europe/Berlin", "shardingTotalCount=3")

    def scene(typed: Command) -> None:
        printed = " ".join(said(typed(*change, "--dry-run")).split())
        for words in (
            "cron '0 0 2 * * ?' → '0 0 3 * * ?'",
            "sharding_total_count 2 → 3",
            "03:00:00+01:00",
            f"item 2 new → {ME}",
            "nothing was written",
        ):
            assert words in printed
        assert 'configVersion": 0' in said(typed("job", "report", "--json"))
        assert "report: cron: '0 0 2 * * ?' → '0 0 3 * * ?'; time_zone:" in said(typed(*change))
        assert "is configured so already" in said(typed(*change))

    status = typed_at_a_job(scene)
    assert (status.config.cron, status.config.sharding_total_count, status.config_version) == ("0 0 3 * * ?", 3, 1)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("pause", "repot"), 2, "job = 'repot': there is no such job in zk://"),
        (("trigger", "../report"), 2, "there are: report"),
        (("pause", "report", "--server", "10.0.0.6"), 2, "knows no such server; there are: 10.0.0.5"),
        (("pause",), 2, "name a job; or a server that is meant in all jobs, by --server"),
        (("disable", "--item", "1"), 2, "name a job"),
        (("disable", "--item", "1", "--server", "10.0.0.5"), 2, "name a job"),
        (("disable", "report", "--item", "7"), 2, "report has the items 0 to 1"),
        (("disable", "report", "--item", "-1"), 2, "--item"),
        (("remove", "report", "--yes"), 1, "1 of its instances are there"),
        (("remove", "--server", "10.0.0.5", "--yes"), 1, "instances of report are there"),
        (("remove", "report", "--server", "10.0.0.5", "--yes"), 2, "either a job or a server"),
        (("set", "report", "cron"), 2, "write setting=value"),
        (("set", "report", "cron=a", "cron=b"), 2, "is given twice"),
        (("set", "report", "cron="), 2, "cron = '': write cron=none if the job is to have none"),
        (("set", "report", "description=", "timeout= "), 2, "timeout = ' ': write timeout=none"),
        (("set", "report", "requires="), 2, "requires = '': write requires=none if the job is to have none"),
        (("set", "report", "crom=a"), 2, "did you mean cron?"),
        (("set", "report", "jobName=a"), 2, "never changes"),
        (("export", "repot"), 2, "there is no such job"),
        (("export", "--output", "/nosuch/dir/file"), 2, "cannot be written"),
        (("import", "/nosuch"), 2, "file = '/nosuch': cannot be read"),
        (("job", "<script>"), 2, "job = '<script>'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_one_line_and_an_exit_code(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], words: tuple[str, ...], code: int, message: str
) -> None:
    def scene(typed: Command) -> None:
        result = typed(*words)
        assert (result.exit_code, result.stdout) == (code, "")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1 or result.stderr.startswith("Usage:")

    status = typed_at_a_job(scene)
    assert (status.config, status.config_version, status.state) == (CONFIG, 0, "waiting")


def test_what_destroys_is_asked_about(address: str, command: Command) -> None:
    async def make() -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            nodes = [Create(LAYOUT.root), Create(LAYOUT.config, CONFIG.to_json())]
            await session.commit(nodes, incarnation=session.incarnation)

    asyncio.run(make())

    def typed(answer: str, *words: str) -> Result:
        return CliRunner().invoke(application, [*words, "-r", address], input=answer)

    for answer in ("n\n", "", "no\n"):
        refused = typed(answer, "remove", "report")
        assert refused.exit_code == 1
        assert "settings, offsets, records. This cannot be undone. Remove report?" in refused.stderr
        assert "report" in command("jobs", "-r", address).stdout
    assert typed("n\n", "shutdown", "report").exit_code == 1
    assert said(command("remove", "report", "--yes", "-r", address)) == "report: removed, 2 nodes in all"
    assert command("jobs", "-r", address).stdout.startswith("no jobs in ")


def test_configurations_go_out_and_come_back(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"

    def scene(typed: Command) -> None:
        assert said(typed("export", "--form", "yaml", "--output", str(file))) == ""
        assert said(typed("import", str(file))) == "imported: 1 unchanged (report)"
        exported = json.loads(typed("export", "report").stdout)
        assert exported == {"jobs": [CONFIG.as_json()]}
        file.write_text(file.read_text().replace("0 0 2 * * ?", "0 0 4 * * ?"))
        refused = typed("import", str(file))
        assert (refused.exit_code, "with other settings (report)" in refused.stderr) == (1, True)
        assert typed("import", str(file), "--overwrite").exit_code == 1  # nobody said yes
        assert said(typed("import", str(file), "--overwrite", "--yes")) == "imported: 1 replaced (report)"
        file.write_bytes(b"\xff\xfe\xff")
        assert "is no text" in typed("import", str(file)).stderr
        file.write_text("{\n")
        where = "is neither JSON nor YAML: Expecting property name enclosed in double quotes: line 2 column 1"
        assert f"error: file = '{file}': {where}" in typed("import", str(file)).stderr

    assert typed_at_a_job(scene).config.cron == "0 0 4 * * ?"


def test_an_export_that_fails_leaves_the_earlier_file_as_it_was(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "jobs.json", tmp_path / "link.json"
    link.symlink_to(file)
    file.write_text("yesterday")
    file.chmod(0o600)
    real = Path.write_text

    def scene(typed: Command) -> None:
        with monkeypatch.context() as full:
            full.setattr(Path, "write_text", _half_of_it)
            failed = typed("export", "--output", str(link))
        assert (failed.exit_code, "No space left on device" in failed.stderr) == (1, True)
        assert file.read_text() == "yesterday"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.json", "link.json"]
        assert said(typed("export", "--output", str(link))) == ""
        assert (json.loads(file.read_text()), file.stat().st_mode & 0o777) == ({"jobs": [CONFIG.as_json()]}, 0o600)
        assert link.is_symlink()
        assert said(typed("export", "--output", "/dev/null")) == ""
        with monkeypatch.context() as mounted:
            mounted.setattr(Path, "replace", _is_busy)
            assert said(typed("export", "--output", str(file))) == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.json", "link.json"]

    def _half_of_it(file: Path, text: str, encoding: str) -> int:
        real(file, text[: len(text) // 2], encoding)
        raise OSError(ENOSPC, "No space left on device")

    def _is_busy(file: Path, target: Path) -> Path:
        raise OSError(EBUSY, "Device or resource busy")

    typed_at_a_job(scene)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /dev/fd")
def test_an_export_goes_into_a_pipe_that_has_a_name(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus],
) -> None:
    def scene(typed: Command) -> None:
        reader, writer = os.pipe()
        try:
            assert said(typed("export", "--output", f"/dev/fd/{writer}")) == ""
        finally:
            os.close(writer)
        with open(reader, encoding="utf-8") as written:
            assert json.load(written) == {"jobs": [CONFIG.as_json()]}

    typed_at_a_job(scene)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_an_export_leaves_a_file_its_owner(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], tmp_path: Path
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text("yesterday")
    file.chmod(0o640)
    os.chown(file, 12345, 12346)
    typed_at_a_job(lambda typed: said(typed("export", "--output", str(file))) and None)
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 12346, 0o640)
    assert json.loads(file.read_text()) == {"jobs": [CONFIG.as_json()]}


def test_a_registry_that_is_gone_is_one_line(command: Command) -> None:
    words: list[tuple[str, ...]] = [
        ("trigger", "report"),
        ("pause", "report"),
        ("set", "report", "cron=@daily"),
        ("remove", "report", "--yes"),
        ("export",),
        ("servers",),
        ("watch",),
        ("jobs", "--watch"),
    ]
    for one in words:
        result = command(*one, "-r", "zk://127.0.0.1:1", "--timeout", "0.2")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: no registry at 127.0.0.1:1 within 0.2 s")
        assert result.stderr.count("\n") == 1


def test_the_last_run_and_what_is_odd_are_shown(
    typed_at_a_job: Callable[[Callable[[Command], None]], JobStatus], address: str
) -> None:
    begun = 1763632801000
    promised = {
        "by": "10.0.0.5@-@1",
        "at": begun,
        "first": begun,
        "last": begun,
        "count": 1,
        "why": "no instance was up",
    }
    record = {"slot": begun, "lastBeginTime": begun, "lastCompleteTime": begun + 1500, "owing": [promised]}

    async def happen() -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            data = json.dumps({**record, "completed": True, "outcome": "failed"}).encode()
            item = LAYOUT.item(0)
            nodes = [Create(item.execution, data), Create(item.orphan)]
            nodes += [Create(item.offset, b"page " + b"7" * 50), Create(LAYOUT.failure_count("10.0.0.5"), b"3")]
            await session.commit(nodes, incarnation=session.incarnation)

    def scene(typed: Command) -> None:
        asyncio.run(happen())
        (line,) = (line for line in said(typed("jobs")).splitlines() if line.startswith(" report"))
        assert "waiting, 1 orphaned, missed 1 moment" in line
        assert " ago (1,500 ms)" in line
        assert "failed" in line
        printed = said(typed("job", "report"))
        assert "in the last interval 0 runs succeeded and 3 failed" in printed
        assert f"offset page {'7' * 25}… (55 characters)" in printed
        (shown,) = json.loads(said(typed("job", "report", "--json")))["items"]
        assert shown["offset"] == "page " + "7" * 50

    status = typed_at_a_job(scene)
    (item,) = status.items
    assert (item.outcome, status.failed, len(status.orphans), len(status.misfired)) == ("failed", 3, 1, 1)
    assert item.begun is not None
    assert item.ended is not None
    assert (item.ended - item.begun).total_seconds() == 1.5
    assert item.next_fire is None
