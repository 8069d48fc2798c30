"""The page of the calendars: who may see and change them, what is refused, and what the audit log has of it."""

from __future__ import annotations

from aioelasticjob import operations
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.schedules.calendars import Calendar
from tests.console.conftest import Play, Scene

CALENDARS = "/r/billing/calendars"
TEXT = "weekdays sat, sun\n2026-12-25 Christmas Day\n"


def test_a_calendar_is_made_changed_and_removed_on_its_pages(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        session = scene.registry.session
        made = await ada.submit(CALENDARS, {"name": "closed", "days": TEXT})
        assert made.status == 303
        page = (await ada.get(CALENDARS)).text
        assert "sat, sun; 1 dates, the last one 2026-12-25" in page
        one = await ada.get(f"{CALENDARS}/closed")
        assert "2026-12-25 Christmas Day" in one.text
        changed = {"days": "2026-12-24", "version": one.value("version")}
        assert (await ada.submit(f"{CALENDARS}/closed", changed)).status == 303
        assert (await operations.calendar(session, "closed")).calendar == Calendar.of(["2026-12-24"])
        late = await ada.submit(f"{CALENDARS}/closed", {"days": TEXT, "version": one.value("version")})
        assert late.status == 409
        assert "it is at version 1, 0 was seen" in late.text
        assert "Christmas Day" in late.text  # what was typed is still there
        removed = await ada.submit(f"{CALENDARS}/closed", {}, to=f"{CALENDARS}/closed/remove")
        assert removed.status == 303
        assert await operations.calendars(session) == ()
        audit = (await ada.get("/audit")).text
        assert audit.count("set calendar") == 3
        assert audit.count("remove calendar") == 1

    play(act)


def test_a_wrong_line_is_named_and_what_was_typed_stays(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        refused = await ada.submit(CALENDARS, {"name": "closed", "days": "Christmas"})
        assert refused.status == 409
        assert "must be a date such as 2026-12-25" in refused.text
        assert 'value="closed"' in refused.text
        assert "Christmas</textarea>" in refused.text

    play(act)


def test_a_calendar_that_a_job_names_is_not_removed_and_its_page_names_the_job(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await operations.set_calendar(scene.registry.session, "closed", Calendar.of_text(TEXT))
        await scene.run_job("report", calendar="closed")
        ada = await scene.operator()
        assert "/r/billing/job/report" in (await ada.get(f"{CALENDARS}/closed")).text
        refused = await ada.submit(f"{CALENDARS}/closed", {}, to=f"{CALENDARS}/closed/remove")
        assert refused.status == 409
        assert "jobs name this calendar, and would run nothing without it (report)" in refused.text
        assert (await operations.calendar(scene.registry.session, "closed")).is_there

    play(act)


def test_a_viewer_sees_calendars_and_changes_none(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        await operations.set_calendar(scene.registry.session, "closed", Calendar.of_text(TEXT))
        vera = await scene.person("vera", Role.VIEWER)
        page = await vera.get(f"{CALENDARS}/closed")
        assert "Christmas Day" in page.text
        assert "<textarea" not in page.text
        token = (await vera.get("/account")).token
        for path in (CALENDARS, f"{CALENDARS}/closed", f"{CALENDARS}/closed/remove"):
            assert (await vera.post(path, {"csrf": token, "name": "other", "days": TEXT})).status == 403
        assert [one.name for one in await operations.calendars(scene.registry.session)] == ["closed"]

    play(act)


def test_the_preview_of_a_jobs_settings_shows_the_moments_with_a_calendar(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await operations.set_calendar(scene.registry.session, "closed", Calendar.of((), "mon tue wed thu fri sat"))
        await scene.run_job("report", cron="0 9 * * *")
        ada = await scene.operator()
        opened = await ada.get("/r/billing/job/report/settings")
        assert 'name="calendar"' in opened.text
        assert 'name="calendar_mode"' in opened.text
        form = {"csrf": opened.token, "calendar": "closed", "calendar_mode": "skip", "version": opened.value("version")}
        found = await ada.post("/r/billing/job/report/preview", form)
        preview = await operations.preview(scene.registry.session, "report", {"calendar": "closed"})
        assert {one.isoweekday() for one in preview.next_fires} == {7}
        assert f"{preview.next_fires[0]:%Y-%m-%d}" in found.text

    play(act)
