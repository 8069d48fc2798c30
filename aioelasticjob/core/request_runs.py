"""Decides, from a view, which items run next for which request, and what claims and settlements note of it.

An item runs a request's moments one after another, oldest first, and each once: its claim advances the item's node
below the request, in the same transaction.  So of two instances that decide on different views, one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import filterfalse, islice

from aioelasticjob.core.layout import Layout
from aioelasticjob.core.nodes import is_item
from aioelasticjob.core.records import is_cut_off
from aioelasticjob.core.requests import Cancellation, Request, decode_progress, encode_progress
from aioelasticjob.core.view import JobView
from aioelasticjob.model import (
    CUT_OFF,
    GIVEN_UP,
    LEFT_OPEN,
    Fire,
    FireSource,
    Outcome,
    Progress,
    Record,
    Requested,
)
from aioelasticjob.registry.transaction import Check, Create, Op, Set
from aioelasticjob.registry.tree import Node


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """Items that have to run now for a request."""

    fire: Fire
    items: frozenset[int]


def ended_as(view: JobView, item: int, record: Record, fence: int) -> str:
    """Return the outcome with which the leader ends a run that was cut off; empty if the run is to be rescued.

    The leader ends it as stopped if somebody has cancelled the run with this fence, or the run that was handed over:
    an instance that leaves may hand a run over before it hears that the run was cancelled.  It gives the run up after
    ``max_rescues`` rescues in a row were cut off.
    """
    mark = view.orphan_marks.get(item)
    fences = {fence, mark.fence if mark else 0} - {0}
    if any(one.fences.get(item) in fences for one in view.request_nodes.cancellations):
        return Outcome.STOPPED.value
    return GIVEN_UP if record.rescues >= view.config.max_rescues else ""


def open_requests(view: JobView) -> tuple[Request, ...]:
    """Return the requests of which runs may still begin, in the order in which they are answered.

    A job without records makes no backfills: nothing keeps an item from beginning the next moment elsewhere while the
    one before goes on.
    """
    asked = view.request_nodes.open
    if view.config.monitor_execution:
        return asked
    return tuple(one for one in asked if one.span is None)


def progress_of(view: JobView, request: Request, item: int) -> tuple[Progress, int] | None:
    """Return how far an item has come with a request, and the version of its node; None if it has not begun."""
    node = view.tree.get(view.layout.request_item(request.id, item))
    return None if node is None else (decode_progress(node.data), node.stat.version)


def is_cut_off_without_record(view: JobView, request: Request, item: int) -> bool:
    """Whether an item's newest run for a request was cut off, in a job without records.

    That is so if the instance that began it is gone, or has joined again since.
    """
    node = view.tree.get(view.layout.request_item(request.id, item))
    if node is None:
        return False
    progress = decode_progress(node.data)
    if progress.outcome or not progress.instance:
        return False
    runner = view.tree.get(view.layout.instance(progress.instance))
    return runner is None or runner.stat.czxid > node.stat.mzxid


def begun_items(view: JobView, request: Request) -> dict[int, tuple[Progress, int]]:
    """Return the progress of all items that have begun a request, with the versions of their nodes."""
    names = view.tree.children(view.layout.request(request.id))
    items = [int(name) for name in names if is_item(name)]
    return {item: one for item in items if (one := progress_of(view, request, item)) is not None}


def following(view: JobView, request: Request, item: int) -> int | None:
    """Return the moment that an item has to run next for a request; None if it has run all of them."""
    progress = progress_of(view, request, item)
    return request.following(None if progress is None else progress[0])


def waiting_items(view: JobView, request: Request) -> Iterator[int]:
    """Yield the items that have moments of a request to run, in their order."""
    if request.following(None) is None:  # it has no moments at all
        return iter(())
    done = view.request_nodes.begun_by(request.id).done
    return filterfalse(done.__contains__, request.within(view.config.sharding_total_count))


def next_run(view: JobView, source: FireSource, free: frozenset[int], now: int) -> RequestedRun | None:
    """Return the run that free items have to make next for requests of one kind; None if there is none.

    ``free`` are the items that this instance may claim now, and ``now`` is in milliseconds since the epoch.  A stream
    that has given way goes on when no other request has anything to begin.  Otherwise the request to which it gave way
    would never begin if the stream has no end.
    """
    if not free:
        return None
    going_on: RequestedRun | None = None
    for request in open_requests(view):
        if request.source is not source or request.paused:
            continue
        has_expired = 0 < request.expires <= now
        if request.at > now or has_expired:
            continue
        if moments := _moments(view, request, free):
            oldest = min(moments.values())
            items = frozenset(item for item, moment in moments.items() if moment == oldest)
            progress = {item: one for item in items if (one := progress_of(view, request, item)) is not None}
            requested = Requested(request.id, request.version, progress)
            fire = Fire(oldest, source, request.parameter, request.number, requested)
            found = RequestedRun(fire, items)
            if any(item not in progress or progress[item][0].outcome != LEFT_OPEN for item in items):
                return found
            going_on = going_on or found
    return going_on


def requested_of(view: JobView, items: Collection[int]) -> frozenset[tuple[str, int]]:
    """Return the requests for which these items have moments to run, each with the item."""
    found = set[tuple[str, int]]()
    for request in open_requests(view):
        if request.paused:
            continue
        for item in items:
            if request.asks_for(item) and following(view, request, item) is not None:
                found.add((request.id, item))
    return frozenset(found)


def next_due(view: JobView, held: Collection[int], now: int) -> int | None:
    """Return the next moment at which a request for one of these items becomes due; None if there is none."""
    planned = [one for one in open_requests(view) if one.at > now]  # the first one comes first
    return next((one.at for one in planned if any(map(one.asks_for, held))), None)


def request_of_run(view: JobView, item: int, record: Record) -> Requested | None:
    """Return the request for which an item's run was made, as a view shows it; None if it was made for none."""
    if not record.request:
        return None
    progress = view.tree.get(view.layout.request_item(record.request, item))
    return matching_request(item, record, view.request_nodes.held.get(record.request), progress)


def matching_request(
    item: int, record: Record, request: Request | Cancellation | None, progress: Node | None
) -> Requested | None:
    """Return the request for which an item's run was made, if the item's progress shows that it was made for this."""
    if not isinstance(request, Request) or progress is None:
        return None
    if (came := decode_progress(progress.data)).moment != record.asked:
        return None
    return Requested(request.id, request.version, {item: (came, progress.stat.version)})


def claiming(layout: Layout, fire: Fire, items: Iterable[int], instance: str = "") -> list[Op]:
    """Return the operations with which a claim notes that items begin a request's moment: each item has one.

    The ``instance`` is named if the job keeps no records.
    """
    if (requested := fire.requested) is None:
        return []
    operations: list[Op] = [Check(layout.request(requested.id), requested.version)]
    for item in items:
        path = layout.request_item(requested.id, item)
        before = requested.progress.get(item)
        data = encode_progress(replace(_begun(fire, before), instance=instance))
        operations.append(Create(path, data) if before is None else Set(path, data, before[1]))
    return operations


def losing(view: JobView, before: Mapping[int, Record], writer: str) -> list[Set]:
    """Return the operations which note that runs for requests were cut off, and that nobody will rescue them.

    ``before`` has the records that are replaced, or removed with their items.  Without the note their requests would
    seem to go on for a day.  ``writer`` is the instance that writes the notes: after a lost reply, it tells them from
    equal notes of another.
    """
    operations = list[Set]()
    for item, record in before.items():
        lost = request_of_run(view, item, record) if is_cut_off(record) else None
        if lost is None:
            continue
        progress, version = lost.progress[item]
        if not progress.outcome:  # it may have been noted already
            data = encode_progress(replace(progress, outcome=CUT_OFF, instance=writer))
            operations.append(Set(view.layout.request_item(lost.id, item), data, version))
    return operations


def settling(layout: Layout, fire: Fire, outcomes: Mapping[int, str]) -> list[Set]:
    """Return the operations with which a settlement notes how the runs of items for a request have ended.

    The outcome of a stream that has given way is ``LEFT_OPEN``: the request stays open for its item.
    """
    if (requested := fire.requested) is None:
        return []
    operations = list[Set]()
    for item, outcome in outcomes.items():
        before = requested.progress.get(item)
        # a rescue goes on with what was begun before
        if before is not None and fire.source is FireSource.FAILOVER:
            progress = before[0]
        else:
            progress = _begun(fire, before)
        data = encode_progress(replace(progress, outcome=outcome))
        operations.append(Set(layout.request_item(requested.id, item), data, -1))
    return operations


def _moments(view: JobView, request: Request, free: frozenset[int]) -> Mapping[int, int]:
    """Return the next moment of each free item that may run for a request now."""
    count = view.config.sharding_total_count
    span = request.span
    done = view.request_nodes.begun_by(request.id).done
    if span is not None and span.items_at_once:  # everybody computes the same few items, the first that are not done
        chosen = frozenset(islice(_unfinished(view, request), span.items_at_once)) & free
    else:
        chosen = frozenset([item for item in free - done if item < count and request.asks_for(item)])
    return {item: moment for item in chosen if (moment := following(view, request, item)) is not None}


def _unfinished(view: JobView, request: Request) -> Iterator[int]:
    """Yield the items that have moments to run, or whose last run goes on, in their order.

    An item that is switched off and has no run under way is left out, or no other item would run until it is switched
    on.  Without failover a run that was cut off has no end, so then only moments to run count.
    """
    waiting = frozenset(waiting_items(view, request))
    under_way = view.request_nodes.begun_by(request.id).under_way
    for item in request.within(view.config.sharding_total_count):
        rests = item in view.resting_items
        may_begin = item in waiting and not rests
        is_left_lying = rests and item in view.orphans
        goes_on = view.config.failover and item in under_way and not is_left_lying
        if goes_on or may_begin:
            yield item


def _begun(fire: Fire, before: tuple[Progress, int] | None) -> Progress:
    """Return an item's progress once it has begun a moment, or goes on with one that was left open."""
    if before is None:
        return Progress(fire.slot)
    last, _ = before
    if last.outcome == LEFT_OPEN:
        return replace(last, outcome="")
    outcome = last.outcome or CUT_OFF  # the run before ended without an outcome
    failed = last.failed
    if outcome != Outcome.COMPLETED:
        failed += 1
    otherwise = dict(last.otherwise)
    if outcome not in (Outcome.COMPLETED, Outcome.FAILED):
        otherwise[outcome] = otherwise.get(outcome, 0) + 1
    return Progress(fire.slot, last.runs + 1, failed, otherwise=otherwise)
