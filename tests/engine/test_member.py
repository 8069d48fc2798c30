"""What an instance's node says of it, and what it lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from random import Random

import pytest

from aioelasticjob.core.instances import instance, instances, is_host
from aioelasticjob.engine.member import Member
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.registry.tree import Node, Tree
from tests.engine.test_claims import LAYOUT, ME, ClaimedJob
from tests.support.stats import stat


def member() -> Member:
    return replace(ClaimedJob().member, host="web", pid=4711, features=frozenset({"y", "x"}))


def test_what_a_node_says_is_read_as_it_was_meant() -> None:
    job = ClaimedJob()
    job.registry.now = 2_000.0
    job.registry.commit([Create(LAYOUT.instance("10.0.0.1@-@2"), member().describe(1_500.0), ephemeral=True)], 2)
    seen = instance("10.0.0.1@-@2", job.registry.nodes[LAYOUT.instance("10.0.0.1@-@2")])
    assert (seen.ip, seen.host, seen.pid, seen.incarnation) == ("10.0.0.1", "web", 4711, 2)
    assert (seen.started, seen.up_since, seen.leaving) == (2_000.0, 1_500.0, False)
    assert seen.features == {"x", "y"}


@pytest.mark.parametrize("seed", range(20))
def test_instances_are_the_same_whether_all_are_read_or_only_those_that_have_changed(seed: int) -> None:
    rng, tree, most = Random(seed), Tree(), 0
    known = instances(LAYOUT, tree, {}, ())
    for _ in range(60):
        path = LAYOUT.instance(f"10.0.0.{rng.randrange(4)}@-@1")
        data = rng.choice([b"", b"garbage", member().describe(rng.randrange(9), leaving=rng.random() < 0.3)])
        made = Node.of(data, stat(ephemeral_owner=rng.randrange(2), ctime=float(rng.randrange(5))))
        changes = {path: rng.choice([made, None]), LAYOUT.config: made, f"{path}/below": rng.choice([made, None])}
        tree = tree.replace(changes, 0)
        known = instances(LAYOUT, tree, known, changes)
        assert known == instances(LAYOUT, tree, {}, tuple(tree))
        assert all(one.incarnation for one in known.values())
        most = max(most, len(known))
        assert all(instance(name, tree.get(LAYOUT.instance(name)) or made) == one for name, one in known.items())
    assert most > 1


def test_only_the_session_in_which_an_instance_has_joined_proves_anything_to_it() -> None:
    present = ClaimedJob().member
    assert present.is_proven()
    assert not replace(present, incarnation=present.incarnation + 1).is_proven()


def test_who_knows_nobody_that_was_there_before_does_not_say_since_when() -> None:
    assert "upSince" not in json.loads(member().describe(inf))


def test_who_leaves_says_so_and_keeps_what_others_have_said_and_it_does_not_know() -> None:
    said = json.loads(member().describe(1_500.0, leaving=True, before=b'{"colour": "red", "pid": 1, "features": []}'))
    assert (said["leaving"], said["colour"], said["pid"], said["features"]) == (True, "red", 4711, ["x", "y"])
    assert json.loads(member().describe(1_500.0, before=b"garbage"))["id"] == ME


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        (b'{"requires": ["x", "z", "q"]}', ("z", "q")),
        (b'{"requires": ["x"], "cron": 7}', ()),
        (b"garbage", ()),
        (b'{"requires": 7}', ()),
    ],
)
def test_an_instance_lacks_what_is_required_and_not_known_whatever_else_is_written(
    config: bytes, lacks: tuple[str, ...]
) -> None:
    job = ClaimedJob()
    job.write(Set(LAYOUT.config, config, -1))
    assert member().lacks(job.registry.tree()) == lacks


def test_of_a_job_that_is_not_there_nothing_is_lacking() -> None:
    job = ClaimedJob()
    tree = job.registry.tree().replace({LAYOUT.config: None}, job.registry.zxid)
    assert member().lacks(tree) == ()


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        *[("10.0.0.1", True), ("fe80::1%eth0", True), ("web-1.example.com", True), ("größe", True), ("by_hand", True)],
        *[("", False), (".", False), ("..", False), ("a/b", False), ("a b", False), ("\ud800", False), (None, False)],
    ],
)
def test_what_can_be_a_host(name: object, fits: bool) -> None:
    assert is_host(name) is fits
