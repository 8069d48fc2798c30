"""Who gets in, who does not, and what a form_key may try."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import anyio
import pytest
from argon2 import PasswordHasher

from aioelasticjob.console import Console, ConsoleSettings, asgi
from aioelasticjob.console.pages.account import own_path
from aioelasticjob.console.storage.audit import AuditRecord
from aioelasticjob.console.storage.database import DataUnusable, open_database
from aioelasticjob.console.users.accounts import Accounts, LastAdmin
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import Outcome
from tests.console.client import PASSWORD, Browser, invitation_of
from tests.console.conftest import CHEAP, Play, Scene
from tests.observers.sample_events import NOON, batch, beginning, end


def test_the_first_password_is_set_by_a_link_that_works_once(play: Play) -> None:
    async def act(scene: Scene) -> None:
        link, browser = invitation_of(scene.console), Browser(scene.console)
        await browser.get(link)  # a mail program that looks at links must not spend it
        assert (await browser.accept(link)).status == 303
        assert (await browser.get("/r/billing/jobs")).status == 200
        assert scene.console.state.invitation is None
        assert (await Browser(scene.console).get(link)).status == 410

    play(act)


def test_an_invitation_expires(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.clock.ahead = 25 * 3600
        assert (await Browser(scene.console).get(invitation_of(scene.console))).status == 410

    play(act)


def test_a_password_or_a_name_that_will_not_do_is_said_and_the_link_stays_good(play: Play) -> None:
    wrong = (
        ("ada", "short", "short"),
        ("ada", "aaaaaaaaaaaa", "aaaaaaaaaaaa"),
        ("ada", PASSWORD, "another password"),
        ("<script>", PASSWORD, PASSWORD),
        ("", PASSWORD, PASSWORD),
        ("adalovelace1", "AdaLovelace1", "AdaLovelace1"),
    )

    async def act(scene: Scene) -> None:
        link, browser = invitation_of(scene.console), Browser(scene.console)
        for name, password, again in wrong:
            refused = await browser.submit(link, {"name": name, "password": password, "again": again})
            assert refused.status == 400, (name, password)
            assert 'role="alert"' in refused.text
            assert "<script>" not in refused.text
        assert (await browser.accept(link)).status == 303

    play(act)


def test_nobody_sees_anything_without_signing_in(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        await scene.operator()
        form_key = Browser(scene.console)
        pages = ("/", "/r/billing/jobs", "/r/billing/job/report", "/r/billing/job/report/dump", "/users", "/audit")
        for page in (*pages, "/registries", "/r/billing/export", "/r/billing/history", "/account"):
            answer = await form_key.get(page)
            assert (answer.status, answer.location.partition("?")[0]) == (303, "/login"), page
            assert "report" not in answer.text
        assert (await form_key.get("/r/billing/jobs/live")).status == 401
        token = (await form_key.get("/login")).token
        refused = await form_key.post("/r/billing/job/report/do/trigger", {"csrf": token})
        assert (refused.status, refused.location) == (303, "/login")
        assert scene.runs == []

    play(act)


def test_a_wrong_password_is_refused_and_guessing_gets_slow(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        guesser = Browser(scene.console)
        statuses = [(await guesser.sign_in("ada", f"wrong password {n}")).status for n in range(6)]
        assert statuses == [401] * 5 + [429]
        assert (
            await Browser(scene.console, address="10.0.0.9").sign_in()
        ).status == 303  # nobody is locked out from afar
        late = await guesser.sign_in("ADA", PASSWORD)  # even the right one now, however it is spelt
        assert late.status == 429
        assert int(late.headers["retry-after"]) > 200
        scene.clock.ahead += 301
        assert (await guesser.sign_in()).status == 303

    play(act)


def test_guessing_names_from_one_address_gets_slow_too(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        guesser = Browser(scene.console)
        statuses = [(await guesser.sign_in(f"name{n}", "wrong password")).status for n in range(21)]
        assert statuses == [401] * 20 + [429]
        assert (await Browser(scene.console, address="10.0.0.9").sign_in()).status == 303

    play(act)


def test_guesses_from_a_shared_address_do_not_lock_out_who_signed_in_there_before(play: Play) -> None:
    async def act(scene: Scene) -> None:
        owner = await scene.operator()
        guesser = Browser(scene.console)
        for number in range(25):
            await guesser.sign_in("ada" if number < 5 else f"name{number}", "wrong password")
        assert (await guesser.sign_in("ada", PASSWORD)).status == 429
        del owner.cookies["aioej_session"]
        assert (await owner.sign_in()).status == 303
        stolen = Browser(scene.console, cookies={"aioej_device": owner.cookies["aioej_device"]})
        assert (await stolen.sign_in("eve", PASSWORD)).status == 429  # it is good for its owner's name only
        statuses = [(await stolen.sign_in("ada", f"wrong password {n}")).status for n in range(6)]
        assert statuses == [401] * 5 + [429]
        forged = Browser(scene.console, cookies={"aioej_device": "x" + owner.cookies["aioej_device"]})
        assert (await forged.sign_in()).status == 429

    play(act)


def test_many_wrong_log_ins_are_one_entry_of_the_audit_log_and_a_summary(play: Play) -> None:
    async def act(scene: Scene) -> None:
        admin = await scene.operator()
        for number in range(150):
            await Browser(scene.console, address=f"10.0.{number}.1").sign_in(f"name{number % 3}", "wrong password")
        failed = await _failures(admin, scene)
        assert [one.summary for one in failed] == ["149 more with a wrong name or password", "wrong name or password"]
        assert failed[0].entry.asked["names"] == "name1 (50), name2 (50), name0 (49)"
        assert "and 139 more" in str(failed[0].entry.asked["addresses"])
        scene.clock.ahead += 301
        await Browser(scene.console, address="10.0.0.1").sign_in("ada", "wrong password")
        assert (await _failures(admin, scene))[0].entry.who == "ada"

    play(act)


async def _failures(admin: Browser, scene: Scene) -> list[AuditRecord]:
    assert (await admin.get("/audit")).status == 200
    return [one for one in await scene.console.state.storage.audit.entries() if one.done is False]


def test_wrong_log_ins_that_were_only_counted_are_written_down_when_the_console_ends(tmp_path: Path) -> None:
    async def main() -> None:
        console = Console(ConsoleSettings((), tmp_path), hasher=CHEAP)
        async with console.running():
            for _ in range(3):
                await Browser(console).sign_in("ada", "wrong password")
        async with console.running():
            found = await console.state.storage.audit.entries()
            assert [one.summary[:6] for one in found] == ["2 more", "wrong "]

    anyio.run(main)


def test_a_session_ends_when_idle_and_for_good(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        scene.clock.ahead = 3600 * 11
        assert (await browser.get("/account")).status == 200
        scene.clock.ahead += 3600 * 11
        assert (await browser.get("/account")).status == 200
        scene.clock.ahead += 3600 * 12 + 1
        assert (await browser.get("/account?x=1&y=2")).location == "/login?next=%2Faccount%3Fx%3D1%26y%3D2"
        scene.clock.ahead = 0
        assert (await browser.get("/account")).status == 303  # it has really ended, whatever the clock says

    play(act)


def test_a_session_ends_after_its_lifetime_however_busy(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        for _ in range(4):
            scene.clock.ahead += 40
            assert (await browser.get("/account")).status == 200
        scene.clock.ahead += 50
        assert (await browser.get("/account")).status == 303

    play(act, lifetime=200.0)


def test_a_cookie_that_turns_up_in_another_browser_ends_the_session(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        thief = Browser(scene.console, agent="another/2", cookies=dict(browser.cookies))
        assert (await thief.get("/account")).status == 303
        assert (await browser.get("/account")).status == 303

    play(act)


def test_a_cookie_that_was_tampered_with_is_nobody(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        good = browser.cookies["aioej_session"]
        key, signature = good.rsplit(".", 1)
        other = "A" if signature[5] != "A" else "B"  # not the last character, of which two bits mean nothing
        forged = f"{key}.{signature[:5]}{other}{signature[6:]}"
        for bad in (forged, f"x{good}", key, f"{key}.", "x" * 5000, "ä.ö", "..", ""):
            form_key = Browser(scene.console, cookies={"aioej_session": bad})
            assert (await form_key.get("/account")).status == 303
        assert (await browser.get("/account")).status == 200

    play(act)


def test_signing_out_ends_the_session_also_for_copies_of_its_cookie(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        copy = dict(browser.cookies)
        elsewhere = await scene.operator()
        assert (await browser.submit("/account", {}, to="/logout")).location == "/login"
        assert (await Browser(scene.console, cookies=copy).get("/account")).status == 303
        assert (await elsewhere.get("/account")).status == 200
        await elsewhere.submit("/account", {"everywhere": "1"}, to="/logout")
        assert (await elsewhere.get("/account")).status == 303

    play(act)


def test_a_form_is_taken_only_from_a_page_of_ours(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser, other = await scene.operator(), await scene.operator()
        path, token = "/r/billing/job/report/do/trigger", (await browser.get("/account")).token
        stolen = (await other.get("/account")).token
        kind = ("content-type", "text/plain")
        assert (await browser.post(path, {})).status == 403
        assert (await browser.post(path, {"csrf": "0" * 64})).status == 403
        assert (await browser.post(path, {"csrf": stolen})).status == 403
        assert (await browser.post(path, {"csrf": token}, ("origin", "https://evil.test"))).status == 403
        assert (await browser.post(path, {"csrf": token}, ("origin", "http://["))).status == 403
        assert (await browser.post(path, {"csrf": token}, ("origin", "null"))).status == 403
        assert (await browser.post(path, {"csrf": token}, ("sec-fetch-site", "cross-site"))).status == 403
        assert (await browser.post(path, {"csrf": token}, kind)).status == 415
        assert scene.runs == []
        assert (await browser.get(path.replace("/do/", "/do/../do/"))).status in (303, 404)  # asking does nothing
        assert (await browser.post(path, {"csrf": token})).status == 303

    play(act)


@pytest.mark.parametrize(
    "bad",
    [
        "https://evil.test/",
        "//evil.test/",
        "/\\evil.test",
        "\\\\evil.test",
        "javascript:alert(1)",
        "/ok\r\nSet-Cookie: a=b",
        "evil",
        "",
        "/\tevil",
        "http://[",
    ],
)
def test_next_leads_to_our_own_pages_only(bad: str) -> None:
    assert own_path(bad, "") == "/"
    assert own_path(f"/console{bad}" if bad.startswith("/o") else bad, "/console") == "/console/"


def test_next_leads_back_to_where_one_was(play: Play) -> None:
    assert own_path("/r/billing/jobs?q=a", "") == "/r/billing/jobs?q=a"
    assert own_path("/console/users", "/console") == "/console/users"
    assert own_path("/other/users", "/console") == "/console/"

    async def act(scene: Scene) -> None:
        await scene.operator()
        browser = Browser(scene.console)
        token = (await browser.get("/login?next=/audit")).token
        form = {"csrf": token, "name": "ada", "password": PASSWORD, "next": "/audit"}
        assert (await browser.post("/login", form)).location == "/audit"

    play(act)


def test_a_viewer_sees_everything_and_changes_nothing(play: Play) -> None:
    async def act(scene: Scene) -> None:
        options = {"host": "mail.test", "sender": "a@mail.test", "to": "b@mail.test"}
        options |= {"username": "ops", "password": "hunter2"}
        await scene.run_job(error_handler="email", error_handler_options=options)
        viewer = await scene.viewer()
        page = await viewer.get("/r/billing/job/report")
        assert page.status == 200
        assert "/do/" not in page.text  # no button that would be refused
        token = page.token
        for path in (
            "/r/billing/job/report/do/pause",
            "/r/billing/job/report/do/remove",
            "/r/billing/job/report/settings",
            "/r/billing/servers/127.0.0.1/pause",
            "/r/billing/transfer",
            "/registries",
            "/users",
            "/users/ada",
        ):
            assert (await viewer.post(path, {"csrf": token, "version": "0", "cron": NEVER_AGAIN})).status == 403, path
        secrets = ("/r/billing/job/report/dump", "/r/billing/export", "/r/billing/transfer")
        for path in ("/users", "/audit", "/r/billing/job/report/do/remove", *secrets):
            assert (await viewer.get(path)).status == 403, path
        settings = await viewer.get("/r/billing/job/report/settings")
        assert "mail.test" in settings.text
        assert "hunter2" not in settings.text

    play(act)


NEVER_AGAIN = "0 0 0 1 1 ? 2098"


def test_credentials_in_values_are_shown_to_operators_only_and_never_audited(play: Play) -> None:
    async def act(scene: Scene) -> None:
        command = "DB_PASSWORD=s3cret curl -u bob:s3cret https://bob:s3cret@example.org/?token=s3cret"
        given = {"job_parameter": command, "description": "token: s3cret", "sharding_item_parameters": {0: command}}
        await scene.run_job(error_handler="webhook", error_handler_options={"url": "https://h/s3cret"}, **given)
        viewer, admin = await scene.viewer(), await scene.operator()
        for page in ("", "/settings"):
            masked = (await viewer.get(f"/r/billing/job/report{page}")).text
            assert "s3cret" not in masked
            assert "DB_PASSWORD=…" in masked
            assert "s3cret" in (await admin.get(f"/r/billing/job/report{page}")).text
        page = await admin.get("/r/billing/job/report/settings")
        form = {"csrf": page.token, "version": page.value("version"), "job_parameter": "token=other-s3cret"}
        assert (await admin.post("/r/billing/job/report/settings", form)).status == 303
        await admin.get("/account")  # shows the notice of what was done
        log = (await admin.get("/audit")).text
        assert "job_parameter" in log
        assert "s3cret" not in log

    play(act)


def test_nobody_finds_out_by_searching_what_is_hidden(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(description="Figures, token: s3cret", labels={"api_key": "s3cret", "team": "billing"})
        watched = scene.registry.store
        assert watched is not None
        failed = end(NOON, outcome=Outcome.FAILED, failure=ValueError("token=s3cret is no good"))
        await watched.store.write(batch(*beginning(NOON), failed))
        viewer, admin = await scene.viewer(), await scene.operator()
        for browser in (viewer, admin):
            for text, found in (("figures", True), ("team=bill", True), ("s3c", False), ("token: s", False)):
                page = await browser.get(f"/r/billing/jobs?q={text}")
                assert ("/job/report" in page.text) is found, text
            for label, found in (("team=billing", True), ("api_key", True), ("api_key=s3cret", False)):
                page = await browser.get(f"/r/billing/jobs?label={label.replace('=', '%3D')}")
                assert ("/job/report" in page.text) is found, label
            assert "s3cret" not in (await browser.get("/r/billing/jobs?by=api_key")).text
        for text in ("s3c", "nonsense"):
            page = await viewer.get(f"/r/billing/history?text={text}")
            assert "/job/report" in page.text
            assert 'name="text"' not in page.text
        assert "/job/report" in (await admin.get("/r/billing/history?text=s3c")).text
        assert "/job/report" not in (await admin.get("/r/billing/history?text=nonsense")).text

    play(act, event_store=sqlite_url)


def test_a_console_that_is_read_only_changes_nothing_for_anybody(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        page = await browser.get("/r/billing/job/report")
        assert "/do/" not in page.text
        refused = await browser.post("/r/billing/job/report/do/pause", {"csrf": page.token})
        assert refused.status == 403
        assert "read-only" in refused.text

    play(act, read_only=True)


def test_administrators_invite_others_change_their_roles_and_lock_them_out(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        invited = await browser.submit("/users", {"name": "grace", "role": "viewer"})
        link = invited.text.split('<code class="link" data-path>')[1].split("</code>")[0]
        path = link.removeprefix("http://console.test")
        guest = Browser(scene.console)
        await guest.accept(path, "ignored: the link knows whose it is")
        assert "grace" in (await guest.get("/account")).text
        await browser.submit("/users", {"role": "operator"}, to="/users/grace")
        assert (await guest.get("/account")).status == 303  # signed out: what was shown was a viewer's
        await guest.sign_in("grace")
        assert (await guest.get("/users")).status == 403
        assert (await guest.get("/r/billing/transfer")).status == 200
        await browser.submit("/users", {"disabled": "1"}, to="/users/grace")
        assert (await guest.sign_in("grace")).status == 401
        refused = await browser.submit("/users", {"disabled": "1"}, to="/users/ada")
        assert refused.status == 409
        assert "nobody would be left" in refused.text

    play(act)


def test_an_invitation_does_not_take_its_host_from_the_request(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator(host="evil.test")
        invited = await browser.submit("/users", {"name": "grace", "role": "viewer"})
        assert ">https://jobs.example.org/ops/welcome/" in invited.text
        assert "evil.test" not in invited.text

    play(act, public_url="https://jobs.example.org/ops/")
    with pytest.raises(InvalidSetting, match="public_url"):
        ConsoleSettings(public_url="jobs.example.org")


def test_without_a_public_address_an_invitation_is_a_path(play: Play) -> None:
    async def act(scene: Scene) -> None:
        invited = await (await scene.operator(host="evil.test")).submit("/users", {"name": "grace", "role": "viewer"})
        assert "evil.test" not in invited.text
        assert "data-path>/welcome/" in invited.text

    play(act)


def test_nobody_locks_out_the_last_administrator(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        with pytest.raises(LastAdmin):
            await scene.console.state.storage.accounts.change("ada", role=Role.VIEWER)
        assert (await browser.get("/users")).status == 200  # nothing was written, not even the end of sessions

    play(act)


def test_a_password_of_ones_own_is_changed_and_the_old_one_is_good_for_nothing(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser, elsewhere = await scene.operator(), await scene.operator()
        new = "quite another one"
        wrong = {"old": "not my password", "password": new, "again": new}
        assert (await browser.submit("/account", wrong)).status == 400
        assert (await browser.submit("/account", {**wrong, "old": PASSWORD})).status == 303
        assert (await elsewhere.get("/account")).status == 303
        assert (await browser.sign_in()).status == 401
        assert (await browser.sign_in("ada", new)).status == 303

    play(act)


def test_a_hash_of_a_weaker_kind_is_renewed_when_its_password_is_used(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        storage = scene.console.state.storage
        stronger = Accounts(
            storage.database,
            scene.clock,
            PasswordHasher(time_cost=2, memory_cost=16, parallelism=1),
        )
        assert await stronger.check("ada", PASSWORD)
        row = await storage.database.run(lambda db: db.execute("select password from users").fetchone())
        assert "$m=16,t=2" in row["password"]
        assert await stronger.check("ada", PASSWORD)

    play(act)


def test_a_role_that_does_not_exist_is_refused_and_nobody_is_changed_who_is_not_there(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        assert (await browser.submit("/users", {"name": "grace", "role": "king"})).status == 409
        assert (await browser.submit("/users", {"role": "viewer"}, to="/users/nobody")).status == 409
        assert [person.name for person in await scene.console.state.storage.accounts.everybody()] == ["ada"]

    play(act)


def test_a_link_that_two_follow_at_once_is_good_for_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        link = invitation_of(scene.console)
        statuses = []

        async def follow(name: str) -> None:
            statuses.append((await Browser(scene.console).accept(link, name)).status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, "ada")
            tasks.start_soon(follow, "eve")
        assert sorted(statuses) == [303, 410]

    play(act)


def test_every_answer_has_the_headers_that_keep_others_out(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        for path in ("/login", "/r/billing/jobs", "/nowhere", "/healthz", "/welcome/x"):
            headers = (await browser.get(path)).headers
            policy = headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"

    play(act)


def test_cookies_are_for_our_pages_only_and_not_for_scripts(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        cookie = (await Browser(scene.console).sign_in()).cookies["aioej_session"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Path=/" in cookie

    play(act)


def test_a_form_of_ten_megabytes_is_refused_before_and_while_it_is_read(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        token = (await browser.get("/r/billing/transfer")).token
        body = b"csrf=" + token.encode() + b"&text=" + b"x" * 10_000_000
        assert (await browser.post("/r/billing/transfer", body)).status == 413
        assert (await browser.post("/r/billing/transfer", body, ("content-length", "10"))).status == 413
        assert (await browser.get("/r/billing/transfer")).status == 200

    play(act)


def test_assets_may_be_kept_and_nothing_beside_them_is_served(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = Browser(scene.console)
        page = await browser.get("/login")
        style = page.text.split('rel="stylesheet" href="')[1].split('"')[0]
        kept = await browser.get(style)
        assert kept.status == 200
        assert "immutable" in kept.headers["cache-control"]
        base = style.rpartition("/")[0]
        for path in ("../application.py", "%2e%2e/application.py", "..%2f..%2fapp.py", "%2fetc%2fpasswd", ""):
            assert (await browser.get(f"{base}/{path}")).status == 404, path

    play(act)


def test_the_data_directory_is_its_owners_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with Console(ConsoleSettings((), tmp_path / "new" / "data"), hasher=CHEAP).running():
            assert (tmp_path / "new" / "data").stat().st_mode & 0o77 == 0
            assert (tmp_path / "new" / "data" / "console.db").stat().st_mode & 0o77 == 0

    anyio.run(main)


def test_a_data_directory_that_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def main(directory: Path) -> None:
        async with open_database(directory):
            pass

    with pytest.raises(DataUnusable, match="--data-dir"):
        anyio.run(main, tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "console.db").write_text("no database at all, whatever its name says; " * 100)
    with pytest.raises(DataUnusable, match="not a database"):
        anyio.run(main, tmp_path / "other")
    (tmp_path / "newer").mkdir()
    with sqlite3.connect(tmp_path / "newer" / "console.db") as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(DataUnusable, match="newer console"):
        anyio.run(main, tmp_path / "newer")


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"registries": ("http://nowhere",)}, "address"),
        ({"registries": ("zk://a:1/x", "zk://b:1/x")}, "registries"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, tuple[str, ...]], setting: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        asgi(*settings["registries"])
    assert caught.value.setting == setting


def test_workers_of_one_application_start_at_once_and_one_of_their_links_is_used(tmp_path: Path) -> None:
    consoles = [Console(ConsoleSettings((), tmp_path), hasher=CHEAP) for _ in range(4)]
    links: list[str] = []

    def start(console: Console) -> None:
        async def main() -> None:
            async with console.running():
                links.append(invitation_of(console))

        anyio.run(main)

    threads = [threading.Thread(target=start, args=(console,)) for console in consoles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(links)) == 4

    async def follow() -> None:
        async with Console(ConsoleSettings((), tmp_path), hasher=CHEAP).running():
            pass  # one more link
        console = Console(ConsoleSettings((), tmp_path), hasher=CHEAP)
        async with console.running():
            assert (await Browser(console).accept(links[1])).status == 303
            for link in (*links, invitation_of(console) if console.state.invitation else links[0]):
                assert (await Browser(console).get(link)).status == 410

    anyio.run(follow)
