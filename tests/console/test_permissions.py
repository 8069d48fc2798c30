"""The permissions: roles are sets of them, granted for registries and for the jobs with a label."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.pages.users import LABEL_ROLES
from aioelasticjob.console.storage.database import ACCESS, ACKNOWLEDGEMENTS, GRANTS, SCHEMA, open_database
from aioelasticjob.console.users.permissions import (
    DEFINING_SETTINGS,
    MEANINGS,
    Grants,
    Permission,
    Role,
    needed_to_change,
)
from aioelasticjob.core.processes import ProcessProblems, RefusedToProcess
from aioelasticjob.model import Outcome
from aioelasticjob.operations import ProcessStatus
from aioelasticjob.operations.alerts.state import AlertState
from tests.console.client import Browser
from tests.console.conftest import Play, Scene
from tests.observers.sample_events import batch, beginning, end, raised

JOBS = "/r/billing/job"
SCRIPT = {
    "jobName": "backup",
    "jobType": "SCRIPT",
    "options": {"command": ["true"]},
    "labels": {"team": "billing"},
    "shardingTotalCount": 1,
}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.NONE, set()),
        (Role.VIEWER, {Permission.SEE}),
        (Role.TRIGGER, {Permission.SEE, Permission.ASK}),
        (Role.OPERATOR, {Permission.SEE, Permission.ASK, Permission.OPERATE, Permission.CHANGE}),
        (Role.DEVELOPER, set(Permission) - {Permission.ADMINISTER}),
        (Role.ADMIN, set(Permission)),
    ],
)
def test_a_role_is_a_set_of_permissions(role: Role, allowed: set[Permission]) -> None:
    assert role.permissions == allowed
    assert set(MEANINGS) == set(Permission)


def test_a_role_in_a_registry_replaces_the_one_for_all_registries() -> None:
    grants = Grants(Role.VIEWER, {"shop": Role.OPERATOR, "secret": Role.NONE})
    assert Permission.OPERATE in grants.permissions("shop")
    assert grants.permissions("billing") == {Permission.SEE}
    assert grants.permissions("secret") == set()
    assert grants.allow_anywhere(Permission.OPERATE)
    assert not grants.allow_anywhere(Permission.DEFINE)


def test_an_administrator_is_so_in_all_registries() -> None:
    assert Grants(Role.ADMIN, {"shop": Role.NONE}).permissions("shop") == set(Permission)


def test_a_role_for_a_label_adds_to_the_role_in_that_registry_for_jobs_with_that_label() -> None:
    grants = Grants(Role.VIEWER, by_label={("shop", "team=billing"): Role.OPERATOR})
    assert Permission.OPERATE in grants.permissions("shop", {"team": "billing", "tier": "gold"})
    assert grants.permissions("shop", {"team": "ads"}) == {Permission.SEE}
    assert grants.permissions("shop") == {Permission.SEE}
    assert grants.permissions("other", {"team": "billing"}) == {Permission.SEE}
    assert Permission.OPERATE in grants.permissions_for_some_job("shop")
    assert grants.permissions_for_some_job("other") == {Permission.SEE}
    assert not grants.allow_anywhere(Permission.OPERATE)


def test_whoever_has_a_role_for_a_label_alone_sees_the_jobs_with_that_label_alone() -> None:
    grants = Grants(Role.NONE, by_label={("shop", "team=billing"): Role.OPERATOR})
    assert grants.labels_seen("shop") == {"team=billing"}
    assert grants.permissions("shop", {"team": "billing"}) == Role.OPERATOR.permissions
    assert grants.permissions("shop", {"team": "ads"}) == set()
    assert grants.permissions("shop") == {Permission.SEE}
    assert Permission.OPERATE in grants.permissions_for_some_job("shop")
    assert grants.permissions("other") == grants.permissions("other", {"team": "billing"}) == set()
    assert grants.labels_seen("other") == set()
    assert Grants(Role.VIEWER, by_label=grants.by_label).labels_seen("shop") == set()


def test_each_role_that_allows_something_is_given_for_labels_but_that_of_administrators() -> None:
    assert LABEL_ROLES == (Role.VIEWER, Role.TRIGGER, Role.OPERATOR, Role.DEVELOPER)


def test_what_runs_is_said_by_settings_that_need_a_permission_of_their_own() -> None:
    assert set(JobConfig.model_fields) >= DEFINING_SETTINGS
    assert needed_to_change(["cron", "labels"]) == {Permission.CHANGE}
    assert needed_to_change(["cron", "options"]) == {Permission.CHANGE, Permission.DEFINE}
    assert needed_to_change(["error_handler_options"]) == {Permission.CHANGE, Permission.DEFINE}


async def _import(scene: Scene) -> None:
    """Write the script's configuration into the registry, as if somebody had done so on the command line."""
    await operations.import_jobs(scene.registry.session, json.dumps([SCRIPT]))
    await scene.seen(lambda now: "backup" in now.jobs)


async def _command(scene: Scene) -> object:
    status = await operations.job(scene.registry.session, "backup", now=0)
    return status.config.options["command"]


async def _save(browser: Browser, **changed: str) -> int:
    page = await browser.get(f"{JOBS}/backup/settings")
    form = {"csrf": page.token, "version": page.value("version"), **changed}
    return (await browser.post(f"{JOBS}/backup/settings", form)).status


def test_an_operator_changes_a_schedule_but_not_what_a_script_runs(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _import(scene)
        olga, dave = await scene.person("olga", Role.OPERATOR), await scene.person("dave", Role.DEVELOPER)
        rewritten = '{"command": ["rm", "-rf", "/"]}'
        assert await _save(olga, options=rewritten) == 403
        assert await _save(olga, error_handler="webhook") == 403
        assert await _command(scene) == ["true"]
        assert await _save(olga, description="nightly") == 303
        log = (await (await scene.operator()).get("/audit")).text
        assert "POST /r/billing/job/backup/settings" in log  # that it was refused
        page = (await olga.get(f"{JOBS}/backup/settings")).text
        assert "changed by those who may define what runs" in page
        assert "runs code on the workers, with" not in page
        assert "runs code on the workers, with" in (await dave.get(f"{JOBS}/backup/settings")).text
        assert await _save(dave, options=rewritten) == 303
        assert await _command(scene) == ["rm", "-rf", "/"]

    play(act)


def test_an_import_that_says_what_runs_needs_the_permission_to_say_so(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _import(scene)
        olga, dave = await scene.person("olga", Role.OPERATOR), await scene.person("dave", Role.DEVELOPER)
        new = json.dumps([{**SCRIPT, "jobName": "other"}])
        changed = json.dumps([{**SCRIPT, "options": {"command": ["false"]}}])
        harmless = json.dumps([{**SCRIPT, "description": "nightly"}])
        for text, expected in ((new, 403), (changed, 403), (harmless, 200)):
            form = {"text": text, "overwrite": "1"}
            assert (await olga.submit("/r/billing/transfer", form)).status == expected
            assert (await dave.submit("/r/billing/transfer", form)).status == 200

    play(act)


def test_somebody_operates_the_jobs_of_their_team_only(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _import(scene)
        await scene.run_job("report", labels="team=ads")
        admin, grace = await scene.operator(), await scene.person("grace", Role.VIEWER)
        form = {"role": "viewer", "label_registry": "billing", "label": " team = billing ", "label_role": "operator"}
        assert (await admin.submit("/users", form, to="/users/grace")).status == 303
        assert "In billing, jobs with team=billing" in (await admin.get("/users")).text
        await grace.sign_in("grace")
        token = (await grace.get("/account")).token
        paused = {"csrf": token}
        assert (await grace.post(f"{JOBS}/backup/do/pause", paused)).status == 303
        assert (await grace.post(f"{JOBS}/report/do/pause", paused)).status == 403
        assert "/do/shut-down" in (await grace.get(f"{JOBS}/backup")).text
        assert "/do/" not in (await grace.get(f"{JOBS}/report")).text
        assert (await grace.get("/r/billing/transfer")).status == 403
        assert (await grace.post("/r/billing/servers/127.0.0.1/pause", paused)).status == 403
        overview = (await grace.get("/r/billing/jobs")).text
        assert 'name="job:backup"' in overview
        assert 'name="job:report"' not in overview
        bulk = {"csrf": token, "job:backup": "1", "job:report": "1"}
        assert (await grace.post("/r/billing/jobs/do/pause", bulk)).status == 403
        del bulk["job:report"]
        assert (await grace.post("/r/billing/jobs/do/pause", bulk)).status == 303
        everything = await grace.post("/r/billing/jobs/do", {"csrf": token, "action": "pause", "scope": "found"})
        assert 'name="job:backup"' in everything.text
        assert 'name="job:report"' not in everything.text
        taken_back = {"in:billing:team=billing": ""}
        assert (await admin.submit("/users", taken_back, to="/users/grace")).status == 303
        await grace.sign_in("grace")
        assert (await grace.submit("/account", {}, to=f"{JOBS}/backup/do/pause")).status == 403

    play(act)


def test_somebody_sees_the_jobs_of_their_team_only(play: Play, sqlite_url: str) -> None:
    """No page says that there is another job, and nothing can be done to it."""

    async def act(scene: Scene) -> None:
        await _import(scene)
        await scene.run_job("payroll", labels="team=ads", cron=None)
        slot = int(scene.clock.now() - 60) * 1000
        store = scene.registry.store
        assert store is not None
        for name in ("backup", "payroll"):
            failed = end(slot, 0, Outcome.FAILED, job=name, failure=raised(f"{name} has no luck"))
            await store.store.write(batch(*beginning(slot, job=name), failed, namespace=store.store.scope.namespace))
        await store.ask()
        runs = {one.job: one.id for one in await store.store.failures()}
        now = scene.clock.now()
        refused = RefusedToProcess("to settle items", "no permission", now, "payroll", 1)
        clock = ProcessProblems(clock_differs=3.0, refused=(refused,))
        (instance,) = scene.instances("payroll")
        process = ProcessStatus("ads-1", "10.9.9.9", "host-of-ads", 1, instance.incarnation, clock)
        alerts = [AlertState("late", name, now, f"{name} is late") for name in runs]
        scene.registry.snapshot.set(replace(scene.registry.snapshot.value, alerts=tuple(alerts), processes=(process,)))
        admin, grace = await scene.operator(), await scene.person("grace", Role.NONE)
        form = {"role": "none", "label_registry": "billing", "label": "team=billing", "label_role": "viewer"}
        assert (await admin.submit("/users", form, to="/users/grace")).status == 303
        await grace.sign_in("grace")
        pages = ["jobs", "jobs?q=pay", "jobs?by=team", "servers", "alerts", "history"]
        pages += ["job/backup", f"history/{runs['backup']}"]
        for page in ("jobs", "alerts", "history"):
            assert "payroll" in (await admin.get(f"/r/billing/{page}")).text
        assert "payroll" in (await admin.get("/registries")).text
        for path in ("/registries", *(f"/r/billing/{page}" for page in pages)):
            part = await grace.get(path)
            assert part.status == 200
            assert "host-of-ads" not in part.text
            assert "payroll" not in part.text, path
            assert "team=ads" not in part.text, path
        overview = (await grace.get("/r/billing/jobs")).text
        assert "You see only the jobs with team=billing." in overview
        assert "<dd>1 failure, 0 missed moments</dd>" in overview
        assert "<dd>2 failures, 0 missed moments</dd>" in (await admin.get("/r/billing/jobs")).text
        assert "backup has no luck" in (await grace.get("/r/billing/history")).text
        assert "has no luck" not in (await grace.get("/r/billing/history?job=payroll")).text
        token = (await grace.get("/account")).token
        for path in ("job/payroll", "job/payroll/settings", "job/payroll/live", f"history/{runs['payroll']}"):
            assert (await grace.get(f"/r/billing/{path}")).status == 404
        assert (await grace.post(f"{JOBS}/payroll/do/trigger", {"csrf": token})).status == 404
        assert (await grace.post(f"{JOBS}/backup/do/trigger", {"csrf": token})).status == 403
        bulk = {"csrf": token, "job:payroll": "1"}
        assert (await grace.post("/r/billing/jobs/do/pause", bulk)).status == 403
        taken_back = {"in:billing:team=billing": ""}
        assert (await admin.submit("/users", taken_back, to="/users/grace")).status == 303
        await grace.sign_in("grace")
        assert (await grace.get("/r/billing/jobs")).status == 404

    play(act, event_store=sqlite_url)


@pytest.mark.parametrize(
    "form",
    [
        {"label_registry": "billing", "label": "team", "label_role": "operator"},
        {"label_registry": "billing", "label": "team=a", "label_role": "admin"},
        {"label_registry": "billing", "label": "team=a", "label_role": "none"},
        {"in:billing:team=a": "king"},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(play: Play, form: dict[str, str]) -> None:
    async def act(scene: Scene) -> None:
        admin = await scene.operator()
        await scene.viewer()
        assert (await admin.submit("/users", form, to="/users/vera")).status == 409

    play(act)


def test_the_page_of_the_users_says_what_each_role_may_do(play: Play) -> None:
    async def act(scene: Scene) -> None:
        page = (await (await scene.operator()).get("/users")).text
        assert all(meaning in page for meaning in MEANINGS.values())
        assert page.count("✓") == sum(len(role.permissions) for role in Role)

    play(act)


def test_an_invitation_of_somebody_known_changes_no_role_and_says_so(play: Play) -> None:
    async def act(scene: Scene) -> None:
        admin = await scene.operator()
        await scene.person("Olga", Role.OPERATOR)
        answer = await admin.submit("/users", {"name": "olga", "role": "viewer"})
        assert "Olga is known here and keeps the role operator." in answer.text
        newest = (await scene.console.state.storage.audit.entries())[0].entry
        assert (newest.action, newest.target, newest.asked) == ("invite", "Olga", {"role": "operator"})

    play(act)


def test_the_operators_of_the_fourth_version_may_still_define_what_runs(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "console.db") as db:
        db.executescript(SCHEMA + GRANTS + ACCESS + ACKNOWLEDGEMENTS)
        columns = "insert into users (name, role, password, created) values"
        db.execute(f"{columns} ('olga', 'operator', 'x', 0), ('vera', 'viewer', 'x', 0)")
        db.execute("insert into grants values ('vera', 'shop', 'operator')")
        db.execute("pragma user_version = 4")
    db.close()

    async def main() -> None:
        async with open_database(tmp_path) as database:
            query = (
                "select name, role from users union select user, registry || label || role from grants order by 1, 2"
            )
            found = await database.run(lambda db: [tuple(row) for row in db.execute(query)])
            assert found == [("olga", "developer"), ("vera", "shopdeveloper"), ("vera", "viewer")]

    anyio.run(main)
