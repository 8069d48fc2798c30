"""Sign-ins that failed, for the audit log: the first of some minutes is an entry, and those after it share one."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aioelasticjob.clock import Clock
from aioelasticjob.console.audit import Audit, AuditEntry
from aioelasticjob.console.database import DatabaseUnwritable

WINDOW: Final = 300.0
"""Seconds after an entry in which further failures are only counted."""
MAX_KEYS: Final = 1000
"""Names and addresses that are counted singly: an attacker who makes up names must not fill the memory."""
NAMED: Final = 10
"""Names and addresses that an entry lists."""


class FailedSignIns:
    """Writes failed sign-ins down without letting anybody fill the audit log."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit, self._clock = audit, clock
        self._since = float("-inf")
        self._count = 0
        self._names, self._addresses = Counter[str](), Counter[str]()

    async def note(self, name: str, address: str) -> None:
        """Write a failure down, or count it if another one has been written down shortly before."""
        now = self._clock.now()
        if now < self._since + WINDOW:
            self._count += 1
            for counter, key in ((self._names, name), (self._addresses, address)):
                counter[key if key in counter or len(counter) < MAX_KEYS else "others"] += 1
            return
        self._since = now
        await self.flush()
        await self._audit.note(AuditEntry(name, address, "sign in"), "wrong name or password", done=False)

    async def flush(self) -> None:
        """Write one entry for the failures that were only counted; the log is complete then."""
        if not self._count:
            return
        count, names, addresses = self._count, self._names, self._addresses
        self._count, self._names, self._addresses = 0, Counter(), Counter()
        asked = {"attempts": count, "names": _listed(names), "addresses": _listed(addresses)}
        entry, summary = AuditEntry("", "", "sign in", asked=asked), f"{count} more with a wrong name or password"
        try:
            await self._audit.note(entry, summary, done=False)
        except DatabaseUnwritable:  # they are counted until it can be written again
            self._count += count
            self._names += names
            self._addresses += addresses


def _listed(counter: Counter[str]) -> str:
    listed = [f"{key} ({number})" for key, number in counter.most_common(NAMED)]
    more = len(counter) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")
