"""Who coordinates a job, and when an instance has been dismissed."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.coordinator import dismissed
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import read
from aioelasticjob.registry.transaction import Delete
from aioelasticjob.testing import run
from tests.coordination.test_membership import CONFIG, LAYOUT, ME, arrival, nothing


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "there"])
def test_whoever_does_not_see_himself_looks_before_he_leaves(removed: bool) -> None:
    async def main() -> None:
        async with arrival(nothing) as arriving:
            arriving.trees.set(await arriving.seen())
            member = Member(arriving.session, LAYOUT, ME, "10.0.0.1", "host", 1, arriving.session.incarnation)
            stale = read(arriving.trees.value.replace({LAYOUT.instance(ME): None}, 0), LAYOUT, CONFIG)
            assert ME not in stale.instances
            if removed:
                await arriving.session.commit([Delete(LAYOUT.instance(ME))], incarnation=member.incarnation)
            assert await dismissed(member, stale) is removed

    run(main)
