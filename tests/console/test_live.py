"""Pages that live: what changes in the registry is on them at once, at a bounded rate, whatever comes in between."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from aioelasticjob import ElasticJob, ItemContext, Retry, operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console import Console, asgi
from aioelasticjob.console.application import _added_registries
from aioelasticjob.console.connections.live_pages import LivePageLimits
from aioelasticjob.console.drawing.sparkline import BARS, bar, duration_text, sparkline
from aioelasticjob.console.language.i18n import language
from aioelasticjob.console.users.throttle import Throttle
from aioelasticjob.console.watching.palette import COLOURS, Palette
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.stream import (
    ALIVE_INTERVAL,
    BURST_BYTES,
    BYTES_PER_SECOND,
    EVENT_BYTES,
    ByteBudget,
    Piece,
    Pieces,
    Sent,
)
from aioelasticjob.core.layout import Layout
from aioelasticjob.model import Outcome
from aioelasticjob.operations.observed_runs import ObservedRun
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.zookeeper.server import serve
from tests.console.client import Browser, invitation_of
from tests.console.conftest import NEVER, BentClock, Play, Scene, scene
from tests.support.embedded import EmbeddedServer
from tests.support.ports import reserved_ports
from tests.support.processes import ROOT
from tests.support.proxy import proxy_to

REPORT = "/r/billing/job/report"


def _connected(page: str) -> str:
    """Return the address that a page's script listens to."""
    found = re.search(r'hx-sse:connect="([^"]+)"', page)
    assert found
    return found[1].replace("&amp;", "&")


def test_a_change_in_the_registry_is_on_an_open_page_at_once(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        page = (await browser.get("/r/billing/jobs")).text
        async with browser.listening(_connected(page)) as stream:
            await stream.event("tiles")  # the first event; no rows, for the page has them
            await operations.pause(scene.registry.session, "report")
            event = await stream.event("switched off")
            assert event.count("<tr") == 1
            assert re.search(r"^id: \w+\.\d+\.\w+$", event, re.MULTILINE)

    play(act)


def test_who_comes_back_is_told_what_has_changed_since_and_no_more(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("report")
        await scene.run_job("quiet")
        browser = await scene.operator()
        path = _connected((await browser.get("/r/billing/jobs")).text)
        async with browser.listening(path) as stream:
            place = (await stream.event("tiles")).splitlines()[0].removeprefix("id: ")
        await operations.pause(scene.registry.session, "report")
        await scene.seen(lambda now: now.jobs["report"].paused)
        async with browser.listening(path, ("last-event-id", place)) as stream:
            event = await stream.event("<tr")
            assert "report" in event
            assert "quiet" not in event
        async with browser.listening(path, ("last-event-id", "another-console.3.abc")) as stream:
            assert "quiet" in await stream.event('hx-target="#jobs"')  # the whole list
        endless = f"{place.partition('.')[0]}.{'9' * 5000}.abc"
        async with browser.listening(path, ("last-event-id", endless)) as stream:
            assert "quiet" in await stream.event('hx-target="#jobs"')

    play(act)


def test_many_rows_go_out_in_small_events_and_the_last_one_names_the_version(play: Play) -> None:
    async def act(scene: Scene) -> None:
        session, jobs = scene.registry.session, [f"job-{number:03}" for number in range(90)]
        for job in jobs:
            nodes = [Create(f"/{job}"), Create(f"/{job}/config", JobConfig(job_name=job).to_json())]
            await session.commit(nodes, incarnation=session.incarnation)
        await scene.seen(lambda now: len(now.jobs) == 90)
        browser = await scene.operator()
        path = _connected((await browser.get("/r/billing/jobs")).text)
        async with browser.listening(path) as stream:
            first = await stream.event("tiles")
            old: RegistrySnapshot = scene.registry.snapshot.value
            later = dict.fromkeys(old.jobs, old.version + 1)  # everything has changed at once
            scene.registry.snapshot.set(replace(old, version=old.version + 1, changed=later))
            events = [await stream.event("<tr")]
            while sum(event.count("<tr") for event in events) < 90:
                events.append(await stream.event("<tr"))
        assert max(map(len, events)) < 2 * EVENT_BYTES
        assert len(events) > 2
        places = [_place(event) for event in events]
        assert set(places[:-1]) == {_place(first)}  # who loses the stream here gets all of it again
        assert places[-1] != _place(first)

    play(act)


def _place(event: str) -> str:
    return next(line for line in event.splitlines() if line.startswith("id: "))


def test_a_job_that_comes_appears_and_one_that_goes_disappears(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("report")
        browser = await scene.operator()
        async with browser.listening(_connected((await browser.get("/r/billing/jobs")).text)) as stream:
            await scene.run_job("newcomer")
            await stream.event('hx-target="#jobs"', "newcomer", "report")
            await operations.remove(scene.registry.session, "newcomer", force=True)
            event = await stream.event('hx-target="#jobs"')
            assert "newcomer" not in event

    play(act)


def test_items_move_on_the_jobs_page_when_an_instance_goes(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(sharding_total_count=4)
        leave = await scene.run_job(sharding_total_count=4)
        await scene.seen(lambda _: [len(one.holds) for one in scene.instances()] == [2, 2])
        browser = await scene.operator()
        async with browser.listening(f"{REPORT}/live") as stream:
            first = await stream.event("job-lanes")
            assert first.count('class="lane c-') == 2
            leave.set()
            await stream.event("job-lanes", 'id="lane-0"', 'id="item-0"', 'id="item-3"')
            await scene.seen(lambda _: [len(one.holds) for one in scene.instances()] == [4])

    play(act)


def test_an_instance_that_finishes_what_it_runs_is_marked_as_leaving(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        async with browser.listening(f"{REPORT}/live") as stream:
            assert "leaving" not in await stream.event("job-lanes", "leads")
            (me,) = (one.id for one in scene.instances())
            session, path = scene.registry.session, Layout("report").instance(me)
            leaving = json.dumps({**json.loads((await session.get(path)).data), "leaving": True}).encode()
            await session.commit([Set(path, leaving, -1)], incarnation=session.incarnation)
            event = await stream.event("lane-0", "leaving")
            assert event.count('<span class="chip warn">leaving</span>') == 2

    play(act)


def test_an_open_page_says_that_its_job_is_gone(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        async with browser.listening(f"{REPORT}/live") as stream:
            await stream.event("job-lanes")
            await operations.remove(scene.registry.session, "report", force=True)
            await stream.event("This job is not in the registry (any more).")

    play(act)


def test_a_job_of_many_items_is_a_bar_of_shares(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(sharding_total_count=60)
        browser = await scene.operator()
        page = await browser.get("/r/billing/jobs")
        assert 'aria-label="60 items on 1 instance"' in page.text
        assert page.text.count('width="99.00"') == 1

    play(act)


def test_a_stream_ends_when_its_session_does(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.console.web.stream.SESSION_CHECK_INTERVAL", 0.05)

    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        account = await browser.get("/account")
        for path in ("/r/billing/jobs/live", f"{REPORT}/live", "/r/billing/servers/live"):
            async with browser.listening(path) as stream:
                assert stream.status == 200
                await stream.event("hx-partial")
                assert scene.console.state.live_pages
                if path.endswith("servers/live"):
                    await browser.post("/logout", {"csrf": account.token})
                    await stream.event("event: over")
            assert not scene.console.state.live_pages

    play(act)


def test_open_pages_are_let_go_when_the_console_is_about_to_end(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.console.web.stream.REFRESH_INTERVAL", 0.05)

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        async with browser.listening("/r/billing/jobs/live") as stream:
            await stream.event("tiles")
            scene.console.state.closing = True
            await stream.end()
        assert not scene.console.state.live_pages

    play(act)


def test_a_viewer_has_only_so_many_live_pages_and_keeps_no_operator_out(play: Play) -> None:
    async def act(scene: Scene) -> None:
        viewer, admin = await scene.viewer(), await scene.operator()
        async with viewer.listening("/r/billing/jobs/live") as first, viewer.listening("/live") as second:
            await first.event("tiles")
            assert second.status == 200
            async with viewer.listening("/r/billing/jobs/live") as refused:
                assert refused.status == 503
            async with admin.listening("/r/billing/jobs/live") as stream:
                await stream.event("tiles")
        async with viewer.listening("/r/billing/jobs/live") as again:
            assert again.status == 200
        assert not scene.console.state.live_pages

    play(act, live_pages=LivePageLimits(total=3, kept_for_operators=1, per_session=3, per_address=2))


def test_a_registry_that_goes_is_said_on_the_open_page_which_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        data = tmp_path / "registry"
        async with AsyncExitStack() as registry:
            (port,) = registry.enter_context(reserved_ports(1))
            server = await registry.enter_async_context(AsyncExitStack())
            await server.enter_async_context(serve("127.0.0.1", port, tick_time=100, data_dir=data))
            async with scene(f"zk://127.0.0.1:{port}/billing", tmp_path / "data") as stage:
                browser = await stage.operator()
                async with browser.listening("/r/billing/jobs/live") as stream:
                    await stream.event("tiles")
                    await server.aclose()
                    lost = await stream.event("The registry billing is not there")
                    assert "goes on by itself" in lost
                    assert (await browser.get("/r/billing/jobs")).status == 200  # as it was
                    refused = await browser.submit("/r/billing/transfer", {"text": "{}"})
                    assert "nothing was written" in refused.text
                    async with serve("127.0.0.1", port, tick_time=100, data_dir=data):
                        back = await stream.event('id="state"')
                        assert "is not there" not in back

    asyncio.run(main())


def test_a_registry_that_hangs_is_said_on_the_open_page_of_a_job_and_refuses_actions(
    embedded: EmbeddedServer, tmp_path: Path
) -> None:
    async def main() -> None:
        host, _, port = embedded.address.partition(":")
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(proxy_to(host, int(port)))
            address = f"zk://{proxy.address}/test-{uuid4().hex}"
            stage = await stack.enter_async_context(scene(address, tmp_path / "data"))
            await stage.run_job()
            browser = await stage.operator()
            async with browser.listening(f"{REPORT}/live") as stream:
                await stream.event('id="job-head"')
                token = (await browser.get(REPORT)).token
                proxy.swallow("up", "down")
                refused = await browser.post(f"{REPORT}/do/pause", {"csrf": token})
                assert refused.status == 503
                await stream.event("The registry billing is not there")
                proxy.heal()

    asyncio.run(main())


def test_a_page_that_waits_for_something_still_gets_signs_of_life(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.console.web.stream.ALIVE_INTERVAL", 0.05)

    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Pieces, "changes", never)

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        async with browser.listening("/r/billing/servers/live") as stream:
            for _ in range(3):
                await stream.event("event: alive\ndata:")

    play(act)


def test_signs_of_life_come_several_times_before_pages_doubt_that_the_console_is_there() -> None:
    script = (ROOT / "aioelasticjob" / "console" / "assets" / "console.js").read_text()
    found = re.search(r"MAX_SILENCE = (\d+)", script)
    assert found
    assert 3 * ALIVE_INTERVAL < int(found[1]) / 1000 < 9  # it is seen within ten seconds: the script looks each second


def test_a_registry_that_has_forgotten_everything_is_shown_as_it_is_now(tmp_path: Path) -> None:
    async def main(port: int) -> None:
        async with AsyncExitStack() as server:
            await server.enter_async_context(serve("127.0.0.1", port, tick_time=100))
            async with scene(f"zk://127.0.0.1:{port}/billing", tmp_path / "data") as stage:
                session = stage.registry.session
                for path, data in (("/report", b""), ("/report/config", JobConfig(job_name="report").to_json())):
                    await session.commit([Create(path, data)], incarnation=session.incarnation)
                await stage.seen(lambda now: "report" in now.jobs)
                await server.aclose()
                async with serve("127.0.0.1", port, tick_time=100):
                    await stage.seen(lambda now: not now.jobs and now.lost is None)
                    browser = await stage.operator()
                    assert "No jobs yet" in (await browser.get("/r/billing/jobs")).text

    with reserved_ports(1) as (port,):
        asyncio.run(main(port))


def test_a_mistake_in_watching_one_registry_is_reported_and_tried_again(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aioelasticjob.console.watching.registry_watch.RECONNECT_DELAY", 0.05)

    async def act(scene: Scene) -> None:
        with monkeypatch.context() as broken:
            broken.setattr("aioelasticjob.console.watching.registry_watch.operations.watch_all", lambda *_, **__: 1 / 0)
            scene.console.state.registries.add(replace(scene.registry.settings, name="second"))
            second = scene.console.state.registries.get("second")
            assert second is not None
            with anyio.fail_after(90):
                await second.snapshot.until(lambda now: "ZeroDivisionError" in (now.lost or ""))
        with anyio.fail_after(90):
            await second.snapshot.until(lambda now: now.lost is None)
        assert "cannot watch" in caplog.text
        assert scene.registry.snapshot.value.lost is None

    play(act)


def test_a_registry_that_was_added_and_makes_no_sense_any_more_is_left_out(play: Play, tmp_path: Path) -> None:
    def spoil(db: sqlite3.Connection) -> None:
        db.execute("insert into registries (name, address) values ('old', 'gone://nowhere')")
        db.execute("insert into registries (name, address) values ('new', 'zk://127.0.0.1:1/x')")
        db.execute("insert into registries (name, address) values ('forbidden', 'zk://127.0.0.1:2/x')")

    async def act(scene: Scene) -> None:
        await scene.console.state.storage.database.run(spoil)
        assert [one.name for one in await _added_registries(scene.console.state)] == ["new"]

    play(act, allowed_addresses=("zk://127.0.0.1:1",))


def test_a_registry_that_is_not_there_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aioelasticjob.console.watching.registry_watch.CONNECT_TIMEOUT", 0.2)
    monkeypatch.setattr("aioelasticjob.console.watching.registry_watch.RECONNECT_DELAY", 0.05)
    monkeypatch.setattr("aioelasticjob.registry.client.SILENT_WAIT", 0.01)

    async def main(port: int) -> None:
        console = asgi(f"zk://127.0.0.1:{port}/billing", data_dir=tmp_path)
        async with console.running():
            browser = Browser(console)
            await browser.accept(invitation_of(console))
            watched = console.state.registries.get("billing")
            assert watched is not None
            with anyio.fail_after(90):
                await watched.snapshot.until(lambda now: "no registry" in (now.lost or ""))
            page = await browser.get("/r/billing/jobs")
            assert "The registry billing is not there" in page.text
            assert (await browser.get(REPORT)).status == 503
            version = watched.snapshot.value.version
            with anyio.fail_after(90):
                await watched.snapshot.until(lambda now: now.version >= version + 3)  # three more attempts
            assert [one.message for one in caplog.records if one.levelname == "WARNING"] == ["registry lost"]
            async with serve("127.0.0.1", port, tick_time=100):
                with anyio.fail_after(90):
                    await watched.snapshot.until(lambda now: now.read and now.lost is None)

    with reserved_ports(1) as (port,):
        asyncio.run(main(port))


def test_a_mounted_console_works_below_its_root_without_any_lifespan(
    embedded: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        console: Console = asgi(f"zk://{embedded.address}/billing", data_dir=tmp_path)
        host = Starlette(routes=[Mount("/ops/console", console)])
        browser = Browser(host, root="/ops/console")
        assert (await browser.get("/")).location.startswith("/ops/console/login?next=%2Fops%2Fconsole%2F")
        assert f"nobody can sign in yet: open the one-time link {invitation_of(console)}" in caplog.messages
        assert (await browser.accept(invitation_of(console))).location == "/ops/console/"
        page = await browser.get("/r/billing/jobs")
        assert page.status == 200
        for address in re.findall(r'(?:href|src|action|connect)="([^"#]*)"', page.text):
            assert address.startswith("/ops/console/"), address
        assert (await browser.get("/login")).location == "/ops/console/"
        style = re.findall(r'href="/ops/console(/assets[^"]+css)"', page.text)[0]
        assert (await browser.get(style)).status == 200
        cookie = (await browser.post("/preferences", {"csrf": page.token, "theme": "dark"})).cookies["aioej_theme"]
        assert "Path=/ops/console" in cookie

    asyncio.run(main())


def test_a_console_that_cannot_start_says_why_to_whom_asks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        console = asgi(data_dir=tmp_path / "file")
        with pytest.raises(Exception, match="--data-dir"):
            await Browser(console).get("/login")
        (tmp_path / "file").unlink()
        assert (await Browser(console).get("/login")).status == 200  # and tries again

    asyncio.run(main())


def test_sparklines_begin_with_what_the_event_store_remembers(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'events.db'}"

    async def act(scene: Scene) -> None:
        app = ElasticJob(scene.address, session_timeout=4, event_store=store)

        async def work(context: ItemContext) -> None:
            if context.item == 1:
                raise ValueError("item <1> cannot be done")

        settings: dict[str, Any] = {"sharding_quiet": 0, "error_handler": "ignore", "retry": Retry(2, backoff=0)}
        app.add(work, name="report", cron=NEVER, sharding_total_count=2, **settings)
        async with app.running():
            await scene.seen(lambda now: "report" in now.jobs and now.jobs["report"].settled)
            await operations.ask(scene.registry.session, "report")
            await scene.seen(lambda now: all(item.outcome for item in now.jobs["report"].items or [None]))
        browser = await scene.operator()
        page = (await browser.get("/r/billing/job/report")).text
        assert '<span class="dim">ValueError: item &lt;1&gt; cannot be done</span>' in page
        history = await browser.get("/r/billing/history")
        assert history.text.count("<tr id=") == 2
        assert all(f'<option value="{outcome}"' in history.text for outcome in Outcome)
        assert "item &lt;1&gt; cannot be done" in history.text
        failed = await browser.get("/r/billing/history?outcome=failed&text=CANNOT&job=report&item=1")
        assert failed.text.count("<tr id=") == 1
        path = re.findall(r'href="(/r/billing/history/[^"]+)"', failed.text)[0]
        run = await browser.get(path)
        assert "ValueError" in run.text
        assert "2 attempts" in failed.text
        month = re.findall(r'href="(/r/billing/history[^"]*since=[^"]+)"', failed.text)[-1].replace("&amp;", "&")
        assert (await browser.get(month)).text.count("<tr id=") == 1  # with the other filters
        with monkeypatch.context() as short:
            short.setattr("aioelasticjob.console.pages.history.ROWS", 1)
            newest = (await browser.get("/r/billing/history")).text
            older = re.findall(r'rel="next" href="([^"]+)"', newest)[0].replace("&amp;", "&")
            assert 'rel="first"' not in newest
        assert 'rel="first"' in (await browser.get(older)).text
        assert "<dt>Attempts</dt><dd>2</dd>" in run.text
        assert run.text.count("attempt failed</b>") == 2
        assert "Traceback" in run.text
        assert 'class="trail"' in run.text
        job = (await browser.get(REPORT)).text
        assert '<rect class="bad"' in job
        assert "Last failure" in job
        assert "Traceback" in job.partition("Last failure")[2]
        for wrong in ("item=x", "since=yesterday", "after=nonsense"):
            answer = await browser.get(f"/r/billing/history?{wrong}")
            assert answer.status == 400, wrong
        assert (await browser.get("/r/billing/history/no-such-run")).status in (404, 409)
        fresh = replace(scene.registry.settings, name="again")
        scene.console.state.registries.add(fresh)
        again = scene.console.state.registries.get("again")
        assert again is not None
        with anyio.fail_after(90):
            await again.snapshot.until(lambda now: now.read)
        assert sorted((seen.item, seen.outcome) for seen in again.runs["report"]) == [(0, "completed"), (1, "failed")]

    play(act, event_store=store)


def test_an_event_store_that_does_not_answer_is_said_and_the_rest_goes_on(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        assert (await browser.get("/r/billing/history")).status == 503
        job = (await browser.get(REPORT)).text
        assert job.count("The event store does not answer") == 3  # the timeline, durations, failures
        assert "has no failure" not in job

    play(act, event_store="postgresql://127.0.0.1:1/nobody")


def test_without_an_event_store_the_history_says_what_to_do(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        assert "--event-store" in (await browser.get("/r/billing/history")).text
        assert (await browser.get("/r/billing/history/x")).status == 404

    play(act)


def test_a_purse_lets_a_burst_through_and_then_so_many_bytes_a_second() -> None:
    clock = BentClock()
    budget = ByteBudget(clock, at=clock.now())
    assert budget.spend(BURST_BYTES) < 0.1
    assert budget.spend(BYTES_PER_SECOND) == pytest.approx(1, abs=0.1)
    clock.ahead = 1000
    assert budget.spend(BURST_BYTES) == 0


def test_a_piece_is_sent_again_only_when_it_reads_differently() -> None:
    sent = Sent()
    asked = [sent.differs(Piece("a", text)) for text in ("one", "one", "two", "one")]
    assert asked == [True, False, True, True]


def test_failures_are_forgotten_with_time_and_names_that_are_made_up_fill_no_memory() -> None:
    clock = BentClock()
    throttle = Throttle(clock, failures=2, within=10, most_keys=100)
    throttle.failed("a")
    assert throttle.wait("a") == 0
    throttle.failed("a")
    assert 9 < throttle.wait("a", "b") <= 10
    clock.ahead = 10.5
    assert throttle.wait("a") == 0
    for number in range(1000):
        throttle.failed(f"name {number}")
    assert len(throttle._seen) == 100


def test_an_instance_keeps_its_colour_while_it_is_there() -> None:
    palette = Palette()
    palette.update(["a", "b"])
    a, b = palette.css_class("a"), palette.css_class("b")
    palette.update(["c", "b"])
    assert (palette.css_class("b"), palette.css_class("a")) == (b, "c-none")
    assert palette.css_class("c") == a
    palette.update(f"i{number}" for number in range(COLOURS + 3))
    assert len({palette.css_class(f"i{number}") for number in range(COLOURS + 3)}) == COLOURS


def _run(item: int, begun: int, took: int, outcome: str = "completed", source: str = "SCHEDULE") -> ObservedRun:
    return ObservedRun(item, begun, begun + took, source, outcome, "an instance")


def test_a_sparkline_shows_the_newest_runs_and_says_so() -> None:
    runs = [_run(0, n * 1000, n, "failed" if n == 99 else "completed") for n in range(100)]
    drawn = sparkline(runs, language("en"))
    assert drawn.count("M") == BARS
    assert drawn.split('class="bad" d="')[1].count("M") == 1
    assert f"the last {BARS} runs: 1 failed" in drawn
    assert sparkline([], language("en")) == ""


def test_the_shares_of_a_bar_are_as_wide_as_they_are_large() -> None:
    assert bar([("c-0", 3), ("c-1", 1)], "three & one").count('width="74.00"') == 1


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (200_000_000, "2 d 7 h"),
    ],
)
def test_durations_are_said_in_the_units_that_matter(milliseconds: int, said: str) -> None:
    assert duration_text(milliseconds) == said


def test_a_picture_says_since_when_each_job_looks_as_it_does(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job("report")
        await scene.run_job("quiet")
        before: RegistrySnapshot = scene.registry.snapshot.value
        await operations.pause(scene.registry.session, "report")
        after = await scene.seen(lambda now: now.jobs["report"].paused)
        assert after.changed["report"] > before.version
        assert after.changed["quiet"] == before.changed["quiet"]

    play(act)
