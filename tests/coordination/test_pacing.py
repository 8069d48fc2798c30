"""When an instance coordinates its job next, and when the leader looks for runs that were cut off."""

from __future__ import annotations

from aioelasticjob.coordination.pacing import Pacing
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import run
from tests.coordination.test_claims import LAYOUT, ME, Desk


def test_the_leader_looks_for_cut_off_runs_when_members_or_orphans_change_and_on_every_tick() -> None:
    desk = Desk()

    async def main() -> None:
        rest = Pacing()
        desk.config = desk.config.changed(failover=True)
        desk.write(Set(LAYOUT.config, desk.config.to_json(), -1), Create(LAYOUT.host, ME.encode()))

        def looks(*, tick: bool = False) -> bool:
            return rest.looks_for_orphans(desk.member, desk.view(), tick)

        assert (looks(), looks(), looks(tick=True), looks()) == (True, False, True, False)
        desk.write(Create(LAYOUT.item(0).orphan))  # by its runner, who stays; it may have been rescued too often
        assert (looks(), looks()) == (True, False)
        desk.write(Delete(LAYOUT.item(0).orphan))
        assert (looks(), looks()) == (True, False)
        desk.registry.commit([Create(LAYOUT.instance("10.0.0.2@-@1-b"), ephemeral=True)], 2)
        assert (looks(), looks()) == (True, False)

    run(main, seed=0)
