"""The forms of actions on a job: what they are called, what they warn of, and what a mistake leads to."""

from __future__ import annotations

import re

from aioelasticjob import operations
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.ground.times import moment
from tests.console.client import Browser
from tests.console.conftest import Play, Scene

REPORT = "/r/billing/job/report"


async def _paused(scene: Scene) -> bool:
    return (await operations.job(scene.registry.session, "report", now=scene.clock.now())).paused


def test_the_form_that_plans_a_run_is_called_so(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        form = (await browser.get(f"{REPORT}/do/trigger")).text
        assert "<h1>Plan a run: report</h1>" in form
        assert '<button class="primary">Plan a run</button>' in form

    play(act)


def test_shutting_down_says_how_many_instances_it_concerns_and_that_it_cannot_be_undone(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        await scene.run_job()
        browser = await scene.operator()
        all_of_them = (await browser.get(f"{REPORT}/do/shut-down")).text
        assert "This concerns 2 instances. The console cannot undo it" in all_of_them
        one = scene.instances()[0].id
        assert "This concerns 1 instance." in (await browser.get(f"{REPORT}/do/shut-down?instance={one}")).text

    play(act)


def test_a_wrong_name_in_the_form_that_removes_a_job_can_be_typed_again(play: Play) -> None:
    async def act(scene: Scene) -> None:
        leave = await scene.run_job()
        leave.set()
        await scene.seen(lambda now: not scene.instances())
        browser = await scene.operator()
        form = await browser.get(f"{REPORT}/do/remove")
        wrong = await browser.post(f"{REPORT}/do/remove", {"csrf": form.token, "typed": "reprot"})
        assert wrong.status == 409
        assert "type report to confirm" in wrong.text
        assert 'name="typed"' in wrong.text
        right = await browser.post(f"{REPORT}/do/remove", {"csrf": wrong.token, "typed": "report"})
        assert (right.status, right.location) == (303, "/r/billing/jobs")

    play(act)


def test_a_pause_is_given_an_end_and_a_note_which_the_page_of_the_job_shows(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        end = moment(int(scene.clock.now()) + 3600)
        form = {"until": end.strftime("%Y-%m-%dT%H:%M:%S"), "note": "the bank is closed; zk://bob:secret@x"}
        assert (await browser.submit(f"{REPORT}/do/pause", form)).status == 303
        snapshot = await scene.seen(lambda now: now.jobs["report"].paused)
        assert snapshot.jobs["report"].paused_until == end
        page = (await browser.get(REPORT)).text
        assert "nothing is run until" in page
        assert end.strftime("%Y-%m-%d %H:%M:%S UTC") in page
        assert "by ada" in page
        assert "the bank is closed" in page
        vera = await scene.viewer()
        seen = (await vera.get(REPORT)).text
        assert "the bank is closed" in seen
        assert "secret" not in seen
        past = await browser.submit(f"{REPORT}/do/pause", {"until": "2020-01-01T00:00"})
        assert (past.status, "still to come" in past.text) == (409, True)

    play(act)


def test_enabling_many_jobs_enables_one_that_was_declared_disabled(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(disabled=True, cron="* * * * * ?")
        await scene.seen(lambda now: now.jobs["report"].state == "switched off")
        browser = await scene.operator()
        assert "/do/enable" in (await browser.get(REPORT)).text
        question = await browser.submit(
            "/r/billing/jobs", {"action": "enable", "job:report": "1"}, to="/r/billing/jobs/do"
        )
        assert "started disabled because of the setting" in question.text
        form = {"csrf": question.token, "job:report": "1"}
        assert (await browser.post("/r/billing/jobs/do/enable", form)).status == 303
        await scene.seen(lambda now: now.jobs["report"].state in ("waiting", "running"))
        assert not await _paused(scene)

    play(act)


def test_times_can_be_read_without_a_script(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(cron="* * * * * ?")
        browser = await scene.operator()
        await scene.seen(lambda now: now.jobs["report"].last is not None and bool(now.jobs["report"].last.completed))
        for path in ("/r/billing/jobs", REPORT, "/audit", "/registries"):
            page = (await browser.get(path)).text
            assert not re.findall(r"<time[^>]*></time>", page), path
        assert re.search(r"<time[^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>", (await browser.get(REPORT)).text)

    play(act)


def test_who_may_see_no_registry_is_told_so(play: Play) -> None:
    async def act(scene: Scene) -> None:
        grace = await scene.person("grace", Role.NONE)
        page = (await grace.get("/registries")).text
        assert "Your role, none, lets you see no registry." in page
        assert "No registry is watched yet" not in page

    play(act)


def test_cookies_are_for_encrypted_connections_only_if_the_public_address_is_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = Browser(scene.console)
        answer = await browser.get("/login")
        assert "Secure" in answer.cookies["aioej_form"]

    play(act, public_url="https://jobs.example.org")


def test_the_links_of_a_job_are_on_its_page_and_addresses_that_run_scripts_are_refused(play: Play) -> None:
    async def act(scene: Scene) -> None:
        links = {"runbook": "https://wiki.example.org/{job}", "trace": "https://traces.example.org/{run_id}"}
        await scene.run_job(links=links)
        browser = await scene.operator()
        page = (await browser.get(REPORT)).text
        assert 'href="https://wiki.example.org/report" rel="noreferrer noopener"' in page
        assert "traces.example.org" not in page  # it needs a run
        form = await browser.get(f"{REPORT}/settings")
        sent = {"csrf": form.token, "version": form.value("version"), "links": '{"x": "javascript:alert(1)"}'}
        refused = await browser.post(f"{REPORT}/settings", sent)
        assert (refused.status, "must begin with http:// or https://" in refused.text) == (400, True)
        sent["links"] = "runbook=https://other.example.org"
        assert (await browser.post(f"{REPORT}/settings", sent)).status == 303
        await scene.seen(lambda now: len(now.jobs["report"].config.links) == 1)
        assert 'href="https://other.example.org"' in (await browser.get(REPORT)).text

    play(act)
