"""Who may do what, in which registry, and which addresses may be added."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest

from aioelasticjob.console import RegistrySettings
from aioelasticjob.console.storage.database import GRANTS, SCHEMA, open_database
from aioelasticjob.console.users.permissions import Permission, Role
from aioelasticjob.console.watching.allowed_addresses import check_allowed
from aioelasticjob.errors import InvalidSetting
from tests.console.conftest import Play, Scene

JOB = "/r/billing/job/report"
SERVER = "/r/billing/servers/127.0.0.1"
CHANGES = {
    Permission.ASK: ((f"{JOB}/do/trigger", {}),),
    Permission.OPERATE: (
        (f"{JOB}/do/pause", {}),
        (f"{JOB}/do/resume", {}),
        (f"{SERVER}/pause", {}),
        (f"{SERVER}/resume", {}),
    ),
    Permission.ADMINISTER: (
        ("/users", {"name": "x", "role": "king"}),
        ("/users/nobody", {}),
        ("/registries", {"name": "x", "address": "y", "try": "1"}),
        ("/registries/billing/drop", {}),
    ),
}
"""Forms, by the permission that sending them needs."""


def test_each_role_may_do_what_its_permissions_say_and_no_more(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        people = {role: await scene.person(role.value, role) for role in Role if role is not Role.ADMIN}
        people[Role.ADMIN] = await scene.operator()
        for role, browser in people.items():
            seen = 404 if role is Role.NONE else 403

            def expected(needed: Permission, granted: int, refused: int, *, role: Role = role) -> int:
                return granted if needed in role.permissions else refused

            token = (await browser.get("/account")).token
            for path, form in CHANGES[Permission.ASK]:
                status = (await browser.post(path, {"csrf": token, **form})).status
                assert status == expected(Permission.ASK, 303, seen), (role, path)
            for path, form in CHANGES[Permission.OPERATE]:
                assert (await browser.post(path, {"csrf": token, **form})).status == expected(
                    Permission.OPERATE, 303, seen
                )
            for path, form in CHANGES[Permission.ADMINISTER]:
                status = (await browser.post(path, {"csrf": token, **form})).status
                assert (status == 403) is (role is not Role.ADMIN), (role, path)
            for path in ("/r/billing/export", "/r/billing/transfer", f"{JOB}/dump"):
                assert (await browser.get(path)).status == expected(Permission.OPERATE, 200, seen), (role, path)
            assert (await browser.get("/audit")).status == expected(Permission.OPERATE, 200, 403)
            assert (await browser.get("/users")).status == expected(Permission.ADMINISTER, 200, 403)
            page = await browser.get(JOB)
            assert page.status == expected(Permission.SEE, 200, 404)
            if role is Role.VIEWER:
                assert "needs the permission “operate”" in (await browser.post(f"{JOB}/do/pause", {"csrf": token})).text
            assert ("/do/trigger" in page.text) is (Permission.ASK in role.permissions)
            assert ("/do/shut-down" in page.text) is (Permission.OPERATE in role.permissions)

    play(act)


def test_a_role_in_one_registry_is_another_one_than_elsewhere(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.console.state.registries.add(RegistrySettings("shop", "zk://127.0.0.1:1/shop"))
        admin, grace = await scene.operator(), await scene.person("grace", Role.NONE)
        assert "billing" not in (await grace.get("/registries")).text
        form = {"role": "none", "in:billing": "operator", "in:shop": ""}
        assert (await admin.submit("/users", form, to="/users/grace")).status == 303
        assert (await grace.get("/account")).status == 303  # signed out: what was shown was another role's
        await grace.sign_in("grace")
        assert (await grace.get("/")).location == "/r/billing/jobs"
        assert (await grace.get("/r/billing/transfer")).status == 200
        assert (await grace.get("/r/shop/jobs")).status == 404
        assert (await grace.get("/r/shop/live")).status == 404
        assert "shop" not in (await grace.get("/registries")).text
        token = (await grace.get("/account")).token
        await grace.post("/r/billing/servers/10.0.0.1/pause", {"csrf": token})
        log = await grace.get("/audit")
        assert "10.0.0.1" in log.text  # what was done in that registry, and nothing about users
        assert "change a user" not in log.text
        assert "change a user" in (await admin.get("/audit")).text
        nothing = await admin.submit("/users", {}, to="/users/grace")
        assert (nothing.status, "neither a role nor whether" in nothing.text) == (409, True)
        assert (await grace.get("/account")).status == 200  # and she was not signed out
        wrong = await admin.submit("/users", {"in:shop": "admin"}, to="/users/grace")
        assert wrong.status == 409
        await admin.submit("/users", {"in:billing": "viewer"}, to="/users/grace")
        await grace.sign_in("grace")
        assert (await grace.get("/r/billing/transfer")).status == 403

    play(act)


def test_a_registry_is_added_and_tried_by_administrators_only_and_where_it_is_allowed(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(scene: Scene) -> None:
        admin, operator = await scene.operator(), await scene.person("olga", Role.OPERATOR)
        form = {"name": "x", "address": f"embedded://127.0.0.1:1/x?data_dir={tmp_path / 'made'}"}
        database = {"name": "x", "address": scene.address, "event_store": f"sqlite:///{tmp_path / 'made.db'}"}
        for wanted in (form, database, {"name": "x", "address": "zk://127.0.0.1:1/x"}):
            for extra in ({}, {"try": "1"}):
                token = (await operator.get("/account")).token
                assert (await operator.post("/registries", {"csrf": token, **wanted, **extra})).status == 403
                refused = await admin.submit("/registries", {**wanted, **extra})
                assert refused.status == 400
                assert "--allow-address" in refused.text
        assert not list(tmp_path.glob("made*"))

    play(act, allowed_addresses=("zk://*.example.org", "zk://127.0.0.1:2181"))


REFUSED = (
    "zk://evil.org:2181/x",
    "zk://zk.example.org:2182/x",
    "zk://zk.example.org:2181,evil.org:2181/x",
    "zk://evil.org/zk.example.org",
    "embedded://127.0.0.1:2181/x?data_dir=/tmp/x",
)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("zk://a.example.org,b.example.org:2181/x/y", True),
        ("zks://c.example.net/x", True),
        ("zk://c.example.net", False),
    ]
    + [(one, False) for one in REFUSED],
)
def test_every_server_of_an_address_must_be_allowed(address: str, allowed: bool) -> None:
    _check(RegistrySettings("x", address), allowed, "address")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("postgresql+asyncpg://bob:secret@db.example.org/events", True),
        ("sqlite:///{tmp}/a.db", True),
        ("sqlite:///{tmp}/../a.db", False),
        ("sqlite:///a.db", False),
        ("postgresql+asyncpg://bob:secret@evil.org/events", False),
        ("postgresql+asyncpg://db.example.org/events?host=evil.org", False),
        ("postgresql+asyncpg://db.example.org:1/@evil.org/events", False),
    ],
)
def test_an_event_store_must_be_allowed(url: str, allowed: bool, tmp_path: Path) -> None:
    store = url.format(tmp=tmp_path)
    _check(RegistrySettings("x", "zk://a.example.org/x", event_store=store), allowed, "event_store", tmp_path)


def _check(registry: RegistrySettings, allowed: bool, setting: str, directory: Path = Path("/srv")) -> None:
    patterns = (
        "zk://*.example.org",
        "zks://c.example.net",
        "postgresql://db.example.org/*",
        f"sqlite:///{directory}/*",
    )
    if allowed:
        check_allowed(registry, patterns)
        return
    with pytest.raises(InvalidSetting, match="--allow-address") as caught:
        check_allowed(registry, patterns)
    assert caught.value.setting == setting
    assert "secret" not in str(caught.value)


def test_the_operators_of_the_first_version_become_administrators(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "console.db") as db:
        db.executescript(SCHEMA)
        db.execute(
            "insert into users values ('ada', 'operator', 'x', 0, 0), ('vera', 'viewer', 'x', 0, 0)".replace(
                "users", "users (name, role, password, created, disabled)"
            )
        )
        db.execute("insert into invitations values ('t', 'grace', 'operator', 0)")
        db.execute("pragma user_version = 1")
    db.close()

    async def main() -> None:
        async with open_database(tmp_path) as database:
            roles = "select name, role from users union select user, role from invitations order by name"
            found = await database.run(lambda db: [tuple(row) for row in db.execute(roles)])
            assert found == [("ada", "admin"), ("grace", "admin"), ("vera", "viewer")]
            assert await database.run(lambda db: db.execute("select count(*) from grants").fetchone()[0]) == 0
        async with open_database(tmp_path):
            pass

    anyio.run(main)
    assert "grants" in GRANTS


def test_the_registries_of_the_second_version_are_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "console.db") as db:
        db.executescript(SCHEMA + GRANTS)
        db.execute("insert into registries values ('shop', 'zk://127.0.0.1:1/shop', 'bob:secret', null)")
        db.execute("pragma user_version = 2")
    db.close()

    async def main() -> None:
        async with open_database(tmp_path) as database:
            rows = await database.run(lambda db: [tuple(row) for row in db.execute("select * from registries")])
            assert rows == [("shop", "zk://127.0.0.1:1/shop", "bob:secret", None, None)]

    anyio.run(main)
