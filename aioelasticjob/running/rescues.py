"""Orphans that this instance rescues: one after another, as long as it has nothing else to do."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from anyio import move_on_after

from aioelasticjob.coordination.claims import Claims
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.model import Fire, FireSource, Record
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.stats import ExecutionStats
from aioelasticjob.running.triggers import RunClaimed

VISIBLE_WITHIN = 1.0
"""Seconds to wait at most until the view shows that an item of ours is rescued no more."""


class Rescues:
    """The orphans of a job, as one instance takes them."""

    def __init__(
        self, member: Member, state: StateDriver, accounts: ExecutionStats, claims: Claims, views: Latest[JobView]
    ) -> None:
        self._member, self._state, self._accounts, self._claims, self._views = member, state, accounts, claims, views

    def given_up(self, item: int, run: Record) -> None:
        """Report a run that this instance, the leader, has given up."""
        if error := self._accounts.given_up(self._views.value.config, item, run):
            self._state.report([item], Passed(run.moment, run.moment), str(error), run.instance)

    async def answer(self, view: JobView, fly: RunClaimed) -> bool:
        """Take one orphan, beginning at a place of our own so that rescuers spread; True if one was taken."""
        me = self._member.id
        if not (view.orphans and view.config.failover and me in view.eligible):
            return False
        waiting = sorted(filter(view.awaits_rescue, view.orphans - view.disabled_items))
        if skew := self._state.intolerable_skew():
            self._accounts.declined(frozenset(waiting), str(skew))
            return False
        first = crc32(me.encode()) % len(waiting) if waiting else 0
        for item in waiting[first:] + waiting[:first]:
            try:
                taken = await self._take(view, item, fly)
                self._member.refusals.accepted("to take an orphan")
                if taken:
                    return True
            except (Suspended, SessionEnded):
                raise
            except RegistryError as error:  # one that cannot be had keeps nobody from the others
                self._member.refusals.refused("to take an orphan", error)
        return False  # and no reason to wait: what is owed goes on

    async def _take(self, view: JobView, item: int, fly: RunClaimed) -> bool:
        cache, taken = self._state.cache, False
        await cache.learn([item])
        record = cache.record(item)
        if record.completed:
            await self._claims.remove_orphan_mark(item)
        elif record.rescues < view.config.max_rescues:  # else the leader gives it up
            fire = Fire(cache.moment(item), FireSource.FAILOVER, record.parameter)
            taken = await fly(view, fire, frozenset({item}))
            if taken and item in self._state.held:  # what it owes by now it is to run together with the others
                await self._seen(lambda newer: item not in newer.rescues)
        if item not in self._state.held:
            cache.forget([item])
        return taken

    async def _seen(self, condition: Callable[[JobView], bool]) -> None:
        """Wait a moment until the view is as it will be."""
        with move_on_after(VISIBLE_WITHIN):
            await self._views.until(condition)
