"""What the pages show and what their buttons do, over the embedded registry."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.config.meanings import without_links
from aioelasticjob.console.pages import registries
from aioelasticjob.console.storage.audit import AuditEntry
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Set
from tests.console.client import Browser
from tests.console.conftest import NEVER, Play, Scene
from tests.support.processes import ROOT

REPORT = "/r/billing/job/report"


async def _do(browser: Browser, action: str, **form: str) -> str:
    """Press a button of the job's page and return where it leads."""
    answer = await browser.submit(REPORT, form, to=f"{REPORT}/do/{action}")
    assert answer.status == 303, answer.text
    return answer.location


def _status(scene: Scene) -> operations.JobStatus:
    found: operations.JobStatus = scene.registry.snapshot.value.jobs["report"]
    return found


def test_the_overview_shows_the_jobs_and_finds_some_of_them(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(
            "report", cron="0 0 2 * * ?", time_zone="Europe/Berlin", description="Figures & <b>more</b>"
        )
        await scene.run_job("cleanup")
        browser = await scene.operator()
        page = await browser.get("/r/billing/jobs")
        assert "report" in page.text
        assert "cleanup" in page.text
        assert "0 0 2 * * ?" in page.text
        assert "Figures &amp; &lt;b&gt;more" in page.text
        found = await browser.get("/r/billing/jobs?q=FIGURES")
        assert "report" in found.text
        assert "cleanup" not in found.text
        assert "No job is like that" in (await browser.get("/r/billing/jobs?show=off")).text
        second = (await browser.get("/r/billing/jobs?size=1&page=2")).text
        assert "report" in second
        assert "page 2 of 2" in second

    play(act)


def test_a_nonsense_address_shows_a_page_all_the_same(play: Play) -> None:
    queries = ("page=0", "page=-1", "page=99999999999999", "size=x", "show=nonsense", "q=%00%ff", "page=٣", "size=0")

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        for query in queries:
            assert (await browser.get(f"/r/billing/jobs?{query}")).status == 200, query

    play(act)


def test_the_pages_speak_chinese_to_whom_prefers_it(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator(language="zh-CN,zh;q=0.9")
        assert "下次触发" in (await browser.get("/r/billing/jobs")).text
        page = await browser.get(REPORT)
        assert 'lang="zh-CN"' in page.text
        assert "立即触发" in page.text
        await browser.post("/preferences", {"csrf": page.token, "language": "en", "next": REPORT})
        assert "Run now" in (await browser.get(REPORT)).text

    play(act)


def test_colours_are_chosen_and_kept(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = Browser(scene.console)
        page = await browser.get("/login")
        assert 'data-theme="auto"' in page.text
        chosen = await browser.post("/preferences", {"csrf": page.token, "theme": "dark", "next": "//evil.test"})
        assert chosen.location == "/"
        assert 'data-theme="dark"' in (await browser.get("/login")).text

    play(act)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Kiritimati"])
def test_a_timeline_of_any_years_is_shown(play: Play, tmp_path: Path, zone: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        await browser.submit("/account", {"zone": zone}, to="/preferences")
        for start, end in (
            ("0001-01-01T00:00", "2026-11-26T12:00"),
            ("2026-01-01T00:00", "9999-12-31T23:00"),
            ("0001-01-01T00:00", "9999-12-31T23:59:59"),
            ("9999-12-31T22:00", "9999-12-31T23:00"),
            ("1970-01-01T00:00", "1970-01-01T00:01"),
        ):
            page = await browser.get(f"{REPORT}?from={start}&to={end}")
            assert page.status == 200, (start, end)
        assert (await browser.get(f"{REPORT}?from=0&to=99999999999")).status == 200

    play(act, event_store=f"sqlite:///{tmp_path / 'events.db'}")


def test_a_job_is_triggered_with_a_parameter(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        await _do(browser, "trigger", parameter="again, please")
        with anyio.fail_after(90):
            while not scene.runs:
                await scene.registry.snapshot.changed()
        assert scene.runs[0].job_parameter == "again, please"
        await scene.seen(lambda now: now.jobs["report"].last is not None and bool(now.jobs["report"].last.outcome))
        assert "completed" in (await browser.get(REPORT)).text
        assert '<rect class="ok"' in (await browser.get(REPORT)).text  # its bar in the timeline

    play(act)


def test_an_instance_says_what_it_declares_otherwise_and_which_handler_it_runs_if_others_run_another(
    play: Play,
) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(timeout=5)
        await scene.run_job(timeout=7, description="new")
        browser = await scene.operator()
        page = (await browser.get(REPORT)).text
        assert page.count("declares otherwise than the registry") == 1
        assert '<span class="about">timeout, description</span>' in page
        assert "different handlers" not in page
        session, path = scene.registry.session, Layout("report").instance(scene.instances()[0].id)
        other = json.dumps({**json.loads((await session.get(path)).data), "handler": "old:report"}).encode()
        await session.commit([Set(path, other, -1)], incarnation=session.incarnation)
        await scene.seen(lambda _: "old:report" in {one.handler for one in scene.instances()})
        page = (await browser.get(REPORT)).text
        assert page.count("instances run different handlers") == 2
        assert '<span class="about">old:report</span>' in page

    play(act)


@pytest.mark.parametrize(("seconds", "said"), [(7.2, "7.2 s ahead"), (-7.2, "7.2 s behind")])
def test_an_instance_that_refuses_all_runs_because_of_its_clock_says_so(play: Play, seconds: float, said: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        assert "all runs" not in (await browser.get(REPORT)).text
        session, path = scene.registry.session, Layout("report").instance(scene.instances()[0].id)
        data = json.dumps({**json.loads((await session.get(path)).data), "clockDiffers": seconds}).encode()
        await session.commit([Set(path, data, -1)], incarnation=session.incarnation)
        await scene.seen(lambda _: scene.instances()[0].clock_differs is not None)
        page = (await browser.get(REPORT)).text
        assert page.count(f"refuses all runs: its clock is {said}") == 1
        assert "instances refuse all runs because of clocks: 1; that of" in page
        assert "differs by 7.2 s" in page
        assert "clock differs" in (await browser.get("/r/billing/jobs")).text

    play(act)


def test_a_job_a_server_and_an_item_are_switched_off_and_on(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(sharding_total_count=3)
        browser = await scene.operator()
        await _do(browser, "pause")
        await scene.seen(lambda now: now.jobs["report"].paused)
        assert "Resume" in (await browser.get(REPORT)).text
        await _do(browser, "resume")
        await _do(browser, "disable", item="2")
        await scene.seen(lambda now: now.jobs["report"].items[2].disabled)
        await _do(browser, "enable", item="2")
        ip = _status(scene).servers[0].ip
        await _do(browser, "disable", server=ip)
        await scene.seen(lambda now: now.jobs["report"].servers[0].disabled)
        assert "disabled in 1 of 1" in (await browser.get("/r/billing/servers")).text
        for nonsense in ("x", "-1", "99999999999999", "٣", "1e3"):
            answer = await browser.submit(REPORT, {"item": nonsense}, to=f"{REPORT}/do/disable")
            assert answer.status == 409, nonsense
        assert (await browser.submit(REPORT, {"item": "7"}, to=f"{REPORT}/do/disable")).status == 409

    play(act)


def test_what_is_done_to_a_server_in_all_jobs_is_asked_first_and_leaves_on_its_own_what_was_off_for_one(
    play: Play,
) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        ip = _status(scene).servers[0].ip
        await operations.pause(scene.registry.session, "report", server=ip)
        await scene.seen(lambda now: now.jobs["report"].servers[0].paused)
        listed = (await browser.get("/r/billing/servers")).text
        for action, said in (("disable", "Its items move to other servers."), ("pause", "Its items stay there")):
            assert f'href="/r/billing/servers/{ip}/{action}"' in listed
            question = (await browser.get(f"/r/billing/servers/{ip}/{action}")).text
            assert said in question
            assert "report" in question
        await browser.submit(f"/r/billing/servers/{ip}/disable", {})
        await scene.seen(lambda now: now.jobs["report"].servers[0].disabled_everywhere)
        listed = (await browser.get("/r/billing/servers")).text
        assert "disabled in all jobs" in listed
        assert "paused in 1 of 1" in listed
        assert "disabled in all jobs" in (await browser.get(REPORT)).text
        await browser.submit(f"/r/billing/servers/{ip}/enable", {})
        after = await scene.seen(lambda now: not now.jobs["report"].servers[0].disabled_everywhere)
        assert after.jobs["report"].servers[0].flags == ("paused",)
        (enabled, *_) = await scene.console.state.storage.audit.entries()
        assert (enabled.entry.before["disabled"], enabled.after["disabled"]) == (True, False)
        assert enabled.after["paused in"] == ["report"]
        form = f"/r/billing/servers/{ip}/pause"
        assert 'name="until"' in (await browser.get(form)).text
        assert 'name="until"' not in (await browser.get(f"/r/billing/servers/{ip}/disable")).text
        over = await browser.submit(form, {"until": "2020-01-01T00:00", "note": "new <disks>"})
        assert over.status == 409
        assert "a moment that is still to come" in over.text
        assert "new &lt;disks&gt;</textarea>" in over.text
        await browser.submit(form, {"until": "2099-01-01T00:00", "note": "new <disks>"})
        await scene.seen(lambda now: now.jobs["report"].servers[0].paused_everywhere)
        for path in ("/r/billing/servers", f"/r/billing/servers/{ip}"):
            text = (await browser.get(path)).text
            assert '<span class="note">new &lt;disks&gt;</span>' in text
            assert "2099" in text
        assert "by ada" in text
        assert "Change the pause" in text
        assert "new &lt;disks&gt;" in (await browser.get("/audit")).text
        await browser.submit(f"/r/billing/servers/{ip}/resume", {})
        await scene.seen(lambda now: not now.jobs["report"].servers[0].paused_everywhere)
        for wrong in (f"/r/billing/servers/{ip}/nosuch", "/r/billing/servers/10.9.9.9/pause"):
            assert (await browser.get(wrong)).status == 404

    play(act)


def test_offsets_are_shown_where_handlers_save_them(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        assert "Offset" not in (await browser.get(REPORT)).text
        session = scene.registry.session
        paths = [Layout("report").offsets, f"{Layout('report').offsets}/0"]
        missing = [path for path, node in zip(paths, await session.get_many(paths), strict=True) if node is None]
        ops = [Create(path, b'"page 42"' if path == paths[1] else b"") for path in missing]
        await session.commit(ops, incarnation=session.incarnation)
        assert "page 42" in (await browser.get(REPORT)).text

    play(act)


def test_what_destroys_asks_first_and_wants_the_name_typed(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        page = await browser.get(f"{REPORT}/do/remove")
        assert "cannot be undone" in page.text
        refused = await browser.post(f"{REPORT}/do/remove", {"csrf": page.token, "typed": "repor"})
        assert refused.status == 409
        there = await browser.post(f"{REPORT}/do/remove", {"csrf": page.token, "typed": "report"})
        assert there.status == 409  # its instance is there
        await _do(browser, "shut-down")
        await scene.seen(lambda now: not now.jobs["report"].instances)
        assert await _do(browser, "remove", typed="report") == "/r/billing/jobs"
        await scene.seen(lambda now: "report" not in now.jobs)
        assert (await browser.get(REPORT)).status == 404

    play(act)


def test_an_instance_that_cannot_use_the_configuration_and_other_rules_of_a_zone_are_shown(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser, session, layout = await scene.operator(), scene.registry.session, Layout("report")
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
        await scene.seen(lambda _: any(one.unusable for one in scene.instances()))  # the worker says that it can
        page = (await browser.get(REPORT)).text
        assert '<span class="about">there is no such time zone</span>' in page
        assert page.count("instances have different rules for the time zone") == 2
        assert '<span class="about">tzdata 2020a</span>' in page
        assert '<span class="about">tzdata 2026b</span>' in page

    play(act)


def test_the_audit_log_is_right_also_of_actions_that_follow_each_other_closely(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser, audit = await scene.operator(), scene.console.state.storage.audit
        kept, ip = scene.registry.snapshot.value, _status(scene).servers[0].ip
        page = await browser.get(REPORT)
        for action in ("pause", "pause", "resume", "pause"):
            scene.registry.snapshot.set(kept)  # what the pages show is older
            await browser.post(f"{REPORT}/do/{action}", {"csrf": page.token})
        entries = reversed(await audit.entries(most=4))
        paused = [(one.entry.before["paused"], one.after["paused"]) for one in entries]
        assert paused == [(False, True), (True, True), (True, False), (False, True)]
        for action in ("disable", "enable"):
            scene.registry.snapshot.set(kept)
            await browser.post(f"/r/billing/servers/{ip}/{action}", {"csrf": page.token})
        entries = reversed(await audit.entries(most=2))
        assert [(one.entry.before["disabled"], one.after["disabled"]) for one in entries] == [
            (False, True),
            (True, False),
        ]

    play(act)


def test_an_action_on_a_server_is_written_down_also_if_its_state_cannot_be_read(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(*_: object, **__: object) -> None:
        raise ElasticJobError("gone")

    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser, ip = await scene.operator(), _status(scene).servers[0].ip
        page = await browser.get(REPORT)
        monkeypatch.setattr(operations, "jobs", unreadable)
        await browser.post(f"/r/billing/servers/{ip}/disable", {"csrf": page.token})
        (entry,) = await scene.console.state.storage.audit.entries(most=1)
        assert (entry.entry.action, entry.done, entry.entry.before, entry.after) == ("disable server", True, {}, {})

    play(act)


def test_everything_done_is_in_the_audit_log_with_before_and_after(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator(address="10.1.2.3")
        await _do(browser, "pause")
        await browser.submit(f"{REPORT}/do/remove", {"typed": "report"})
        await Browser(scene.console).sign_in("mallory", "wrong password")
        entries = await scene.console.state.storage.audit.entries()
        newest, removal, pause = entries[:3]
        assert (newest.entry.who, newest.entry.action, newest.done) == ("mallory", "sign in", False)
        assert (removal.entry.action, removal.done) == ("remove", False)
        assert "instance" in removal.summary
        assert (pause.entry.who, pause.entry.address, pause.entry.target) == ("ada", "10.1.2.3", "report")
        assert pause.done
        assert (pause.entry.before["paused"], pause.after["paused"]) == (False, True)
        page = (await browser.get("/audit?q=pause")).text
        assert "pause" in page
        assert "mallory" not in page

    play(act)


def test_what_was_taken_out_and_tried_is_in_the_audit_log_too(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        admin, audit = await scene.operator(), scene.console.state.storage.audit
        for path in ("/r/billing/export", "/r/billing/export?job=report", f"{REPORT}/dump", f"{REPORT}/dump?masked=1"):
            assert (await admin.get(path)).status == 200
        entries = [one.entry for one in reversed(await audit.entries(most=4))]
        assert [(one.action, one.target, one.registry) for one in entries] == [
            *(("export", target, "billing") for target in ("", "report")),
            *(("dump", "report", "billing"),) * 2,
        ]
        assert [one.asked for one in entries[2:]] == [{"masked": False}, {"masked": True}]
        for address, typed in (
            (scene.address, {"try": "1"}),
            ("bob:hunter2@nowhere:1", {"try": "1"}),
            ("http://x", {}),
        ):
            await admin.submit("/registries", {"name": "other", "address": address, "digest": "bob:hunter2", **typed})
        added, refused, tried = await audit.entries(most=3)
        assert (tried.entry.action, tried.entry.target, tried.done) == ("try a registry", "other", True)
        assert (refused.entry.action, refused.done) == ("try a registry", False)
        assert refused.entry.asked["address"] == "…@nowhere:1"
        assert (added.entry.action, added.done, "write zk://" in added.summary) == ("add a registry", False, True)
        passwords = {"old": "wrong password", "password": "another good one", "again": "another good one"}
        assert (await admin.submit("/account", passwords)).status == 400
        (guess,) = await audit.entries(most=1)
        assert (guess.entry.action, guess.done) == ("change the password", False)
        assert "is not your present password" in guess.summary
        assert "hunter2" not in str(await audit.entries())

    play(act, allowed_addresses=("zk://*:*",))


def test_what_a_role_does_not_allow_is_in_the_audit_log_and_cannot_fill_it(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        admin, viewer = await scene.operator(), await scene.viewer()
        token = (await viewer.get("/account")).token
        for _ in range(15):
            assert (await viewer.post(f"{REPORT}/do/pause", {"csrf": token})).status == 403
            assert (await viewer.get(f"{REPORT}/dump")).status == 403
        page = await admin.get("/audit")
        assert "the role viewer does not allow it" in page.text
        more, *refused = [one for one in await scene.console.state.storage.audit.entries() if one.done is False]
        assert {(one.entry.action, one.entry.target, one.entry.registry) for one in refused} == {
            ("ask for", f"POST {REPORT}/do/pause", "billing"),
            ("ask for", f"GET {REPORT}/dump", "billing"),
        }
        assert (len(refused), more.summary) == (20, "10 more that the role does not allow")
        assert more.entry.asked["names"] == f"{refused[0].entry.who} (10)"
        scene.console.state.storage.database._connection.execute("pragma query_only = 1")
        scene.clock.ahead += 301
        assert (await viewer.get(f"{REPORT}/dump")).status == 403

    play(act)


def test_what_broke_off_is_in_the_audit_log_too(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        audit = scene.console.state.storage.audit
        with pytest.raises(ZeroDivisionError):
            async with audit.record(AuditEntry("ada", "", "divide")):
                raise ZeroDivisionError("by zero")
        await scene.console.state.storage.database.run(
            lambda db: audit._write_entry(db, AuditEntry("ada", "", "vanish"))
        )  # and never ended
        vanished, divided = (await audit.entries())[:2]
        assert vanished.done is None
        assert divided.done is False
        assert divided.summary == "ZeroDivisionError: by zero"
        browser = await scene.operator()
        assert "the console ended, or could not write it down" in (await browser.get("/audit")).text

    play(act)


def test_the_audit_log_keeps_the_beginning_of_a_long_value_and_its_length(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        refused = await browser.submit(f"{REPORT}/do/trigger", {"parameter": "x" * 70_000, "items": "99"})
        await browser.submit("/users", {"name": "n" * 70_000, "role": "viewer"})
        audit = scene.console.state.storage.audit
        invitation, trigger = (await audit.entries())[:2]
        cut = f"{'x' * 1000}… (70,000 characters)"
        assert (refused.status, trigger.done, trigger.entry.asked["parameter"]) == (409, False, cut)
        assert invitation.entry.target == cut.replace("x", "n")
        assert cut in (await browser.get("/audit")).text
        nested = {"k" * 2000: ["v" * 2000, {"one": "w" * 2000}], "number": 7}
        await audit.note(AuditEntry("ada", "", "test", asked=nested), "s" * 5000)
        (entry,) = await audit.entries(text="test", most=1)
        ((key, (first, second)), number) = entry.entry.asked.items()
        assert [text.count("…") for text in (key, first, second["one"], entry.summary)] == [1, 1, 1, 1]
        assert (number, len(entry.summary)) == (("number", 7), 4000 + len("… (5,000 characters)"))

    play(act)


def test_the_audit_log_cannot_be_rewritten(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        for statement in ("delete from audit", "update audit set who = ''", "delete from audit_outcomes"):
            with pytest.raises(Exception, match="only grows"):
                await scene.console.state.storage.database.run(lambda db, said=statement: db.execute(said))

    play(act)


async def _settings(browser: Browser, **changed: str) -> Mapping[str, str]:
    """Return the settings form as it stands, with some fields typed anew."""
    page = await browser.get(f"{REPORT}/settings")
    return {**_form_of(page.text), **changed}


def test_a_cron_is_previewed_and_changed(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        form = await _settings(browser, cron="0 30 4 * * ?", sharding_total_count="2")
        preview = await browser.post(f"{REPORT}/preview", form)
        assert "At 04:30:00, UTC" in preview.text
        assert preview.text.count(" 04:30:00 <") == 5
        assert "Number of items" in preview.text
        assert _status(scene).config.cron == NEVER  # looking changes nothing
        wrong = await browser.post(f"{REPORT}/preview", {**form, "cron": "0 30 25 * * ?"})
        assert 'data-setting="cron"' in wrong.text
        saved = await browser.post(f"{REPORT}/settings", form)
        assert saved.location == REPORT
        now = await scene.seen(lambda now: now.jobs["report"].config.cron == "0 30 4 * * ?")
        assert now.jobs["report"].config.sharding_total_count == 2
        entry = (await scene.console.state.storage.audit.entries(most=1))[0]
        assert entry.entry.before["cron"] == NEVER
        assert entry.after["cron"] == "0 30 4 * * ?"

    play(act)


def test_a_configuration_that_is_refused_has_a_page_that_says_why_and_no_form(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        session, path = scene.registry.session, Layout("report").config
        wrong = b'{"cron": "nonsense", "jobName": "report", "shardingTotalCount": 2}'
        await session.commit([Set(path, wrong, -1)], incarnation=session.incarnation)
        page = (await (await scene.operator()).get(f"{REPORT}/settings")).text
        assert "nonsense" in page
        assert "aioelasticjob import jobs.yaml --overwrite" in page
        assert 'name="cron"' not in page
        assert ">Save<" not in page
        chinese = (await (await scene.operator(language="zh")).get(f"{REPORT}/settings")).text
        assert "注册中心中该作业的配置被拒绝。" in chinese

    play(act)


def test_a_setting_that_is_wrong_is_said_and_what_was_typed_stays(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        form = await _settings(browser, cron="every <b>day</b>")
        refused = await browser.post(f"{REPORT}/settings", form)
        assert refused.status == 400
        assert refused.value("cron") == "every <b>day</b>"
        assert "<b>day" not in refused.text
        assert 'aria-invalid="true"' in refused.text
        assert _status(scene).config.cron == NEVER
        odd = await _settings(browser, version="x")
        assert (await browser.post(f"{REPORT}/settings", odd)).status == 409

    play(act)


def test_the_second_of_two_operators_is_told(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        first, second = await scene.operator(), await scene.operator()
        mine, theirs = await _settings(first, cron="0 0 1 * * ?"), await _settings(second, cron="0 0 2 * * ?")
        assert (await first.post(f"{REPORT}/settings", mine)).status == 303
        answer = await second.post(f"{REPORT}/settings", theirs)
        assert answer.status == 409
        assert "Somebody else has changed" in answer.text
        assert "0 0 1 * * ?" in answer.text
        assert "0 0 2 * * ?" in answer.text
        assert (await operations.job(scene.registry.session, "report", now=0)).config.cron == "0 0 1 * * ?"
        assert (await second.post(f"{REPORT}/settings", _form_of(answer.text))).status == 303
        assert (await operations.job(scene.registry.session, "report", now=0)).config.cron == "0 0 2 * * ?"

    play(act)


def test_only_what_an_operator_has_changed_is_theirs(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        first, second = await scene.operator(), await scene.operator()
        cron = await _settings(first, cron="0 0 1 * * ?")
        items = await _settings(second, sharding_total_count="3", description="mine")
        assert (await first.post(f"{REPORT}/settings", cron)).status == 303
        answer = await second.post(f"{REPORT}/settings", items)
        assert answer.status == 409
        assert "both changed it" not in answer.text
        merged = _form_of(answer.text)
        assert (merged["cron"], merged["sharding_total_count"]) == ("0 0 1 * * ?", "3")
        assert (await second.post(f"{REPORT}/settings", merged)).status == 303
        config = (await operations.job(scene.registry.session, "report", now=0)).config
        assert (config.cron, config.sharding_total_count) == ("0 0 1 * * ?", 3)

    play(act)


def test_a_setting_that_two_operators_have_changed_is_shown_with_all_three_values(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(description="as it was")
        first, second = await scene.operator(), await scene.operator()
        mine, theirs = await _settings(first, description="first"), await _settings(second, description="second")
        assert (await first.post(f"{REPORT}/settings", mine)).status == 303
        answer = await second.post(f"{REPORT}/settings", theirs)
        assert "both changed it" in answer.text
        assert re.findall("<code>(as it was|first|second)</code>", answer.text) == ["as it was", "first", "second"]

    play(act)


class Fields(HTMLParser):
    """Reads a form as a browser would send it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if (
            tag == "input"
            and attributes.get("name")
            and (attributes.get("type") != "checkbox" or "checked" in attributes)
        ):
            self.sent[attributes["name"]] = attributes.get("value", "")
        elif tag == "textarea":
            self._area = attributes["name"]
            self.sent[self._area] = ""
        elif tag == "select":
            self._select = attributes["name"]
        elif tag == "option" and self._select and "selected" in attributes:
            self.sent[self._select] = attributes["value"]

    def handle_data(self, data: str) -> None:
        if self._area:
            self.sent[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("textarea", "select"):
            self._area = self._select = ""


def test_each_setting_has_a_help_text_which_is_that_of_the_reference(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        page = unescape((await (await scene.operator()).get(f"{REPORT}/settings")).text)
        reference = (ROOT / "docs" / "reference" / "settings.md").read_text().replace("`", "")
        shown = re.findall(r'<details class="help"><summary title=".*?<p>(.*?)</p>', page)
        assert len(shown) == len(re.findall('name="was:', page)) > 25
        assert all(text in without_links(reference) for text in shown)

    play(act)


def _form_of(page: str) -> dict[str, str]:
    """Return the form of a page of settings as a browser would send it."""
    fields = Fields()
    fields.feed(page.split('id="settings">')[1].split("</form>")[0])
    return fields.sent


def test_a_form_left_as_it_is_changes_nothing(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(sharding_total_count=2, sharding_item_parameters={0: "a, b", 1: "c"}, timeout=1.5)
        browser = await scene.operator()
        form = _form_of((await browser.get(f"{REPORT}/settings")).text)
        assert "sharding_item_parameters" in form
        before = _status(scene).config_version
        answer = await browser.post(
            f"{REPORT}/preview", {name: text.replace("\n", "\r\n") for name, text in form.items()}
        )
        assert "Nothing is changed yet" in answer.text
        await browser.post(f"{REPORT}/settings", form)
        assert (await operations.job(scene.registry.session, "report", now=0)).config_version == before

    play(act)


def test_names_and_data_of_others_are_text_whatever_is_in_them(play: Play) -> None:
    nasty = "<script>alert(1)</script>"

    async def act(scene: Scene) -> None:
        await scene.run_job(description=nasty, job_parameter=nasty, sharding_item_parameters={0: nasty})
        async with open_session(ConnectionSettings.parse(scene.address)) as session:
            await _plant(session, f"/{nasty[:8]}", json.dumps({"jobName": nasty}).encode())
            await _plant(session, "/report/servers/<img src=x>", b"<b>host</b>")
        await scene.seen(lambda now: len(now.jobs["report"].servers) == 2)
        browser = await scene.operator()
        pages = ("/r/billing/jobs", REPORT, f"{REPORT}/settings", f"{REPORT}/dump", "/r/billing/servers")
        for path in (*pages, f"/r/billing/jobs?q={nasty}", f"/audit?q={nasty}", f"/login?next={nasty}"):
            page = await browser.get(path)
            assert page.status in (200, 303), path
            assert "<script>alert" not in page.text, path
            assert "<img src=x>" not in page.text, path
            assert "<b>host" not in page.text, path

    play(act)


async def _plant(session: Session, path: str, data: bytes) -> None:
    await session.commit([Create(path, data)], incarnation=session.incarnation)


def test_path_tricks_in_names_lead_nowhere(play: Play) -> None:
    tricks = ("..", ".", "%2e%2e", "..%2f..%2fzookeeper", "zookeeper", "report%2fconfig", "a%00b", "nobody", "%ff")

    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        token = (await browser.get(REPORT)).token
        for name in (*tricks, "x" * 500):
            for page in ("", "/dump", "/settings"):
                assert (await browser.get(f"/r/billing/job/{name}{page}")).status in (404, 409), (name, page)
            for action in ("pause", "trigger", "remove"):
                form = {"csrf": token, "typed": name}
                assert (await browser.post(f"/r/billing/job/{name}/do/{action}", form)).status in (404, 405, 409), name
        assert _status(scene).config.cron == NEVER
        assert not _status(scene).paused

    play(act)


def test_jobs_go_out_as_a_file_and_come_in_again(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(description="goes out")
        browser = await scene.operator()
        out = await browser.get("/r/billing/export")
        assert "goes out" in out.text
        assert "attachment" in out.headers["content-disposition"]
        assert "goes out" in (await browser.get("/r/billing/export?as=yaml")).text
        text = out.text.replace("report", "copied")
        preview = await browser.submit("/r/billing/transfer", {"text": text})
        seen = {"text": text, "seen": preview.value("seen")}
        assert (await browser.submit("/r/billing/transfer", seen)).status == 303
        await scene.seen(lambda now: "copied" in now.jobs)
        refused = await browser.submit("/r/billing/transfer", {"text": "{not <json>"})
        assert refused.status == 400
        assert "{not &lt;json&gt;" in refused.text

    play(act)


def test_a_dump_is_shown_with_and_without_addresses(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        ip = _status(scene).servers[0].ip
        browser = await scene.operator()
        assert ip in (await browser.get(f"{REPORT}/dump?as=text")).text
        masked = (await browser.get(f"{REPORT}/dump?as=text&masked=1")).text
        assert ip not in masked
        assert "ip1" in masked

    play(act)


def test_registries_are_tried_added_and_dropped(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        form = {"name": "second", "address": f"{scene.address}-more"}
        rejected = await browser.submit("/registries", {**form, "try": "1"})
        assert "second answers: 0 jobs" in rejected.text
        assert scene.console.state.registries.get("second") is None
        assert (await browser.submit("/registries", form)).status == 303
        assert (await browser.get("/r/second/jobs")).status == 200
        assert (await browser.submit("/registries", form)).status == 400  # a name is taken once
        monkeypatch.setattr(registries, "CONNECT_TIMEOUT", 0.5)
        for wrong in ("http://x", "zk://127.0.0.1:1/x", ""):
            refused = await browser.submit("/registries", {"name": "third", "address": wrong, "try": "1"})
            assert refused.status == 400, wrong
            assert 'role="alert"' in refused.text
        assert (await browser.submit("/registries", {}, to="/registries/second/drop")).status == 303
        assert (await browser.get("/r/second/jobs")).status == 404
        kept = await browser.submit("/registries", {}, to="/registries/billing/drop")
        assert kept.status == 409  # given at the start

    play(act, allowed_addresses=("zk://*:*",))


def test_a_piece_is_given_to_our_script_and_a_page_to_others(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        token = (await browser.get(REPORT)).token
        said = await browser.post(f"{REPORT}/do/pause", {"csrf": token}, ("hx-request", "true"))
        assert said.status == 200
        assert 'hx-target="#notices"' in said.text
        refused = await browser.post(f"{REPORT}/do/disable", {"csrf": token, "item": "x"}, ("hx-request", "true"))
        assert "bad" in refused.text
        elsewhere = await browser.post(f"{REPORT}/do/resume", {"csrf": token})
        assert elsewhere.status == 303
        assert "report" in (await browser.get(REPORT)).text.split('id="notices"')[1].split("</div>")[0]
        assert "notice ok" not in (await browser.get(REPORT)).text.split('id="notices"')[1].split("</div>")[0]

    play(act)


def test_of_a_job_with_thousands_of_items_the_page_shows_the_first_or_those_that_are_chosen(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("report", sharding_total_count=1201)
        await scene.seen(lambda now: sum(item.holder is not None for item in now.jobs["report"].items) == 1201)
        browser = await scene.operator()
        shown = {query: (await browser.get(f"{REPORT}{query}")).text for query in ("", "?items=700-703")}
        counts = {query: (text.count('id="row-'), text.count('id="item-')) for query, text in shown.items()}
        assert counts == {"": (500, 500), "?items=700-703": (4, 4)}
        assert "The page shows 500 of 1,201 items." in shown[""]
        assert "and 701 more" in shown[""]
        assert 'id="row-703"' in shown["?items=700-703"]
        assert "items=0-30" in shown[""]  # the timeline leads to the others

    play(act)


def test_a_job_that_is_switched_off_says_what_is_off_and_since_when_it_is_paused(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser, session = await scene.operator(), scene.registry.session
        await operations.pause(session, "report")
        now = await scene.seen(lambda now: now.jobs["report"].paused)
        since = now.jobs["report"].paused_since
        assert since is not None
        assert abs(since.timestamp() - scene.clock.now()) < 60
        paused = "The whole job is paused: nothing is run until it is resumed."
        page = (await browser.get(REPORT)).text
        assert paused in page
        assert f'data-clock="{since.timestamp() * 1000:.0f}"' in page
        assert f'data-ago="{since.timestamp() * 1000:.0f}"' in (await browser.get("/r/billing/jobs")).text
        await operations.resume(session, "report")
        await operations.disable(session, "report", item=0)
        await scene.seen(lambda now: now.jobs["report"].items[0].disabled and not now.jobs["report"].paused)
        page = (await browser.get(REPORT)).text
        assert "All of its items are disabled, or paused or disabled with their servers." in page
        assert paused not in page

    play(act)
