"""Registries that share an event store: each shows its own runs, so that a role for one is none for the other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from aioelasticjob.console import Console, ConsoleSettings, RegistrySettings
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.console.watching.shared_stores import scope_of, sharing
from aioelasticjob.model import Outcome
from aioelasticjob.observers.sql import Filter
from tests.console.client import PASSWORD, Browser, invitation_of
from tests.console.conftest import Play, Scene
from tests.console.site import CHEAP
from tests.observers.sample_events import batch, beginning, end, raised
from tests.support.embedded import EmbeddedServer


def test_a_role_for_one_registry_shows_no_runs_of_another_that_has_the_same_store(
    embedded: EmbeddedServer, sqlite_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        place = f"zk://{embedded.address}/test-{uuid4().hex}"
        both = [RegistrySettings(name, f"{place}/{name}", event_store=sqlite_url) for name in ("shop", "other")]
        console = Console(ConsoleSettings(tuple(both), tmp_path / "data"), hasher=CHEAP)
        async with console.running():
            await Browser(console).accept(invitation_of(console))
            accounts = console.state.storage.accounts
            await accounts.accept(await accounts.invite("olga", Role.NONE), "olga", PASSWORD)
            await accounts.change("olga", grants={("other", ""): Role.VIEWER})
            olga, admin = Browser(console), Browser(console)
            await olga.sign_in("olga")
            await admin.sign_in()
            shop, other = (console.state.registries.get(name) for name in ("shop", "other"))
            assert shop is not None
            assert other is not None
            with anyio.fail_after(90):
                await shop.snapshot.until(lambda now: now.read)
                await other.snapshot.until(lambda now: now.read)
            assert shop.store is not None
            assert other.store is not None
            failed = end(outcome=Outcome.FAILED, failure=raised("the card number is wrong"))
            namespace = shop.settings.parsed_address().settings.namespace
            await shop.store.store.write(batch(*beginning(), failed, namespace=namespace))
            await shop.store.store.write(batch(end(job="of-an-older-release")))
            for one in (shop.store, other.store):
                await one.ask()
            (run,) = (await shop.store.store.history()).rows
            seen = await admin.get("/r/shop/history")
            assert "the card number is wrong" in seen.text
            for browser in (olga, admin):
                page = await browser.get("/r/other/history")
                assert (page.status, "No run is like that." in page.text) == (200, True)
                assert "report" not in page.text
                assert (await browser.get(f"/r/other/history/{run.id}")).status == 404
            assert (await olga.get("/r/shop/history")).status == 404
            assert "of-an-older-release" not in seen.text
            assert shop.store.snapshot.errors.keys() == {"report"}
            assert not other.store.snapshot.errors
            console.state.registries.remove("other")
            assert "of-an-older-release" in (await admin.get("/r/shop/history")).text  # it has the store to itself

    anyio.run(main)


def test_jobs_write_the_namespace_of_their_registry_which_the_console_shows(
    play: Play, sqlite_url: str, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        await browser.submit("/r/billing/job/report/do/trigger", {})
        with anyio.fail_after(90):
            while not (rows := (await scene.registry.store.store.history()).rows):
                await scene.seen(lambda now: True)
                await anyio.lowlevel.checkpoint()
        namespace = scene.address.rpartition("/")[2]
        assert {run.namespace for run in rows} == {namespace}
        with closing(sqlite3.connect(tmp_path / "events.db")) as db:
            states = db.execute("select distinct namespace from job_status_trace_log").fetchall()
        assert states == [(namespace,)]
        assert "report" in (await browser.get("/r/billing/history")).text

    play(act, event_store=sqlite_url)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sqlite:///events.db", "sqlite:///./events.db", True),
        ("sqlite:///events.db", "sqlite:///other.db", False),
        ("postgresql://a:x@localhost/events", "postgresql+asyncpg://b@127.0.0.1:5432/events?ssl=require", True),
        ("postgresql://localhost/events", "postgresql://localhost/other", False),
        ("mysql://localhost/events", "mariadb://localhost/Events", True),
        ("postgresql://localhost/events", "mysql://localhost/events", False),
        ("sqlite:///events.db", None, False),
    ],
)
def test_databases_that_may_be_the_same_count_as_one(one: str, other: str | None, same: bool) -> None:
    settings = [RegistrySettings(name, f"zk://h/{name}", event_store=url) for name, url in (("a", one), ("b", other))]
    assert sharing(settings) == (frozenset("ab") if same else frozenset())


def test_rows_without_a_namespace_belong_to_the_only_registry_of_a_store() -> None:
    registry = RegistrySettings("a", "zk://h:1/shop/eu", event_store="sqlite:///events.db")
    assert scope_of(registry, shared=False) == Filter(namespace="shop/eu", unnamed=True)
    assert scope_of(registry, shared=True) == Filter(namespace="shop/eu")
