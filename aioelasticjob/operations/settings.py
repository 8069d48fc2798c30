"""Changing a job's settings, and a preview of a change.  Settings are named as in Python, or as in the registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from aioelasticjob import error_handlers
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.job import FEATURES, JobConfig
from aioelasticjob.core.declaration import shown
from aioelasticjob.core.handlers import noted_change
from aioelasticjob.core.layout import HandlerPaths
from aioelasticjob.core.request_runs import open_requests
from aioelasticjob.core.requests import Request
from aioelasticjob.core.rules import wanted_assignment
from aioelasticjob.core.strategies import find
from aioelasticjob.core.view import JobView, with_calendars
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs import executors
from aioelasticjob.jobs.kinds import CODED, configured, fits
from aioelasticjob.jobs.kinds import names as kinds
from aioelasticjob.operations.backfill import see_no_backfill
from aioelasticjob.operations.following import check_upstreams
from aioelasticjob.operations.parameters import PublishedSchemas
from aioelasticjob.operations.queries import items_text, listed, requests_view, view_of
from aioelasticjob.operations.repair import readable_settings, repaired
from aioelasticjob.operations.results import ChangedMeanwhile, OperationResult, commit, noted
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Op, Set
from aioelasticjob.schedules import Schedule

FIRES_SHOWN = 5
"""Moments of the new schedule that a preview shows."""
UNCHANGEABLE: Mapping[str, str] = {
    "job_name": "a job's name is its identity and never changes",
    "job_type": "follows from the job's code",
    "handler": "is given when the job is created and never changes",
    "overwrite": "is said in the code and never stored",
}
"""Settings that cannot be changed in the registry, and why."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change of settings would do now."""

    config: JobConfig
    """The whole configuration after the change."""
    version: int
    """The version of the present configuration: given to ``configure``, it keeps others' changes from being lost."""
    changed: Mapping[str, tuple[object, object]]
    """The changed settings, with the value before and after."""
    next_fires: tuple[datetime, ...]
    """The next moments of the new schedule, five at most, in the job's time zone."""
    moves: Mapping[int, tuple[str | None, str | None]]
    """The items that would move: from which instance to which."""
    warnings: tuple[str, ...]
    """Consequences that an operator may not expect, one sentence each."""
    schedule: Schedule | None = None
    """The schedule after the change: of a job that follows others, the one that it has from them."""


async def preview(session: Session, job: str, settings: Mapping[str, object], *, now: float | None = None) -> Preview:
    """Return what a change would do, and write nothing; ``now`` is in seconds since the epoch, by default the host's
    time.

    Raises:
        InvalidSetting: no such job, or a setting is wrong.
        NotPossible: what the registry holds now is no configuration, or other settings in it are wrong.
        RegistryError: the registry could not be read.
    """
    view = await view_of(session, job, busy=True)
    config = _changed(view, settings)
    followed = await check_upstreams(session, config) if _follows_others(view, config) else view.schedule
    schedule = followed if config.after else config.schedule
    after = replace(view, config=config)
    fires = () if schedule is None else schedule.times_after(moment(_now(now)), FIRES_SHOWN)
    assignment = wanted_assignment(after) if after.eligible else view.assignment
    moves = {
        item: (view.assignment.get(item), assignment.get(item))
        for item in sorted(view.assignment.keys() | assignment.keys())
        if view.assignment.get(item) != assignment.get(item)
    }
    differences = _differences(readable_settings(view), config)
    asked = open_requests(await requests_view(session, job))
    warnings = (*_warnings(view, after, differences, moves, fires=bool(fires)), *_about_requests(asked, after.config))
    return Preview(config, _version(view), differences, tuple(fires), moves, warnings, schedule)


async def configure(
    session: Session, job: str, settings: Mapping[str, object], *, version: int | None = None, by: str = ""
) -> OperationResult:
    """Change settings of a job; its instances follow within moments, and log who did it, if ``by`` names somebody.

    ``version`` is the version of the configuration on which the change was decided (``Preview.version``,
    ``JobStatus.config_version``); without it the change applies to whatever is there now.

    Raises:
        InvalidSetting: no such job, or a setting is wrong.
        NotPossible: what the registry holds now is no configuration, or other settings in it are wrong.
        ChangedMeanwhile: the configuration is no longer at that version.
        RegistryError: the registry could not be read or written.
    """
    view = await view_of(session, job)
    present = _version(view)
    if version not in (None, present):
        path = view.layout.config
        raise ChangedMeanwhile(path, f"was changed (it is at version {present}, {version} was seen)")
    config = _changed(view, settings)
    differences = _differences(readable_settings(view), config)
    if not differences:
        return await commit(session, (), f"{job}: is configured so already")
    if "sharding_total_count" in differences:
        see_no_backfill(view)
    if _follows_others(view, config):
        await check_upstreams(session, config)
    said = "; ".join(f"{name}: {shown(before)} → {shown(after)}" for name, (before, after) in differences.items())
    change: list[Op] = [Set(view.layout.config, config.to_json(), present)]
    if config.handler is not None:
        change += await _in_index(session, config, parameter_changes="job_parameter" in differences)
    return await commit(session, [*noted(view.layout, view.tree, by, change), *change], f"{job}: {said}")


def _follows_others(view: JobView, config: JobConfig) -> bool:
    """Whether a change lets a job follow others than before."""
    return bool(config.after) and (view.fault is not None or config.after != view.config.after)


async def _in_index(session: Session, config: JobConfig, *, parameter_changes: bool) -> list[Op]:
    """Return the operations that tell the processes with a created job's handler of a change.

    Raises:
        InvalidSetting: the parameter changes, and none of these processes takes it.
    """
    assert config.handler is not None
    paths = HandlerPaths(config.handler)
    tree = await session.subtree([paths.job(config.job_name), paths.processes])
    if parameter_changes:
        PublishedSchemas(tree).see_accepted(config)
    return noted_change(config, tree.get(paths.job(config.job_name)))


def settings_from(given: Mapping[str, object]) -> dict[str, object]:
    """Return settings by their Python names; text from a form or a command line is converted to the setting's type.

    Raises:
        InvalidSetting: it is no mapping, or a setting is given twice, or cannot be changed.
    """
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidSetting("settings", given, "must be a mapping of settings by name")
    found = dict[str, object]()
    for key, value in given.items():
        name = _names().get(key, key)
        if name in UNCHANGEABLE:
            raise InvalidSetting(key, value, UNCHANGEABLE[name])
        if name in found:
            raise InvalidSetting(key, value, f"is given twice: as {name}, too")
        found[name] = _understood(name, value)
    return found


def _changed(view: JobView, settings: Mapping[str, object]) -> JobConfig:
    given = settings_from(settings)
    if view.fault is None:
        config = view.config
    else:
        config = repaired(view, {name: value for name, value in given.items() if name in JobConfig.model_fields})
    if "options" in given:  # the options as a whole; those that are given by name override single ones
        config = config.changed(options=given.pop("options"))
    config = configured(config, given) if _is_known(config.job_type) else config.changed(**given)
    fits(config)
    return with_calendars(config, view.common)


def _is_known(kind: str) -> bool:
    """Whether this process knows a kind of job: only the kind's package knows what its settings mean."""
    return kind in CODED or kind.lower() in kinds()


@cache
def _names() -> Mapping[str, str]:
    """Return the Python names of the settings by their keys in the registry."""
    fields = JobConfig.model_fields.items()
    return {key: name for name, field in fields for key in (field.serialization_alias, field.alias) if key}


def _understood(name: str, value: object) -> object:
    if not isinstance(value, str) or name not in JobConfig.model_fields:
        return value
    annotation = JobConfig.model_fields[name].annotation
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if value.strip().lower() in ("", "none", "null"):
        if NoneType in kinds:
            return None
        if get_origin(annotation) is tuple:  # a list of words: nothing that it could name is called none
            return ()
    if str not in kinds and value.lstrip().startswith(("{", "[")):
        try:
            return read_json(value)
        except ValueError as error:
            raise InvalidSetting(name, value, f"begins like JSON and is none: {error}") from None
    return value


def _differences(before: Mapping[str, object], after: JobConfig) -> dict[str, tuple[object, object]]:
    both = {name: (before[name], getattr(after, name)) for name in JobConfig.model_fields}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _version(view: JobView) -> int:
    node = view.tree.get(view.layout.config)
    return -1 if node is None else node.stat.version


def _now(given: float | None) -> float:
    return SystemClock().now() if given is None else given


def _warnings(
    before: JobView,
    after: JobView,
    differences: Mapping[str, object],
    moves: Mapping[int, tuple[str | None, str | None]],
    *,
    fires: bool,
) -> Iterator[str]:
    config = after.config
    if not after.staying:
        yield f"{_nobody(after)}: it takes effect when that changes"
    elif not after.active:
        yield "it is paused, or its servers are: nothing runs until that changes"
    if config.schedule is not None and (missing := config.schedule.missing_calendars):
        yield f"there is no calendar {listed(missing)}: the job runs nothing until there is"
    if (config.schedule is not None or config.after) and not fires:
        yield "the schedule never fires again"
    if config.schedule is None and not config.after and differences.keys() & {"cron", "every", "at", "after"}:
        yield "without a schedule it runs only when it is triggered"
    yield from _about_runs(before, config, moves)
    orphans = before.orphans if not config.failover else {item for item in before.orphans if not _within(item, config)}
    if orphans:
        yield f"waiting for a rescuer and then forgotten: {items_text(orphans)}"
    if "monitor_execution" in differences and not config.monitor_execution:
        yield "unmonitored, an item may run twice at a time after a crash, and its records are removed"
    instances_of = Counter([one.ip for one in after.instances.values()])
    crowded = sorted(ip for ip, count in instances_of.items() if count > 1)
    if crowded and "monitor_port" in differences and config.monitor_port > 0:
        where = listed(crowded)
        yield f"a port belongs to one process, and several run on {where}: the others log that; 0 picks free ones"
    if "disabled" in differences:
        yield "disabled counts only where a server is seen for the first time: disable the job's servers instead"
    yield from _unknown_here(config, differences)


def _nobody(view: JobView) -> str:
    """Return why no instance can hold items."""
    if not view.instances:
        return "no instance is there"
    if all(one.leaving for one in view.instances.values()):
        return "all instances are leaving"
    if all(one in view.lacking for one in view.instances):
        return f"no instance knows all that the job requires ({listed(list(view.config.requires))})"
    if all(one in view.unable for one in view.instances):
        return "no process can use the present configuration"
    return "all servers are disabled"


def _about_runs(
    before: JobView, config: JobConfig, moves: Mapping[int, tuple[str | None, str | None]]
) -> Iterator[str]:
    running = {item for item in before.items if before.layout.item(item).running in before.tree}
    if beyond := {item for item in running if not _within(item, config)}:
        yield f"beyond the new count and running now: {items_text(beyond)}; removed once that has ended in peace"
    if moving := {item for item in running.intersection(moves) if _within(item, config)}:
        yield f"changing hands and running now: {items_text(moving)}; the new holder waits until that has ended"


def _about_requests(asked: Iterable[Request], config: JobConfig) -> Iterator[str]:
    """Return warnings about requests of which runs may still begin."""
    for request in asked:
        if beyond := [item for item in request.items or () if not _within(item, config)]:
            named = items_text(beyond)
            yield f"beyond the new count: {named}, which the request {request.id} asks for and will not run"
    waiting = [request.id for request in asked if request.span is not None]
    if waiting and not config.monitor_execution:
        yield f"backfills that are open wait until monitor_execution is on again: {listed(waiting)}"


def _unknown_here(config: JobConfig, differences: Mapping[str, object]) -> Iterator[str]:
    """Return warnings about settings that this process cannot check, since it does not have the job's packages."""
    if "options" in differences and not _is_known(config.job_type):
        yield f"no kind {config.job_type} is known here: whether the options are right will be seen where it runs"
    if "sharding_strategy" in differences:
        try:
            find(config.sharding_strategy)
        except InvalidSetting:
            yield f"no strategy {config.sharding_strategy!r} is known here: the moves shown are those of the average"
    if "requires" in differences and (unknown := [one for one in config.requires if one not in FEATURES]):
        yield f"this release knows no feature {listed(unknown)}: check the spelling, or no worker of it runs the job"
    if "executor" in differences:
        try:
            executors.check(config.executor)
        except InvalidSetting as mistake:
            yield f"as far as is known here, {mistake}"
    if differences.keys() & {"error_handler", "error_handler_options"}:
        try:
            error_handlers.check(config.error_handler, config.error_handler_options)
        except InvalidSetting as mistake:
            yield f"as far as is known here, {mistake}"


def _within(item: int, config: JobConfig) -> bool:
    return item < config.sharding_total_count
