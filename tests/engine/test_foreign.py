"""A job that another program runs under the same name is left alone: the job waits, and joins when it is gone."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.registry.tree import Tree
from tests.engine.test_required_features import ALL, MakeMixed
from tests.engine.test_required_features import mixed as mixed
from tests.support.java_trees import CONFIG_2, CONFIG_3, RELEASES, java_job
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

WAITS = "job: the job cannot run in this process at present: /job/config"


async def nodes(here: SimulatedJobs) -> Tree:
    return await here.observer.subtree([LAYOUT.root])


async def remove(here: SimulatedJobs) -> None:
    """Remove all nodes of the job one by one, as ZooKeeper's own command does."""
    for path in sorted(await nodes(here), key=lambda path: path.count("/"), reverse=True):
        await here.write(Delete(path))


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_waits_while_its_nodes_are_of_java_and_joins_when_they_are_removed(
    release: str, is_up: bool, mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await here.write(*java_job(release, is_up=is_up))
        before = await nodes(here)
        await them.start("a")
        await them.start("b", overwrite=True, cron="0/3 * * * * ?")
        assert await them.ran(120) == {}
        assert {name for _, name in them.others} == {"a", "b"}  # the other jobs of both processes run
        for name in "ab":
            health = them.apps[name].health
            assert (health.status, health.ready) == ("up", False)
            assert f"is of Elastic-Job {release} for Java" in (them.problem(name) or "")
        said = [text for text in caplog.messages if text.startswith(WAITS)]
        assert [text.endswith(" (docs: errors/ForeignData)") for text in said] == [True] * 2, "once by each of them"
        assert await nodes(here) == before  # data, versions, and all the rest of each node's stat
        await here.write(Set(LAYOUT.config, before.get(LAYOUT.config).data, -1))  # type: ignore[union-attr]
        await anyio.sleep(30)  # a node has changed, and the job is still Java's
        for name in "ab":
            here.faults.drop(f"10.0.0.{'ab'.index(name) + 1}", "10.0.9.9")
        await anyio.sleep(20)
        here.faults.heal()
        await anyio.sleep(20)  # under new sessions, too
        assert len([text for text in caplog.messages if text.startswith(WAITS)]) == 2
        after = await nodes(here)
        assert {*after} == {*before}
        assert all(after.get(path) == before.get(path) for path in before if path != LAYOUT.config)
        assert (await them.status()).state == "foreign"
        await remove(here)
        await anyio.sleep(3)
        assert [them.problem(name) for name in "ab"] == [None, None]
        assert set().union(*(await them.ran(12)).values()) == ALL
        assert (await them.status()).state in ("waiting", "running")

    simulate(scene)


@pytest.mark.parametrize("release", RELEASES)
def test_a_running_job_gives_way_when_java_takes_its_nodes_over_and_comes_back_when_they_are_its_own_again(
    release: str, mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("a")
        await anyio.sleep(7)
        ours = await nodes(here)
        made = [one for one in java_job(release, is_up=True) if isinstance(one, Create)]
        await here.write(*(one for one in made if one.path not in ours))
        config = next(one for one in made if one.path == LAYOUT.config)
        await here.write(Set(LAYOUT.config, config.data, -1))
        await anyio.sleep(5)
        assert f"is of Elastic-Job {release} for Java" in (them.problem("a") or "")
        before = await nodes(here)
        assert not [name for name in before.children(LAYOUT.instances) if name.startswith("10.")]
        assert await them.ran(60) == {}
        assert await nodes(here) == before
        assert "a" in {name for at, name in them.others if at > 20}  # the other job of the process runs
        assert sum("this process joins the job again: /job/config" in text for text in caplog.messages) == 1
        for one in sorted(made, key=lambda one: one.path.count("/"), reverse=True):
            if one.path not in ours:
                await here.write(Delete(one.path))
        await here.write(Set(LAYOUT.config, ours.get(LAYOUT.config).data, -1))  # type: ignore[union-attr]
        await anyio.sleep(3)
        assert them.problem("a") is None
        assert await them.ran(12) == {"a": ALL}

    simulate(scene)


def test_a_job_that_waits_looks_again_when_only_the_configuration_of_java_was_replaced(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, CONFIG_3))
        await them.start("a")
        assert await them.ran(20) == {}
        await here.write(Set(LAYOUT.config, b'{"jobName": "job", "cron": "0/2 * * * * ?"}', -1))
        await anyio.sleep(2)
        assert them.problem("a") is None
        assert await them.ran(6) == {"a": {0}}

    simulate(scene)


@pytest.mark.parametrize("data", [CONFIG_2, CONFIG_3])
def test_a_running_job_whose_configuration_somebody_replaces_by_one_of_java_goes_on_and_can_be_mended(
    data: bytes, mixed: MakeMixed
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("a")
        await anyio.sleep(6)
        good = (await here.observer.get(LAYOUT.config)).data
        await here.write(Set(LAYOUT.config, data, -1))
        await anyio.sleep(2)
        assert (await them.ran(12)).keys() == {"a"}
        assert them.problem("a") is None
        status = await them.status()
        assert not status.foreign
        text = await operations.export_jobs(here.observer) if data == CONFIG_2 else '{"jobs": [{"jobName": "job"}]}'
        assert (await operations.preview_import(here.observer, text, overwrite=True))[0].name == "job"
        await here.write(Set(LAYOUT.config, good, -1))
        await anyio.sleep(2)
        assert await them.ran(12) == {"a": ALL}

    simulate(scene)


def test_one_node_of_java_made_by_hand_keeps_no_job_from_joining(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("a")
        await here.write(Create(f"{LAYOUT.election}/instance", b"192.0.2.2@-@31385"))
        await them.start("b")
        assert (await them.ran(12)).keys() == {"a", "b"}
        assert (await operations.pause(here.observer, "job")).changed

    simulate(scene)
