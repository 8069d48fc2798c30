"""Export and import of configurations and calendars as text: to keep, to compare and to copy them elsewhere."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import yaml

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.handlers import is_being_removed, missing_parents, noted_change
from aioelasticjob.core.layout import CALENDARS, HandlerPaths, Layout, calendar_path
from aioelasticjob.core.stored_config import replaced_by
from aioelasticjob.core.view import parse
from aioelasticjob.errors import ForeignData, InvalidSetting, JobConflict
from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep, read_json
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.yaml_scalars import reading_as_written
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.handlers import see_kind
from aioelasticjob.jobs.kinds import fits
from aioelasticjob.logging import json_text, logger
from aioelasticjob.operations.calendars import calendars
from aioelasticjob.operations.parameters import PublishedSchemas
from aioelasticjob.operations.queries import foreign_jobs, listed, names, no_such
from aioelasticjob.operations.results import NotPossible, OperationResult, commit, commit_groups, noted
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Op, Set, put
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.schedules.calendars import Calendar, calendar_in, checked_name
from aioelasticjob.schedules.schedule import NO_CALENDARS

MAX_IGNORED_KEYS = 5
"""Keys without effect that the summary of an import names."""
MAX_IMPORT_CHARACTERS = 16 * 1024 * 1024
"""Characters that a text to import may have; that is enough for thousands of jobs."""

log = logger(__name__)

_LOADER = reading_as_written(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_DUMPER: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""PyYAML's loader and dumper in C if they are installed: they are ten times as fast, and safe as well."""


async def export_jobs(
    session: Session, wanted: Iterable[str] | None = None, *, form: Literal["json", "yaml"] = "json"
) -> str:
    """Return the configurations of some jobs, or of all, as text that ``import_jobs`` takes.

    The calendars that these jobs name are in it as well; all calendars, if all jobs are.

    Jobs of another program that cannot be read are left out of an export of all jobs, and the log says so.

    Raises:
        InvalidSetting: there is no such job, or no such form.
        ForeignData: a job was named, and what the registry holds of it is another program's.
        NotPossible: what the registry holds of a job is no configuration.
        RegistryError: the registry could not be read.
    """
    if form not in ("json", "yaml"):
        raise InvalidSetting("form", form, "must be json or yaml")
    await session.sync()
    there = await names(session)
    chosen = there if wanted is None else tuple(dict.fromkeys(wanted))
    for name in chosen:
        if name not in there:
            raise await no_such(session, name)
    layouts = [Layout(name) for name in chosen]
    nodes = await session.get_many([layout.config for layout in layouts])
    there_now = [(node, layout) for node, layout in zip(nodes, layouts, strict=True) if node is not None]
    found = list[JobConfig]()
    for node, layout in there_now:
        try:
            found.append(await _stored(session, node, layout))
        except ForeignData as error:
            if wanted is not None:
                raise
            log.warning("%s is left out of the export: %s", layout.job, error, extra={"job": layout.job})
    document: dict[str, object] = {"jobs": [config.as_json() for config in found]}
    named = {name for config in found for name in config.calendar}
    known = await calendars(session)
    exported = [one for one in known if one.calendar is not None and (wanted is None or one.name in named)]
    if exported:
        document["calendars"] = {one.name: one.calendar.text.splitlines() for one in exported if one.calendar}
    if form == "yaml":
        return str(yaml.dump(document, Dumper=_DUMPER, allow_unicode=True, sort_keys=False))
    return json_text(document, indent=2) + "\n"


async def import_jobs(session: Session, text: str, *, overwrite: bool = False, by: str = "") -> OperationResult:
    """Write configurations from JSON or YAML, made by ``export_jobs`` or by a person: all of them or none.

    Everything is validated before anything is written.  Existing jobs keep their settings unless ``overwrite`` is True,
    and calendars that are there keep their days.
    Keys that this release does not know are kept, those of the text and those in the registry; the summary names them.
    An import that is too large for one transaction is written in several.  Workers log who has changed the settings, if
    ``by`` names somebody.

    Raises:
        InvalidSetting: the text is none, or a configuration in it is wrong; names the job.
        JobConflict: the name belongs to another kind of job.
        ForeignData: what the registry holds of one of these jobs is another program's, or another job's.
        NotPossible: jobs are there already with other settings, or calendars with other days.
        ChangedMeanwhile: somebody else wrote one of them meanwhile.
        RegistryError: the registry could not be read or written.
    """
    plan = await plan_import(session, *_contents(text), overwrite=overwrite, by=by)
    if plan.refused:
        many = "jobs are" if len(plan.refused) > 1 else "job is"
        raise NotPossible(
            f"{len(plan.refused):,} {many} there already with other settings ({listed(plan.refused)}):"
            " leave out or overwrite"
        )
    if plan.refused_calendars:
        many = "calendars are" if len(plan.refused_calendars) > 1 else "calendar is"
        raise NotPossible(
            f"{len(plan.refused_calendars):,} {many} there already with other days ({listed(plan.refused_calendars)}):"
            " leave out or overwrite"
        )
    if not plan.groups:
        return await commit(session, (), plan.summary)
    return await commit_groups(session, plan.groups, plan.summary, "jobs")


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """What an import does, or would do, to one job."""

    name: str
    effect: Literal["new", "replaced", "unchanged", "refused"]
    """``refused``: the job is there already with other settings, and may not be overwritten."""
    changes: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    """By setting: its value in the registry, None where there is none, and its value in the text."""


async def preview_import(session: Session, text: str, *, overwrite: bool = False) -> tuple[ImportedJob, ...]:
    """Return what ``import_jobs`` would do to each job of the text.  Nothing is written.

    Raises:
        InvalidSetting: the text is none, or a configuration in it is wrong; names the job.
        JobConflict: the name belongs to another kind of job.
        ForeignData: what the registry holds of one of these jobs is another program's, or another job's.
        RegistryError: the registry could not be read.
    """
    return tuple((await plan_import(session, *_contents(text), overwrite=overwrite)).jobs)


async def plan_import(
    session: Session,
    configs: Sequence[JobConfig],
    days: Mapping[str, Calendar] = NO_CALENDARS,
    *,
    overwrite: bool = False,
    by: str = "",
) -> Import:
    """Return what has to be written so that the registry holds these configurations and calendars.

    Nothing is written.

    Raises:
        InvalidSetting: a name belongs to a node that is no job, or no process takes the parameter of a created job.
        JobConflict: a name belongs to another kind of job, or to a job that is being removed.
        ForeignData: what the registry holds of one of these jobs is another program's, or another job's.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    layouts = [Layout(config.job_name) for config in configs]
    paths = [path for one in layouts for path in (one.root, one.config, one.leader, one.operator)]
    handlers = [HandlerPaths(name) for name in sorted({one.handler for one in configs if one.handler is not None})]
    paths += [path for one in handlers for path in one.parents]
    paths += [HandlerPaths(one.handler).job(one.job_name) for one in configs if one.handler is not None]
    nodes = zip(paths, await session.get_many(paths), strict=True)
    tree = Tree({path: node for path, node in nodes if node is not None})
    schemas = PublishedSchemas(await session.subtree([one.processes for one in handlers]))
    plan = Import(overwrite, by, schemas, kinds.names())
    for error in (await foreign_jobs(session, [layout for layout in layouts if layout.root in tree])).values():
        raise error
    if days:
        plan.add_calendars(days, await session.subtree([CALENDARS]))
    for config, layout in zip(configs, layouts, strict=True):
        plan.add(config, layout, tree)
    return plan


def _changes(before: JobConfig | None, after: JobConfig) -> dict[str, tuple[object, object]]:
    """Return the settings that differ; of a new job those that are not the default."""
    old = before or JobConfig(job_name=after.job_name)
    pairs = {name: (getattr(old, name), getattr(after, name)) for name in JobConfig.model_fields}
    return {name: (None if before is None else one, two) for name, (one, two) in pairs.items() if one != two}


@dataclass(slots=True)
class Import:
    """An import that is being prepared: what it will write, and the counts for its summary."""

    overwrite: bool
    by: str
    schemas: PublishedSchemas
    kinds: Collection[str]
    """The kinds of jobs that are handlers of created jobs."""
    groups: list[list[Op]] = field(default_factory=list)
    jobs: list[ImportedJob] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    calendars: list[str] = field(default_factory=list)
    """The calendars that are written."""
    refused_calendars: list[str] = field(default_factory=list)
    _made: set[str] = field(default_factory=set)
    """The nodes above the index that this import makes."""

    @property
    def summary(self) -> str:
        """What the import does, in one sentence."""
        parts = [
            f"{len(those):,} {word} ({listed(those)})"
            for word, those in (("new", self.new), ("replaced", self.replaced), ("unchanged", self.same))
            if those
        ]
        kept = "".join(f"; {sentence}" for sentence in self.ignored[:MAX_IGNORED_KEYS])
        days = f"; {counted(len(self.calendars), 'calendar')} ({listed(self.calendars)})" if self.calendars else ""
        return f"imported: {', '.join(parts) or 'no jobs were given'}{days}{kept}"

    def add_calendars(self, days: Mapping[str, Calendar], tree: Tree) -> None:
        """Decide which calendars are written, and note their operations, before those of the jobs that name them."""
        operations = list[Op]()
        for name, calendar in days.items():
            path = calendar_path(name)
            node = tree.get(path)
            if node is not None and calendar_in(node.data) == calendar:
                continue
            if node is not None and not self.overwrite:
                self.refused_calendars.append(name)
                continue
            self.calendars.append(name)
            operations.append(put(path, calendar.text.encode(), node))
        if operations and CALENDARS not in tree:
            operations.insert(0, Create(CALENDARS))
        self.groups += [[one] for one in operations]

    def add(self, config: JobConfig, layout: Layout, tree: Tree) -> None:
        """Decide whether one job is new, replaced, unchanged or refused, and note its operations."""
        name = config.job_name
        node = tree.get(layout.config)
        index = None
        if config.handler is not None:
            see_kind(config, config.handler.upper() if config.handler in self.kinds else "SIMPLE")
            index = tree.get(HandlerPaths(config.handler).job(name))
        if index is not None and is_being_removed(index):
            raise JobConflict("job_name", name, "is being removed: wait until it is gone, or remove it again")
        self.ignored += [f"{name}: {sentence}" for sentence in config.ignored]
        if node is None:
            if layout.root in tree:
                raise InvalidSetting("job", name, "a node of that name is there that is no job: choose another name")
            self.schemas.see_accepted(config)
            self.new.append(name)
            self.jobs.append(ImportedJob(name, "new", _changes(None, config)))
            made = [Create(layout.root), Create(layout.config, config.to_json())]
            self.groups.append([*self._indexed(config, tree), *made])
            return
        try:
            present = parse(node.data, layout)
        except InvalidSetting:
            present = None
        if present == (config := config.in_place_of(node.data)):
            self.same.append(name)
            self.jobs.append(ImportedJob(name, "unchanged"))
            if index is None and config.is_created:  # somebody has removed it by hand
                self.groups.append(self._indexed(config, tree))
        elif not self.overwrite:
            self.refused.append(name)
            self.jobs.append(ImportedJob(name, "refused", _changes(present, config)))
        else:
            replaced_by(config, node.data, layout)
            self.schemas.see_accepted(config)
            self.replaced.append(name)
            self.jobs.append(ImportedJob(name, "replaced", _changes(present, config)))
            change = [Set(layout.config, config.to_json(), node.stat.version)]
            in_index = self._indexed(config, tree) if index is None else noted_change(config, index)
            self.groups.append([*noted(layout, tree, self.by, change), *change, *in_index])

    def _indexed(self, config: JobConfig, tree: Tree) -> list[Op]:
        """Return the operations that add a created job to the index of its handler; none for a declared one."""
        if config.handler is None:
            return []
        paths = HandlerPaths(config.handler)
        above = missing_parents(paths, self._made.union(tree))
        self._made.update(op.path for op in above)
        index = paths.job(config.job_name)
        return [*above, Create(index)]


async def _stored(session: Session, node: Node, layout: Layout) -> JobConfig:
    try:
        return parse(node.data, layout)
    except InvalidSetting as mistake:
        if (error := (await foreign_jobs(session, [layout])).get(layout.job)) is not None:
            raise error from None
        raise NotPossible(f"{mistake}: mend it first, or export the others by name") from None


def _document(text: str) -> object:
    """Return what a text says, as JSON or YAML."""
    if len(text) > MAX_IMPORT_CHARACTERS:
        raise InvalidSetting(
            "import", f"{text[:40]}…", f"is {len(text):,} characters long, at most {MAX_IMPORT_CHARACTERS:,} are read"
        )
    return _read(text) or None  # an empty list alone is a mistake; {"jobs": []} is what an export without jobs writes


def _entries(found: object, text: str) -> Sequence[object]:
    """Return the entries that a text lists under ``jobs``."""
    if isinstance(found, Mapping):
        found = found["jobs"] if _is_whole(found) else [found]
    if not isinstance(found, list):
        raise InvalidSetting("import", text[:40], 'write {"jobs": [{"jobName": "report", …}, …]}, as export does')
    return found


def _calendars(found: object) -> dict[str, Calendar]:
    """Return the calendars that a text has beside its jobs: by name the lines of each, or its text."""
    given = found.get("calendars", {}) if isinstance(found, Mapping) and _is_whole(found) else {}
    if not isinstance(given, Mapping):
        raise InvalidSetting("calendars", given, 'write {"de-holidays": ["weekdays sat, sun", "2026-12-25"]}')
    calendars = dict[str, Calendar]()
    for name, days in given.items():
        lines = [days] if isinstance(days, str) else days
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise InvalidSetting(
                f"calendars.{name}", days, 'must be a list of lines, such as ["2026-12-25 Christmas Day"]'
            )
        calendars[checked_name(name)] = Calendar.of_text("\n".join(lines))
    return calendars


def _is_whole(found: Mapping[object, object]) -> bool:
    """Whether a text lists jobs, and maybe calendars, and is not the configuration of one job."""
    return "jobs" in found and found.keys() <= {"jobs", "calendars"}


def _read(text: str) -> object:
    try:
        if text.lstrip()[:1] in ("{", "["):
            return read_json(text)
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _LOADER)):
            raise InvalidSetting(
                "import", text[:40], "YAML aliases (*name) are not taken: a few lines can mean gigabytes"
            )
        found = yaml.load(text, _LOADER)
        if is_too_deep(found):
            raise ValueError(TOO_DEEP)
        return found
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        if isinstance(error, InvalidSetting):
            raise
        why = " ".join(str(error).split())
        raise InvalidSetting("import", text[:40], f"is neither JSON nor YAML: {why}") from None


def configurations(text: str) -> list[JobConfig]:
    """Return the configurations in a text that ``export_jobs`` or a person has made.

    Raises:
        InvalidSetting: the text is none, or a configuration in it is wrong; names the job.
    """
    return _contents(text)[0]


def _contents(text: str) -> tuple[list[JobConfig], dict[str, Calendar]]:
    """Return the configurations and the calendars in a text.

    Raises: as ``configurations`` does.
    """
    document = _document(text)
    found: dict[str, JobConfig] = {}
    for number, entry in enumerate(_entries(document, text), 1):
        config = _config(number, entry)
        if config.job_name in found:
            raise InvalidSetting("job", config.job_name, "is given twice")
        found[config.job_name] = config
    return list(found.values()), _calendars(document)


def _config(number: int, entry: object) -> JobConfig:
    name = entry.get("jobName", entry.get("job_name", "")) if isinstance(entry, Mapping) else ""
    which = f"job {number} ({name})" if name else f"job {number}"
    try:
        config = JobConfig.from_json(json.dumps(entry, default=str).encode(), which)
        fits(config)
        return config
    except ForeignData as mistake:
        expected = mistake.expected.removeprefix("no job configuration: ")
        raise InvalidSetting(mistake.setting, mistake.value, expected) from None
    except InvalidSetting as mistake:
        raise InvalidSetting(which, mistake.value, f"{mistake.setting}: {mistake.expected}") from None
    except (TypeError, ValueError, RecursionError) as error:  # YAML allows keys that are no text
        raise InvalidSetting(which, str(entry)[:40], f"is no job configuration: {error}") from None
