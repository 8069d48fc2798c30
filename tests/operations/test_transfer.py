"""Configurations go out as text and come back as they were; a wrong one keeps all the others out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioelasticjob import InvalidSetting, JobConfig, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import JobConflict
from aioelasticjob.operations import ChangedMeanwhile, NotPossible
from aioelasticjob.registry.transaction import Create, Set
from tests.operations.test_instances import HOSTILE, Meddled
from tests.support.simulated_jobs import SimulatedJobs, simulate

REPORT = JobConfig(
    job_name="report", cron="0 0 2 ? * MON-FRI", sharding_total_count=3, description="für Österreich 日报"
)
OTHER = JobConfig(job_name="other", sharding_total_count=2, sharding_item_parameters={0: "Beijing", 1: "Shanghai"})


async def settle(here: SimulatedJobs, *configs: JobConfig) -> None:
    for config in configs:
        layout = Layout(config.job_name)
        await here.write(Create(layout.root), Create(layout.config, config.to_json()))


async def configs(here: SimulatedJobs) -> dict[str, JobConfig]:
    return {status.name: status.config for status in await operations.jobs(here.observer, now=0)}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_was_exported_is_imported_as_it_was(form: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await settle(here, REPORT, OTHER)
        text = await operations.export_jobs(here.observer, form=form)  # type: ignore[arg-type]
        assert "für Österreich 日报" in text
        same = await operations.import_jobs(here.observer, text)
        assert (same.summary, same.changed) == ("imported: 2 unchanged (other, report)", False)
        for name in ("report", "other"):
            await operations.remove(here.observer, name)
        done = await operations.import_jobs(here.observer, text)
        assert done.summary == "imported: 2 new (other, report)"
        assert done.paths == ("/other", "/other/config", "/report", "/report/config")
        assert await configs(here) == {"report": REPORT, "other": OTHER}

    simulate(scene)


def test_an_import_is_previewed_setting_by_setting_and_the_preview_writes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await settle(here, REPORT)
        text = json.dumps(
            {"jobs": [{"jobName": "report", "cron": "0 0 5 * * ?"}, {"jobName": "fresh", "cron": "0 0 12 * * ?"}]}
        )
        preview = await operations.preview_import(here.observer, text)
        assert [(job.name, job.effect) for job in preview] == [("report", "refused"), ("fresh", "new")]
        assert preview[0].changes["cron"] == (REPORT.cron, "0 0 5 * * ?")
        assert preview[1].changes == {"cron": (None, "0 0 12 * * ?")}
        preview = await operations.preview_import(here.observer, text, overwrite=True)
        assert [(job.name, job.effect) for job in preview] == [("report", "replaced"), ("fresh", "new")]
        (same,) = await operations.preview_import(here.observer, await operations.export_jobs(here.observer))
        assert (same.effect, same.changes) == ("unchanged", {})
        assert await configs(here) == {"report": REPORT}

    simulate(scene)


def test_chosen_jobs_are_exported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await settle(here, REPORT, OTHER)
        (only,) = json.loads(await operations.export_jobs(here.observer, ["report"]))["jobs"]
        assert (only["jobName"], only["cron"]) == ("report", REPORT.cron)
        for name in HOSTILE:
            with pytest.raises(InvalidSetting, match="there are: other, report"):
                await operations.export_jobs(here.observer, [name])
        with pytest.raises(InvalidSetting, match="json or yaml"):
            await operations.export_jobs(here.observer, form="xml")  # type: ignore[arg-type]
        await here.write(Set("/other/config", b"{nonsense", -1))
        with pytest.raises(NotPossible, match=r"/other/config.*mend it first"):
            await operations.export_jobs(here.observer)
        assert await operations.export_jobs(here.observer, ["report"])

    simulate(scene)


def test_jobs_that_are_there_keep_their_settings_unless_told_otherwise() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await settle(here, REPORT)
        text = json.dumps({"jobs": [{"jobName": "report", "cron": "@daily"}, {"jobName": "fresh"}]})
        with pytest.raises(NotPossible, match=r"1 job is there already with other settings \(report\)"):
            await operations.import_jobs(here.observer, text)
        assert await configs(here) == {"report": REPORT}
        done = await operations.import_jobs(here.observer, text, overwrite=True)
        assert done.summary == "imported: 1 new (fresh), 1 replaced (report)"
        assert (await configs(here))["report"].cron == "@daily"
        with pytest.raises(JobConflict, match="is already a SIMPLE job in this namespace"):
            await operations.import_jobs(
                here.observer, "jobName: fresh\njobType: SCRIPT\noptions: {command: ls}\n", overwrite=True
            )
        await here.write(Set("/fresh/config", b"{nonsense", -1))
        assert (await operations.import_jobs(here.observer, "jobName: fresh", overwrite=True)).changed

    simulate(scene)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "as export does"),
        ("[]", "as export does"),
        ("{", "neither JSON nor YAML"),
        ("jobs: [", "neither JSON nor YAML"),
        ("just words", "as export does"),
        ('{"jobs": 7}', "as export does"),
        ("[" * 100_000, "neither JSON nor YAML"),
        ("- [" * 20_000, "neither JSON nor YAML"),
        ("a: &a [x, x]\njobs: [*a, *a]", "aliases"),
        ("!!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
        ("[7]", "job 1"),
        ('[{"jobName": "fresh"}, {"jobName": "../etc"}]', r"job 2 \(\.\./etc\)"),
        ('[{"jobName": "fresh"}, {"jobName": "bad", "cron": "never"}]', r"job 2 \(bad\)"),
        ('[{"jobName": "fresh"}, {"jobName": "fresh"}]', "given twice"),
        ('[{"jobName": "fresh", "requires": 1}]', r"job 1 \(fresh\).*requires"),
        ('[{"jobName": "fresh", "jobParameter": "\\ud800"}]', "UTF-8"),
        ('[{"jobName": "fresh"}, {"jobName": "bad", "jobType": "SCRIPT"}]', r"job 2 \(bad\).*options.command"),
        ('[{"jobName": "locks"}]', "a node of that name is there that is no job"),
        ("? [a]\n: b", "neither JSON nor YAML"),
        ('{"jobName": {"a": {}}}', "job 1"),
        ("x" * (16 * 1024 * 1024 + 1), "at most"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_text_changes_nothing(text: str, said: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create("/locks"))
        with pytest.raises(InvalidSetting, match=said) as wrong:
            await operations.import_jobs(here.observer, text)
        assert len(str(wrong.value)) < 1000
        assert await here.observer.children("/") == ("locks",)

    simulate(scene)


def test_somebody_who_makes_the_job_meanwhile_is_not_overwritten() -> None:
    async def scene(here: SimulatedJobs) -> None:
        with pytest.raises(ChangedMeanwhile, match="/fresh was made meanwhile: nothing was written"):
            await operations.import_jobs(Meddled(here.observer, Create("/fresh")), '[{"jobName": "fresh"}]')

    simulate(scene)


def test_what_is_too_large_for_a_transaction_is_imported_in_parts_and_says_how_far_it_got() -> None:
    async def scene(here: SimulatedJobs) -> None:
        jobs = [{"jobName": f"job-{n:03}", "description": "x" * 10_000} for n in range(150)]
        text = json.dumps({"jobs": jobs})
        last = {"jobName": "job-149"}
        await here.write(Create("/job-149"), Create("/job-149/config", JobConfig(job_name="job-149").to_json()))

        class Slow(Meddled):
            """Somebody changes the last job after the first part was written."""

            async def commit(self, ops: Any, *, incarnation: int) -> Any:
                done = await here.observer.commit(ops, incarnation=incarnation)
                if not self._faster:
                    return done
                await here.observer.commit(self._faster, incarnation=incarnation)
                self._faster = ()
                return done

        meddled = Slow(here.observer, Set("/job-149/config", json.dumps({**last, "cron": "@daily"}).encode(), -1))
        with pytest.raises(
            ChangedMeanwhile, match=r"/job-149/config was changed meanwhile: \d+ of 150 jobs were"
        ) as how_far:
            await operations.import_jobs(meddled, text, overwrite=True)
        done = await operations.import_jobs(here.observer, text, overwrite=True)
        before = int(how_far.value.already.split()[0])
        assert 50 < before < 149
        assert f"imported: {149 - before} new (" in done.summary
        assert f", 1 replaced (job-149), {before} unchanged (" in done.summary
        assert {config.description for config in (await configs(here)).values()} == {"x" * 10_000}

    simulate(scene)
