"""The rules: pure functions that compute, from a view, the effects that one instance writes.

They elect a leader, note the schedule and who cannot use the configuration, mark orphans and end runs, assign items,
remove nodes that nothing needs, and end requests.  Every instance follows ``RULES``, and the leader follows
``LEADER_RULES`` as well; the effects of earlier rules are written first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from aioelasticjob.core.effects import (
    MAX_OPERATIONS,
    AcceptConfiguration,
    Assign,
    BecomeLeader,
    Effect,
    EndRun,
    MarkFollowed,
    MarkOrphan,
    NoteSchedule,
    NoteUnusable,
    RefreshServer,
    RemoveItems,
    RemoveNodes,
    RequireAssignment,
    RestoreNodes,
    SayStrategyFailed,
    StepDown,
    UpdateRequest,
    parts,
    unkept_contents,
)
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.instances import UNUSABLE, unusable_note
from aioelasticjob.core.layout import Layout, child
from aioelasticjob.core.request_runs import (
    begun_items,
    ended_as,
    following,
    is_cut_off_without_record,
    waiting_items,
)
from aioelasticjob.core.requests import CANCELLED, EXPIRED, Cancellation, Request, changed
from aioelasticjob.core.strategies import AssignmentInput, assignment_of
from aioelasticjob.core.upstreams import next_notes, upstream_of
from aioelasticjob.core.view import JobView
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.model import CUT_OFF, VersionedRecord
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set, put
from aioelasticjob.registry.tree import Node
from aioelasticjob.schedules import ScheduleSettings

REFRESHES_PER_RETENTION = 4
"""How often in ``server_retention`` the node of a server in use is touched."""
_GRACE = 1 + 1 / REFRESHES_PER_RETENTION
"""A factor of ``server_retention``: the node of a server in use is touched now and then only, so it may be older."""
NAMED_FOR = 7 * 24 * 3600
"""Seconds for which the id of a request is remembered after its end, if who has asked has given the id."""
UNNAMED_FOR = 3600
"""Seconds for which other requests are shown after their end."""
MAX_AHEAD = 60
"""Seconds by which the time since when a schedule is in force may lie in the future; a later one is noted anew."""
LOST_AFTER = 24 * 3600
"""Seconds after the last news of a request at which runs without an outcome count as lost."""
LOST = "unknown"
"""The outcome of a run that nobody has settled."""


@dataclass(frozen=True)
class RuleInput:
    """A view, the instance that decides, and facts that are not in the view."""

    view: JobView
    me: str
    quiet: bool = True
    """Whether the instances have not changed for ``sharding_quiet``."""
    tick: bool = False
    """Whether this is a tick, on which some rules tidy up."""
    time: float = 0.0
    """The time of the registry's clock, in seconds since the epoch."""
    unwanted: Sequence[Delete] = ()
    """The removal of records and marks, if the job is not monitored any more: each mark precedes its record."""
    cut_off: Mapping[int, VersionedRecord] = field(default_factory=dict)
    """The runs that were cut off, by item, as far as they were looked up.

    The claim has written the record, so its transaction is the fence.  If the run was handed over, the mark has that.
    """
    is_steady: bool = True
    """Whether the registry's clock has shown for a while that the schedule's date lies far in the future."""
    gone_followers: Sequence[str] = ()
    """The jobs that have a mark as followers and are not there any more, as far as they were looked up."""
    host: str = ""
    """This instance's host name.  It is not read from the instance's node, because somebody may have edited that."""

    @cached_property
    def is_named_leader(self) -> bool:
        """Whether the registry names this instance as the leader."""
        return self.view.leader == self.me and self.me in self.view.instances

    @cached_property
    def leading(self) -> bool:
        """Whether this instance leads: the registry names it, and it can do all that the job requires."""
        return self.is_named_leader and self.me not in self.view.lacking and self.me not in self.view.unable


def elect(now: RuleInput) -> Iterator[BecomeLeader]:
    """An instance that stays becomes the leader if there is none.  The transaction lets only one of several succeed."""
    view = now.view
    has_no_epoch = now.leading and view.layout.epoch not in view.tree
    vacant = has_no_epoch or view.leader not in view.instances
    if vacant and now.me in view.staying and not view.obstructed(view.layout.host):
        yield BecomeLeader(now.me)


def step_down(now: RuleInput) -> Iterator[StepDown]:
    """A leader that may not lead any more steps down, if another instance can lead or it cannot do what is required."""
    if now.is_named_leader and now.me not in now.view.staying and (now.view.staying or not now.leading):
        yield StepDown()


def note_schedule(now: RuleInput) -> Iterator[NoteSchedule]:
    """The leader notes a new schedule, which is in force from then on.

    The note contains the schedule itself, so it does not matter who has written the configuration, or with which tool.
    The note also contains the former schedules, oldest first.  Contents of calendars that it names are kept beside it,
    so an edit of a calendar is a new schedule, and the former one still has its moments.
    """
    view = now.view
    layout = view.layout
    config = view.tree.get(layout.config)
    if config is None or view.unusable is not None:
        return
    is_far_ahead = now.is_steady and is_noted_far_ahead(view, now.time)
    if is_far_ahead or not view.schedules.is_noted or unkept_contents(view):
        yield NoteSchedule((*_note(view, config, now.time), *_unmark(view)))


def follow_upstreams(now: RuleInput) -> Iterator[MarkFollowed | NoteSchedule]:
    """The leader marks the jobs that this one follows, and notes their schedules once items write how they end."""
    view = now.view
    config = view.tree.get(view.layout.config)
    if not view.config.after or config is None or view.unusable is not None or not view.schedules.is_noted:
        return
    if marks := tuple(_missing_marks(view)):
        yield MarkFollowed((Check(view.layout.config, config.stat.version), *marks))
        return
    upstreams = [upstream_of(view.tree, job, view.layout.job) for job in view.config.after]
    if newer := next_notes(upstreams, view.schedules, round(now.time * 1000)):
        unchanged = Check(view.layout.config, config.stat.version)
        data = view.schedules.followed_by(newer, config.stat.mzxid)
        noted = put(view.layout.schedule, data, view.tree.get(view.layout.schedule))
        yield NoteSchedule((unchanged, noted, *_followed_contents(view, newer)))


def remove_marks(now: RuleInput) -> Iterator[RemoveNodes]:
    """The leader removes the marks of followers that somebody has removed, so that nobody writes for them any more."""
    return _removal(now.view, [now.view.layout.follower(name) for name in now.gone_followers])


def _followed_contents(view: JobView, notes: Iterable[Mapping[str, object]]) -> Iterator[Op]:
    """Yield the operations that keep the contents of calendars which the schedules of followed jobs name."""
    named = {hash for note in notes for hash in ScheduleSettings.of_json(note).all_contents}
    for hash in sorted(named - view.contents.keys()):
        kept = [view.tree.get(Layout(job).contents(hash)) for job in view.config.after]
        data = next((node.data for node in kept if node is not None), None)
        if data is not None:
            path = view.layout.contents(hash)
            yield put(path, data, view.tree.get(path))


def _missing_marks(view: JobView) -> Iterator[Op]:
    """Yield the operations that make what is missing of the marks of the followed jobs that are there."""
    for job in view.config.after:
        upstream = Layout(job)
        if upstream.config not in view.tree or foreign(view.tree, upstream) is not None:
            continue
        for path in (upstream.followers, upstream.follower(view.layout.job), upstream.followed):
            if path not in view.tree:
                yield Create(path)


def _unmark(view: JobView) -> Iterator[Op]:
    """Yield the operations that remove the marks of jobs that are not followed any more."""
    for job in set(view.schedules.follows).difference(view.config.after):
        path = Layout(job).follower(view.layout.job)
        if path in view.tree and not view.obstructed(path):
            yield Delete(path)


def is_noted_far_ahead(view: JobView, time: float) -> bool:
    """Whether the schedule is noted as one that begins far in the future: it was noted while the clock was ahead.

    Or the clock has been set back by mistake.  Therefore a leader acts on it only after a while.
    """
    return view.schedules.since > (time + MAX_AHEAD) * 1000


def say_unusable(now: RuleInput) -> Iterator[NoteUnusable]:
    """An instance notes in its node which configuration its process cannot use, and removes that when it can."""
    view = now.view
    path = view.layout.instance(now.me)
    config = view.tree.get(view.layout.config)
    node = view.tree.get(path)
    if now.me not in view.instances or config is None or node is None:
        return
    cannot_use = 0 if view.unusable is None else config.stat.mzxid
    if view.instances[now.me].cannot_use != cannot_use:
        data = {key: value for key, value in json_object(node.data).items() if key != UNUSABLE}
        if view.unusable is not None:
            data |= {UNUSABLE: unusable_note(cannot_use, view.unusable)}
        yield NoteUnusable((Set(path, json.dumps(data).encode(), node.stat.version),))


def accept_configuration(now: RuleInput) -> Iterator[AcceptConfiguration]:
    """An instance that can use the configuration notes that if another one cannot: then it is not wrong for everybody.

    Also one that does not lead does so, because it may be the leader that cannot use it.
    """
    view = now.view
    config = view.tree.get(view.layout.config)
    if config is None or view.unusable is not None:
        return
    can_use = now.me in view.instances and now.me not in view.lacking
    if can_use and view.doubting and not view.is_accepted:
        yield AcceptConfiguration(_note(view, config, now.time))


def _note(view: JobView, config: Node, time: float) -> tuple[Op, ...]:
    """Return the operations that note the schedule of the configuration in a node, if nobody has changed it.

    The schedule is in force from now on.  If it began when the configuration was written, moments between that write
    and this note would come, and instances that do not know the new schedule yet would account for them by the old one.
    """
    path = view.layout.schedule
    unchanged = Check(view.layout.config, config.stat.version)
    data = view.schedules.note(time, config.stat.mzxid)
    return unchanged, put(path, data, view.tree.get(path)), *unkept_contents(view)


def forget_contents(now: RuleInput) -> Iterator[RemoveNodes]:
    """On a tick the leader removes contents of calendars that no schedule names any more."""
    view = now.view
    note = view.tree.get(view.layout.schedule)
    if not now.tick or note is None:
        return
    named = view.schedules.named_contents.union(view.config.contents)
    removal = [
        Delete(path)
        for path in (
            view.layout.contents(name) for name in view.tree.children(view.layout.schedule) if name not in named
        )
        if not view.obstructed(path)
    ]
    yield from _in_parts(Check(view.layout.schedule, note.stat.version), removal)


def answer_cut_off_runs(now: RuleInput) -> Iterator[MarkOrphan | EndRun]:
    """The leader marks every item whose run was cut off as an orphan, or settles the run if it is not to be rescued.

    A run was cut off if it was begun, is not completed and runs nowhere.  It is given up if rescues were cut off too
    often: its handler may be the reason, and would end the process of one instance after the other.  It ends as stopped
    if an operator cancels a thread that hangs, and then kills its process.
    """
    view = now.view
    if not view.config.failover:
        return
    for item, run in sorted(now.cut_off.items()):
        paths = view.layout.item(item)
        if paths.failover in view.tree:  # it is being rescued
            continue
        if outcome := ended_as(view, item, run.record, run.zxid):
            yield EndRun(item, run, round(now.time * 1000), outcome)
        # ``unmark_orphans`` would undo it for ever if the item is gone
        elif item in view.items and item < view.config.sharding_total_count and paths.orphan not in view.tree:
            yield MarkOrphan(item, run)


def unmark_orphans(now: RuleInput) -> Iterator[RemoveNodes]:
    """The leader removes marks of orphans that nobody may rescue, because failover is off or the item is gone."""
    view = now.view
    count = view.config.sharding_total_count if view.config.failover else 0
    surplus = [item for item in sorted(view.orphans) if item >= count]
    return _removal(view, [view.layout.item(item).orphan for item in surplus])


def wanted_assignment(view: JobView) -> Mapping[int, str]:
    """Return the assignment that the job's strategy computes.  There must be an eligible instance."""
    return _computed(view)[0]


def assign_items(now: RuleInput) -> Iterator[RequireAssignment | Assign | SayStrategyFailed]:
    """The leader requires an assignment if the present one differs from the strategy's, and writes what is required.

    It writes that once the instances have not changed for ``sharding_quiet``.
    """
    view = now.view
    is_required = view.necessary is not None or view.processing
    if not view.eligible or (is_required and not now.quiet):
        return
    wanted, failure = _computed(view)
    if failure:
        yield SayStrategyFailed(failure)
    if is_required:
        yield Assign(wanted)
    elif wanted != view.assignment:
        yield RequireAssignment()


def _computed(view: JobView) -> tuple[Mapping[int, str], str]:
    given = AssignmentInput(view.layout.job, view.eligible, view.config.sharding_total_count, view.assignment)
    return assignment_of(view.config.sharding_strategy, given)


def restore_nodes(now: RuleInput) -> Iterator[RestoreNodes]:
    """Every instance makes missing parent nodes and its server's node again: without them no leader can be elected."""
    view = now.view
    layout = view.layout
    if now.me not in view.instances:
        return
    missing = [Create(path) for path in view.missing_parents]
    if (server := layout.server(view.instances[now.me].ip)) not in view.tree:
        missing.append(Create(server, now.host.encode()))
    if missing:
        yield RestoreNodes((Check(layout.instance(now.me)), *missing))


def remove_items(now: RuleInput) -> Iterator[RemoveItems]:
    """The leader removes items beyond the count, once no instance holds them.  Disabled items are kept."""
    view = now.view
    if not view.assignment_stands:
        return
    count = view.config.sharding_total_count
    special = view.item_nodes.special
    surplus = [item for item in view.items.difference(view.assignment) if item >= count]
    if removable := frozenset([item for item in surplus if item not in special or _is_removable(view, item)]):
        yield RemoveItems(removable)


def _is_removable(view: JobView, item: int) -> bool:
    paths = view.layout.item(item)
    return _has_only(view, paths.sharding, {paths.instance, paths.failover})


def remove_requests(now: RuleInput) -> Iterator[RemoveNodes]:
    """On a tick the leader removes requests to leave of instances that no longer exist."""
    if not now.tick:
        return
    view = now.view
    layout = view.layout
    alive = view.instances
    stale = [layout.shutdown(name) for name in view.tree.children(layout.shutdowns) if name not in alive]
    yield from _removal(view, stale)


def _in_parts(condition: Check, removal: Sequence[Delete]) -> Iterator[RemoveNodes]:
    for part in parts(removal, MAX_OPERATIONS):
        yield RemoveNodes((condition, *part))


def _removal(view: JobView, stale: Iterable[str]) -> Iterator[RemoveNodes]:
    for path in stale:
        if not view.obstructed(path):
            yield RemoveNodes((Delete(path),))


def refresh_server(now: RuleInput) -> Iterator[RefreshServer]:
    """On a tick an instance touches its server's node, whose age says how long no instance has been on the server."""
    if not (now.tick and now.me in now.view.instances and now.view.config.server_retention):
        return
    path = now.view.layout.server(now.view.instances[now.me].ip)
    node = now.view.tree.get(path)
    refreshed_every = now.view.config.server_retention / REFRESHES_PER_RETENTION
    if node is not None and now.time - node.stat.mtime > refreshed_every:
        yield RefreshServer((Set(path, node.data, node.stat.version),))


def remove_servers(now: RuleInput) -> Iterator[RemoveNodes]:
    """On a tick the leader removes servers that had no instance for ``server_retention`` and are not switched off."""
    if not now.tick:
        return
    view = now.view
    layout = view.layout
    used = {one.ip for one in view.instances.values()}
    for ip in view.tree.children(layout.servers):
        path = layout.server(ip)
        counts = {layout.success_count(ip), layout.failure_count(ip), layout.counted_by(ip)}
        node = view.tree.get(path)
        if node is None or ip in used or not _has_only(view, path, counts):
            continue
        age = now.time - node.stat.mtime
        if age > view.config.server_retention * _GRACE:
            below = [Delete(one) for one in sorted(counts) if one in view.tree]
            yield RemoveNodes((*below, Delete(path, node.stat.version)))


def clear_records(now: RuleInput) -> Iterator[RemoveNodes]:
    """The leader removes the records of a job that is not monitored any more, once no item runs."""
    path = now.view.layout.config
    config = now.view.tree.get(path)
    if config is not None and not now.view.config.monitor_execution:
        yield from _in_parts(Check(path, config.stat.version), now.unwanted)


def _has_only(view: JobView, path: str, nodes: set[str]) -> bool:
    """Whether a node has no others below it than these, and nothing is below them, so that all can be removed."""
    below = {child(path, name) for name in view.tree.children(path)}
    return below <= nodes and not any(map(view.obstructed, below))


def end_requests(now: RuleInput) -> Iterator[UpdateRequest | RemoveNodes]:
    """The leader stops requests that have expired, and closes those of which nothing runs or will run any more.

    Then it removes the nodes below them, which may be many.
    """
    view = now.view
    time = round(now.time * 1000)
    for request in _not_just_waiting(view, time):
        if request.closed:
            path = view.layout.request(request.id)
            below = [child(path, name) for name in view.tree.children(path)]
            removal = [Delete(one) for one in below if not view.obstructed(one)]
            yield from _in_parts(Check(path, request.version), removal)  # somebody may ask anew under this name
            continue
        has_expired = 0 < request.expires <= time
        if request.is_open and has_expired and next(waiting_items(view, request), None) is not None:
            yield _update(view, request, {}, stopped=EXPIRED)
        elif _is_over(view, request, now.time):
            yield _closing(view, request, time)


def forget_requests(now: RuleInput) -> Iterator[RemoveNodes]:
    """On a tick the leader removes requests that ended long ago."""
    if not now.tick:
        return
    view = now.view
    ended = list[tuple[Request | Cancellation, int, int]]()
    for request in view.requests:
        if request.closed:
            ended.append((request, request.closed, NAMED_FOR if request.named else UNNAMED_FOR))
    for cancellation in view.request_nodes.cancellations:
        ended.append((cancellation, cancellation.asked, UNNAMED_FOR))
    for one, since, kept in ended:
        path = view.layout.request(one.id)
        if since / 1000 + kept < now.time and not view.obstructed(path):
            yield RemoveNodes((Delete(path, one.version),))


def _not_just_waiting(view: JobView, time: int) -> list[Request]:
    """Return the requests that may have to be stopped, closed or tidied up, in the order in which they are answered.

    Those that no item has begun may be many.  A triggered run has one moment, so while an item that can run is asked
    for, it waits.
    """
    count = view.config.sharding_total_count
    begun = view.request_nodes.begun
    found = list[Request]()
    for one in view.request_nodes.unfinished:
        if one.items:
            first = one.items[0]
        else:
            first = 0 if one.count else count
        just_waits = one.id not in begun and not one.stopped and one.span is None and first < count
        has_expired = 0 < one.expires <= time
        if not just_waits or has_expired:
            found.append(one)
    return found


def _is_over(view: JobView, request: Request, time: float) -> bool:
    """Whether nothing of a request will begin any more, and all its runs have ended or are lost."""
    if request.is_open and next(waiting_items(view, request), None) is not None:
        return False
    under_way = view.request_nodes.begun_by(request.id).under_way
    if all(_is_removed(view, item) or is_cut_off_without_record(view, request, item) for item in under_way):
        return True
    nodes = view.tree.walk(view.layout.request(request.id))
    return all(node.stat.mtime + LOST_AFTER < time for _, node in nodes)


def _is_removed(view: JobView, item: int) -> bool:
    """Whether an item is beyond the item count and has been removed, which happens only when it does not run."""
    return item >= view.config.sharding_total_count and view.layout.item(item).sharding not in view.tree


def _closing(view: JobView, request: Request, time: int) -> UpdateRequest:
    """Note that a request is over: how its runs have ended, and which items will not run for it."""
    outcomes = Counter[str]()
    for item, (progress, _) in begun_items(view, request).items():
        without_end = CUT_OFF if is_cut_off_without_record(view, request, item) else LOST
        outcomes += progress.outcomes(without_end)
    left_out = list[int]()
    if request.stopped == EXPIRED:
        left_out += waiting_items(view, request)
    if request.stopped != CANCELLED:
        left_out += request.beyond(view.config.sharding_total_count)
    unrun = dict[int, int]()
    for item in left_out:
        due = following(view, request, item)
        if due is not None:
            unrun[item] = due
    return _update(view, request, unrun, closed=time, outcomes=dict(outcomes))


def _update(view: JobView, request: Request, unrun: Mapping[int, int], **keys: object) -> UpdateRequest:
    node = view.tree.get(view.layout.request(request.id))
    assert node is not None
    return UpdateRequest(request, changed(node.data, **keys), unrun)


Rule = Callable[[RuleInput], Iterable[Effect]]

RULES: tuple[Rule, ...] = (restore_nodes, say_unusable, accept_configuration, elect, step_down, refresh_server)
"""The rules that every instance follows."""
LEADER_RULES: tuple[Rule, ...] = (
    note_schedule,
    follow_upstreams,
    remove_marks,
    answer_cut_off_runs,
    unmark_orphans,
    assign_items,
    remove_items,
    remove_requests,
    end_requests,
    forget_requests,
    forget_contents,
    clear_records,
    remove_servers,
)
"""The rules that only the leader follows."""


def decide(rule_input: RuleInput) -> list[Effect]:
    """Return the effects that the rules want; none if nothing has to change."""
    rules = (*RULES, *LEADER_RULES) if rule_input.leading else RULES
    return [effect for rule in rules for effect in rule(rule_input)]
