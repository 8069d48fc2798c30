"""Waits for items that this instance holds and another instance still runs, until it may run them here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from anyio import sleep

from aioelasticjob.coordination.commit import until_answered
from aioelasticjob.coordination.missed_marks import mark_misfired
from aioelasticjob.coordination.request_runs import ended_as
from aioelasticjob.coordination.settlements import Settlements
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import SessionEnded
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.scheduler import TaskScope

PURPOSE = "to read which items run elsewhere"
"""The purpose of the reads, for the log line if the registry refuses them."""
LOOK_AGAIN_AFTER = 1.0
"""Seconds between two reads of the record of a run that the leader has yet to end."""


class ItemReleases:
    """Waits until items run nowhere.  For each such item it tells the state, and then calls ``after``."""

    def __init__(
        self, driver: StateDriver, settlements: Settlements, tasks: TaskScope, after: Callable[[], None]
    ) -> None:
        self._member, self._driver, self._settlements = driver.member, driver, settlements
        self._tasks, self._after_release = tasks, after

    def follow(self, items: Iterable[int], missed: tuple[JobView, int] | None = None) -> None:
        """Wait for each of these items.  If they ``missed`` a moment of a view, first mark that for operators."""
        for item in sorted(items):
            self._tasks.start_soon(self._until_free, item, missed)

    async def release_left(self) -> None:
        """Remove the locks that the job's earlier life has left under this session, also of other instances' items."""
        with suppress(SessionEnded):  # the end of the session has removed them
            await self._until_answered(
                lambda: self._settlements.release_all(hand_over=self._driver.state.view.config.failover)
            )

    async def _until_free(self, item: int, missed: tuple[JobView, int] | None) -> None:
        if missed is not None:
            view, slot = missed
            await mark_misfired(self._member, self._driver.cache, view, item, slot)
        with suppress(SessionEnded):
            await self._until_answered(lambda: self._ended(item))
            self._driver.released(item)
            self._after_release()

    async def _ended(self, item: int) -> None:
        await self._settlements.release(item, hand_over=self._driver.state.view.config.failover)
        await self._member.session.wait_deleted(self._member.layout.item(item).running)
        while self._driver.state.items[item].seen is not None:
            await self._driver.cache.learn([item])  # first the record: the offset read next is then the ended run's
            await self._driver.offsets.read([item])
            if not self._is_to_be_ended(item):
                return
            await sleep(LOOK_AGAIN_AFTER)

    def _is_to_be_ended(self, item: int) -> bool:
        """Whether the leader has yet to end the item's run, because it was cancelled or rescued too often.

        This changes the record only, and instances do not mirror records.  If this instance did not read the record
        again, the item would count as being rescued, and not run, until another node of the job changes.
        """
        view, entry = self._driver.state.view, self._driver.state.items[item]
        if not view.config.failover or entry.seen is None:  # the item may have moved to another instance meanwhile
            return False
        return entry.cut_off and bool(ended_as(view, item, entry.record, entry.fence))

    async def _until_answered(self, attempt: Callable[[], Awaitable[None]]) -> None:
        await until_answered(self._member, PURPOSE, attempt)
        self._member.refusals.accepted(PURPOSE)
