"""Moments that nobody was up for: one of those who come back reports them, for the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyio import current_time

from aioelasticjob.coordination.absence import MARKED_AT_ONCE, mark
from aioelasticjob.coordination.attendance import advance_accounted, read_accounted
from aioelasticjob.coordination.ledger import Ledger, Mark
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.running.clockwork import ASTRAY
from aioelasticjob.running.misses import Misses
from aioelasticjob.running.schedule import Timetable

NOBODY = "nobody was up when they came"
AGAIN_AFTER = 5.0
"""Seconds after which the registry is asked again to have an absence noted."""
ENDED = "the schedule was changed before it could be run"
Span = tuple[Timetable, int, int]
"""A schedule, and from when until when it was in force."""


class Absence:
    """What one instance reports of the time in which no instance was there; moments are in milliseconds."""

    def __init__(self, member: Member, ledger: Ledger, misses: Misses) -> None:
        self._member, self._ledger, self._misses = member, ledger, misses
        self._reported = False
        """Whether what a job without records has missed has been looked up."""
        self._again_at = 0.0
        """When it may be looked up again, by the loop's clock, if the registry has refused to have it noted."""

    async def report(self, view: JobView, spans: Sequence[Span], owed_after: Mapping[int, int]) -> frozenset[int]:
        """Report for items just gained what nobody has run; of items switched off nothing is missed.

        ``owed_after`` is the moment after which each item owes what comes, and ``spans`` are the schedules until now,
        oldest first, by the registry's clock: this host's may be behind.  All items are marked, or their next holders
        would report it again.  Return those that could not be marked, for the view is old.
        """
        after, missed = dict[int, int](), dict[int, int]()
        for item, owed in owed_after.items():
            last = max(self._ledger.record(item).slot, self._ledger.items[item].mark.until, made_at(view, item))
            for table, since, until in spans:
                if passed := table.passed(max(last, since), min(until, owed)):
                    after[item], missed[item] = last, passed.last
        open_ = missed.keys() - view.disabled_items if self._member.id in view.eligible else frozenset[int]()
        while missed:
            part = {item: missed[item] for item in sorted(missed)[:MARKED_AT_ONCE]}
            said = {item: Mark(until) for item, until in part.items()}
            if (marked := await mark(self._member, self._ledger, view, said)) is None:
                break
            for table, since, until in spans:
                for newest in sorted({min(part[item], until) for item in marked & open_}):
                    alike = {i: max(after[i], since) for i in marked & open_ if min(part[i], until) == newest}
                    nobody = newest if table is spans[-1][0] else int(min(newest, view.up_since * 1000))
                    self._misses.tell(alike, table, nobody, NOBODY)
                    self._misses.tell(alike, table, newest, ENDED)
            missed = {item: until for item, until in missed.items() if item not in part}
        return frozenset(missed)

    async def report_unrecorded(self, view: JobView, table: Timetable, known_since: int, now: int) -> None:
        """Let the leader report, once, what came while nobody was up, for all items of a job that keeps no records.

        If nobody has written yet up to when somebody was there, as an older release does not, it counts from now on.
        A registry that refuses to have it noted is asked again after a while, and keeps no item from running.

        Raises:
            Suspended: there is no connection; nothing was reported.
            SessionEnded: the session was lost.
        """
        if view.config.monitor_execution or view.leader != self._member.id or self._reported:
            return
        if current_time() < self._again_at:
            return
        self._again_at = current_time() + AGAIN_AFTER
        known, before = await read_accounted(self._member), None
        while known is not None and known != before:
            last = max(known[0], known_since)
            passed = table.passed(last, int(min(view.up_since * 1000, now + ASTRAY * 1000)))
            until = now if not known[0] else 0 if passed is None else passed.last
            try:
                if until and not await advance_accounted(self._member, view, until, known[1]):
                    before, known = known, await read_accounted(self._member)
                    continue
            except (Suspended, SessionEnded):
                raise
            except RegistryError:  # which the job's refusals show
                return
            if known[0] and passed is not None:
                items = [item for item in view.items - view.disabled_items if item < view.config.sharding_total_count]
                after = {item: max(last, made_at(view, item)) for item in items}
                self._misses.tell(after, table, passed.last, NOBODY, late=True)
            self._reported = True
            return


def made_at(view: JobView, item: int) -> int:
    """Return when the item was made, in milliseconds since the epoch; 0 if that is unknown."""
    node = view.tree.get(view.layout.item(item).sharding)
    return 0 if node is None else int(node.stat.ctime * 1000)


def made_by(view: JobView, item: int) -> int:
    """Return the transaction that made an item, 0 if that is unknown."""
    node = view.tree.get(view.layout.item(item).sharding)
    return 0 if node is None else node.stat.czxid


def given_at(view: JobView, item: int) -> int:
    """Return when the item was given to its holder, in milliseconds since the epoch; 0 if it has none."""
    node = view.tree.get(view.layout.item(item).instance)
    return 0 if node is None else int(node.stat.mtime * 1000)
