"""What operators have done to a job: the note that each action leaves, and the log of it in each process concerned.

An action notes in its own transaction who has acted, on the job or on servers in all jobs.  The note is a node of its
own: a flag that an action removes cannot hold a name, and for other releases the data of a flag has a meaning.  A
release that does not know the note ignores it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.declaration import Difference, differences, shown
from aioelasticjob.core.layout import CALENDARS, SWITCHES, calendar_path, server_switch
from aioelasticjob.core.nodes import order
from aioelasticjob.core.pauses import pause_in
from aioelasticjob.core.requests import CANCELLED, Cancellation, Request
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.member import Member
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.logging import logger
from aioelasticjob.registry.tree import Node, parent

ANYBODY = "an operator"
"""The name of an operator whose name is not known."""
MAX_PATHS = 20
"""How many nodes a note names; if there are more, it names their parents."""
MAX_NAME = 100
"""Characters of a name that are shown."""
UNDONE: Final = {"paused": "resumed", "disabled": "enabled"}
"""By what an operator can do to a server, the word for undoing it."""

log = logger(__name__)


def encode_note(by: str, paths: Collection[str]) -> bytes:
    """Return the data of a note."""
    named = paths if len(paths) <= MAX_PATHS else {parent(path) for path in paths}
    return json.dumps({"by": by, "paths": sorted(named)[:MAX_PATHS]}).encode()


def shown_name(by: str) -> str:
    """Return the name of an operator as it is shown: short, on one line, and never empty."""
    return "".join(filter(str.isprintable, by))[:MAX_NAME] or ANYBODY


def who_acted(path: str, note: Node | None, since: int) -> str:
    """Return who has changed a node, if a note says it that is newer than the transaction ``since``; else nothing."""
    if note is None or note.stat.mzxid <= since:
        return ""
    fields = json_object(note.data)
    by = fields.get("by")
    paths = fields.get("paths")
    if not isinstance(by, str) or not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
        return ""  # somebody has written something else there
    is_named = path in paths or parent(path) in paths
    return shown_name(by) if is_named else ""


def log_operator_actions(member: Member, before: JobView, after: JobView) -> None:
    """Log what an operator has changed between two views."""
    for text in operator_actions(before, after, member):
        member.log_limited(log, "operators change jobs", text, logging.INFO)


def log_overwritten(member: Member, before: JobConfig | None, after: JobConfig) -> None:
    """Log which settings in the registry this instance has replaced by its own, as ``overwrite`` asks.

    ``before`` is None if what the registry had could not be used.
    """
    if before is None:
        done = ["this instance has replaced the configuration in the registry, which could not be used"]
    else:
        changes = differences(before, after)
        done = [_changed(f"this instance has changed the setting {one.setting}", one) for one in changes]
    for what in done:
        text = f"{what}, because its code says so and has overwrite=True"
        member.log_limited(log, "instances overwrite settings", text, logging.INFO)


def operator_actions(before: JobView, after: JobView, member: Member) -> Iterator[str]:
    """Yield a sentence for each thing that an operator has done to the job between two views."""
    layout = member.layout
    ip = member.ip
    change = _Change(before, after)
    yield from _switched(change, {"paused": layout.paused}, "the job")
    here = {"paused": layout.server_paused(ip), "disabled": layout.server_disabled(ip)}
    yield from _switched(change, here, f"this server, {ip}")
    everywhere = {flag: server_switch(ip, flag) for flag in UNDONE}
    yield from _switched(change, everywhere, f"this server, {ip}, in all jobs")
    off = after.disabled_items - before.disabled_items
    on = (before.disabled_items - after.disabled_items) & after.items
    for items, done in ((off, "disabled"), (on, "enabled")):
        if items:
            path = layout.item(min(items)).disabled
            yield f"{change.by(path)} has {done} {listed_items(items)}"
    shutdown = layout.shutdown(member.id)
    if shutdown in after.tree and shutdown not in before.tree:
        yield f"{change.by(shutdown)} has asked this instance to leave"
    if after.config != before.config:
        yield from _configured(change, layout.config)
    for name in after.config.calendar:
        path = calendar_path(name)
        was_there = path in before.common
        is_there = path in after.common
        if is_there and before.common.get(path) != after.common.get(path):
            yield f"{change.by(path)} has {'changed' if was_there else 'made'} the calendar {name}"
        elif was_there and not is_there:
            yield f"{change.by(path)} has removed the calendar {name}: the job runs nothing until there is one"
    yield from _requested(change)


@dataclass(frozen=True, slots=True)
class _Change:
    """Two views of a job, one after the other."""

    before: JobView
    after: JobView

    def by(self, path: str) -> str:
        """Return who has changed a node between the views, as far as that is known."""
        before = self.before
        after = self.after
        own = self.after.layout.operator
        common = before.common, after.common
        for then, now, note in ((before.tree, after.tree, own), (*common, SWITCHES), (*common, CALENDARS)):
            last = then.get(note)
            since = 0 if last is None else last.stat.mzxid
            if by := who_acted(path, now.get(note), since):
                return by
        return ANYBODY


def _configured(change: _Change, path: str) -> Iterator[str]:
    """Yield a sentence for each setting that was changed."""
    before = change.before.config
    after = change.after.config
    by = change.by(path)
    for one in differences(before, after):
        if by == ANYBODY or one.setting == "requires":  # which also a request or an instance may change
            who = f"the setting {one.setting} was changed"
        else:
            who = f"{by} has changed the setting {one.setting}"
        yield _changed(who, one)


def _changed(who: str, one: Difference) -> str:
    """Return a sentence with both values of a setting; without them if they are options, which may hold passwords."""
    is_secret = isinstance(one.declared, dict) or isinstance(one.applies, dict)
    return who if is_secret else f"{who} from {shown(one.declared)} to {shown(one.applies)}"


def _requested(change: _Change) -> Iterator[str]:
    """Yield a sentence for each request that was made, paused, resumed or cancelled, and for each wish to stop runs."""
    before = change.before
    after = change.after
    layout = change.after.layout
    if layout.requests not in after.tree:
        return
    known = before.request_nodes.held
    now = after.request_nodes.held
    if now is known:
        return
    changed = [one for name, one in now.items() if one is not known.get(name)]
    requests = [one for one in changed if isinstance(one, Request)]
    wishes = [one for one in changed if isinstance(one, Cancellation)]
    for one in sorted(requests, key=order):
        path = layout.request(one.id)
        last = known.get(one.id)
        if not isinstance(last, Request):
            yield f"{shown_name(one.by)} has asked for runs: the request {one.id}"
            continue
        if one.stopped == CANCELLED and not last.stopped:
            yield f"{change.by(path)} has cancelled the request {one.id}"
        if one.paused != last.paused:
            done = "paused" if one.paused else "resumed"
            yield f"{change.by(path)} has {done} the request {one.id}"
    for wish in sorted(wishes, key=lambda wish: wish.id):
        if not isinstance(known.get(wish.id), Cancellation):
            yield f"{shown_name(wish.by)} has asked to stop the runs of {listed_items(wish.fences)}"


def _switched(change: _Change, flags: Mapping[str, str], what: str) -> Iterator[str]:
    """Yield a sentence for each flag, by its word, that was set or removed, or whose pause has ended by itself."""
    for done, path in flags.items():
        before = change.before.flag(path)
        after = change.after.flag(path)
        if (before is None) == (after is None):
            continue
        if after is not None:
            until = pause_in(after).until
            end = "" if until == inf else f" until {time_text(moment(until))}"
            yield f"{change.by(path)} has {done} {what}{end}"
        elif path in change.after.tree or path in change.after.common:
            yield f"the pause of {what} has ended at its time"
        else:
            yield f"{change.by(path)} has {UNDONE[done]} {what}"
