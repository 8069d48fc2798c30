"""What is where, now: as values, as tables and as JSON, from a registry where a job really runs."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, operations
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.processes import Author, ProcessProblems, UnwrittenEvents, renewal
from aioelasticjob.core.records import encode
from aioelasticjob.model import Record
from aioelasticjob.registry.addresses import open_registry
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Set
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer
from tests.support.processes import TIMEOUT

NAMESPACE = "shop/billing"


@dataclass
class RunningReport:
    """A job of three items whose middle item is being run until ``end`` is set."""

    session: Session
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)

    async def status(self) -> operations.JobStatus:
        return await operations.job(self.session, "report", now=SystemClock().now())


@asynccontextmanager
async def running_report(address: str) -> AsyncIterator[RunningReport]:
    app = ElasticJob(address)
    begun, end = asyncio.Event(), asyncio.Event()

    @app.job(cron="* * * * * ?", sharding_total_count=3, sharding_item_parameters={0: "Beijing"})
    async def report(context: ItemContext) -> None:
        if context.item == 1:
            begun.set()
            await end.wait()
        if context.item == 2:
            raise ValueError("oops")

    app.add(lambda _: None, name="idle", cron=None, description="On demand", labels="team=billing,tier=gold")
    async with app.running() as session:
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()
        try:
            yield RunningReport(session, begun, end)
        finally:
            end.set()


async def eventually(
    look: Callable[[], Awaitable[operations.JobStatus]], holds: Callable[[operations.JobStatus], object]
) -> operations.JobStatus:
    async with asyncio.timeout(TIMEOUT):
        while not holds(status := await look()):
            await asyncio.sleep(0.02)  # the registry's news take their time: there is no event here to wait for
    return status


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/{NAMESPACE}"


def test_a_job_is_read_as_it_is(address: str) -> None:
    async def main() -> None:
        async with running_report(address) as there:
            status = await there.status()
            (instance,) = status.instances
            assert status.name == "report"
            assert (status.state, status.fault, status.settled) == ("running", None, True)
            assert status.leader == instance.id
            assert (instance.leads, instance.holds, instance.ip) == (True, (0, 1, 2), "127.0.0.1")
            assert 1 in instance.runs
            assert [item.holder for item in status.items] == [instance.id] * 3
            assert [item.parameter for item in status.items] == ["Beijing", None, None]
            run = status.items[1].run
            assert run is not None
            assert run.instance == instance.id
            assert abs(run.since.timestamp() - SystemClock().now()) < TIMEOUT
            assert status.next_fire is not None
            (server,) = status.servers
            assert (server.ip, server.disabled, server.paused, server.instances) == ("127.0.0.1", False, False, 1)

    asyncio.run(main())


def test_the_outcome_of_the_last_run_is_there_once_it_is_settled(address: str) -> None:
    async def main() -> None:
        async with running_report(address) as there:
            there.end.set()
            status = await eventually(there.status, lambda now: all(i.record and i.record.outcome for i in now.items))
            assert [item.record and item.record.outcome for item in status.items] == [
                "completed",
                "completed",
                "failed",
            ]

    asyncio.run(main())


def test_what_operators_said_is_seen(address: str) -> None:
    async def main() -> None:
        async with running_report(address) as there:
            layout, session = Layout("report"), there.session
            marks = [Create(layout.server_paused("127.0.0.1")), Create(layout.item(2).disabled)]
            await session.commit(marks, incarnation=session.incarnation)
            status = await there.status()
            assert status.servers[0].paused
            assert [item.disabled for item in status.items] == [False, False, True]
            assert status.state == "switched off"

    asyncio.run(main())


def test_when_nobody_is_left_the_job_is_still_known(address: str) -> None:
    async def main() -> operations.JobStatus:
        async with running_report(address):
            pass
        async with open_session(ConnectionSettings.parse(address)) as session:
            return await operations.job(session, "report", now=SystemClock().now())

    status = asyncio.run(main())
    assert (status.state, status.instances, status.leader) == ("nobody there", (), None)
    assert status.running == ()


def test_a_configuration_that_makes_no_sense_is_named_and_the_rest_is_shown(address: str) -> None:
    async def main() -> None:
        async with running_report(address) as there:
            nonsense = Set(Layout("idle").config, b"{nonsense", -1)
            await there.session.commit([nonsense], incarnation=there.session.incarnation)
            found = {status.name: status for status in await operations.jobs(there.session, now=0)}
            assert found["idle"].state == "faulty"
            assert "no job configuration" in (found["idle"].fault or "")
            assert found["report"].fault is None

    asyncio.run(main())


def test_nodes_of_others_are_no_jobs(address: str) -> None:
    async def main() -> None:
        async with running_report(address) as there:
            foreign = [Create("/locks"), Create("/locks/a"), Create("/a job"), Create("/a job/config", b"{}")]
            await there.session.commit(foreign, incarnation=there.session.incarnation)
            assert await operations.names(there.session) == ("idle", "report")
            for name in ("locks", "a job", "nosuch", "", "..", "a/b"):
                with pytest.raises(InvalidSetting, match="there are: idle, report"):
                    await operations.job(there.session, name, now=0)

    asyncio.run(main())


def observed(address: str, command: Command, *arguments: str) -> tuple[int, str, str]:
    """Run a command while the job runs; return its exit code, stdout and stderr."""

    async def main() -> tuple[int, str, str]:
        async with running_report(address):
            result = await asyncio.to_thread(command, *arguments, "--registry", address)
            return result.exit_code, result.stdout, result.stderr

    return asyncio.run(main())


def test_jobs_lists_the_jobs(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "jobs")
    assert code == 0
    idle, report = (line.split() for line in said.splitlines() if line.startswith((" idle", " report")))
    assert idle == ["idle", "simple", "on", "demand", "1", "1", "waiting", "team=billing,", "tier=gold"]
    assert report[:11] == ["report", "simple", "*", "*", "*", "*", "*", "?", "3", "1", "running"]
    assert report[11:13] == ["running", "for"]


def _write_job(address: str, config: JobConfig, record: Record, *more: Create) -> None:
    """Write a job with one item into the registry, and the record of its newest run."""

    async def main() -> None:
        layout = Layout("report")
        item = layout.item(0)
        nodes = [layout.root, layout.config, layout.sharding, item.sharding, layout.execution, item.execution]
        data = {layout.config: config.to_json(), item.execution: encode(record)}
        async with open_registry(address, creates=True) as session:
            made = [*(Create(path, data.get(path, b"")) for path in nodes), *more]
            await session.commit(made, incarnation=session.incarnation)

    asyncio.run(main())


def test_of_an_item_whose_instance_has_left_it_is_said_that_it_is_gone(address: str, command: Command) -> None:
    assert "its instance is gone" not in observed(address, command, "job", "report")[1]
    assert command("job", "report", "--registry", address).stdout.count("its instance is gone") == 3


def test_jobs_says_if_the_newest_run_was_cut_off(address: str, command: Command) -> None:
    begun = round(SystemClock().now() * 1000) - 90_000
    record = Record(slot=begun, begun=begun, completed_at=begun - 60_000, completed=False)
    _write_job(address, JobConfig(job_name="report"), record)
    assert "cut off, begun 1 min" in command("jobs", "--registry", address).stdout


def test_jobs_that_need_attention_are_shown_with_the_reasons_and_an_exit_code_of_their_own(
    address: str, command: Command
) -> None:
    begun = round(SystemClock().now() * 1000) - 90_000
    failed = Record(slot=begun, begun=begun, completed_at=begun + 1000, completed=True, outcome="failed")
    _write_job(address, JobConfig(job_name="report", labels={"team": "billing"}), failed)
    found = command("jobs", "--attention", "--registry", address)
    lines = [line.split() for line in found.stdout.splitlines()]
    assert found.exit_code == 4
    assert lines[3][:3] == ["report", "nobody", "there"]
    assert lines[4][0] == "failing"
    assert "1 job needs attention" in found.stdout
    (only,) = json.loads(command("jobs", "--attention", "--json", "--registry", address).stdout)
    assert [reason["kind"] for reason in only["attention"]] == ["nobody there", "failing"]
    nothing = command("jobs", "--attention", "--label", "team=shop", "--registry", address)
    assert nothing.exit_code == 0
    assert nothing.stdout.startswith("no job with the label team=shop needs attention")
    wrong = command("jobs", "--state", "broken", "--registry", address)
    assert (wrong.exit_code, "must be one of running, waiting" in wrong.stderr) == (2, True)


def test_runs_that_are_not_monitored_are_not_recorded_and_a_dataflow_counts_records(
    address: str, command: Command
) -> None:
    layout = Layout("report")
    counts = [Create(layout.servers), Create(layout.server("10.0.0.5")), Create(layout.failure_count("10.0.0.5"), b"3")]
    config = JobConfig(job_name="report", job_type="DATAFLOW", monitor_execution=False)
    _write_job(address, config, Record(slot=1, begun=1, completed_at=2, completed=True, outcome="completed"), *counts)
    listed = command("jobs", "--registry", address).stdout
    shown = command("job", "report", "--registry", address).stdout
    assert "not recorded" in listed
    assert "not recorded" in shown
    assert "completed" not in listed + shown  # by a run of the time when they were monitored
    assert "in the last interval 0 records succeeded and 3 failed" in shown


def test_jobs_and_a_job_show_labels_and_jobs_are_listed_by_them(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "jobs", "--label", "team=billing", "--label", "tier")
    (row,) = (line for line in said.splitlines() if line.startswith((" idle", " report")))
    assert code == 0
    assert row.split()[0] == "idle"
    assert row.endswith("team=billing, tier=gold")
    code, said, _ = observed(address, command, "jobs", "-l", "team=billing", "--json")
    assert [(job["jobName"], job["labels"]) for job in json.loads(said)] == [
        ("idle", {"team": "billing", "tier": "gold"})
    ]
    code, said, _ = observed(address, command, "jobs", "--label", "team=sales")
    assert said == f"no jobs with the label team=sales in {address}\n"
    code, _, message = observed(address, command, "jobs", "--label", "=x")
    assert (code, message) == (
        2,
        "error: label = '=x': write NAME=VALUE, such as team=billing, or NAME for any value\n",
    )
    code, said, _ = observed(address, command, "job", "idle")
    assert "labels team=billing, tier=gold" in said.splitlines()


def test_jobs_as_json(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "jobs", "--json")
    idle, report = json.loads(said)
    assert code == 0
    assert (idle["jobName"], idle["state"], idle["nextFireTime"]) == ("idle", "waiting", None)
    assert (report["jobName"], report["state"], report["shardingTotalCount"]) == ("report", "running", 3)
    assert 1 in report["runningItems"]


def test_job_shows_who_holds_and_runs_what(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "job", "report")
    lines = said.splitlines()
    assert code == 0
    assert lines[0] == "report  simple job, running"
    assert lines[1] == "* * * * * ?  Every second, UTC"
    assert any("127.0.0.1@-@" in line and "0, 1, 2" in line and "leads" in line for line in lines)
    assert any(line.split()[:2] == ["0", "Beijing"] for line in lines)
    assert any(line.split()[0:1] == ["1"] and " for " in line for line in lines)


def test_job_as_json_has_everything(address: str, command: Command) -> None:
    code, said, _ = observed(address, command, "job", "report", "--json")
    printed = json.loads(said)
    assert code == 0
    assert printed["config"]["shardingItemParameters"] == {"0": "Beijing"}
    (instance,) = printed["instances"]
    assert (instance["id"], instance["holds"]) == (printed["leader"], [0, 1, 2])
    assert instance["refused"] == []
    assert len(instance) == len(fields(operations.InstanceStatus))
    assert printed["items"][1]["runner"] == printed["leader"]
    assert printed["items"][1]["record"]["completed"] is False
    assert printed["items"][1]["runningSince"].endswith("+00:00")
    assert printed["servers"] == [
        {**printed["servers"][0], "ip": "127.0.0.1", "disabled": False, "paused": False, "instances": 1}
    ]


def test_what_a_process_cannot_do_is_told_below_the_jobs_and_the_times_are_the_registrys(
    address: str, command: Command
) -> None:
    ahead = 3600.0
    problems = ProcessProblems(UnwrittenEvents(0.0, "the disk is full", 335), clock_differs=ahead)

    async def main() -> list[str]:
        async with running_report(address) as there:
            session = there.session
            author = Author("127.0.0.1", socket.gethostname(), 4711, session.incarnation)
            await session.commit(renewal(author, None, None, problems), incarnation=session.incarnation)
            asked = (["jobs"], ["job", "report"], ["job", "idle"], ["jobs", "--json"], ["job", "report", "--json"])
            return [(await asyncio.to_thread(command, *one, "--registry", address)).stdout for one in asked]

    began = SystemClock().now()
    *texts, jobs, job = asyncio.run(main())
    for text in texts:
        line = " ".join(text.split())
        assert f"process 4711 on {socket.gethostname()}: its event store has not been written since 1970-01-01" in line
        assert "335 events wait: the disk is full" in line
        assert "its clock is 3600 s ahead of the registry's, so its jobs use the registry's time" in line
    report = json.loads(jobs)[1]
    for printed in (report, json.loads(job)):
        (told,) = printed["processProblems"]
        assert (told["pid"], told["eventStore"]["waiting"], told["clockDiffers"]) == (4711, 335, ahead)
        next_fire = datetime.fromisoformat(printed["nextFireTime"]).timestamp()
        assert next_fire - began < TIMEOUT - ahead  # by the clock of this host it would be an hour later


def test_an_instance_that_finishes_before_it_leaves_is_shown_as_leaving(address: str, command: Command) -> None:
    async def main() -> tuple[str, str]:
        async with running_report(address) as there:
            assert (await operations.shut_down(there.session, "report")).changed
            status = await eventually(there.status, lambda now: all(one.leaving for one in now.instances))
            assert (status.leader, status.state, len(status.instances)) == (None, "running", 1)
            table = await asyncio.to_thread(command, "job", "report", "--registry", address)
            as_json = await asyncio.to_thread(command, "job", "report", "--json", "--registry", address)
            return table.stdout, as_json.stdout

    table, as_json = asyncio.run(main())
    assert any("127.0.0.1@-@" in line and "leaving" in line for line in table.splitlines())
    assert [one["leaving"] for one in json.loads(as_json)["instances"]] == [True]


@pytest.mark.parametrize(("seconds", "said"), [(7.2, "7.2 s ahead of"), (-7.2, "7.2 s behind")])
def test_an_instance_that_refuses_all_runs_because_of_its_clock_is_shown(
    address: str, command: Command, seconds: float, said: str
) -> None:
    async def main() -> tuple[str, ...]:
        async with running_report(address) as there:
            path = Layout("report").instance((await there.status()).instances[0].id)
            data = json.dumps({**json.loads((await there.session.get(path)).data), "clockDiffers": seconds}).encode()
            await there.session.commit([Set(path, data, -1)], incarnation=there.session.incarnation)
            where = "--registry", address
            asked = ("job", "report"), ("job", "report", "--json"), ("jobs",)
            return tuple([(await asyncio.to_thread(command, *words, *where)).stdout for words in asked])

    text, as_json, listed = asyncio.run(main())
    (line,) = [line for line in " ".join(text.split()).split("127.0.0.1@-@") if "refuses all runs" in line]
    assert f" is {said} the registry's, and max_time_diff_seconds is -1" in line
    assert text.splitlines()[0] == "report  simple job, clock differs"
    assert [one["clockDiffers"] for one in json.loads(as_json)["instances"]] == [seconds]
    assert "clock differs" in listed


def test_what_keeps_a_process_from_running_a_job_and_other_rules_of_a_zone_are_shown(
    address: str, command: Command
) -> None:
    async def main() -> tuple[str, ...]:
        async with running_report(address) as there:
            session, layout = there.session, Layout("report")
            written = (await session.get(layout.config)).stat.mzxid
            rules = {"zone": "Europe/Berlin", "year": 2026}
            said: list[dict[str, object]] = [
                {"unusable": {"config": written, "why": "there is no such time zone"}},
                {"zoneRules": {**rules, "rules": "a", "database": "tzdata 2020a"}},
                {"zoneRules": {**rules, "rules": "b", "database": "tzdata 2026b"}},
            ]
            for number, data in enumerate(said):
                node = Create(layout.instance(f"10.9.9.9@-@{number}"), json.dumps(data).encode(), ephemeral=True)
                await session.commit([node], incarnation=session.incarnation)
            with anyio.fail_after(TIMEOUT):  # the worker says that it can use the configuration
                while b"config" not in (await session.get(layout.schedule)).data:
                    await anyio.sleep(0.05)
            where = "--registry", address
            asked = ("job", "report"), ("job", "report", "--json")
            return tuple([(await asyncio.to_thread(command, *words, *where)).stdout for words in asked])

    text, as_json = asyncio.run(main())
    words = " ".join(text.split())
    why = "its process cannot use the configuration: there is no such time zone"
    assert f"10.9.9.9@-@0 runs nothing, because {why}" in words
    assert "the instances have different rules for UTC: tzdata 2020a, tzdata 2026b" in words
    found = {one["id"]: (one["unusable"], one["zoneDatabase"]) for one in json.loads(as_json)["instances"]}
    assert found["10.9.9.9@-@0"] == ("there is no such time zone", None)
    assert found["10.9.9.9@-@1"] == (None, "tzdata 2020a")


def test_a_job_that_is_not_there_is_answered_with_those_that_are(address: str, command: Command) -> None:
    code, said, message = observed(address, command, "job", "repot")
    assert (code, said) == (2, "")
    assert message.startswith("error: job = 'repot': there is no such job in zk://")
    assert message.endswith("there are: idle, report\n")


def test_the_registry_can_come_from_the_environment(
    address: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", address)
    result = command("jobs")
    assert result.exit_code == 0
    assert result.stdout == f"no jobs in {address}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--registry", "http://h"), 2, "address = 'http://h': write zk://host:port"),
        (("--registry", "zk://h:99999"), 2, "'h:99999' is not host:port"),
        (("--registry", "zk://127.0.0.1:1", "--timeout", "0.2"), 1, "no registry at 127.0.0.1:1 within 0.2 s"),
        (("--registry", "zk://h", "--digest", "secret"), 2, "digest = '…': write user:password"),
    ],
)
def test_a_registry_that_cannot_be_looked_into(
    command: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    for which in (("jobs",), ("job", "report")):
        result = command(*which, *arguments)
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert said in result.stderr
        assert "secret" not in result.stderr
