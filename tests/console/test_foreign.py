"""The console shows a job of Elastic-Job for Java, says whose it is, and does nothing to it."""

from __future__ import annotations

import json

import pytest

from aioelasticjob.console.actions.job_actions import ACTIONS
from tests.console.conftest import Play, Scene
from tests.support.java_trees import IP, RELEASES, java_job

JOB = "/r/billing/job/job"
FORM = {
    "from": "2026-11-19T00:00",
    "to": "2026-11-20T00:00",
    "fire_time": "2026-11-19T00:00",
    "request": "again",
    "typed": "job",
}


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_java_is_shown_and_everything_that_is_tried_on_it_is_refused(
    release: str, is_up: bool, play: Play
) -> None:
    whose = f"is of Elastic-Job {release} for Java"

    async def act(scene: Scene) -> None:
        session = scene.registry.session
        await session.commit(java_job(release, is_up=is_up), incarnation=session.incarnation)
        await scene.seen(lambda now: "job" in now.jobs)
        before = await session.subtree(["/"])
        browser = await scene.operator()
        for address in ("/r/billing/jobs", JOB, f"{JOB}/settings"):
            page = (await browser.get(address)).text
            assert whose in page
            assert "import jobs.yaml --overwrite" not in page
        assert '<span class="state warn">foreign</span>' in (await browser.get(JOB)).text
        assert "do/pause" not in (await browser.get(JOB)).text
        chinese = (await (await scene.operator(language="zh")).get(JOB)).text
        assert "外部作业" in chinese
        assert f"属于 Java 版 Elastic-Job {release}" in chinese
        token = (await browser.get(f"{JOB}/do/remove")).token
        for action in ACTIONS:
            answer = await browser.post(f"{JOB}/do/{action}", {**FORM, "csrf": token})
            assert answer.status in (400, 409), action
            assert whose in answer.text, action
        answer = await browser.post(f"{JOB}/settings", {"csrf": token, "version": "0", "description": "changed"})
        assert whose in answer.text
        text = json.dumps({"jobs": [{"jobName": "job"}]})
        answer = await browser.post("/r/billing/transfer", {"csrf": token, "text": text, "overwrite": "1"})
        assert whose in answer.text
        for action in ("pause", "disable", "remove"):
            answer = await browser.post(f"/r/billing/servers/{IP}/{action}", {"csrf": token})
            assert whose in answer.text, action
        assert await session.subtree(["/"]) == before

    play(act)
