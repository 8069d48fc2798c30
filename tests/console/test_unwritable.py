"""A console that cannot write its own database does nothing, and says so in plain words."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from aioelasticjob.console.storage.audit import AuditEntry
from aioelasticjob.console.storage.database import Database, DatabaseUnwritable, open_database
from aioelasticjob.console.storage.refusals import WINDOW
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.console.users.sessions import TOUCH
from tests.console.client import Browser
from tests.console.conftest import Play, Scene

JOB = "/r/billing/job/report"
SAID = "own database cannot be written (attempt to write a readonly database), so nothing was changed in the registry"
BANNER = "This console cannot write its own database."


def _writable(scene: Scene, can: bool) -> None:
    scene.console.state.storage.database._connection.execute(f"pragma query_only = {int(not can)}")


def test_actions_and_sign_ins_are_refused_in_plain_words_and_pages_can_be_read(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        admin, chinese = await scene.operator(), Browser(scene.console, language="zh-CN")
        await scene.person("olga", Role.OPERATOR)
        token = (await admin.get("/account")).token
        _writable(scene, False)
        with caplog.at_level(logging.WARNING, "aioelasticjob.console"):
            for _ in range(3):
                refused = await admin.post(f"{JOB}/do/pause", {"csrf": token})
                assert (refused.status, SAID.replace("'", "&#39;") in refused.text) == (503, True)
            assert not scene.registry.snapshot.value.jobs["report"].paused
            assert (await Browser(scene.console).sign_in("olga")).status == 503
            said = await chinese.sign_in("olga")
            assert "因此注册中心中没有任何更改" in said.text
            assert "数据库为只读，无法写入" in said.text
            scene.clock.ahead += TOUCH + 1  # the session would be written down as used
            page = await admin.get("/r/billing/jobs")
            assert (page.status, BANNER in page.text) == (200, True)
            assert (await admin.get("/audit")).status == 200
            _writable(scene, True)
            assert (await admin.post(f"{JOB}/do/pause", {"csrf": token})).status == 303
            assert BANNER not in (await admin.get("/r/billing/jobs")).text
        lines = [one for one in caplog.records if "own database" in one.getMessage()]
        assert [one.exc_info for one in lines] == [None, None]
        assert "can be written again" in lines[1].getMessage()
        assert not [one for one in caplog.records if one.exc_info]

    play(act)


def test_what_was_done_is_told_though_its_outcome_cannot_be_written_down(play: Play) -> None:
    async def act(scene: Scene) -> None:
        admin, audit = await scene.operator(), scene.console.state.storage.audit
        async with audit.record(AuditEntry("ada", "", "pause")) as outcome:
            outcome.summary = "paused"
            _writable(scene, False)
        _writable(scene, True)
        (entry,) = await audit.entries(text="pause")
        assert (entry.done, entry.summary) == (None, "")
        assert "could not write it down" in (await admin.get("/audit")).text

    play(act)


def test_sign_ins_that_failed_meanwhile_are_counted_until_they_can_be_written_down(play: Play) -> None:
    async def act(scene: Scene) -> None:
        admin, storage = await scene.operator(), scene.console.state.storage
        eve = AuditEntry("eve", "10.0.0.9", "sign in")
        for _ in range(3):
            await storage.failed_sign_ins.note(eve, "wrong name or password")
        _writable(scene, False)
        await storage.failed_sign_ins.flush()
        scene.clock.ahead += WINDOW + 1
        with pytest.raises(DatabaseUnwritable):
            await storage.failed_sign_ins.note(eve, "wrong name or password")
        _writable(scene, True)
        await storage.failed_sign_ins.flush()
        assert "2 more with a wrong name or password" in (await admin.get("/audit")).text

    play(act)


def test_somebody_new_whom_a_proxy_names_is_told_why_that_is_not_possible(play: Play) -> None:
    async def act(scene: Scene) -> None:
        _writable(scene, False)
        answer = await Browser(scene.console, address="10.0.0.5").get("/", ("x-user", "nina"))
        assert (answer.status, "cannot be written" in answer.text) == (503, True)

    play(act, trusted_proxies=("10.0.0.5",), user_header="X-User")


def test_a_full_disk_is_an_error_of_ours_and_a_mistake_in_a_statement_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_database(tmp_path) as database:
            await database.run(lambda db: db.execute("pragma max_page_count = 1").fetchall())  # as many as there are
            large = ("large", "x" * 100_000)
            with pytest.raises(DatabaseUnwritable, match="database or disk is full"):
                await database.run(lambda db: db.execute("insert into secrets values (?, ?)", large))
            assert database.problem == "database or disk is full"
            assert await _secrets(database) == []
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                await database.run(lambda db: db.execute("select * from nowhere"))
            await database.run(lambda db: db.execute("insert into secrets values ('small', 'x')"))
            assert database.problem is None

    async def _secrets(database: Database) -> list[str]:
        return await database.run(lambda db: [row["name"] for row in db.execute("select name from secrets")])

    asyncio.run(main())


@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_written_into_a_file_that_is_not_there_any_more(tmp_path: Path, is_replaced: bool) -> None:
    """People who were added, and what they did, would be gone at the next start."""
    file, aside = tmp_path / "console.db", tmp_path / "aside.db"

    async def add(database: Database, name: str) -> None:
        await database.run(lambda db: db.execute("insert into secrets values (?, 'x')", (name,)))

    async def names(database: Database) -> list[str]:
        return await database.run(lambda db: [row["name"] for row in db.execute("select name from secrets")])

    async def main() -> None:
        async with open_database(tmp_path) as database:
            await add(database, "first")
            file.rename(aside)
            if is_replaced:
                file.write_bytes(b"")
            with pytest.raises(DatabaseUnwritable, match="its file was removed or replaced: put it back, or start"):
                await add(database, "second")
            assert "its file was removed or replaced" in str(database.problem)
            assert await names(database) == ["first"]  # what is there can be read
            aside.replace(file)
            await add(database, "third")
            assert (await names(database), database.problem) == (["first", "third"], None)

    asyncio.run(main())
