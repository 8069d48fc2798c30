"""Actions on many jobs: one question, one report, and for each job what the action on that job alone does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

import anyio
import pytest

from aioelasticjob.console.actions.bulk_actions import AT_ONCE, REPORTS_KEPT, BulkAction, BulkActions
from aioelasticjob.console.pages import bulk as page_of_bulk
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.errors import InvalidSetting
from tests.console.client import Answer, Browser
from tests.console.conftest import Play, Scene

JOBS = "/r/billing/jobs"
SELECTED = ("a", "b", "c")


async def _ask(browser: Browser, action: str, *jobs: str, **form: str) -> Answer:
    """Press a button above the list, with some jobs selected."""
    selected = {f"job:{job}": "1" for job in jobs}
    return await browser.submit(JOBS, {"action": action, **selected, **form}, to=f"{JOBS}/do")


async def _confirm(browser: Browser, question: Answer, action: str) -> Answer:
    """Answer the question with yes, and return the report."""
    fields = {unescape(name): "1" for name in re.findall(r'type="hidden" name="(job:[^"]+)"', question.text)}
    answer = await browser.post(f"{JOBS}/do/{action}", {"csrf": question.token, **fields})
    assert answer.status == 303, answer.text
    return await browser.get(answer.location)


def _rows(report: Answer) -> Mapping[str, tuple[str, str]]:
    """Return the outcome of each job, and the sentence about it."""
    found = re.findall(r'job/([^"]+)">.*?<span class="outcome (\w+)">.*?</td><td>(.*?)</td></tr>', report.text)
    return {job: (outcome, unescape(sentence)) for job, outcome, sentence in found}


def test_jobs_that_are_selected_are_paused_after_one_question_and_a_job_that_fails_stops_no_other(play: Play) -> None:
    async def act(scene: Scene) -> None:
        for name in SELECTED:
            await scene.run_job(name)
        await scene.run_job("other")
        ada = await scene.operator()
        question = await _ask(ada, "pause", *SELECTED, "gone")
        assert "Pause: 4 jobs" in question.text
        assert "<p>a, b, c, gone</p>" in question.text
        assert "None of their runs begins until they are resumed." in question.text
        assert not any(job.paused for job in scene.registry.snapshot.value.jobs.values())  # nothing is done yet
        report = await _confirm(ada, question, "pause")
        assert "Done for 3 of 4 jobs." in report.text
        rows = _rows(report)
        assert list(rows) == ["gone", *SELECTED]  # what failed comes first
        assert [outcome for outcome, _ in rows.values()] == ["bad", "ok", "ok", "ok"]
        assert "gone" in rows["gone"][1]
        assert rows["a"][1] == "a: paused"
        await scene.seen(lambda now: [name for name, job in now.jobs.items() if job.paused] == list(SELECTED))
        entries = await scene.console.state.storage.audit.entries(text="pause")
        assert {(one.entry.who, one.entry.target, one.done) for one in entries} == {
            *(("ada", name, True) for name in SELECTED),
            ("ada", "gone", False),
        }
        (one,) = [entry for entry in entries if entry.entry.target == "a"]
        assert (one.entry.before["paused"], one.after["paused"]) == (False, True)
        again = await _confirm(ada, await _ask(ada, "resume", *SELECTED), "resume")
        assert "Done for 3 of 3 jobs." in again.text
        await scene.seen(lambda now: not any(job.paused for job in now.jobs.values()))

    play(act)


def test_all_jobs_that_the_filter_shows_run_now_also_those_of_other_pages(play: Play) -> None:
    async def act(scene: Scene) -> None:
        for name in SELECTED:
            await scene.run_job(name, labels={"team": "billing"}, sharding_total_count=1)
        await scene.run_job("other", labels={"team": "sales"}, sharding_total_count=1)
        ada = await scene.operator()
        shown = await ada.get(f"{JOBS}?label=team%3Dbilling&size=1")
        assert "all jobs that this filter shows" in shown.text
        form = {"action": "trigger", "scope": "found", "label": shown.value("label"), "csrf": shown.token}
        question = await ada.post(f"{JOBS}/do", form)
        assert "Run now: 3 jobs" in question.text
        report = await _confirm(ada, question, "trigger")
        assert {job: outcome for job, (outcome, _) in _rows(report).items()} == dict.fromkeys(SELECTED, "ok")
        await scene.seen(lambda now: all(now.jobs[name].items[0].outcome == "completed" for name in SELECTED))
        assert scene.registry.snapshot.value.jobs["other"].last is None

    play(act)


@pytest.mark.parametrize(("action", "meaning"), [("disable", "对整个作业而言"), ("enable", "它们将恢复")])
def test_the_other_actions_on_a_whole_job_are_there_as_well(play: Play, action: str, meaning: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("a")
        ada = await scene.operator(language="zh")
        question = await _ask(ada, action, "a")
        assert meaning in question.text
        report = await _confirm(ada, question, action)
        assert _rows(report)["a"][0] == "ok"
        assert "已完成" in report.text

    play(act)


def test_each_role_is_offered_and_may_do_what_it_may_do_to_one_job(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("a")
        await scene.operator()
        vera, tom = await scene.person("vera", Role.VIEWER), await scene.person("tom", Role.TRIGGER)
        for browser, offered in ((vera, []), (tom, ["trigger"])):
            page = await browser.get(JOBS)
            assert re.findall(r'<button name="action" value="(\w+)"', page.text) == offered
            assert ('type="checkbox"' in page.text) is bool(offered)
            for path, form in ((f"{JOBS}/do", {"action": "pause"}), (f"{JOBS}/do/pause", {})):
                refused = await browser.post(path, {"csrf": page.token, "job:a": "1", **form})
                assert (refused.status, "needs the permission “operate”" in refused.text) == (403, True)
        assert (await vera.post(f"{JOBS}/do/trigger", {"csrf": page.token, "job:a": "1"})).status == 403
        question = await _ask(tom, "trigger", "a")
        assert (await tom.post(f"{JOBS}/do/trigger", {"job:a": "1"})).status == 403  # no token of a form
        done = await tom.post(f"{JOBS}/do/trigger", {"csrf": question.token, "job:a": "1"})
        assert (await tom.get(done.location)).status == 200
        assert (await vera.get(done.location)).status == 404  # it is tom's report
        for unknown in ("remove", "nonsense"):
            assert (await tom.post(f"{JOBS}/do/{unknown}", {"csrf": question.token, "job:a": "1"})).status == 404

    play(act)


def test_without_a_selection_and_with_too_many_nothing_is_done(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_of_bulk, "MOST", 1)

    async def act(scene: Scene) -> None:
        await scene.run_job("a")
        ada = await scene.operator()
        for jobs, notice in (((), "No job is selected"), (("a", "b"), "At most 1 jobs at once")):
            back = await _ask(ada, "pause", *jobs, q="a")
            assert (back.status, back.location) == (303, f"{JOBS}?q=a")
            assert notice in (await ada.get(back.location)).text
        token = (await ada.get(JOBS)).token
        for jobs, notice in (
            ((), "No job is selected"),
            (("a", "b"), "At most 1 jobs at once"),
        ):  # without the question
            back = await ada.post(f"{JOBS}/do/pause", {"csrf": token, **{f"job:{job}": "1" for job in jobs}})
            assert notice in (await ada.get(back.location)).text
        assert not scene.registry.snapshot.value.jobs["a"].paused

    play(act)


def test_the_question_is_not_limited_by_the_number_of_fields(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        question = await ada.submit("/r/billing/servers", _pausing(1500), to=f"{JOBS}/do")
        assert "Pause: 1,500 jobs" in question.text
        assert "and 1490 more" in question.text

    play(act)


def _pausing(count: int) -> dict[str, str]:
    return {"action": "pause", **{f"job:job-{number}": "1" for number in range(count)}}


def test_what_takes_longer_shows_its_progress_and_goes_on_when_nobody_looks(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, begun = anyio.Event(), list[str]()

    async def waits(request: object, kind: str, name: str, values: object) -> None:
        begun.append(name)
        await may_end.wait()
        raise InvalidSetting("job", name, "another one")

    monkeypatch.setattr(page_of_bulk, "carry_out", waits)
    monkeypatch.setattr(page_of_bulk, "ANSWER_TIMEOUT", 0.01)

    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        token = (await ada.get("/r/billing/servers")).token
        answer = await ada.post(f"{JOBS}/do/pause", {"csrf": token, **_pausing(100)})
        report = await ada.get(answer.location)
        assert "0 of 100 jobs have been worked on." in report.text
        assert '<progress value="0" max="100"' in report.text
        assert len(begun) == AT_ONCE  # not all at once
        async with ada.listening(f"{answer.location}/live") as stream:
            await stream.event("0 of 100 jobs")
            may_end.set()
            await stream.event("Done for 0 of 100 jobs.")
        assert "another one" in (await ada.get(answer.location)).text

    play(act)


def test_the_oldest_reports_are_given_up_but_not_what_goes_on() -> None:
    async def main() -> None:
        bulk_actions, never = BulkActions(), anyio.Event()

        async def wait(job: str) -> str:
            await never.wait()
            return job

        async def done(job: str) -> str:
            return job

        async with bulk_actions.running():
            going_on = BulkAction("ada", "billing", "pause", ["a"])
            bulk_actions.start(going_on, wait)
            ended = [BulkAction("ada", "billing", "pause", ["a"]) for _ in range(REPORTS_KEPT + 1)]
            for one in ended:
                bulk_actions.start(one, done)
                await one.ended.wait()
            assert bulk_actions.find(going_on.id) is going_on
            kept = [one for one in ended if bulk_actions.find(one.id) is one]
            assert kept == ended[2:]
        assert not going_on.ended.is_set()  # the console has ended

    anyio.run(main)


def test_an_error_of_the_console_itself_is_this_jobs_only_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_for_a(job: str) -> str:
        if job == "a":
            raise KeyError(job)
        return "done"

    async def main() -> None:
        bulk_actions, bulk = BulkActions(), BulkAction("ada", "billing", "pause", ["a", "b"])
        async with bulk_actions.running():
            bulk_actions.start(bulk, fails_for_a)
            await bulk.ended.wait()
        assert (bulk.failures, bulk.results["b"].summary) == (1, "done")
        assert isinstance(bulk.results["a"].error, KeyError)

    anyio.run(main)
    assert "a bulk action failed for the job a" in caplog.text
