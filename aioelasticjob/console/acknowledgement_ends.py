"""Ends acknowledgements: when their time is over, when their reason is gone, or when the reason is a new one."""

from __future__ import annotations

import sqlite3
from typing import Final

import anyio

from aioelasticjob.console.state import ConsoleState
from aioelasticjob.console.storage.audit import AuditEntry
from aioelasticjob.console.storage.database import DatabaseUnwritable
from aioelasticjob.console.watching.acknowledgements import Acknowledgement
from aioelasticjob.logging import logger

CHECK_INTERVAL: Final = 2.0
"""Seconds between two checks of the acknowledgements."""
CONSOLE: Final = "(console)"
"""The name in the audit log for what the console does by itself; no user can have this name."""

log = logger(__name__)


async def watch(state: ConsoleState) -> None:
    """End acknowledgements that are over, again and again until cancelled."""
    while True:
        try:
            await end_those_over(state)
        except DatabaseUnwritable:  # the database has logged it; the next round tries again
            pass
        except sqlite3.Error as error:
            log.warning("cannot end acknowledgements", extra={"reason": str(error)})
        await anyio.sleep(CHECK_INTERVAL)


async def end_those_over(state: ConsoleState) -> None:
    """End the acknowledgements that no longer hold, and write an entry of the audit log for each."""
    for one in list(state.storage.acknowledgements):
        if (why := reason_for_end(state, one)) is not None:
            await state.storage.acknowledgements.remove(one)
            entry = AuditEntry(CONSOLE, "", "end acknowledgement", one.job, one.registry, before=facts(one))
            await state.storage.audit.note(entry, why)
            render_again(state, one)


def reason_for_end(state: ConsoleState, one: Acknowledgement) -> str | None:
    """Return why an acknowledgement is over; None if it still holds, or if the state of its job is not known."""
    if state.clock.now() >= one.until:
        return "its time is over"
    registry = state.registries.get(one.registry)
    if registry is None:
        return None
    snapshot = registry.snapshot.value
    if not snapshot.read or snapshot.lost is not None:
        return None
    status = snapshot.jobs.get(one.job)
    if status is None:
        return "the job is not in the registry any more"
    found = [reason for reason in state.health_of(registry, snapshot).reasons(status) if reason.subject == one.subject]
    if not found:
        return "the reason is gone"
    return None if all(map(one.covers, found)) else "the reason is a new one"


def render_again(state: ConsoleState, one: Acknowledgement) -> None:
    """Let the pages render the job of an acknowledgement again."""
    if (registry := state.registries.get(one.registry)) is not None:
        registry.touch([one.job])


def facts(one: Acknowledgement) -> dict[str, object]:
    """Return an acknowledgement for the audit log."""
    return {"reason": one.subject, "details": sorted(one.details), "who": one.who, "note": one.note, "until": one.until}
