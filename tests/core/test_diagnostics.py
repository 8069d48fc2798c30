"""What somebody has got wrong by hand in a job's nodes is named by its path, once, and once more when it is mended."""

from __future__ import annotations

import pytest

from aioelasticjob.core.diagnostics import diagnose, missing_features_text
from aioelasticjob.engine.coordinator import log_findings
from aioelasticjob.ground.limited_log import MOST
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import run
from tests.core.rules.world import LAYOUT, knowing, leads, world
from tests.engine.test_claims import ClaimedJob

ITEM = LAYOUT.item(0)
ME = "10.0.0.1@-@1"


def test_of_a_job_at_rest_there_is_nothing_to_say() -> None:
    assert diagnose(world(2, sharding_total_count=2).settle(), ME) == {}


@pytest.mark.parametrize(
    ("by_hand", "path", "why"),
    [
        (Delete(LAYOUT.shutdowns), LAYOUT.shutdowns, "is missing"),
        (Delete(LAYOUT.epoch), LAYOUT.epoch, "is missing"),
        (
            Create(LAYOUT.instance("somebody")),
            LAYOUT.instance("somebody"),
            "is not ephemeral, so it does not count as an instance",
        ),
        (
            Create(f"{LAYOUT.sharding}/first"),
            f"{LAYOUT.sharding}/first",
            "is not the number of an item, and has no effect",
        ),
        (Create(f"{LAYOUT.sharding}/007"), f"{LAYOUT.sharding}/007", "is not the number of an item, and has no effect"),
        (Create(f"{LAYOUT.orphans}/x"), f"{LAYOUT.orphans}/x", "is not the number of an item, and has no effect"),
        (
            Create(ITEM.failover),
            ITEM.failover,
            "is not ephemeral, so the item is not rescued until this node is removed",
        ),
        (Create(f"{ITEM.sharding}/note"), f"{ITEM.sharding}/note", "does not belong to an item, and has no effect"),
        (Create(f"{LAYOUT.config}/x"), LAYOUT.config, "has nodes below it, so no instance can remove it"),
        (Create(f"{ITEM.instance}/x"), ITEM.instance, "has nodes below it, so no instance can remove it"),
        (Set(LAYOUT.instance(ME), b'{"ip": "10.0.0.7"}', -1), LAYOUT.instance(ME), "the instance's name says"),
        (Set(LAYOUT.instance(ME), b'{"host": "a b"}', -1), LAYOUT.instance(ME), "must be an address or the name of a"),
        (Set(LAYOUT.instance(ME), b"garbage", -1), LAYOUT.instance(ME), "is not a JSON object"),
        (Create(LAYOUT.request("r"), b"run!"), LAYOUT.request("r"), "is not a request, so it is not answered"),
        (Set(LAYOUT.host, b"nobody", -1), LAYOUT.host, "names 'nobody', which is not a registered instance"),
    ],
)
def test_what_was_made_by_hand_is_named_by_its_path(by_hand: Op, path: str, why: str) -> None:
    here = world(2, sharding_total_count=2)
    here.settle()
    here.registry.commit([by_hand])
    found = diagnose(here.view(), ME)
    assert found.keys() == {path}
    assert why in found[path]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"jobName": "job", "cron": 7}', "cron = 7: no job configuration"),
        (b'{"jobName": "job", "requires": ["x"], "colour": 1, "cron": 7}', "cron = 7: no job configuration"),
        (b'{"jobName": "other"}', "/job/config = 'other': the job's name is job and never changes"),
        (b"nonsense", "/job/config = b'nonsense': no job configuration"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named_by_its_key_if_it_is_one_key(data: bytes, why: str) -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.config, data, -1)])
    assert diagnose(here.view(), ME)[LAYOUT.config].startswith(why)


def test_keys_of_a_configuration_that_are_not_known_are_named() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.config, b'{"jobName": "job", "shardingTotalCount": 1, "colour": "red"}', -1)])
    assert "colour" in diagnose(here.view(), ME)[LAYOUT.config]


def test_what_an_instance_lacks_only_it_says() -> None:
    here = world(1, requires=["x"])
    here.registry.commit([knowing(2, "x")], incarnation=2)
    view = here.settle()
    assert leads(here) == "10.0.0.2@-@1"
    assert diagnose(view, ME)[LAYOUT.instance(ME)] == missing_features_text(("x",))
    assert diagnose(view, "10.0.0.2@-@1") == {}


def test_features_are_named_in_short() -> None:
    assert missing_features_text(["x", "y"]).startswith("the job requires 'x', 'y', which this release does not know")
    assert len(missing_features_text(["x" * 10_000])) < 250


def test_a_fault_is_logged_once_and_again_when_it_is_another_and_when_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = ClaimedJob().member

    async def main() -> None:
        known = dict[str, str]()
        for found in (
            {"/a": "is missing"},
            {"/a": "is missing"},
            {"/a": "is not the number of an item, and has no effect", "/b": "is missing"},
            {},
            {},
        ):
            log_findings(member, known, found)
            known = found

    run(main)
    assert caplog.messages == [
        "/a: is missing",
        *("/a: is not the number of an item, and has no effect", "/b: is missing"),
        *("/a: is correct now", "/b: is correct now"),
    ]
    assert {vars(record)["job"] for record in caplog.records} == {"job"}


def test_of_many_faults_the_first_are_logged_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    member = ClaimedJob().member

    async def main() -> None:
        found = {f"/{n}": "is not the number of an item, and has no effect" for n in range(MOST + 7)}
        log_findings(member, {}, found)
        member.limited_log.close()

    run(main)
    assert len(caplog.messages) == MOST + 1
    assert caplog.messages[-1] == "7 more lines were left out, about 1 job: nodes of jobs are wrong"
