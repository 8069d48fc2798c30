"""Stopping runs that are under way."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from aioelasticjob.core.requests import encode_cancellation
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations.asking import see_whether_recorded, see_whether_requests_work
from aioelasticjob.operations.queries import has_item, items_text, no_such_item, view_of
from aioelasticjob.operations.results import NotPossible, OperationResult, commit
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Op


async def cancel(
    session: Session, job: str, *, item: int | None = None, fence: int | None = None, by: str = ""
) -> OperationResult:
    """Stop the runs of a job's items that are under way, or the run of one item.

    With a ``fence`` only runs are stopped that were claimed by that transaction or before, not those that follow.

    Their handlers are cancelled, and the runs end as ``stopped``: they are neither rescued nor run again.  An item
    stays locked until its handler has returned: a thread cannot be interrupted.  Items that run in one call, as in a
    dataflow job, are stopped together.  The end is noted with that of the other items that the instance runs.  The next
    runs are not concerned.

    Raises:
        InvalidSetting: there is no such job or item, or the job's execution is not monitored.
        NotPossible: nothing runs.
        ChangedMeanwhile: others have changed the job meanwhile.
        RegistryError: the registry could not be read or written.
    """
    view = await view_of(session, job)
    see_whether_requests_work(view)
    see_whether_recorded(view, f"runs of {job} can be cancelled only with monitor_execution = True")
    _see_what_is_meant(view, item, fence)
    items = sorted(view.items) if item is None else [item]
    locks = await session.get_many([view.layout.item(one).running for one in items])
    locked = ((one, lock) for one, lock in zip(items, locks, strict=True) if lock is not None)
    fences = {one: lock.stat.czxid for one, lock in locked if lock.stat.ephemeral_owner}
    if fence is not None and fences and min(fences.values()) > fence:
        raise NotPossible(f"{job}: that run has ended, and the next one runs: nothing was written")
    if fence is not None:
        fences = {one: taken for one, taken in fences.items() if taken <= fence}
    if not fences:
        raise NotPossible(f"{job}: nothing runs now" if item is None else f"{job}: item {item} does not run now")
    running = fences
    asked_before = {stop for wish in view.request_nodes.cancellations for stop in wish.fences.items()}
    fences = {one: taken for one, taken in running.items() if (one, taken) not in asked_before}
    stays = "an item stays locked until all handlers of its instance have returned"
    if not fences:
        return await commit(session, (), f"{job}: {_runs(running)} was asked to stop already; {stays}")
    now = round(await session.server_time(view.layout.system_time) * 1000)
    parent = [] if view.layout.requests in view.tree else [Create(view.layout.requests)]
    wish = Create(view.layout.request(f"cancel-{now:x}-{uuid4().hex[:8]}"), encode_cancellation(fences, now, by))
    operations: list[Op] = [Check(view.layout.config), *parent, wish]
    return await commit(session, operations, f"{job}: asked to stop {_runs(fences)}; {stays}")


def _runs(items: Collection[int]) -> str:
    return f"the run of {items_text(items)}"


def _see_what_is_meant(view: JobView, item: object, fence: object) -> None:
    if fence is not None and (isinstance(fence, bool) or not isinstance(fence, int)):
        raise InvalidSetting("fence", fence, "must be a whole number")
    if item is not None and not has_item(view, item):
        raise no_such_item("item", item, view.layout.job, view.config.sharding_total_count)
