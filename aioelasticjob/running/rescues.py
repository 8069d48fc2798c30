"""Rescues orphans on this instance, one after another, before it claims due items."""

from __future__ import annotations

import logging
from zlib import crc32

from anyio import move_on_after

from aioelasticjob.coordination.claims import ClaimResult, Claims
from aioelasticjob.coordination.effects import EndRun, UpdateRequest
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.request_runs import is_cancelled, requested_run
from aioelasticjob.coordination.requests import is_id
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.model import Fire, FireSource, Outcome, Record, Requested
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.missed_reports import EXPIRED
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.stats import ExecutionStats
from aioelasticjob.running.triggers import RunClaimed

VISIBLE_WITHIN = 1.0
"""The longest wait, in seconds, until the view shows that the rescue of this instance's own item has ended."""

log = logging.getLogger(__name__)


class Rescues:
    """Takes the orphans of a job on behalf of one instance."""

    def __init__(
        self, member: Member, state: StateDriver, stats: ExecutionStats, claims: Claims, views: Latest[JobView]
    ) -> None:
        self._member, self._state, self._stats, self._claims, self._views = member, state, stats, claims, views

    def conclude(self, written: EndRun | UpdateRequest) -> None:
        """Report what this instance has ended as the leader: a run that nobody rescues, or a request."""
        if isinstance(written, UpdateRequest):
            due = written.request.moment
            self._state.report(written.expired_items, Passed(due, due), EXPIRED)
            return
        job, item, run = self._member.layout.job, written.item, written.run
        if written.outcome == Outcome.STOPPED:
            text = "%s: the run of item %d was cancelled, and was cut off on %s: it ends as stopped, and is not rescued"
            log.info(text, job, item, run.instance, extra={"job": job, "item": item, "instance": run.instance})
        elif error := self._stats.given_up(self._views.value.config, item, run):
            slot = Passed(run.moment, run.moment)
            self._state.report([item], slot, str(error), run.instance, handled=True)

    async def answer(self, view: JobView, run_claimed: RunClaimed) -> ClaimResult | None:
        """Rescue one orphan, and return its claim; None if none was claimed.

        Each instance begins its search at another orphan, so that several rescuers do not compete for the same one.
        """
        me = self._member.id
        if not (view.orphans and view.config.failover and me in view.active):
            return None
        waiting = sorted(filter(view.awaits_rescue, view.orphans - view.disabled_items))
        if skew := self._state.intolerable_skew():
            self._stats.declined(frozenset(waiting), skew)
            return None
        first = crc32(me.encode()) % len(waiting) if waiting else 0
        for item in waiting[first:] + waiting[:first]:
            try:
                taken = await self._take(view, item, run_claimed)
                self._member.refusals.accepted("to take an orphan")
                if taken is not None and taken.claim is not None:
                    return taken
            except (Suspended, SessionEnded):
                raise
            except RegistryError as error:  # go on with the other orphans
                self._member.refusals.refused("to take an orphan", error)
        return None  # due items are claimed next, without a pause

    async def _take(self, view: JobView, item: int, run_claimed: RunClaimed) -> ClaimResult | None:
        cache, taken = self._state.cache, None
        await cache.learn([item])
        record = cache.record(item)
        if record.completed:
            await self._claims.remove_orphan_mark(item)
        elif record.rescues < view.config.max_rescues and not is_cancelled(view, item, cache.fence(item)):
            # else the leader ends it
            requested = await self._requested(item, record)
            fire = Fire(cache.moment(item), FireSource.FAILOVER, record.parameter, requested=requested)
            taken = await run_claimed(view, fire, frozenset({item}))
            if taken.claim is None and cache.items[item].seen is not None and cache.record(item).begun != record.begun:
                return await self._take(view, item, run_claimed)  # the record that was read first was out of date
            if taken.claim is not None and item in self._state.held:
                with move_on_after(VISIBLE_WITHIN):  # it shall run its next moment together with the others
                    await self._views.until(lambda newer: item not in newer.rescues)
        if item not in self._state.held:
            cache.items[item].forget()
        return taken

    async def _requested(self, item: int, record: Record) -> Requested | None:
        """Return the request for which an orphan's run was made.  It is read: the view may be older than the run."""
        if not is_id(record.request):
            return None
        layout = self._member.layout
        paths = [layout.request(record.request), layout.request_item(record.request, item)]
        return requested_run(item, record, *await self._member.session.get_many(paths))
