"""Creating jobs in the registry, which the processes with their handler run; and removing them again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from anyio import move_on_after

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.handlers import REMOVING, is_being_removed
from aioelasticjob.core.layout import HandlerPaths, Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ElasticJobError, InvalidSetting, JobConflict
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.jobs import kinds
from aioelasticjob.operations.following import check_upstreams
from aioelasticjob.operations.queries import listed, view_of
from aioelasticjob.operations.removal import remove
from aioelasticjob.operations.results import (
    ChangedMeanwhile,
    NotPossible,
    OperationResult,
    commit,
    commit_groups,
    noted,
)
from aioelasticjob.operations.transfer import ImportedJob, configurations, plan_import
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Set

MAX_ATTEMPTS = 10
"""Attempts to create or to remove a job while others make or change the same nodes."""


class RemovalUnfinished(ElasticJobError):
    """A created job was not removed in time, because instances still end what they run; nobody joins it any more."""

    def __init__(self, job: str, still: str, seconds: float) -> None:
        super().__init__(
            f"{job}: not removed within {seconds:g} s, because instances have not left: {still};"
            " nobody joins the job any more: remove it again to go on"
        )
        self.job = job
        self.still = still
        self.seconds = seconds


def created(job: str, handler: str, settings: Mapping[str, object]) -> JobConfig:
    """Return the configuration of a job that names a handler, which may be a kind of job, such as ``script``.

    Raises:
        InvalidSetting: names the setting, its value and what would be right.
    """
    for name in ("job_name", "job_type", "handler", "overwrite"):
        if name in settings:
            raise InvalidSetting(name, settings[name], "cannot be given here: it follows from the name and the handler")
    if handler not in kinds.names():
        return JobConfig.build(**settings, job_name=job, handler=handler)
    options = settings.get("options", {})
    if not isinstance(options, Mapping):
        raise InvalidSetting("options", options, f"must be a mapping: the settings that only {handler} jobs have")
    common = {name: value for name, value in settings.items() if name != "options"}
    return kinds.declared(handler, job, {**common, **options}, look=False).changed(handler=handler)


async def create(
    session: Session, job: str, settings: Mapping[str, object], *, handler: str, by: str = ""
) -> OperationResult:
    """Create a job that the processes with a handler run; do nothing if it exists with the same settings.

    Raises:
        InvalidSetting: a setting is wrong, or no process with the handler takes the parameter.
        JobConflict: there is a job of this name with other settings or of another kind, or it is being removed.
        ForeignData: what the registry holds of the job is another program's.
        ChangedMeanwhile: somebody else wrote the same nodes meanwhile, again and again.
        RegistryError: the registry could not be read or written.
    """
    config = created(job, handler, settings)
    await check_upstreams(session, config)
    for attempt in range(MAX_ATTEMPTS):
        plan = await plan_import(session, [config], by=by)
        (effect,) = plan.jobs
        if effect.effect == "refused":
            raise _conflict(effect)
        summary = f"{job}: created for the handler {handler}"
        if effect.effect == "unchanged":
            summary = f"{job}: exists with these settings already"
        try:
            return await commit(session, [op for group in plan.groups for op in group], summary)
        except ChangedMeanwhile:  # another process has made a node above, or the job itself
            if attempt == MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def create_all(session: Session, text: str, *, handler: str | None = None, by: str = "") -> OperationResult:
    """Create the jobs that a text lists, in the form of an export, in as few transactions as possible.

    All are checked before the first is written.  Those that exist with the same settings are left out, so a call that
    was interrupted is repeated.  ``handler`` is that of all jobs that name none.

    Raises: as ``create`` does.
    """
    configs = [one.naming(handler) for one in configurations(text)]
    for config in configs:
        if config.handler is None:
            raise InvalidSetting("handler", None, f"{config.job_name}: say which handler runs it")
    plan = await plan_import(session, configs, by=by)
    for effect in plan.jobs:
        if effect.effect == "refused":
            raise _conflict(effect)
    new = len(plan.new)
    summary = f"created: {new:,} ({listed(plan.new)}); {len(plan.same):,} exist with these settings already"
    return await commit_groups(session, plan.groups, summary, "jobs")


async def is_created(session: Session, job: str) -> bool:
    """Whether a job was created for a handler, and code does not declare it.

    Raises:
        InvalidSetting: there is no such job.
        ForeignData: it is another program's.
        RegistryError: the registry could not be read.
    """
    return (await view_of(session, job)).config.is_created


async def remove_created(session: Session, job: str, *, timeout: float | None = None, by: str = "") -> OperationResult:
    """Let all instances of a created job end what they run, then remove everything that the registry holds of it.

    From the beginning on nobody joins it.

    Raises:
        InvalidSetting: there is no such job, or it was not created.
        ForeignData: the job is another program's.
        RemovalUnfinished: instances were still there after ``timeout`` seconds.
        NotPossible: what the registry holds is no configuration.
        ChangedMeanwhile: somebody else wrote the same nodes meanwhile, again and again.
        RegistryError: the registry could not be read or written.
    """
    await _mark(session, job, by)
    for _ in range(MAX_ATTEMPTS):
        with move_on_after(timeout) as limit:
            await _all_left(session, Layout(job))
        if limit.cancelled_caught and timeout is not None:
            view = await view_of(session, job, busy=True)
            raise RemovalUnfinished(job, _still_there(view), timeout)
        with suppress(NotPossible, ChangedMeanwhile):  # an instance that had not seen the mark has joined meanwhile
            return await remove(session, job, by=by)
    return await remove(session, job, by=by)


async def _mark(session: Session, job: str, by: str) -> None:
    """Mark a job as being removed, so that its instances leave, and nobody joins it."""
    view = await view_of(session, job)
    if view.fault is not None:
        raise NotPossible(f"{job}: {view.fault}: mend it first, or shut it down and remove it by force")
    handler = view.config.handler
    if handler is None:
        expected = "code declares this job: shut it down, then run aioelasticjob remove"
        raise InvalidSetting("job", job, expected)
    layout = view.layout
    path = HandlerPaths(handler).job(job)
    (index,) = await session.get_many([path])
    if index is not None and is_being_removed(index):
        return
    mark = Create(path, REMOVING) if index is None else Set(path, REMOVING, index.stat.version)
    config = view.tree.get(layout.config)
    version = -1 if config is None else config.stat.version
    await commit(
        session, [Check(layout.config, version), *noted(layout, view.tree, by, [mark]), mark], f"{job}: marked"
    )


async def _all_left(session: Session, layout: Layout) -> None:
    """Wait until a job has no instance."""
    async with mirror(session, [layout.instances]) as trees:
        await trees.until(lambda tree: not tree.children(layout.instances))


def _still_there(view: JobView) -> str:
    """Return the instances of a job, each with the items that it runs."""
    runs = dict[str, list[int]]()
    for item in view.items:
        lock = view.tree.get(view.layout.item(item).running)
        if lock is not None:
            runs.setdefault(lock.text, []).append(item)
    shown = list[str]()
    for one in sorted(view.instances):
        shown.append(f"{one} runs {listed_items(runs[one])}" if one in runs else one)
    return listed(shown)


def _conflict(effect: ImportedJob) -> JobConflict:
    settings = ", ".join(effect.changes)
    what = (
        f"is there already with other settings ({settings}): change them with aioelasticjob set, or choose another name"
    )
    return JobConflict("job_name", effect.name, what)
