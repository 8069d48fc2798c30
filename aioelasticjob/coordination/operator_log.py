"""Logs what operators have done to a job, in each process that it concerns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from aioelasticjob.coordination.declaration import differences, shown
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.layout import server_switch
from aioelasticjob.registry.tree import Tree

MAX_NAMED = 10
"""How many items a line names."""
UNDONE: Final = {"paused": "resumed", "disabled": "enabled"}
"""By what an operator can do to a server, the word for undoing it."""

log = logging.getLogger(__name__)


class OperatorLog:
    """Compares each view of a job with the one before, and logs what an operator has changed meanwhile."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._last: JobView | None = None

    def log_changes(self, view: JobView) -> None:
        """Log what has changed since the last call; the first call logs nothing."""
        last, self._last = self._last, view
        if last is not None and last is not view:
            for text in operator_actions(last, view, self._member):
                log.info("%s: %s", self._member.layout.job, text, extra={"job": self._member.layout.job})


def operator_actions(before: JobView, after: JobView, member: Member) -> Iterator[str]:
    """Yield a sentence for each thing that an operator has done to the job between two views."""
    layout, ip = member.layout, member.ip
    yield from _switched(before.tree, after.tree, {"paused": layout.paused}, "the job")
    here = {"paused": layout.server_paused(ip), "disabled": layout.server_disabled(ip)}
    yield from _switched(before.tree, after.tree, here, f"this server, {ip}")
    everywhere = {flag: server_switch(ip, flag) for flag in UNDONE}
    yield from _switched(before.switches, after.switches, everywhere, f"this server, {ip}, in all jobs")
    if off := after.disabled_items - before.disabled_items:
        yield f"an operator has disabled {_listed(off)}"
    if on := (before.disabled_items - after.disabled_items) & after.items:
        yield f"an operator has enabled {_listed(on)}"
    if member.id in after.triggered and member.id not in before.triggered:
        yield "an operator has triggered this instance"
    if (path := layout.shutdown(member.id)) in after.tree and path not in before.tree:
        yield "an operator has asked this instance to leave"
    if after.config != before.config:
        for one in differences(before.config, after.config):
            secret = isinstance(one.declared, dict) or isinstance(one.applies, dict)  # options may hold passwords
            values = "" if secret else f" from {shown(one.declared)} to {shown(one.applies)}"
            yield f"the setting {one.setting} was changed{values}"


def _switched(before: Tree, after: Tree, flags: Mapping[str, str], what: str) -> Iterator[str]:
    """Yield a sentence for each flag, by its word, that was set or removed."""
    for done, path in flags.items():
        if (path in after) != (path in before):
            yield f"an operator has {done if path in after else UNDONE[done]} {what}"


def _listed(items: Iterable[int]) -> str:
    found = sorted(items)
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"{'item' if len(found) == 1 else 'items'} {', '.join(map(str, found[:MAX_NAMED]))}{more}"
