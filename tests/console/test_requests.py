"""Asking for runs on the page: now, later, again; seeing how far that is, and pausing, cancelling and stopping it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.console.actions.job_actions import Filled
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.core.layout import SWITCHES, Layout, server_switch
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations import RequestStatus
from aioelasticjob.registry.session import Session
from tests.console.client import Browser
from tests.console.conftest import Play, Scene

REPORT = "/r/billing/job/report"
BERLIN = "Europe/Berlin"
NIGHTLY = {"cron": "0 0 2 * * ?", "time_zone": "Asia/Shanghai", "sharding_total_count": 3}


async def _do(browser: Browser, action: str, **form: str) -> None:
    """Send the form of a question, and see that it is done; on a busy machine the registry may be away meanwhile."""
    with anyio.fail_after(90):
        while (answer := await browser.submit(f"{REPORT}/do/{action}", form)).status == 503:
            await anyio.sleep(0.02)
    assert answer.status == 303, answer.text


async def _requests(scene: Scene, until: Callable[[RequestStatus], bool] = lambda one: True) -> list[RequestStatus]:
    """Return what was asked of the job, once it is as it should be."""
    with anyio.fail_after(90):
        while True:
            found = await operations.requests(scene.registry.session, "report")
            if found and all(map(until, found)):
                return list(found)
            await anyio.sleep(0.02)


def test_run_now_writes_a_request_in_the_name_of_who_asks(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        assert (await browser.submit(REPORT, {"parameter": '{"day": 1}'}, to=f"{REPORT}/do/trigger")).status == 303
        (done,) = await _requests(scene, lambda one: one.is_over)
        assert (done.request.by, done.request.parameter, done.request.items) == ("ada", '{"day": 1}', None)
        assert [(run.item, run.request) for run in sorted(scene.runs, key=lambda run: run.item)] == [
            (item, {"day": 1}) for item in range(3)
        ]
        page = (await browser.get(REPORT)).text
        assert done.request.id in page
        assert "3 completed" in page

    play(act)


def test_a_time_that_the_clock_of_the_viewer_skips_is_refused() -> None:
    form = Filled({"at": "2026-03-29T02:30", "gap_over": "2026-03-29T03:00", "twice": "2026-10-25T02:30"}, "", BERLIN)
    with pytest.raises(
        InvalidSetting, match="does not exist in Europe/Berlin: the clock is put forward from"
    ) as refused:
        form.time("at")
    assert refused.value.setting == "at"
    there = [found.isoformat() for name in ("gap_over", "twice") if (found := form.time(name)) is not None]
    assert there == ["2026-03-29T03:00:00+02:00", "2026-10-25T02:30:00+02:00"]
    assert (
        Filled({"at": "2026-03-29T02:30:00+01:00"}, "", BERLIN).needed("at").isoformat() == "2026-03-29T02:30:00+01:00"
    )


def test_a_run_of_one_instance_is_refused_together_with_items_and_nothing_is_run(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        (one,) = (await operations.job(scene.registry.session, "report", now=0)).instances
        url = f"{REPORT}/do/trigger"
        answer = await browser.submit(f"{url}?instance={one.id}", {"instance": one.id, "items": "0"}, to=url)
        assert "give either it or items" in answer.text
        assert await operations.requests(scene.registry.session, "report") == ()
        ((entry, *_),) = (await scene.console.state.storage.audit.entries(most=1),)
        assert (entry.entry.action, entry.done) == ("trigger", False)

    play(act)


def test_a_planned_run_is_listed_paused_and_cancelled_and_all_of_it_is_in_the_audit_log(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        await browser.submit("/account", {"zone": "Europe/Berlin"}, to="/preferences")
        assert "(Europe/Berlin)" in (await browser.get(f"{REPORT}/do/trigger")).text
        await _do(browser, "trigger", items="0, 2", at="2090-11-20T06:00", expires="2h", id="night", parameter="x")
        (planned,) = await _requests(scene)
        wanted = planned.request
        assert (planned.state, wanted.items, wanted.expires - wanted.at) == ("planned", (0, 2), 7_200_000)
        at = planned.local(wanted.at)
        assert at is not None
        assert at.isoformat() == "2090-11-20T13:00:00+08:00"  # six o'clock in Berlin
        page = (await browser.get(REPORT)).text
        for text in ("night", "planned", "0, 2", "nothing yet"):
            assert text in page
        await _do(browser, "pause-request", request="night")
        assert "resume-request" in (await browser.get(REPORT)).text
        await _do(browser, "resume-request", request="night")
        question = await browser.get(f"{REPORT}/do/cancel-request?request=night")
        assert "Nothing more of it is begun" in question.text
        await _do(browser, "cancel-request", request="night")
        page = (await browser.get(REPORT)).text
        assert "nothing was run" in page
        assert "cancel-request" not in page
        entries = await scene.console.state.storage.audit.entries(most=4)
        assert [(one.entry.action, one.entry.who, one.done) for one in entries] == [
            ("cancel-request", "ada", True),
            ("resume-request", "ada", True),
            ("pause-request", "ada", True),
            ("trigger", "ada", True),
        ]
        assert (entries[0].entry.before["requestState"], entries[0].after["requestState"]) == ("planned", "cancelled")
        assert entries[3].entry.asked["items"] == "0, 2"

    play(act)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ({"items": "x"}, "write the numbers of items"),
        ({"items": "7"}, "has the items 0 to 2"),
        ({"delay": "soon"}, "must be a number of seconds"),
        ({"at": "tomorrow"}, "a moment like"),
        ({"at": "2090-11-20T06:00", "delay": "5m"}, "give either a time (at) or a delay"),
        ({"id": "a b"}, "must be 1 to 120 letters"),
    ],
)
def test_what_is_typed_wrong_is_said_and_stays(play: Play, typed: dict[str, str], why: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        refused = await browser.submit(f"{REPORT}/do/trigger", {**typed, "parameter": "<b>kept</b>"})
        assert refused.status == 409
        assert why in unescape(refused.text)
        assert "&lt;b&gt;kept&lt;/b&gt;" in refused.text
        for name, value in typed.items():
            assert refused.value(name) == value
        assert await operations.requests(scene.registry.session, "report") == ()

    play(act)


def test_days_are_run_again_after_a_question_that_says_what_would_run(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        assert f'href="{REPORT}/do/backfill"' in (await browser.get(REPORT)).text
        form = await browser.get(f"{REPORT}/do/backfill")
        assert 'method="get"' in form.text
        wrong = await browser.get(f"{REPORT}/do/backfill?from=2026-01-04T00:00&to=2026-01-01T00:00&id=days")
        assert (wrong.status, wrong.value("id")) == (409, "days")
        assert "must be later than the start" in wrong.text
        query = "from=2026-01-01T00:00&to=2026-01-03T00:00&items=1,2&items_at_once=1&id=days"
        question = await browser.get(f"{REPORT}/do/backfill?{query}")
        assert "This would run: 2 moments (2026-01-02T02:00:00+08:00 to 2026-01-03T02:00:00+08:00) of 2 items" in (
            question.text
        )
        assert await operations.requests(scene.registry.session, "report") == ()  # looking writes nothing
        names = ("csrf", "from", "to", "items", "items_at_once", "id")
        sent = await browser.post(f"{REPORT}/do/backfill", {name: question.value(name) for name in names})
        assert sent.status == 303
        (done,) = await _requests(scene, lambda one: one.is_over)
        assert (done.outcomes, done.request.by) == ({"completed": 4}, "ada")
        assert done.request.span is not None
        assert done.request.span.items_at_once == 1
        assert "4 completed" in (await browser.get(REPORT)).text

    play(act)


def test_a_run_of_the_history_is_run_again_and_tells_its_name(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        await _do(browser, "rerun", fire_time="2026-01-01T18:00:00+00:00", items="1")
        with anyio.fail_after(90):
            while not (found := re.search(r'href="(/r/billing/history/\w+)"', await _history(browser))):
                await anyio.sleep(0.02)
        run_id = scene.runs[0].run_id
        assert run_id in await _history(browser)
        page = (await browser.get(found[1])).text
        assert run_id in page
        assert "Stop this run" not in page
        again = re.search(r'href="([^"]*/do/rerun[^"]*)"', page)
        assert again
        question = await browser.get(unescape(again[1]))
        assert (question.value("fire_time"), question.value("items")) == ("2026-01-01T18:00:00+00:00", "1")
        assert "has to be able to do that" in question.text
        form = {name: question.value(name) for name in ("csrf", "fire_time", "items")}
        assert (await browser.post(f"{REPORT}/do/rerun", form)).status == 303
        assert len(await _requests(scene, lambda one: one.outcomes == {"completed": 1})) == 2
        moments = {run.fire_time.isoformat() for run in scene.runs}
        assert moments == {"2026-01-02T02:00:00+08:00"}

    play(act, event_store=sqlite_url)


async def _history(browser: Browser) -> str:
    return (await browser.get("/r/billing/history")).text


def test_a_run_is_stopped_from_its_row_and_from_its_page_and_never_the_next_one(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        scene.work = anyio.sleep_forever
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        await _do(browser, "trigger", items="1", id="long")
        await scene.seen(lambda now: now.jobs["report"].items[1].run is not None)
        with anyio.fail_after(90):
            while not (found := re.search(r'href="(/r/billing/history/\w+)"', await _history(browser))):
                await anyio.sleep(0.02)
        links = re.findall(r'href="([^"]*/do/cancel\?[^"]*)"', (await browser.get(REPORT)).text)
        assert len(links) == 2  # of the whole job, and of the item
        (link,) = re.findall(r'href="([^"]*/do/cancel\?[^"]*)"', (await browser.get(found[1])).text)
        assert unescape(link) in map(unescape, links)
        question = await browser.get(unescape(link))
        assert "neither rescued nor run again" in question.text
        form = {name: question.value(name) for name in ("csrf", "item", "fence")}
        assert (await browser.post(f"{REPORT}/do/cancel", form)).status == 303
        await _requests(scene, lambda one: one.outcomes == {"stopped": 1})
        await _do(browser, "trigger", items="1", id="next")
        await scene.seen(
            lambda now: (run := now.jobs["report"].items[1].run) is not None and run.fence > int(form["fence"])
        )
        late = await browser.post(f"{REPORT}/do/cancel", form)
        assert late.status == 409
        assert "that run has ended, and the next one runs" in late.text
        (stop, *_) = re.findall(r'href="([^"]*/do/cancel\?[^"]*)"', (await browser.get(REPORT)).text)
        whole = await browser.get(unescape(stop))
        form = {name: whole.value(name) for name in ("csrf", "fence")}
        assert (await browser.post(f"{REPORT}/do/cancel", form)).status == 303
        await _requests(scene, lambda one: one.outcomes == {"stopped": 1})

    play(act, event_store=sqlite_url)


def test_who_may_run_jobs_may_stop_them_and_operators_may_backfill_and_pause(play: Play) -> None:
    allowed = {
        Role.VIEWER: (),
        Role.TRIGGER: ("trigger", "rerun", "cancel", "cancel-request"),
        Role.OPERATOR: ("trigger", "rerun", "cancel", "cancel-request", "backfill", "pause-request"),
    }

    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        people = {role: await scene.person(role.value, role) for role in allowed}
        await operations.ask(scene.registry.session, "report", delay="1d", id="later")
        for role, browser in people.items():
            page = (await browser.get(REPORT)).text
            token = (await browser.get("/account")).token
            shown = {name for name in allowed[Role.OPERATOR] if re.search(rf'/do/{name}["?]', page)}
            about_runs = {"rerun", "cancel"}  # there is none
            assert shown == set(allowed[role]) - about_runs, role
            assert "later" in page  # everybody may see what was asked
            for name in allowed[Role.OPERATOR]:
                form = {"csrf": token, "request": "nosuch", "fire_time": "x", "items": "x", "item": "7"}
                status = (await browser.post(f"{REPORT}/do/{name}", form)).status
                assert (status == 403) is (name not in allowed[role]), (role, name, status)
                assert ((await browser.get(f"{REPORT}/do/{name}")).status == 403) is (name not in allowed[role])

    play(act)


def test_what_is_asked_elsewhere_comes_onto_the_open_page(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.console.pages.job_pieces.REDRAW", 0.1)
    monkeypatch.setattr("aioelasticjob.console.web.stream.REFRESH_INTERVAL", 0.1)

    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser = await scene.operator()
        page = (await browser.get(REPORT)).text
        assert "Nothing was asked of this job." in page
        async with browser.listening(f"{REPORT}/live") as stream:
            await operations.ask(
                scene.registry.session, "report", delay="1d", expires="2h", id="elsewhere", by="bert@desk"
            )
            shown = await stream.event("job-requests", "elsewhere")
            assert "bert@desk" in shown
            assert "expires <" in shown
            await operations.cancel_request(scene.registry.session, "report", "elsewhere")
            assert "expires <" not in await stream.event("job-requests", "cancelled")

    play(act)


def test_what_others_write_into_a_request_is_text(play: Play) -> None:
    nasty = "<script>alert(1)</script>"

    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        session = scene.registry.session
        await operations.ask(session, "report", delay="1d", id="r", by=nasty, parameter=json.dumps({"a": nasty}))
        browser = await scene.operator(language="zh")
        page = (await browser.get(REPORT)).text
        assert "&lt;script&gt;" in page
        assert nasty not in page
        assert "已安排" in page

    play(act)


def test_workers_learn_who_has_acted_in_the_console(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(**NIGHTLY)
        browser, session, layout = await scene.operator(), scene.registry.session, Layout("report")
        server = scene.registry.snapshot.value.jobs["report"].servers[0].ip
        await browser.submit(REPORT, {}, to=f"{REPORT}/do/pause")
        assert await _noted(session, layout.operator) == ("ada", [layout.paused])
        await browser.submit(REPORT, {"server": server}, to=f"{REPORT}/do/disable")
        assert await _noted(session, layout.operator) == ("ada", [layout.server_disabled(server)])
        settings = await browser.get(f"{REPORT}/settings")
        form = {"csrf": settings.token, "version": settings.value("version"), "cron": "0 0 3 * * ?"}
        assert (await browser.post(f"{REPORT}/settings", form)).status == 303
        assert await _noted(session, layout.operator) == ("ada", [layout.config])
        await browser.submit(f"/r/billing/servers/{server}/pause", {})
        by, paths = await _noted(session, SWITCHES)
        assert (by, server_switch(server, "paused") in paths) == ("ada", True)

    play(act)


async def _noted(session: Session, path: str) -> tuple[str, list[str]]:
    note = await session.get(path)
    assert note is not None
    fields = json.loads(note.data)
    return fields["by"], fields["paths"]
