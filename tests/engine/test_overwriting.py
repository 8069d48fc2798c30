"""What the registry holds of a job is replaced by what is declared with ``overwrite``, also if it makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig, operations
from aioelasticjob.errors import ForeignData, JobConflict
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create
from aioelasticjob.testing import VirtualClock
from tests.engine.test_required_features import MakeMixed
from tests.engine.test_required_features import mixed as mixed
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

GOOD = {"jobName": "job", "jobType": "SIMPLE", "cron": "0/5 * * * * ?", "shardingTotalCount": 2}
NO_OBJECT = (
    b"hello",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
)
WRONG_SETTINGS = (
    {"shardingTotalCount": 0},
    {"shardingTotalCount": "abc"},
    {"shardingTotalCount": True},
    {"cron": "every now and then"},
    {"cron": 5},
    {"timeZone": "Mars/Olympus"},
    {"dst": "never"},
    {"misfire": "perhaps"},
    {"failover": True, "monitorExecution": False},
    {"shardingItemParameters": {"7": "Beijing"}},
    {"retry": {"attempts": -1}},
    {"labels": [1]},
    {"options": {"command": "ls"}},
    {"streamingProcess": True},
    {"cron": "nonsense", "shardingTotalCount": 0},
)
"""Settings of our own configurations that no instance can use."""


def stored(settings: dict[str, object]) -> bytes:
    return json.dumps({**GOOD, **settings, "ours": "kept"}).encode()


UNUSABLE = (*NO_OBJECT, *map(stored, WRONG_SETTINGS), b'{"jobName": 5}', b'{"jobName": "job", "jobType": "simple"}')


async def put(here: SimulatedJobs, data: bytes) -> None:
    await here.write(Create(LAYOUT.root), Create(LAYOUT.config, data))


async def config_of(here: SimulatedJobs) -> JobConfig:
    status = await operations.job(here.observer, "job", now=0)
    assert status.fault is None
    return status.config


@pytest.mark.parametrize("data", UNUSABLE)
def test_a_start_with_overwrite_replaces_a_configuration_that_cannot_be_used(
    data: bytes, mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        caplog.set_level("INFO", "aioelasticjob")
        them = mixed(here)
        await put(here, data)
        await them.start("a")
        assert await them.ran(12) == {}
        assert (await here.observer.get(LAYOUT.config)).data == data
        await them.start("b", overwrite=True, sharding_total_count=3, cron="0/5 * * * * ?")
        await anyio.sleep(2)
        assert set().union(*(await them.ran(12)).values()) == {0, 1, 2}
        config = await config_of(here)
        assert (config.sharding_total_count, config.cron) == (3, "0/5 * * * * ?")
        assert config.unknown == ({"ours": "kept"} if b"ours" in data else {})
        said = "which could not be used, because its code says so and has overwrite=True"
        assert sum(said in text for text in caplog.messages) == (0 if b"options" in data else 1)

    simulate(scene)


@pytest.mark.parametrize("data", UNUSABLE)
def test_an_import_with_overwrite_replaces_a_configuration_that_cannot_be_used(data: bytes) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await put(here, data)
        with pytest.raises(NotPossible, match="there already with other settings"):
            await operations.import_jobs(here.observer, json.dumps(GOOD))
        done = await operations.import_jobs(here.observer, json.dumps(GOOD), overwrite=True)
        assert done.summary.startswith("imported: 1 replaced (job)")
        assert (await config_of(here)).sharding_total_count == 2

    simulate(scene)


@pytest.mark.parametrize("wrong", WRONG_SETTINGS)
def test_settings_that_make_no_sense_are_set_right(wrong: dict[str, object]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await put(here, stored(wrong))
        right = {name: GOOD.get(name, RIGHT.get(name)) for name in wrong}
        if wrong.keys() & {"failover"}:
            right.pop("failover")  # one of two settings that contradict each other is enough
        preview = await operations.preview(here.observer, "job", right)
        done = await operations.configure(here.observer, "job", right, version=preview.version, by="Ada")
        assert done.changed
        names = {name for name, field in JobConfig.model_fields.items() if field.serialization_alias in right}
        names |= {name for name, field in JobConfig.model_fields.items() if field.alias in right}
        assert preview.changed.keys() == names
        config = await config_of(here)
        assert (config.cron, config.sharding_total_count) == (GOOD["cron"], 2)
        assert config.unknown == {"ours": "kept"}

    simulate(scene)


RIGHT: dict[str, object] = {
    **{"timeZone": "Asia/Shanghai", "dst": "quartz", "misfire": False, "failover": False, "monitorExecution": True},
    **{"shardingItemParameters": {0: "Beijing"}, "retry": None, "labels": {}, "options": {}, "streamingProcess": False},
}


def test_set_says_which_other_settings_are_still_wrong_and_writes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        data = stored({"shardingTotalCount": 0, "cron": "nonsense", "misfire": "perhaps"})
        await put(here, data)
        for call in (operations.preview, operations.configure):
            with pytest.raises(NotPossible, match=r"^job: .*cron = 'nonsense': .*give these as well") as refused:
                await call(here.observer, "job", {"shardingTotalCount": "2"})
            assert "misfire = 'perhaps'" in str(refused.value)
            assert "sharding_total_count" not in str(refused.value)
            with pytest.raises(InvalidSetting, match=r"^sharding_total_count = '-1': "):
                await call(here.observer, "job", {"shardingTotalCount": "-1"})
        assert (await here.observer.get(LAYOUT.config)).data == data
        all_of_them = {"shardingTotalCount": "2", "cron": "0/5 * * * * ?", "misfire": "true"}
        done = await operations.configure(here.observer, "job", all_of_them)
        assert done.summary.startswith("job: cron: 'nonsense' → '0/5 * * * * ?'; sharding_total_count: 0 → 2")
        assert (await config_of(here)).misfire

    simulate(scene)


def test_options_of_a_script_are_set_right_one_by_one() -> None:
    async def scene(here: SimulatedJobs) -> None:
        data = stored({"jobType": "SCRIPT", "options": {"command": ""}, "shardingTotalCount": 0})
        await put(here, data)
        with pytest.raises(NotPossible, match="sharding_total_count = 0"):
            await operations.configure(here.observer, "job", {"command": "ls"})
        with pytest.raises(InvalidSetting, match="command"):
            await operations.configure(here.observer, "job", {"shardingTotalCount": 1})
        assert await operations.configure(here.observer, "job", {"command": "ls", "shardingTotalCount": 1})
        config = await config_of(here)
        assert (config.options, config.sharding_total_count) == ({"command": "ls"}, 1)

    simulate(scene)


@pytest.mark.parametrize("data", [*NO_OBJECT, b"{}", b'{"jobName": "job", "jobType": 5}'])
def test_what_has_no_settings_or_an_impossible_kind_is_not_set_right_but_replaced(data: bytes) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await put(here, data)
        with pytest.raises(NotPossible, match="import a whole configuration"):
            await operations.configure(here.observer, "job", {"shardingTotalCount": 2})
        assert (await here.observer.get(LAYOUT.config)).data == data

    simulate(scene)


@pytest.mark.parametrize("wrong", [{}, {"shardingTotalCount": 0}])
def test_the_configuration_of_another_job_or_of_another_kind_is_replaced_by_nobody(
    wrong: dict[str, object], mixed: MakeMixed
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        other_job = json.dumps({**GOOD, **wrong, "jobName": "another"}).encode()
        await put(here, other_job)
        await them.start("a", overwrite=True)
        await anyio.sleep(5)
        assert "the job's name is job and never changes" in (them.problem("a") or "")
        with pytest.raises(ForeignData, match="the job's name is job and never changes"):
            await operations.import_jobs(here.observer, json.dumps(GOOD), overwrite=True)
        with pytest.raises(ForeignData, match="the job's name is job and never changes"):
            await operations.configure(here.observer, "job", {"shardingTotalCount": 2})
        assert (await here.observer.get(LAYOUT.config)).data == other_job

        other_kind = json.dumps({**GOOD, **wrong, "jobType": "DATAFLOW"}).encode()
        await here.write(Create("/flow"), Create("/flow/config", other_kind.replace(b'"job"', b'"flow"')))
        text = json.dumps({**GOOD, "jobName": "flow"})
        with pytest.raises(JobConflict, match="is already a DATAFLOW job"):
            await operations.import_jobs(here.observer, text, overwrite=True)
        app = ElasticJob(here.address, clock=VirtualClock(), overwrite=True)
        app.add(nothing, name="flow")
        with pytest.raises(JobConflict, match="is already a DATAFLOW job"):
            async with app.running():
                raise AssertionError("it must not start")

    simulate(scene)


@pytest.mark.parametrize("place", ["file", "variable"])
def test_overwrite_for_all_jobs_may_stand_in_a_settings_file_or_in_the_environment(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("overwrite: true\n" if place == "file" else "threads: 7\n")
    if place == "variable":
        monkeypatch.setenv("AIOELASTICJOB_OVERWRITE", "true")

    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create("/first"), Create("/first/config", JobConfig(job_name="first").to_json()))
        app = ElasticJob(here.address, clock=VirtualClock())
        app.configure(file)
        app.add(nothing, name="first", description="declared")
        async with app.running():
            (found,) = await operations.jobs(here.observer, now=0)
            assert found.config.description == "declared"

    simulate(scene)


async def nothing(_: ItemContext) -> None: ...


def test_an_application_that_overwrites_does_so_for_all_jobs_except_those_that_say_otherwise() -> None:
    async def scene(here: SimulatedJobs) -> None:
        for name in ("first", "second", "own"):
            await here.write(Create(f"/{name}"), Create(f"/{name}/config", JobConfig(job_name=name).to_json()))
        app = ElasticJob(here.address, clock=VirtualClock(), overwrite=True)
        for name in ("first", "second"):
            app.add(nothing, name=name, description="declared")
        app.add(nothing, name="own", description="declared", overwrite=False)
        async with app.running():
            found = await operations.jobs(here.observer, now=0)
            assert {one.name: one.config.description for one in found} == {
                "first": "declared",
                "second": "declared",
                "own": "",
            }

    simulate(scene)
