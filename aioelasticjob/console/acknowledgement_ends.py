"""Ends acknowledgements: at their end, when their reason is gone, and when it is a new one."""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

import anyio

from aioelasticjob.console.acknowledgements import Acknowledgement
from aioelasticjob.console.audit import AuditEntry
from aioelasticjob.console.state import ConsoleState

CHECK_INTERVAL: Final = 2.0
"""Seconds between two looks at the acknowledgements."""
CONSOLE: Final = "(console)"
"""Stands in the audit log for what nobody has done; no user can be called so."""

log = logging.getLogger(__name__)


async def watch(state: ConsoleState) -> None:
    """End what is over, until cancelled."""
    while True:
        try:
            await end_what_is_over(state)
        except sqlite3.Error as error:  # such as a full disk; it is tried again
            log.warning("cannot end acknowledgements", extra={"reason": str(error)})
        await anyio.sleep(CHECK_INTERVAL)


async def end_what_is_over(state: ConsoleState) -> None:
    """End the acknowledgements that do not hold any more, with an entry of the audit log each."""
    for one in list(state.storage.acknowledgements):
        if (why := why_over(state, one)) is not None:
            await state.storage.acknowledgements.remove(one)
            entry = AuditEntry(CONSOLE, "", "end acknowledgement", one.job, one.registry, before=facts(one))
            await state.storage.audit.note(entry, why)
            show_anew(state, one)


def why_over(state: ConsoleState, one: Acknowledgement) -> str | None:
    """Return why an acknowledgement is over; None while it holds, and while nobody knows the state of its job."""
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


def show_anew(state: ConsoleState, one: Acknowledgement) -> None:
    """Let the pages show the job of an acknowledgement anew."""
    if (registry := state.registries.get(one.registry)) is not None:
        registry.touch([one.job])


def facts(one: Acknowledgement) -> dict[str, object]:
    """Return an acknowledgement for the audit log."""
    return {"reason": one.subject, "details": sorted(one.details), "who": one.who, "note": one.note, "until": one.until}
