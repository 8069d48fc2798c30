"""A preview tells what then happens; a change that somebody else was faster with is refused."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aioelasticjob import InvalidSetting, ItemContext, JobConfig, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import ChangedMeanwhile, NotPossible
from aioelasticjob.operations.settings import UNCHANGEABLE, settings_from
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_settings_changes import start_processes
from tests.operations.test_instances import HOSTILE
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


async def holders(here: SimulatedJobs) -> dict[int, str | None]:
    return {item.item: item.holder for item in (await operations.job(here.observer, "job", now=0)).items}


@pytest.mark.parametrize(
    "settings",
    [
        {"sharding_total_count": 7},
        {"shardingTotalCount": "1"},
        {"sharding_strategy": "odevity", "sharding_total_count": 5},
        {"jobShardingStrategyType": "round-robin", "sharding_total_count": 3},
    ],
)
def test_items_go_where_the_preview_says(settings: dict[str, object]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "abc")
        before = await holders(here)
        preview = await operations.preview(here.observer, "job", settings)
        assert await holders(here) == before
        assert await operations.configure(here.observer, "job", settings, version=preview.version)
        await anyio.sleep(2)
        after = await holders(here)
        moved = {n: (before.get(n), after.get(n)) for n in {*before, *after} if before.get(n) != after.get(n)}
        assert preview.moves == moved
        assert moved

    simulate(scene)


def test_the_next_moments_are_those_the_job_then_runs_at() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", sharding_total_count=1)
        preview = await operations.preview(here.observer, "job", {"cron": "0/4 * * * * ?"}, now=here.start + here.now())
        assert [fire.timestamp() - here.start for fire in preview.next_fires] == [8, 12, 16, 20, 24]
        assert preview.changed == {"cron": ("0/10 * * * * ?", "0/4 * * * * ?")}
        assert (preview.moves, preview.warnings) == ({}, ())
        done = await operations.configure(here.observer, "job", {"cron": "0/4 * * * * ?"})
        assert done.summary == "job: cron: '0/10 * * * * ?' → '0/4 * * * * ?'"
        long = await operations.configure(here.observer, "job", {"description": "x" * 120_000})
        assert long.summary.endswith("… (120,002 characters)")
        assert len(long.summary) < 300
        await here.until(17)
        assert [round(run.at) for run in them.runs] == [8, 12, 16]
        again = await operations.configure(here.observer, "job", {"cron": "0/4 * * * * ?"})
        assert (again.summary, again.changed) == ("job: is configured so already", False)

    simulate(scene)


@pytest.mark.parametrize(
    ("typed", "fires"),
    [
        ({"cron": "none", "every": "7s", "startAt": "2026-01-01T00:00:03Z"}, [10, 17, 24, 31, 38]),
        ({"cron": "none", "at": "2026-01-01T00:00:09, 2026-01-01T00:00:11"}, [9, 11]),
        ({"cron": "none", "at": '["2026-01-01T00:00:09"]'}, [9]),
        ({"cron": "0/20 * * * * ?; 5/20 * * * * ?", "end_at": "2026-01-01T00:00:40"}, [20, 25, 40]),
    ],
)
def test_each_kind_of_schedule_can_be_typed_and_the_preview_shows_its_moments(
    typed: dict[str, object], fires: list[int]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a")
        preview = await operations.preview(here.observer, "job", typed, now=here.start + 8)
        assert [fire.timestamp() - here.start for fire in preview.next_fires] == fires
        assert preview.warnings == ()
        assert await operations.configure(here.observer, "job", typed, version=preview.version)
        found = await operations.job(here.observer, "job", now=here.start + 8)
        assert found.next_fire == moment(here.start + fires[0])

    simulate(scene)


def test_who_types_a_second_kind_of_schedule_is_told_to_leave_out_the_first() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a")
        with pytest.raises(InvalidSetting, match="set cron or every to none") as caught:
            await operations.preview(here.observer, "job", {"every": "45s"})
        assert caught.value.setting == "every"

    simulate(scene)


def test_two_operators_change_one_job_and_neither_loses_what_he_did_not_see() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        seen = await operations.preview(here.observer, "job", {"job_parameter": "mine"})
        await operations.configure(here.observer, "job", {"job_parameter": "yours"}, version=seen.version)
        with pytest.raises(ChangedMeanwhile, match=r"at version 1, 0 was seen.*nothing was written"):
            await operations.configure(here.observer, "job", {"job_parameter": "mine"}, version=seen.version)
        status = await operations.job(here.observer, "job", now=0)
        assert (status.config.job_parameter, status.config_version) == ("yours", 1)
        both = ({"job_parameter": "a"}, {"description": "b"})
        answers = await asyncio.gather(
            *(operations.configure(here.observer, "job", one) for one in both), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["ChangedMeanwhile", "OperationResult"]

    simulate(scene)


def test_a_preview_warns_of_what_one_might_not_expect() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "ab", work=8, failover=True)
        await here.until(11)

        async def warned(**settings: object) -> str:
            return "; ".join((await operations.preview(here.observer, "job", settings)).warnings)

        assert await warned(description="no more than that") == ""
        assert await warned(sharding_total_count=3) == (
            "beyond the new count and running now: item 3; removed once that has ended in peace; "
            "changing hands and running now: items 1, 2; the new holder waits until that has ended"
        )
        for name, items in (("x", [0, 2, 3]), ("y", [1]), ("z", None)):
            await operations.ask(here.observer, "job", items=items, delay=3600, id=name)
        assert "beyond the new count: items 2, 3, which the request x asks for and will not run" in await warned(
            sharding_total_count=2
        )
        await operations.rerun(here.observer, "job", moment(here.start + 10), id="w")
        assert "backfills that are open wait until monitor_execution is on again: w" in await warned(
            monitor_execution="false", failover="false"
        )
        assert "the schedule never fires again" in await warned(cron="0 0 0 1 1 ? 1999")
        assert "only when it is triggered" in await warned(cron="none")
        assert "an item may run twice" in await warned(monitor_execution="false", failover="false")
        assert "counts only where a server is seen for the first time" in await warned(disabled=True)
        assert "no strategy 'mine' is known here" in await warned(sharding_strategy="mine")
        assert "as far as is known here, " in await warned(error_handler="email")
        assert await warned(monitor_port=4711) == ""
        assert "this release knows no feature retyr: check the spelling" in await warned(requires="retyr")
        second = b'{"host": "a, too"}'
        await here.write(Create(LAYOUT.instance("10.0.0.1@-@2-x"), second, ephemeral=True))
        assert "belongs to one process, and several run on 10.0.0.1:" in await warned(monitor_port=4711)
        assert "belongs to one" not in await warned(monitor_port=0)
        await here.write(Delete(LAYOUT.instance("10.0.0.1@-@2-x")))
        await here.write(Create(LAYOUT.item(2).orphan))
        assert "waiting for a rescuer and then forgotten: item 2" in await warned(failover=False)
        await operations.pause(here.observer, "job")
        assert "it is paused, or its servers are: nothing runs until" in await warned(description="x")
        for ip in ("10.0.0.1", "10.0.0.2"):
            await operations.disable_server(here.observer, ip)
        assert "all servers are disabled: it takes effect when that changes" in await warned(description="x")

    simulate(scene)


def test_settings_have_to_be_a_mapping() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, JobConfig(job_name="job").to_json()))
        for call in (operations.preview, operations.configure):
            for settings in (None, {1: 2}):
                with pytest.raises(InvalidSetting, match=r"settings = .*: must be a mapping of settings by name"):
                    await call(here.observer, "job", settings)  # type: ignore[operator]

    simulate(scene)


def test_a_job_that_nobody_runs_is_configured_all_the_same() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, JobConfig(job_name="job").to_json()))
        preview = await operations.preview(here.observer, "job", {"cron": "0 0 2 * * ?", "time_zone": "Europe/Berlin"})
        assert preview.warnings == ("no instance is there: it takes effect when that changes",)
        assert [fire.hour for fire in preview.next_fires] == [2] * 5
        assert (await operations.configure(here.observer, "job", {"cron": "0 0 2 * * ?"})).changed

    simulate(scene)


def test_the_settings_of_a_kind_are_changed_by_their_own_names() -> None:
    async def scene(here: SimulatedJobs) -> None:
        for config in (
            JobConfig(job_name="script", job_type="SCRIPT", options={"command": "ls"}),
            JobConfig(job_name="mine", job_type="MINE", options={"x": 1}),
        ):
            root = Layout(config.job_name)
            await here.write(Create(root.root), Create(root.config, config.to_json()))

        async def options(name: str, **settings: object) -> object:
            return (await operations.preview(here.observer, name, settings)).config.options

        assert await options("script", command="ls -l", shell="true") == {"command": "ls -l", "shell": True}
        assert await options("script", options='{"command": ["ls", "-l"]}') == {"command": ["ls", "-l"]}
        assert await options("script", options={"command": "ls"}, shell=True) == {"command": "ls", "shell": True}
        mistakes: list[dict[str, object]] = [{"options": {}}, {"options": "x"}, {"comand": "ls"}, {"shell": "maybe"}]
        for wrong in mistakes:
            with pytest.raises(InvalidSetting):
                await options("script", **wrong)
        unknown = await operations.preview(here.observer, "mine", {"options": {"x": 2}, "cron": "@daily"})
        assert (unknown.config.options, unknown.config.cron) == ({"x": 2}, "@daily")
        assert any("no kind MINE is known here" in warning for warning in unknown.warnings)

    simulate(scene)


def test_wrong_settings_are_named_and_nothing_is_written() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        wrong: list[tuple[dict[str, object], str]] = [
            ({"cron": "every day"}, "cron"),
            ({"shardingTotalCount": "0"}, "sharding"),
            ({"sharding_item_parameters": "9=x"}, "out of range"),
            ({"crom": "x"}, "did you mean cron"),
            ({"<script>": "x"}, "no such setting"),
            ({"cron": "0 0 2 * * ?", "time_zone": "Mars"}, "Mars"),
            ({"error_handler_options": "{nonsense"}, "begins like JSON and is none"),
            ({"sharding_total_count": 2, "shardingTotalCount": 3}, "given twice"),
            ({"job_parameter": "\ud800"}, "UTF-8"),
        ]
        wrong += [({setting: "x"}, why) for setting, why in UNCHANGEABLE.items()]
        for settings, said in wrong:
            with pytest.raises(InvalidSetting, match=said):
                await operations.configure(here.observer, "job", settings)
        for name in HOSTILE:
            for action in (operations.preview, operations.configure):
                with pytest.raises(InvalidSetting, match="there are: job, other"):
                    await action(here.observer, name, {"cron": "@daily"})
        assert (await operations.job(here.observer, "job", now=0)).config_version == 0
        await here.write(Set(LAYOUT.config, b"{nonsense", -1))
        with pytest.raises(NotPossible, match="no job configuration"):
            await operations.configure(here.observer, "job", {"description": "x"})

    simulate(scene)


def test_text_is_read_as_what_the_setting_takes() -> None:
    given = {
        "timeout": "none",
        "errorHandlerOptions": '{"to": "a@b"}',
        "jobParameter": '{"not": "parsed"}',
        "sharding_item_parameters": "0=Beijing",
        "failover": "true",
    }
    found = JobConfig(job_name="x", timeout=3).changed(**settings_from(given))
    assert (found.timeout, found.failover) == (None, True)
    assert found.error_handler_options == {"to": "a@b"}
    assert found.job_parameter == '{"not": "parsed"}'
    assert found.sharding_item_parameters == {0: "Beijing"}
    required = JobConfig(job_name="x", requires=("retry",))
    assert required.changed(**settings_from({"requires": "none"})).requires == ()


def test_a_job_is_not_set_to_follow_what_is_not_there_or_what_follows_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        here.app(every="10s")
        app = here.apps[0]
        for name, settings in {"load": {"after": "job"}, "report": {"after": "load"}}.items():
            app.add(idle, name=name, **settings)
        async with app.running():
            for after, why in (
                ("gone", "there is no such job"),
                ("report", "must not lead back to the job: job after report after load after job"),
                ("job", "cannot follow itself"),
            ):
                change = {"after": after, "every": "none"}
                for act in (operations.preview, operations.configure):
                    with pytest.raises(InvalidSetting, match=why):
                        await act(here.observer, "job", change)
            assert await operations.configure(here.observer, "report", {"after": "job,load"})
        assert (await operations.job(here.observer, "report", now=0)).config.after == ("job", "load")

    simulate(scene)


async def idle(context: ItemContext) -> None:
    """Do nothing."""
