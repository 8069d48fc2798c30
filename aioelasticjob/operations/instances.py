"""Asking instances to leave, and seeing who would run what somebody asks for.

Each action is one conditional transaction.  If everything is already as the operator wants it, the action writes
nothing and says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aioelasticjob.core.records import too_large
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep
from aioelasticjob.operations.queries import listed, view_of
from aioelasticjob.operations.results import NotPossible, OperationResult, commit, signed
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create


async def shut_down(session: Session, job: str, *, instance: str | None = None, by: str = "") -> OperationResult:
    """Ask one instance of a job, or all, to finish their runs and leave the job; their processes and other jobs go on.

    Workers log who has asked, if ``by`` names somebody.

    Raises:
        InvalidSetting: no such job or instance.
        NotPossible: nobody is there.
        ChangedMeanwhile: an instance has gone.
        RegistryError: the registry could not be read or written.
    """
    view = await view_of(session, job)
    layout = view.layout
    leaving = _there(view, instance)
    new = [one for one in leaving if layout.shutdown(one) not in view.tree]
    if not new:
        return await commit(session, (), f"{job}: {_named(leaving)} was asked to leave already")
    requests = [op for one in new for op in (Check(layout.instance(one)), Create(layout.shutdown(one)))]
    return await commit(session, signed(view, by, requests), f"{job}: asked {_named(new)} to leave")


def see_who_runs(view: JobView, instance: str | None = None) -> None:
    """Refuse a run that nobody, or not the named instance, could make now.

    Raises:
        InvalidSetting: there is no such instance.
        NotPossible: no instance is there, or all are switched off, or all items are disabled.
    """
    _see_what_runs(view, _asked(view, instance))


def items_of(view: JobView, instance: str) -> tuple[int, ...]:
    """Return the items that an instance holds and that are not disabled.

    Raises:
        InvalidSetting: there is no such instance.
        NotPossible: it holds none that may run.
    """
    see_who_runs(view, instance)
    held = sorted(item for item, holder in view.assignment.items() if holder == instance)
    enabled = tuple(item for item in held if item not in view.disabled_items)
    if not enabled:
        raise NotPossible(f"{view.layout.job}: {instance} holds no item: ask without naming an instance")
    return enabled


def parameter_text(given: object) -> str | None:
    """Return a parameter as it is written: text as it is, and a mapping as JSON.

    Raises:
        InvalidSetting: it is neither, or too large for a record.
    """
    if given is None or isinstance(given, str):
        text = given
    elif not isinstance(given, Mapping):  # dict() would make {"a": "b"} of the list ["ab"]
        raise InvalidSetting("parameter", given, "must be text, or a mapping")
    elif is_too_deep(given):
        raise InvalidSetting("parameter", given, TOO_DEEP)
    else:
        try:
            text = json.dumps(dict(given), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidSetting(
                "parameter", given, f"must be text, or a mapping that JSON can spell: {error}"
            ) from None
    try:
        mistake = None if text is None else too_large(text.encode())
    except UnicodeEncodeError:
        raise InvalidSetting("parameter", given, "must be text that UTF-8 can spell") from None
    if mistake is not None:
        raise mistake
    return text


def _there(view: JobView, instance: str | None) -> Sequence[str]:
    """Return the registered instances that an action is for: the named one, or all."""
    present = sorted(view.instances)
    if instance is not None and instance not in present:
        raise InvalidSetting(
            "instance", instance, f"{view.layout.job} has no such instance; there are: {listed(present)}"
        )
    if not present:
        raise NotPossible(f"{view.layout.job}: no instance is there: start a process that runs it first")
    return present if instance is None else [instance]


def _asked(view: JobView, instance: str | None) -> Sequence[str]:
    """Return the instances that an action is for and that would run something if they were asked to."""
    present = _there(view, instance)
    able = [one for one in present if one in view.staying and one in view.active]
    if all(view.instances[one].leaving for one in present):
        who = "all its instances are" if instance is None else f"{instance} is"
        raise NotPossible(f"{view.layout.job}: {who} leaving: start a process that runs it, or ask one that stays")
    if all(one in view.lacking for one in present):
        who = "its instances do" if instance is None else f"{instance} does"
        needed = listed(list(view.config.requires))
        raise NotPossible(f"{view.layout.job}: {who} not know all that the job requires ({needed}): upgrade first")
    if all(one in view.unable for one in present):
        who = "the process of its only instance" if len(view.instances) == 1 else f"the process of {listed(present)}"
        raise NotPossible(f"{view.layout.job}: {who} cannot use the job's configuration: see aioelasticjob job")
    if view.paused:
        raise NotPossible(f"{view.layout.job}: is paused: resume it first")
    if not able:
        who = "its servers are" if instance is None else f"the server of {instance} is"
        raise NotPossible(f"{view.layout.job}: {who} switched off: resume or enable first")
    return able


def _see_what_runs(view: JobView, asked: Sequence[str]) -> None:
    """Refuse a run of no item, unless an assignment is under way, which may change that."""
    held = [item for item, holder in view.assignment.items() if holder in asked]
    if not (view.assignment_stands and view.assignment) or any(item not in view.disabled_items for item in held):
        return
    if held:
        raise NotPossible(f"{view.layout.job}: all items of {_named(asked)} are disabled: enable one first")
    raise NotPossible(f"{view.layout.job}: {_named(asked)} holds no item: ask without naming an instance")


def _named(instances: Sequence[str]) -> str:
    return instances[0] if len(instances) == 1 else f"{len(instances):,} instances"
