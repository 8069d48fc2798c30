"""The console says how it is itself: to anybody in numbers, and with names at a port of its own."""

from __future__ import annotations

import json
import re

import pytest

from aioelasticjob.console.watching import own_metrics
from aioelasticjob.console.watching.own_health import ConsoleHealth, RegistryHealth
from tests.console.client import Browser
from tests.console.conftest import Play, Scene

GOOD = RegistryHealth("billing", None, 0.0, True, None, 3, 1, 335)


def measured(health: ConsoleHealth) -> dict[str, float]:
    text = own_metrics.render(health)[0].decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix(own_metrics.PREFIX): float(value) for name, value in map(str.split, lines)}


def test_the_metrics_tell_what_does_not_answer() -> None:
    lost = RegistryHealth("shop", "suspended", 0.0, True, "connection refused", 0, 0, 0)
    plain = RegistryHealth("post", None, 0.0, False, None, 0, 0, 0)
    assert measured(ConsoleHealth("the disk is full", (GOOD, lost, plain), 7)) == {
        "database_up": 0,
        "live_pages": 7,
        'registry_up{registry="billing"}': 1,
        'registry_up{registry="shop"}': 0,
        'registry_up{registry="post"}': 1,
        'event_store_up{registry="billing"}': 1,
        'event_store_up{registry="shop"}': 0,
        'jobs{registry="billing"}': 3,
        'jobs{registry="shop"}': 0,
        'jobs{registry="post"}': 0,
        'processes_with_problems{registry="billing"}': 1,
        'processes_with_problems{registry="shop"}': 0,
        'processes_with_problems{registry="post"}': 0,
        'events_not_written{registry="billing"}': 335,
        'events_not_written{registry="shop"}': 0,
        'events_not_written{registry="post"}': 0,
    }


@pytest.mark.parametrize("broken", ["database", "registry", "event store"])
def test_a_console_is_not_ready_while_something_does_not_answer_and_alive_all_the_same(broken: str) -> None:
    registry = GOOD
    database = None
    if broken == "database":
        database = "the disk is full"
    elif broken == "registry":
        registry = RegistryHealth("billing", "suspended", 0.0, True, None, 3, 0, 0)
    else:
        registry = RegistryHealth("billing", None, 0.0, True, "connection refused", 3, 0, 0)
    health = ConsoleHealth(database, (registry,), 0)
    assert (health.status, health.status_code("ready"), health.status_code("live")) == ("suspended", 503, 200)
    good = ConsoleHealth(None, (GOOD,), 0)
    assert (good.status, good.status_code("ready"), good.status_code("live")) == ("up", 200, 200)


def test_anybody_may_ask_how_the_console_is_and_learns_no_names(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        anybody = Browser(scene.console)
        await scene.registry.store.ask()
        answer = await anybody.get("/healthz")
        assert (answer.status, json.loads(answer.text)) == (
            200,
            {
                "status": "up",
                "database": "up",
                "registries": {"up": 1, "down": 0},
                "event_stores": {"up": 1, "down": 0},
            },
        )
        scene.registry._mark_lost("the connection to 10.0.0.9:2181 is suspended")
        answer = await anybody.get("/healthz")
        assert (answer.status, json.loads(answer.text)["registries"]) == (503, {"up": 0, "down": 1})
        assert not re.search(r"billing|10\.0\.0\.9", answer.text)
        live = await anybody.get("/healthz/live")
        assert (live.status, live.text) == (200, "ok\n")
        assert scene.console.health.as_json()["registries"][0]["name"] == "billing"  # type: ignore[index]
        body, _ = await scene.console.render_metrics()
        assert b'aioelasticjob_console_registry_up{registry="billing"} 0.0' in body

    play(act, event_store=sqlite_url)


def test_a_console_whose_data_directory_has_gone_is_not_ready(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        scene.console.state.storage.database._file.unlink()
        answer = await Browser(scene.console).get("/healthz")
        assert (answer.status, json.loads(answer.text)["database"]) == (503, "down")

    play(act)
