"""Moments that nobody was up for: one of those who come back reports them, for the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aioelasticjob.coordination.missed_marks import MARKS_PER_TRANSACTION
from aioelasticjob.coordination.record_cache import MissedMark
from aioelasticjob.coordination.unmonitored import AccountedMoment
from aioelasticjob.coordination.view import JobView
from aioelasticjob.running.clock_skew import ASTRAY, ClockSkewMonitor
from aioelasticjob.running.commands import Command, MarkMissed, ReadAccounted, WriteAccounted
from aioelasticjob.running.missed import MissedMoments
from aioelasticjob.running.schedule import Timetable
from aioelasticjob.running.state import ENDED, Items

NOBODY = "nobody was up when they came"
RETRY_PAUSE = 5.0
"""Seconds after which the registry is asked again to have an absence noted."""
Span = tuple[Timetable, int, int]
"""A schedule, and from when until when it was in force."""


class UnattendedMoments:
    """What one instance reports of the time in which no instance was there; moments are in milliseconds."""

    def __init__(
        self, me: str, clockwork: ClockSkewMonitor, missed: MissedMoments, items: Items, commands: list[Command]
    ) -> None:
        self._me, self._clockwork, self._missed, self._items, self._commands = me, clockwork, missed, items, commands
        self._reported = False
        """Whether what a job without records has missed has been looked up."""
        self._again_at = 0.0
        """When it may be looked up again, by the steady clock, if the registry has refused to have it noted."""

    def report(
        self,
        view: JobView,
        spans: Sequence[Span],
        owed_after: Mapping[int, int],
        then: Callable[[frozenset[int]], None],
    ) -> None:
        """Report for items just gained what nobody has run; of items switched off nothing is missed.

        ``owed_after`` is the moment after which each item owes what comes, and ``spans`` are the schedules until now,
        oldest first, by the registry's clock: this host's may be behind.  All items are marked, or their next holders
        would report it again.  ``then`` is told of those that could not be marked, because the view is old.
        """
        after, missed = dict[int, int](), dict[int, int]()
        for number, owed in owed_after.items():
            item = self._items[number]
            last = max(item.record.slot, item.mark.until, made_at(view, number))
            for table, since, until in spans:
                if passed := table.passed(max(last, since), min(until, owed)):
                    after[number], missed[number] = last, passed.last
        self._mark(view, spans, after, missed, then)

    def _mark(
        self,
        view: JobView,
        spans: Sequence[Span],
        after: Mapping[int, int],
        missed: Mapping[int, int],
        then: Callable[[frozenset[int]], None],
    ) -> None:
        """Mark up to which moment items have missed all; then report it of those that may run here."""
        part = {item: missed[item] for item in sorted(missed)[:MARKS_PER_TRANSACTION]}

        def marked(items: frozenset[int] | None) -> None:
            if items is None:
                return then(frozenset(missed))
            open_ = items - view.disabled_items if self._me in view.eligible else frozenset[int]()
            for table, since, until in spans:
                for newest in sorted({min(part[item], until) for item in open_}):
                    alike = {i: max(after[i], since) for i in open_ if min(part[i], until) == newest}
                    nobody = newest if table is spans[-1][0] else int(min(newest, view.up_since * 1000))
                    self._missed.report(alike, table, nobody, NOBODY)
                    self._missed.report(alike, table, newest, ENDED)
            self._mark(view, spans, after, {item: until for item, until in missed.items() if item not in part}, then)

        if not part:
            return then(frozenset())
        self._commands.append(MarkMissed(view, {item: MissedMark(until) for item, until in part.items()}, marked))

    def report_unrecorded(self, view: JobView, table: Timetable, known_since: int, then: Callable[[], None]) -> None:
        """Let the leader report, once, what came while nobody was up, for all items of a job that keeps no records.

        If nobody has written yet up to when somebody was there, as an older release does not, it counts from now on.
        A registry that refuses to have it noted is asked again after a while, and keeps no item from running.
        """
        if view.config.monitor_execution or view.leader != self._me or self._reported:
            return then()
        if self._clockwork.steady < self._again_at:
            return then()
        self._again_at, before, now = self._clockwork.steady + RETRY_PAUSE, None, self._clockwork.now

        def read(known: AccountedMoment | None) -> None:
            nonlocal before
            if known is None or known == before:
                return then()
            before, last = known, max(known.moment, known_since)
            passed = table.passed(last, int(min(view.up_since * 1000, now + ASTRAY * 1000)))
            until = now if not known.moment else 0 if passed is None else passed.last

            def written(done: bool | None) -> None:
                if done is None:
                    return then()  # which the job's refusals show
                if not done:
                    return self._commands.append(ReadAccounted(read))  # somebody else has written
                if known.moment and passed is not None:
                    items = view.items - view.disabled_items
                    open_ = [item for item in items if item < view.config.sharding_total_count]
                    after = {item: max(last, made_at(view, item)) for item in open_}
                    self._missed.report(after, table, passed.last, NOBODY, late=True)
                self._reported = True
                return then()

            if until:
                return self._commands.append(WriteAccounted(view, until, known.version, written))
            return written(True)

        self._commands.append(ReadAccounted(read))


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


def given_to(instance: str, view: JobView) -> Mapping[int, int]:
    """Return when each of the items that an instance holds was given to it, as a zxid."""
    held = (item for item, holder in view.assignment.items() if holder == instance)
    nodes = {item: view.tree.get(view.layout.item(item).instance) for item in held}
    return {item: node.stat.mzxid for item, node in nodes.items() if node is not None}
