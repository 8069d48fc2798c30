"""Registries that are added on the page, with a login and with certificates."""

from __future__ import annotations

import gc
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from aioelasticjob.console import Console, ConsoleSettings, RegistrySettings
from aioelasticjob.console.pages import registries
from aioelasticjob.console.watching.registry_watch import RegistryWatch
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.alerts.state import AlertState
from aioelasticjob.zookeeper import tls as server_tls
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings
from tests.console.conftest import Play, Scene
from tests.console.samples import ended, item, status
from tests.console.site import CHEAP
from tests.support.certificates import Authority, Certificate, authority, encrypted

ALLOWED = ("zks://localhost:*",)
SECRET = "correct horse"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "our CA")


@pytest.fixture(scope="module")
def own(ours: Authority) -> Certificate:
    certificate = ours.issue("console")
    return Certificate(certificate.certificate, encrypted(certificate.key, SECRET))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "CONNECT_TIMEOUT", 60.0)


def server(ours: Authority) -> Any:
    """Return an embedded server, not yet started, that asks for certificates and knows one user."""
    certificate = ours.issue("server")
    tls = server_tls.TlsSettings(certificate.certificate, certificate.key, ours.certificate, 0)
    return serve(settings=Settings(sasl_users={"bob": SECRET}), tls=tls)


def form(port: int | None, ours: Authority, own: Certificate) -> dict[str, str]:
    return {
        "name": "secure",
        "address": f"zks://localhost:{port}/shop",
        "sasl": f"bob:{SECRET}",
        "tls_ca": str(ours.certificate),
        "tls_certificate": str(own.certificate),
        "tls_key": str(own.key),
        "tls_key_password": SECRET,
        "tls_minimum_version": "1.3",
    }


def test_a_registry_with_a_login_and_certificates_is_tried_added_and_kept(
    play: Play, ours: Authority, own: Certificate, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with server(ours) as registry:
            browser, wanted = await scene.operator(), form(registry.tls_port, ours, own)
            tried = await browser.submit("/registries", {**wanted, "try": "1"})
            assert "secure answers: 0 jobs" in tried.text
            assert f'value="{own.certificate}"' in tried.text
            assert SECRET not in tried.text
            assert (await browser.submit("/registries", wanted)).status == 303
            page = await browser.get("/registries")
            assert '<span class="chip">with SASL</span> <span class="chip">TLS</span>' in page.text
            log = (await browser.get("/audit")).text
            assert str(own.certificate) in log
            assert SECRET not in page.text + log
            again = Console(ConsoleSettings((), tmp_path / "data", allowed_addresses=ALLOWED), hasher=CHEAP)
            async with again.running():
                kept = again.state.registries.get("secure")
                assert kept is not None
                snapshot = await kept.snapshot.until(lambda now: now.read)
                assert not snapshot.lost
                assert SECRET not in repr(kept.settings)

    play(act, allowed_addresses=ALLOWED)
    with sqlite3.connect(tmp_path / "data" / "console.db") as db:
        assert SECRET not in str(db.execute("select asked, before from audit").fetchall())
    db.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tls_ca": "/nowhere/ca.pem"}, "tls.ca: /nowhere/ca.pem cannot be read"),
        ({"tls_key_password": "guess"}, "cannot be decrypted: check tls.key_password"),
        ({"sasl": "bob:guess"}, "refused the SASL user &#39;bob&#39;"),
        ({"sasl_file": "/nowhere/login"}, "leave it out, or sasl"),
        ({"sasl": "", "sasl_file": "/nowhere/login"}, "/nowhere/login"),
        ({"tls_minimum_version": "1.1"}, "one of 1.2, 1.3"),
        ({"address": "zk://localhost:2181/shop"}, "write zks://"),
    ],
)
def test_what_is_wrong_with_a_login_or_a_file_is_said(
    play: Play, ours: Authority, own: Certificate, changes: dict[str, str], said: str
) -> None:
    async def act(scene: Scene) -> None:
        async with server(ours) as registry:
            browser = await scene.operator()
            refused = await browser.submit("/registries", {**form(registry.tls_port, ours, own), **changes})
            assert refused.status == 400
            assert said in refused.text
            assert "guess" not in refused.text
            assert SECRET not in refused.text
            assert scene.console.state.registries.get("secure") is None

    play(act, allowed_addresses=ALLOWED)


def test_credentials_in_an_address_that_was_typed_are_not_shown_again(play: Play) -> None:
    registry, store = "zk://bob:hunter2@127.0.0.1:1/x", "postgresql://bob:hun/ter2@127.0.0.1/events?password=hunter3"
    typed = [{"name": "other", "address": registry}, {"name": "other", "address": "bob:hunter2@127.0.0.1:1"}]
    typed += [{"name": "other", "address": "zk://127.0.0.1:1/x", "event_store": store}]

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        for wanted in typed:
            refused = await browser.submit("/registries", wanted)
            assert refused.status == 400
            shown = {name: refused.value(name) for name in wanted}
            assert any("…@127.0.0.1" in text for text in shown.values())
            assert not re.search("hun|ter", "".join(shown.values()).replace("other", ""))
            assert not re.search("hunter|ter2", refused.text)
            again = await browser.submit("/registries", shown)
            assert again.status == 400
            assert "type the credentials in it again" in again.text

    play(act, allowed_addresses=("zk://*:*",))


def test_the_fields_are_there_in_chinese_too(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator(language="zh")
        page = (await browser.get("/registries")).text
        for label in ("登录，注册中心需要时填写", "加密，用于地址 zks://…", "CA 证书文件", "最低 TLS 版本", "私钥密码"):
            assert label in page
        for name in ("digest", "sasl", "tls_key_password"):
            assert f'<input name="{name}" type="password"' in page

    play(act, allowed_addresses=ALLOWED)


def test_nothing_is_kept_of_a_registry_that_is_watched_no_more(play: Play) -> None:
    async def act(scene: Scene) -> None:
        state = scene.console.state
        dropped = RegistryWatch(RegistrySettings("dropped", scene.address), scene.clock)
        snapshot = scene.registry.snapshot.value
        state.health_of(dropped, snapshot)
        state.strips.of(dropped, snapshot, state.health_of(dropped, snapshot), scene.clock.now())
        state.rows[dropped] = {}
        known = ref(dropped)
        del dropped
        gc.collect()
        assert known() is None

    play(act)


def _show(scene: Scene, name: str, *jobs: JobStatus) -> None:
    """Make the console believe that a registry, which is not there, is there and holds these jobs."""
    watch = scene.console.state.registries.get(name)
    assert watch is not None
    watch._publish(jobs)


def _alert(scene: Scene, name: str, *alerts: AlertState) -> None:
    """Make the console believe that a registry has these alerts."""
    watch = scene.console.state.registries.get(name)
    assert watch is not None
    watch.snapshot.set(replace(watch.snapshot.value, alerts=alerts))


def test_of_several_registries_the_list_comes_first_with_the_worst_registry_at_the_top(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        assert (await browser.get("/")).location == "/r/billing/jobs"
        for name in ("calm", "failing", "gone", "silent"):
            scene.console.state.registries.add(RegistrySettings(name, f"zk://127.0.0.1:1/{name}"))
        assert (await browser.get("/")).location == "/registries"
        now = scene.clock.now()
        failing = [status(f"job-{n}", (item(0, record=ended("failed", now)),), now=now) for n in range(5)]
        _show(scene, "calm", status("well", (item(0),), now=now))
        _show(scene, "failing", *failing)
        _show(scene, "silent", status("alone", (item(0),), now=now, instances=()), *failing[:1])
        page = (await browser.get("/registries")).text.partition('<section id="registries"')[2]
        rows = re.findall(r'<a href="/r/(\w+)/jobs"><span class="dot (\w+)"', page)
        assert rows == [("gone", "bad"), ("silent", "bad"), ("failing", "bad"), ("billing", "ok"), ("calm", "ok")]
        assert re.findall(r'<a href="/r/failing/job/([\w-]+)">', page) == ["job-0", "job-1", "job-2"]
        assert re.findall(r'<a href="/r/silent/job/([\w-]+)">', page) == ["alone", "job-0"]
        assert "nobody is there to run it" in page
        assert '<a class="outcome bad" href="/r/failing/jobs?show=attention">5 jobs</a>' in page
        assert page.count("and 2 more") == 1
        assert page.count("not known") == 2  # of the one that is gone, neither attention nor alerts

    play(act)


def test_the_list_shows_which_alerts_fire_in_each_registry(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.viewer()
        now = scene.clock.now()
        for name in ("busy", "calm"):
            scene.console.state.registries.add(RegistrySettings(name, f"zk://127.0.0.1:1/{name}"))
            _show(scene, name, status("report", (item(0),), now=now))
        over = AlertState("late", "report", now - 60, "late", resolved=now)
        firing = [AlertState("late", f"job-{n}", now - n, "late") for n in range(3)]
        store = AlertState("store-not-written", "", now - 9, "the disk is full: password=hunter2")
        _alert(scene, "busy", over, *firing, store)
        _alert(scene, "calm", over)
        page = (await browser.get("/registries")).text.partition('<section id="registries"')[2]
        assert re.findall(r'<a href="/r/(\w+)/jobs"><span class="dot (\w+)"', page) == [
            ("busy", "bad"),
            ("billing", "ok"),
            ("calm", "ok"),
        ]
        assert '<a class="outcome bad" href="/r/busy/alerts">4 alerts</a>' in page
        named = re.findall(r'<li class="outcome bad">([\w-]+)(?: <a href="/r/busy/job/([\w-]+)">)?', page)
        assert named == [("store-not-written", ""), ("late", "job-2"), ("late", "job-1")]
        assert "and 1 more" in page
        assert "hunter2" not in page
        assert "/r/calm/alerts" not in page

    play(act)
