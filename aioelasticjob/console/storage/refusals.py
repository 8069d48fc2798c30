"""What was refused again and again, for the audit log: the first of some minutes are entries, the others share one."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aioelasticjob.clock import Clock
from aioelasticjob.console.storage.audit import Audit, AuditEntry
from aioelasticjob.console.storage.database import DatabaseUnwritable
from aioelasticjob.ground.repeat_limit import RepeatLimit

WINDOW: Final = 300.0
"""Seconds in which so many refusals of a kind are entries, and further ones are only counted."""
MAX_KEYS: Final = 1000
"""Names and addresses that are counted singly: an attacker who makes up names must not fill the memory."""
NAMED: Final = 10
"""Names and addresses that an entry lists."""


class Refusals:
    """Writes refusals of one kind down without letting anybody fill the audit log.

    ``singly`` of them are entries in each ``WINDOW``; ``action`` and ``why`` describe the others.
    """

    def __init__(self, audit: Audit, clock: Clock, action: str, why: str, singly: int = 1) -> None:
        self._audit = audit
        self._clock = clock
        self._action = action
        self._why = why
        self._singly = singly
        self._limit = RepeatLimit(WINDOW)
        self._names = Counter[str]()
        self._addresses = Counter[str]()

    async def note(self, entry: AuditEntry, why: str) -> None:
        """Write a refusal down, or count it if enough others have been written down shortly before."""
        if self._limit.renew(self._clock.now()):
            await self.flush()
        if not self._limit.admits(self._action, most=self._singly):
            for counter, key in ((self._names, entry.who), (self._addresses, entry.address)):
                counter[key if key in counter or len(counter) < MAX_KEYS else "others"] += 1
            return
        await self._audit.note(entry, why, done=False)

    async def flush(self) -> None:
        """Write one entry for the refusals that were only counted; the log is complete then."""
        count = self._limit.take_left_out().total()
        if not count:
            return
        names = self._names
        addresses = self._addresses
        self._names = Counter()
        self._addresses = Counter()
        asked = {"attempts": count, "names": _listed(names), "addresses": _listed(addresses)}
        try:
            await self._audit.note(
                AuditEntry("", "", self._action, asked=asked), f"{count} more {self._why}", done=False
            )
        except DatabaseUnwritable:  # they are counted until it can be written again
            self._limit.leave_out(self._action, count)
            self._names += names
            self._addresses += addresses


def _listed(counter: Counter[str]) -> str:
    listed = [f"{key} ({number})" for key, number in counter.most_common(NAMED)]
    more = len(counter) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")
