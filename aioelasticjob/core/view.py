"""A view gives meaning to the mirrored nodes of a job.  It decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import inf
from typing import TypeAlias

from aioelasticjob.config.job import JobConfig, required
from aioelasticjob.core import records
from aioelasticjob.core.declaration import with_known_names
from aioelasticjob.core.instances import address_of, instances
from aioelasticjob.core.layout import SWITCHES, Layout, calendar_path, server_switch
from aioelasticjob.core.nodes import (
    NO_ITEMS,
    NO_REQUESTS,
    ItemNodes,
    RequestNodes,
    item_nodes,
    items_named,
    order,
    request_nodes,
)
from aioelasticjob.core.pauses import Pause, pause_in
from aioelasticjob.core.requests import Request
from aioelasticjob.core.schedules import Schedules
from aioelasticjob.core.strategies import in_order
from aioelasticjob.core.upstreams import Upstreams, upstreams_of
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.jobs.kinds import fits
from aioelasticjob.model import NONE, Fire, Instance
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.schedules import Schedule
from aioelasticjob.schedules.calendars import Calendar, calendar_in

_Derived: TypeAlias = tuple[ItemNodes, RequestNodes, Mapping[str, Instance]]
"""What is read anew of a newer tree only as far as nodes have changed."""
NOTHING: _Derived = (NO_ITEMS, NO_REQUESTS, {})


@dataclass(frozen=True)
class JobView:
    """The nodes of one job in the registry at one point in time."""

    layout: Layout
    tree: Tree
    config: JobConfig
    """The newest valid configuration, except that ``requires`` is always the newest."""
    fault: str | None = None
    """What is wrong with the configuration now in the registry: it is invalid, or a name in it is unknown here."""
    common: Tree = field(default_factory=Tree)
    """The nodes that all jobs have in common: which servers are switched off in all jobs, and the calendars."""
    unusable: str | None = None
    """Why this process cannot run the job by the configuration now in the registry; None if it can."""
    time: float = -inf
    """The registry's time for which the view holds, in seconds since the epoch: pauses may have ended by then."""

    @cached_property
    def missing_parents(self) -> tuple[str, ...]:
        """The nodes that every instance mirrors and that always have to exist, as far as they do not."""
        return self.tree.missing(self.layout.mirrored_parents)

    @cached_property
    def instances(self) -> Mapping[str, Instance]:
        """All registered instances, by id."""
        return self._derived[2]

    @cached_property
    def staying(self) -> tuple[str, ...]:
        """The instances that may lead and be given items, in the order that strategies use."""
        return tuple(one for one in self._admitted if not self.instances[one].leaving)

    @cached_property
    def eligible(self) -> tuple[str, ...]:
        """The instances that may hold items: those that stay; if none stays, those that are leaving."""
        return self.staying or self._admitted

    @cached_property
    def active(self) -> frozenset[str]:
        """The instances that may claim: those that may hold items, unless the job or their server is paused."""
        return frozenset(one for one in self.eligible if not self.paused_by(one))

    @cached_property
    def paused(self) -> bool:
        """Whether the whole job is paused."""
        return self.flag(self.layout.paused) is not None

    def flag(self, path: str) -> Node | None:
        """Return the node of an operator's flag; None if there is none, or if it is a pause that has ended."""
        node = self._flag_node(path)
        if node is None or pause_in(node).is_over(self.time):
            return None
        return node

    @cached_property
    def pause_ends_at(self) -> float:
        """When the next pause ends by itself, after the time of this view; infinity if none does."""
        ends = (pause.until for pause in self._pauses.values() if not pause.is_over(self.time))
        return min(ends, default=inf)

    @cached_property
    def _pauses(self) -> Mapping[str, Pause]:
        """The pauses that have a time at which they end, or have ended, by the paths of their flags."""
        servers = (server_switch(ip, "paused") for ip in self.common.children(SWITCHES))
        pauses = dict[str, Pause]()
        for path in (self.layout.paused, *servers):
            node = self._flag_node(path)
            if node is not None and (pause := pause_in(node)).until != inf:
                pauses[path] = pause
        return pauses

    def _flag_node(self, path: str) -> Node | None:
        return self.tree.get(path) or self.common.get(path)

    def is_disabled(self, ip: str) -> bool:
        """Whether a server is disabled, in this job or in all jobs."""
        return self.layout.server_disabled(ip) in self.tree or server_switch(ip, "disabled") in self.common

    def paused_by(self, instance: str) -> str | None:
        """Return the node that pauses the job, or the server of an instance, which may be gone; None if none does."""
        there = self.instances.get(instance)
        paused = self.layout.paused if self.paused else None
        ip = address_of(instance) if there is None else there.ip
        return paused or self.server_paused_by(ip)

    def server_paused_by(self, ip: str) -> str | None:
        """Return the node that pauses a server, in this job or in all jobs; None if none does."""
        here = self.layout.server_paused(ip)
        everywhere = server_switch(ip, "paused")
        if here in self.tree:
            return here
        return everywhere if self.flag(everywhere) is not None else None

    @cached_property
    def lacking(self) -> Mapping[str, tuple[str, ...]]:
        """The features that the job requires and an instance does not know, by instance.  It is not eligible then."""
        lacking = dict[str, tuple[str, ...]]()
        for one in self.instances.values():
            unknown = [feature for feature in self.config.requires if feature not in one.features]
            if unknown:
                lacking[one.id] = tuple(unknown)
        return lacking

    @cached_property
    def configured_by(self) -> int:
        """The transaction that has written the configuration now in the registry; 0 if there is none."""
        node = self.tree.get(self.layout.config)
        return 0 if node is None else node.stat.mzxid

    @cached_property
    def doubting(self) -> frozenset[str]:
        """The instances that say that their process cannot use the configuration."""
        written = self.configured_by
        doubting = [one.id for one in self.instances.values() if one.cannot_use and one.cannot_use == written]
        return frozenset(doubting) or NONE

    @cached_property
    def unable(self) -> frozenset[str]:
        """The instances whose process cannot use the configuration, while another one can.  They are not eligible.

        As long as none has shown that it can, the configuration may be wrong for everybody, and each keeps its last.
        """
        return self.doubting if self.doubting and self.is_accepted else NONE

    @property
    def is_accepted(self) -> bool:
        """Whether an instance has noted that it can use the configuration now in the registry."""
        return self.schedules.accepted == self.configured_by

    @cached_property
    def leader(self) -> str | None:
        """The id of the leader; None if there is none."""
        node = self.tree.get(self.layout.host)
        return None if node is None else node.text

    @cached_property
    def epoch(self) -> int:
        """The version that every leader's write checks; -1, which matches any, before the first election."""
        node = self.tree.get(self.layout.epoch)
        return -1 if node is None else node.stat.version

    @cached_property
    def necessary(self) -> int | None:
        """The version of the mark that requires an assignment; None if no assignment is required.

        If somebody has put nodes below the mark, it cannot be removed.  Then an assignment that is newer answers it.
        """
        node = self.tree.get(self.layout.necessary)
        sharding = self.tree.get(self.layout.sharding)
        if node is None:
            return None
        is_answered = sharding is not None and sharding.stat.mzxid > node.stat.mzxid
        if is_answered and self.obstructed(self.layout.necessary):
            return None
        return node.stat.version

    @cached_property
    def processing(self) -> bool:
        """Whether an assignment is being written in several parts."""
        return self.layout.processing in self.tree and not self.obstructed(self.layout.processing)

    @cached_property
    def assignment_stands(self) -> bool:
        """Whether no assignment is required or being written, so that items may be claimed."""
        return self.necessary is None and not self.processing

    @cached_property
    def sharding_version(self) -> int:
        """The version of the assignment, which rises with every assignment."""
        node = self.tree.get(self.layout.sharding)
        return -1 if node is None else node.stat.version

    @property
    def item_nodes(self) -> ItemNodes:
        """What the nodes of items hold."""
        return self._derived[0]

    @property
    def items(self) -> frozenset[int]:
        """The items that have a node, including surplus items that have yet to be removed."""
        return self.item_nodes.items

    @property
    def assignment(self) -> Mapping[int, str]:
        """The instance that holds each item; items without a holder are absent."""
        return self.item_nodes.assignment

    @cached_property
    def disabled_items(self) -> frozenset[int]:
        """The items that an operator has switched off."""
        special = self.item_nodes.special
        return frozenset(item for item in special if self.layout.item(item).disabled in self.tree) or NONE

    @cached_property
    def resting_items(self) -> frozenset[int]:
        """The items that nobody runs because they, their holder's server or the job are switched off."""
        off = frozenset(filter(self.paused_by, set(self.assignment.values())))
        held = [item for item, holder in self.assignment.items() if holder in off] if off else ()
        return self.disabled_items.union(held)

    @cached_property
    def requested(self) -> tuple[str, ...]:
        """The names of the nodes of requests, whether or not they hold one."""
        return self.tree.children(self.layout.requests)

    @cached_property
    def request_nodes(self) -> RequestNodes:
        """What the nodes of requests hold."""
        return self._derived[1]

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """All requests, also those that have ended, in the order in which they are answered."""
        asked = (one for one in self.request_nodes.held.values() if isinstance(one, Request))
        return tuple(sorted(asked, key=order))

    @cached_property
    def orphans(self) -> frozenset[int]:
        """The items that wait for a rescuer."""
        return items_named(self.tree.children(self.layout.orphans))

    @cached_property
    def orphan_marks(self) -> Mapping[int, records.OrphanMark]:
        """What the mark of each orphan says, without those in which somebody has written something else."""
        marks = dict[int, records.OrphanMark]()
        for item in self.orphans:
            node = self.tree.get(self.layout.item(item).orphan)
            mark = None if node is None else records.decode_mark(node.data)
            if mark is not None:
                marks[item] = mark
        return marks

    @cached_property
    def rescues(self) -> Mapping[int, str]:
        """The instance that rescues each item that is being rescued."""
        rescuers = dict[int, str]()
        for item in self.item_nodes.special:
            node = self.tree.get(self.layout.item(item).failover)
            if node is not None and node.stat.ephemeral_owner:
                rescuers[item] = node.text
        return rescuers

    def given_to(self, instance: str) -> Mapping[int, int]:
        """Return the items that an instance holds, each with the zxid with which it was given to the instance."""
        holders = self.assignment
        return {item: given for item, given in self.item_nodes.given.items() if holders[item] == instance}

    def given_at(self, item: int) -> int:
        """Return when the item was given to its holder, in milliseconds since the epoch; 0 if it has none."""
        node = self.tree.get(self.layout.item(item).instance)
        return 0 if node is None else int(node.stat.mtime * 1000)

    def made_at(self, item: int) -> int:
        """Return when the item was made or last taken from a paused instance, in milliseconds; 0 if that is unknown."""
        node = self.tree.get(self.layout.item(item).sharding)
        return 0 if node is None else int(max(node.stat.ctime, node.stat.mtime) * 1000)

    def made_by(self, item: int) -> int:
        """Return the transaction that made the item, or took it from a paused instance; 0 if that is unknown."""
        node = self.tree.get(self.layout.item(item).sharding)
        return 0 if node is None else node.stat.mzxid

    @cached_property
    def assigned_at(self) -> int:
        """When the assignment was last written, in milliseconds since the epoch; 0 if there is none."""
        node = self.tree.get(self.layout.sharding)
        return 0 if node is None else int(node.stat.mtime * 1000)

    @cached_property
    def schedule_version(self) -> int | None:
        """The version of the leader's note of the schedules; None if there is none."""
        node = self.tree.get(self.layout.schedule)
        return None if node is None else node.stat.version

    def switched_off_at(self, item: int, holder: str, noticed: int) -> int | None:
        """Return when the item, its holder's server, or the job was switched off, in milliseconds; None if none is.

        Nodes below a server are not read, so their dates are unknown.  Then the time counts when the holder ``noticed``
        it.
        """
        if holder not in self.instances or self.assignment.get(item) != holder:
            return None
        layout = self.layout
        ip = self.instances[holder].ip
        here = layout.paused, layout.server_paused(ip), layout.server_disabled(ip), layout.item(item).disabled
        everywhere = server_switch(ip, "paused"), server_switch(ip, "disabled")
        nodes = [self.flag(path) for path in (*here, *everywhere)]
        moments = [int(node.stat.ctime * 1000) or noticed for node in nodes if node is not None]
        return min(moments, default=None)

    def ended_pause(self, holder: str) -> Pause | None:
        """Return the pause that has ended last by itself, of the job or of an instance's server; None if none has."""
        there = self.instances.get(holder)
        if there is None or not self._pauses:
            return None
        paths = (self.layout.paused, server_switch(there.ip, "paused"))
        pauses = [self._pauses[path] for path in paths if path in self._pauses]
        ended = [pause for pause in pauses if pause.is_over(self.time)]
        return max(ended, key=lambda pause: pause.until, default=None)

    def awaits_rescue(self, item: int) -> bool:
        """Whether an orphan can be rescued: it is below the item count, and no node made by hand prevents its claim."""
        paths = self.layout.item(item)
        blocked = self.obstructed(paths.orphan) or paths.failover in self.tree
        return item in self.orphans and item < self.config.sharding_total_count and not blocked

    def obstructed(self, path: str) -> bool:
        """Whether a node that should have no children has some, so that it cannot be removed."""
        return bool(self.tree.children(path))

    @cached_property
    def up_since(self) -> float:
        """Since when at least one instance has always been up, by the registry's clock; infinity if none is.

        An instance that joins copies the value of the others to its node, so the value outlives the first instances.
        """
        return min((one.up_since for one in self.instances.values()), default=inf)

    @cached_property
    def schedules(self) -> Schedules:
        """The schedule, since when it is in force, and the former ones."""
        written = self.tree.get(self.layout.config)
        note = self.tree.get(self.layout.schedule)
        return Schedules.of(self.config, written, note, self.contents)

    @cached_property
    def contents(self) -> Mapping[str, Calendar]:
        """The contents of calendars that the leader has kept for the schedules that it has noted, by their hashes."""
        found = dict[str, Calendar]()
        for hash in self.tree.children(self.layout.schedule):
            node = self.tree.get(self.layout.contents(hash))
            calendar = None if node is None else calendar_in(node.data)
            if calendar is not None and calendar.hash == hash:  # otherwise somebody has edited them
                found[hash] = calendar
        return found

    @property
    def schedule(self) -> Schedule | None:
        """The job's schedule: of a job that follows others, the one that it has from them; None if it has none."""
        if not self.config.after:
            return self.config.schedule
        return self.schedules.periods[-1].schedule if self.schedules.is_noted else None

    @cached_property
    def is_followed(self) -> bool:
        """Whether other jobs follow this one, so that it is written for them how its items end."""
        return bool(self.tree.children(self.layout.followers))

    @cached_property
    def upstreams(self) -> Upstreams | None:
        """The jobs that this one follows, by the newest schedule that is noted; None if it follows none."""
        takes_any = self.config.after_outcome == "any"
        return upstreams_of(self.tree, self.schedules, self.layout.job, takes_any=takes_any)

    def outcomes_upstream(self, fire: Fire) -> Mapping[str, Mapping[int, str]]:
        """Return how each item of each followed job has ended the moment of a run; none if somebody asked for it."""
        if self.upstreams is None or fire.requested is not None:
            return {}
        return self.upstreams.outcomes(fire.slot)

    @cached_property
    def followed_roots(self) -> tuple[str, ...]:
        """The nodes of other jobs that the instances of this one mirror, because it follows them, or has until now."""
        if not self.config.after and not self.schedules.follows:
            return ()
        jobs = dict.fromkeys((*self.config.after, *self.schedules.follows))
        return tuple(root for job in jobs for root in Layout(job).seen_by_followers)

    @cached_property
    def _derived(self) -> _Derived:
        return self.tree.derive(partial(_derive, self.layout), NOTHING)

    @cached_property
    def _admitted(self) -> tuple[str, ...]:
        barred = self.lacking.keys() | self.unable
        admitted = [one for one in self.instances.values() if one.id not in barred and not self.is_disabled(one.ip)]
        return in_order(admitted)


def _derive(layout: Layout, tree: Tree, before: _Derived, changed: Collection[str]) -> _Derived:
    items, requests, present = before
    return (
        item_nodes(layout, tree, items, changed),
        request_nodes(layout.requests, tree, requests, changed),
        instances(layout, tree, present, changed),
    )


def read(
    tree: Tree,
    layout: Layout,
    last: JobConfig,
    kind: str | None = None,
    common: Tree | None = None,
    *,
    time: float = -inf,
) -> JobView:
    """Return the view of a tree.  If its configuration is invalid, ``last`` stays in force, with the new ``requires``.

    ``common`` has the nodes that all jobs have in common, if ``tree`` does not.  ``time`` is the registry's; without it
    no pause has ended by itself.

    ``requires`` is read in any case: the rest may seem invalid to this release only because it lacks such a feature.
    ``kind`` is the kind of a running job, which never changes.  With it, an error handler or an executor that does not
    work here is replaced by the last one.  All other settings stay: instances of different releases must agree on the
    schedule.
    """
    node = tree.get(layout.config)
    common = tree if common is None else common
    last = with_calendars(last, common)
    if node is None:
        return JobView(layout, tree, last, f"{layout.config} is missing", common, time=time)
    try:
        is_last = kind is not None and node.data == last.to_json()  # most processes declare what is stored
        config = last if is_last else with_calendars(parse(node.data, layout), common)
        fits(config)
        if kind not in (None, config.job_type):
            raise InvalidSetting("job_type", config.job_type, f"the job runs as {kind} and cannot change that")
    except InvalidSetting as mistake:
        requires = required(node.data)
        kept = last if requires in (None, last.requires) else last.model_copy(update={"requires": requires})
        return JobView(layout, tree, kept, str(mistake), common, str(mistake), time)
    if kind is None:  # a process that only reads need not have the job's error handler or executor
        return JobView(layout, tree, config, None, common, time=time)
    usable = with_known_names(config, last)
    return JobView(layout, tree, usable.config, usable.fault, common, usable.unusable, time)


def follow(before: JobView, tree: Tree, common: Tree, time: float = -inf) -> JobView:
    """Return the view of newer trees of a running job, or of the same at a later time of the registry.

    A configuration that has not changed is not read again.
    """
    path = before.layout.config
    last = before.config
    if tree.get(path) == before.tree.get(path):
        return JobView(before.layout, tree, with_calendars(last, common), before.fault, common, before.unusable, time)
    return read(tree, before.layout, last, last.job_type, common, time=time)


def with_calendars(config: JobConfig, common: Tree) -> JobConfig:
    """Return a configuration with the contents of the calendars that it names, as far as there are any."""
    known = dict[str, Calendar]()
    for name in config.calendar:
        node = common.get(calendar_path(name))
        calendar = None if node is None else calendar_in(node.data)
        if calendar is not None:
            known[name] = calendar
    return config.with_calendars(known)


@lru_cache(maxsize=4096)
def parse(data: bytes, layout: Layout) -> JobConfig:
    """Return the configuration in the job's node ``config``.

    Raises:
        ForeignData: the data is not a configuration, or is that of another job.
    """
    config = JobConfig.from_json(data, layout.config)
    if config.job_name != layout.job:
        raise ForeignData(layout.config, config.job_name, f"the job's name is {layout.job} and never changes")
    return config
