"""Acknowledging: who knows of what, with a note and an end; it ends by itself, and when the reason is a new one."""

from __future__ import annotations

import sqlite3
from collections import deque
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from aioelasticjob.console.acknowledgement_ends import CONSOLE
from aioelasticjob.console.storage.database import ACCESS, GRANTS, SCHEMA, open_database
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.console.watching.acknowledgements import Acknowledgement, Acknowledgements
from aioelasticjob.console.watching.health import health_of
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.observers.missed import Count, MissedMoments
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.error_groups import ErrorGroup
from tests.console.client import Browser
from tests.console.conftest import Play, Scene
from tests.console.samples import ended, item, reasons, status
from tests.console.site import BentClock

NOW = 1_800_000_000.0
DAY = 86_400.0


def _acknowledged(*details: str, subject: str = "errors", at: float = NOW) -> Acknowledgement:
    return Acknowledgement("billing", "report", subject, frozenset(details), "ada", "known", at, at + DAY)


def _error(kind: str, first: float) -> ErrorGroup:
    return ErrorGroup(kind, "a.py, f", first, "r1", ((0, NOW),))


def _failing() -> JobStatus:
    return status("report", (item(0, record=ended("failed", NOW)),), now=NOW)


def test_a_reason_that_is_acknowledged_needs_no_attention_and_a_new_error_does() -> None:
    known, fresh = _error("KeyError", NOW - 60), _error("OSError", NOW + 60)
    found = reasons(_failing(), [], errors=[known])
    health = health_of(_failing(), found, {"errors": _acknowledged()})  # seen before it was acknowledged
    assert (health.group, health.colour, health.word, health.reasons) == ("acknowledged", "off", "failing", ())
    assert [(reason.kind, one.note) for reason, one in health.acknowledged] == [("failing", "known")]
    again = reasons(_failing(), [], errors=[known, fresh])
    assert health_of(_failing(), again, {"errors": _acknowledged()}).group == "attention"
    assert health_of(_failing(), again, {"errors": _acknowledged(fresh.name)}).group == "acknowledged"


def test_only_what_was_acknowledged_is_settled() -> None:
    both = status("report", (item(0, record=ended("failed", NOW)), item(1, orphaned=True)), now=NOW)
    health = health_of(both, reasons(both, []), {"errors": _acknowledged()})
    assert ([one.kind for one in health.reasons], health.group) == (["cut off"], "attention")
    cut_off = health_of(both, reasons(both, []), {"cut off": _acknowledged("1", subject="cut off")})
    assert [one.kind for one in cut_off.reasons] == ["failing"]
    others = health_of(both, reasons(both, []), {"cut off": _acknowledged("0", subject="cut off")})  # item 1 is new
    assert [one.kind for one in others.reasons] == ["failing", "cut off"]


def test_a_configuration_that_is_refused_for_another_fault_is_a_new_reason() -> None:
    faulty = replace(_failing(), fault="cron: no such day")
    known = {"refused": _acknowledged("cron: no such day", subject="refused")}
    assert health_of(faulty, reasons(faulty, []), known).group == "acknowledged"
    worse = replace(faulty, fault="cron: no such month")
    assert health_of(worse, reasons(worse, []), known).group == "attention"


def test_an_acknowledgement_needs_a_note_and_an_end_and_is_kept(tmp_path: Path) -> None:
    (reason,) = reasons(_failing(), [])

    async def main() -> None:
        clock = BentClock()
        async with open_database(tmp_path) as database:
            kept = Acknowledgements(database, clock)
            now = clock.now()
            for note, until_then, setting in (
                (" ", now + 60, "note"),
                ("x" * 501, now + 60, "note"),
                ("known", now - 1, "until"),
                ("known", now + 91 * DAY, "until"),
            ):
                with pytest.raises(InvalidSetting) as caught:
                    await kept.add("billing", "report", reason, "ada", note, until_then)
                assert caught.value.setting == setting
            await kept.add("billing", "report", reason, "ada", "a first note", now + 60)
            one = await kept.add("billing", "report", reason, "grace", " known ", now + 60)
            assert (one.who, one.note) == ("grace", "known")
        async with open_database(tmp_path) as database:
            again = Acknowledgements(database, clock)
            await again.load()
            assert list(again) == [one]
            assert again.of("billing")["report"]["errors"] == one
            await again.remove(one)
            assert list(again) == []

    anyio.run(main)


def test_the_data_of_the_third_version_is_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "console.db") as db:
        db.executescript(SCHEMA + GRANTS + ACCESS)
        db.execute("insert into secrets values ('one', 'kept')")
        db.execute("pragma user_version = 3")
    db.close()

    async def main() -> None:
        async with open_database(tmp_path) as database:
            (row,) = await database.run(lambda db: db.execute("select value from secrets").fetchall())
            assert tuple(row) == ("kept",)
            assert await database.run(lambda db: db.execute("select count(*) from acknowledgements").fetchone()[0]) == 0

    anyio.run(main)


async def _fails(scene: Scene) -> None:
    """Let the job's newest run fail."""

    async def fail() -> None:
        raise OSError("no route")

    scene.work = fail
    await scene.run_job(sharding_total_count=1, error_handler="ignore")


async def _run(scene: Scene, browser: Browser, outcome: str) -> None:
    await browser.submit("/r/billing/job/report", {}, to="/r/billing/job/report/do/trigger")
    await scene.seen(lambda now: now.jobs["report"].items[0].outcome == outcome)


FORM = "/r/billing/job/report/acknowledge"


def test_an_operator_acknowledges_until_a_moment_and_it_ends_then(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _fails(scene)
        ada = await scene.operator()
        await _run(scene, ada, "failed")
        assert f'href="{FORM}?reason=errors"' in (await ada.get("/r/billing/job/report")).text
        asked = await ada.get(f"{FORM}?reason=errors")
        assert "failing, at least 1 in a row (items: 0)" in asked.text
        end = asked.value("until")
        wrong = await ada.post(FORM, {"csrf": asked.token, "reason": "errors", "note": "", "until": end})
        assert (wrong.status, 'role="alert"' in wrong.text) == (409, True)
        done = await ada.post(FORM, {"csrf": asked.token, "reason": "errors", "note": "INC-7 <b>", "until": end})
        assert done.status == 303
        groups = scene.console.state.health_of(scene.registry, scene.registry.snapshot.value)
        assert (groups.counts["attention"], groups.counts["acknowledged"]) == (0, 1)
        row = (await ada.get("/r/billing/jobs?show=acknowledged")).text
        assert "acknowledged by ada until" in row
        assert "INC-7 &lt;b&gt;" in row
        assert "failing, at least 1 in a row" not in (await ada.get("/r/billing/jobs?show=attention")).text
        entry, refused = [
            one for one in await scene.console.state.storage.audit.entries() if one.entry.action == "acknowledge"
        ]
        assert (entry.entry.who, entry.entry.target, entry.done, refused.done) == ("ada", "report", True, False)
        assert entry.after["note"] == "INC-7 <b>"

        scene.clock.ahead += DAY + 120  # the form proposes a day
        await scene.seen(lambda now: not list(scene.console.state.storage.acknowledgements))
        assert scene.console.state.storage.acknowledgements.of("billing") == {}
        again = await scene.operator()
        assert "failing, at least 1 in a row" in (await again.get("/r/billing/jobs?show=attention")).text
        (over,) = [one for one in await scene.console.state.storage.audit.entries() if one.entry.who == CONSOLE]
        assert (over.entry.action, over.summary) == ("end acknowledgement", "its time is over")

    play(act)


def test_who_acknowledges_one_reason_is_told_for_what_else_the_job_needs_attention(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _fails(scene)
        ada = await scene.operator()
        await _run(scene, ada, "failed")
        at = int(scene.clock.now())
        missed = MissedMoments(Count(16, is_least=True), "the last run was still going on", at, at)
        scene.registry.missed["report"] = deque([missed])
        scene.registry.touch(["report"])
        asked = await ada.get(f"{FORM}?reason=errors")
        assert "After that it still needs attention:" in asked.text
        assert "missed moments: at least 16" in asked.text
        form = {"csrf": asked.token, "note": "INC-7", "until": asked.value("until")}
        await ada.post(FORM, {**form, "reason": "errors"})
        notice = (await ada.get("/r/billing/job/report")).text
        assert "Acknowledged. It still needs attention: missed moments: at least 16" in notice
        assert '<span class="state warn">misfiring</span>' in notice
        await ada.post(FORM, {**form, "reason": "misfiring"})
        assert "Acknowledged: it needs no attention until then." in (await ada.get("/r/billing/job/report")).text

    play(act)


def test_it_ends_when_the_reason_is_gone_and_what_comes_back_needs_attention(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _fails(scene)
        ada = await scene.operator()
        await _run(scene, ada, "failed")
        asked = await ada.get(f"{FORM}?reason=errors")
        form = {"csrf": asked.token, "reason": "errors", "note": "INC-7", "until": asked.value("until")}
        assert (await ada.post(FORM, form)).status == 303
        scene.work = None
        await _run(scene, ada, "completed")
        await scene.seen(lambda now: not list(scene.console.state.storage.acknowledgements))
        (over,) = [one for one in await scene.console.state.storage.audit.entries() if one.entry.who == CONSOLE]
        assert over.summary == "the reason is gone"
        assert (await ada.get(f"{FORM}?reason=errors")).status == 404
        assert (await ada.post(FORM, form)).status == 404

    play(act)


def test_an_operator_ends_it_and_others_may_neither_begin_nor_end_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await _fails(scene)
        ada, tom = await scene.operator(), await scene.person("tom", Role.TRIGGER)
        await _run(scene, ada, "failed")
        asked = await ada.get(f"{FORM}?reason=errors")
        form = {"reason": "errors", "note": "INC-7", "until": asked.value("until")}
        page = await tom.get("/r/billing/job/report")
        assert "/acknowledge" not in page.text
        assert (await tom.get(f"{FORM}?reason=errors")).status == 403
        assert (await tom.post(FORM, {"csrf": page.token, **form})).status == 403
        assert (await ada.post(FORM, {"csrf": asked.token, **form})).status == 303
        assert "INC-7" in (await tom.get("/r/billing/job/report")).text
        assert (await tom.post(f"{FORM}/end", {"csrf": page.token, "reason": "errors"})).status == 403
        for expected in (303, 404):
            ended_now = await ada.post(f"{FORM}/end", {"csrf": asked.token, "reason": "errors"})
            assert ended_now.status == expected
        groups = scene.console.state.health_of(scene.registry, scene.registry.snapshot.value)
        assert groups.counts["attention"] == 1

    play(act)
