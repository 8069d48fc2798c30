"""The rules that note the end of requests, and remove requests that nobody needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from aioelasticjob.coordination.effects import ForgetRequest, UpdateRequest
from aioelasticjob.coordination.request_runs import begun_items, waiting_items
from aioelasticjob.coordination.requests import EXPIRED, Request, changed
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.view import JobView

NAMED_FOR = 7 * 24 * 3600
"""Seconds for which the id of a request is remembered after its end, if who has asked has given the id."""
UNNAMED_FOR = 3600
"""Seconds for which other requests are shown after their end."""
LOST_AFTER = 24 * 3600
"""Seconds after the last news of a request at which runs without an outcome count as lost."""
LOST = "unknown"
"""The outcome of a run that nobody has settled."""


def end_requests(now: RuleInput) -> Iterator[UpdateRequest]:
    """The leader stops requests that have expired, and closes those of which nothing runs or will run any more."""
    if not now.leading:
        return
    view, time = now.view, round(now.time * 1000)
    for request in view.requests:
        path = view.layout.request(request.id)
        if request.closed:
            if view.tree.children(path):
                yield _update(view, request)
        elif request.is_open and 0 < request.expires <= time and next(waiting_items(view, request), None) is not None:
            yield _update(view, request, stopped=EXPIRED)
        elif _is_over(view, request, now.time):
            yield _closing(view, request, time)


def forget_requests(now: RuleInput) -> Iterator[ForgetRequest]:
    """On a tick the leader removes requests that ended long ago."""
    if not (now.tick and now.leading):
        return
    view = now.view
    for request in view.requests:
        kept = NAMED_FOR if request.named else UNNAMED_FOR
        path = view.layout.request(request.id)
        if request.closed and request.closed / 1000 + kept < now.time and not view.tree.children(path):
            yield ForgetRequest(request.id, request.version)
    for one in view.cancellations:
        if one.asked / 1000 + UNNAMED_FOR < now.time and not view.tree.children(view.layout.request(one.id)):
            yield ForgetRequest(one.id, one.version)


def _is_over(view: JobView, request: Request, time: float) -> bool:
    """Whether nothing of a request will begin any more, and all its runs have ended or are lost."""
    if request.is_open and next(waiting_items(view, request), None) is not None:
        return False
    begun = begun_items(view, request).items()
    if all(progress.outcome or _is_removed(view, item) for item, (progress, _) in begun):
        return True
    nodes = view.tree.below(view.layout.request(request.id))
    newest = max((node.stat.mtime for path in nodes if (node := nodes.get(path)) is not None), default=0.0)
    return newest + LOST_AFTER < time


def _is_removed(view: JobView, item: int) -> bool:
    """Whether an item is beyond the item count and has been removed, which happens only when it does not run."""
    return item >= view.config.sharding_total_count and view.layout.item(item).sharding not in view.tree


def _closing(view: JobView, request: Request, time: int) -> UpdateRequest:
    outcomes = Counter[str]()
    for progress, _ in begun_items(view, request).values():
        outcomes += progress.outcomes(LOST)
    unrun = tuple(waiting_items(view, request)) if request.stopped else ()
    return _update(view, request, unrun, closed=time, outcomes=dict(outcomes))


def _update(view: JobView, request: Request, unrun: tuple[int, ...] = (), **keys: object) -> UpdateRequest:
    """Return the effect that changes a request's node; if it closes the request, the nodes of its items are removed."""
    path = view.layout.request(request.id)
    node = view.tree.get(path)
    assert node is not None
    closes = request.closed or "closed" in keys
    below = [f"{path}/{name}" for name in view.tree.children(path)] if closes else []
    stale = tuple(one for one in below if not view.tree.children(one))
    return UpdateRequest(request, changed(node.data, **keys), stale, unrun if request.stopped == EXPIRED else ())
