"""An instance to which the registry refuses something says so in its own node, and takes it back."""

from __future__ import annotations

import json

import pytest

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.instance_nodes import instance_data
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import join
from aioelasticjob.coordination.refusal_note import KEY, LONGEST_REASON, note_refusals, noted_refusals
from aioelasticjob.coordination.refusals import QUIET_FOR, Refusals
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.session import open_session
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import VirtualClock, run
from tests.support.simulated_registry import simulated

LAYOUT, ME = Layout("job"), "10.0.0.1@-@1"
CONFIG = JobConfig.build(job_name="job", cron="0 * * * * ?")


def test_what_is_refused_is_noted_once_and_taken_back_when_it_is_over() -> None:
    async def main() -> None:
        now = [100.0]
        async with simulated() as world, open_session(world.settings(), clock=VirtualClock(), seed=1) as session:
            refusals = Refusals("job", lambda: now[0])
            member = Member(session, LAYOUT, ME, "10.0.0.1", "host", 1, session.incarnation, refusals=refusals)
            await join(member, CONFIG, Latest(Tree()), switches=Tree())

            async def noted() -> tuple[tuple[tuple[str, str, float], ...], int]:
                tree = (await session.subtree(LAYOUT.mirrored)).replace({}, session.zxid)
                await note_refusals(member, tree)
                node = await session.get(LAYOUT.instance(ME))
                assert node is not None
                return noted_refusals(instance_data(node.data)), node.stat.version

            (before, version) = await noted()
            assert (before, version) == ((), 0)  # nothing to say, nothing written
            refusals.refused("to settle items", failure(-125, "/job/" + "x" * 1000))
            ((what, why, since),), version = await noted()
            assert (what, len(why), since, version) == ("to settle items", LONGEST_REASON, 100.0, 1)
            now[0] += 1
            refusals.refused("to settle items", failure(-125, "/job/execution/0"))
            assert (await noted())[1] == 1  # it is the same refusal
            now[0] += QUIET_FOR
            assert await noted() == ((), 2)
            node = await session.get(LAYOUT.instance(ME))
            assert node is not None
            assert instance_data(node.data)["host"] == "host"  # the rest of the node stays

    run(main)


@pytest.mark.parametrize("said", [None, 7, "x", [7], [{"what": 1, "why": "x", "since": 1}], [{"what": "x"}]])
def test_a_note_that_somebody_has_garbled_is_left_out(said: object) -> None:
    assert noted_refusals(json.loads(json.dumps({KEY: said}))) == ()
