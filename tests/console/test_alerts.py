"""The page of alerts: what fires, what people were notified of, and who has acknowledged it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

from aioelasticjob.config.types import Alert, RegistryAlert
from aioelasticjob.console.pages.alerts import SUBJECTS
from aioelasticjob.core.layout import ALERTS
from aioelasticjob.operations.alerts.kinds import KINDS, OF_JOBS
from aioelasticjob.operations.alerts.nodes import AlertNodes
from aioelasticjob.operations.alerts.state import AlertState, Notification
from aioelasticjob.operations.attention import ERRORS, SEVERITY
from aioelasticjob.registry.transaction import Create
from tests.console.conftest import Play, Scene

PAGE = "/r/billing/alerts"


async def _write(scene: Scene, *alerts: AlertState) -> None:
    nodes = AlertNodes(scene.registry.session)
    await nodes.read()
    assert await nodes.write({alert.key: alert for alert in alerts})
    await scene.seen(lambda now: set(alerts) <= set(now.alerts))


def test_each_alert_is_shown_with_its_rule_its_reason_and_its_delivery(play: Play) -> None:
    async def act(scene: Scene) -> None:
        vera = await scene.viewer()
        assert "No alert fires, and none did in the last day." in (await vera.get(PAGE)).text
        now = scene.clock.now()
        failing = AlertState(
            "failing", "report", now - 600, "3 <b> failed: password=hunter2", target="webhook 0123abcd"
        )
        late = AlertState("late", "other", now - 60, "not begun", tries=2, again=now + 9, trouble="the line is dead")
        await _write(scene, failing, late)
        text = (await vera.get(PAGE)).text
        assert "The newest 3 runs of an item failed, or half of the newest 20 runs of the job." in text
        assert "3 &lt;b&gt; failed" in text
        assert "hunter2" not in text
        assert "not delivered yet" in text
        assert "not delivered, 2 times" in text
        assert "the line is dead" in text
        await _write(scene, replace(failing, notified=Notification(failing.since, False, now)))
        told = (await vera.get(PAGE)).text
        assert '<span class="outcome ok">delivered</span>' in told
        assert "webhook" in told
        await _write(scene, replace(failing, resolved=now, notified=Notification(failing.since, True, now)))
        assert '<span class="outcome ok">resolved</span>' in (await vera.get(PAGE)).text

    play(act)


def test_who_has_acknowledged_what_an_alert_tells_of_is_shown_beside_it(play: Play) -> None:
    async def act(scene: Scene) -> None:
        async def fail() -> None:
            raise ValueError("no paper")

        scene.work = fail
        await scene.run_job()
        ada = await scene.operator()
        await ada.submit("/r/billing/job/report", {}, to="/r/billing/job/report/do/trigger")
        await scene.seen(lambda now: now.jobs["report"].items[0].outcome == "failed")
        await _write(scene, AlertState("failing", "report", scene.clock.now(), "3 runs failed"))
        form = "/r/billing/job/report/acknowledge"
        asked = await ada.get(f"{form}?reason=errors")
        filled = {"csrf": asked.token, "reason": "errors", "note": "INC-7", "until": asked.value("until")}
        await ada.post(form, filled)
        text = (await ada.get(PAGE)).text
        assert "acknowledged by ada until" in text
        assert "INC-7" in text

    play(act)


def test_an_alert_about_a_run_leads_to_it_in_the_history(play: Play, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        vera = await scene.viewer()
        await _write(scene, AlertState("failing", "report", scene.clock.now(), "3 failed", run="20260101T120000Z"))
        address = "/r/billing/history?job=report&amp;run=report%4020260101T120000Z"
        assert f'<a href="{address}">To the run</a>' in (await vera.get(PAGE)).text

    play(act, event_store=f"sqlite:///{tmp_path}/events.db")


def test_a_history_without_an_event_store_leads_to_the_job_that_was_asked_for(play: Play) -> None:
    async def act(scene: Scene) -> None:
        vera = await scene.viewer()
        text = (await vera.get("/r/billing/history?job=report&run=report%4020260101T120000Z")).text
        assert '<a href="/r/billing/job/report">To the job</a>' in text

    play(act)


def test_a_node_that_somebody_has_made_by_hand_is_not_shown(play: Play) -> None:
    async def act(scene: Scene) -> None:
        vera = await scene.viewer()
        session = scene.registry.session
        made = [Create(ALERTS), Create(f"{ALERTS}/late:x", b"hello"), Create(f"{ALERTS}/late:y", b'{"kind": "odd"}')]
        await session.commit(made, incarnation=session.incarnation)
        await _write(scene, AlertState("late", "z", scene.clock.now(), "not begun"))
        text = (await vera.get(PAGE)).text
        assert text.count('<th scope="row">') == 1

    play(act)


def test_each_kind_has_a_rule_and_each_kind_of_a_job_says_what_its_acknowledgement_is_about() -> None:
    assert {"failed", "missed"} | set(KINDS) == {*get_args(Alert), *get_args(RegistryAlert)}
    assert set(SUBJECTS) == set(OF_JOBS)
    assert {subject for subjects in SUBJECTS.values() for subject in subjects} <= {*SEVERITY, ERRORS}
