"""Moments that are run again in a job, and then in all jobs that follow it."""

from __future__ import annotations

from dataclasses import replace

from aioelasticjob.core.layout import Layout
from aioelasticjob.core.requests import Request, encode
from aioelasticjob.core.view import JobView
from aioelasticjob.operations.asking import Asked, see_whether_recorded, see_whether_requests_work
from aioelasticjob.operations.queries import listed, view_of
from aioelasticjob.operations.results import commit
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Op


async def write_cascade(session: Session, view: JobView, request: Request, summary: str) -> Asked:
    """Write a request, and one of the same id for each job that follows, also through others: all of them or none.

    A follower's request begins when those of the jobs that it follows are over.  A follower that has none of the
    moments is left out, with its followers.

    Raises:
        InvalidSetting: a follower does not allow it.
        NotPossible: the configuration of a follower is invalid.
        ChangedMeanwhile: others have changed one of the jobs meanwhile, or one has a request of this id.
        RegistryError: the registry could not be read or written.
    """
    views = {view.layout.job: view}
    requests = {view.layout.job: request}
    waiting = [view.layout.job]
    for job in waiting:
        for name in views[job].tree.children(views[job].layout.followers):
            if name not in views:
                views[name] = await view_of(session, name, request=request.id)
                wanted = _followers_request(views[name], request)
                if wanted is not None:
                    requests[name] = wanted
                    waiting.append(name)
    operations = list[Op]()
    for job, wanted in requests.items():
        followers = [name for name in requests if job in views[name].config.after]
        awaits = [name for name in views[job].config.after if name in requests and job != view.layout.job]
        whole = replace(wanted, then=tuple(followers), awaits=tuple(awaits))
        layout = Layout(job)
        operations += [Check(layout.config), Create(layout.request(request.id), encode(whole))]
    followers = [name for name in requests if name != view.layout.job]
    then = f", and then of {listed(followers)}" if followers else ""
    done = await commit(session, operations, f"{summary}{then}, as the request {request.id}")
    return Asked(done.summary, done.paths, done.zxid, request.id)


def _followers_request(view: JobView, request: Request) -> Request | None:
    """Return the request of a follower for the same moments; None if it has none of them."""
    if view.schedule is None or request.span is None:
        return None
    span = replace(request.span, schedule=view.schedule)
    if span.following(0) is None:
        return None
    see_whether_requests_work(view)
    see_whether_recorded(view, f"moments of {view.layout.job} can be run again only with monitor_execution = True")
    takes_any = view.config.after_outcome == "any"
    return replace(request, items=None, count=view.config.sharding_total_count, span=span, takes_any=takes_any)
