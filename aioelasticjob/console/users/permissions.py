"""Who may do what: the permissions, the roles that are sets of them, and what somebody has been granted.

This is the only place that says so.  It is pure: pages, actions and (later) tokens ask it with what they know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    """One thing that somebody may do in a registry."""

    SEE = "see"
    ASK = "ask for runs"
    OPERATE = "operate"
    CHANGE = "change settings"
    DEFINE = "define what runs"
    ADMINISTER = "administer"


MEANINGS: Final[Mapping[Permission, str]] = {
    Permission.SEE: "look at jobs, servers and history; no credentials",
    Permission.ASK: "run jobs now, later or again; stop runs, and cancel requests",
    Permission.OPERATE: "pause, disable, shut down and remove jobs and servers; backfills; acknowledgements",
    Permission.CHANGE: "change settings, and see the credentials in them; dumps, exports and imports",
    Permission.DEFINE: "create jobs, and change commands, URLs and error handlers: this runs code on the workers",
    Permission.ADMINISTER: "change registries, event stores and users; see the whole audit log",
}
"""What each permission allows, in words; the page of the users shows it."""
DEFINING_SETTINGS: Final = frozenset({"handler", "options", "error_handler", "error_handler_options"})
"""The settings that say which commands and handlers run, and which URLs are called."""


class Role(StrEnum):
    """A set of permissions that has a name."""

    NONE = "none"
    VIEWER = "viewer"
    TRIGGER = "trigger"
    OPERATOR = "operator"
    DEVELOPER = "developer"
    ADMIN = "admin"

    @property
    def permissions(self) -> frozenset[Permission]:
        """What this role allows."""
        return _PERMISSIONS[self]


_PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.NONE: frozenset(),
    Role.VIEWER: frozenset({Permission.SEE}),
    Role.TRIGGER: frozenset({Permission.SEE, Permission.ASK}),
    Role.OPERATOR: frozenset({Permission.SEE, Permission.ASK, Permission.OPERATE, Permission.CHANGE}),
    Role.DEVELOPER: frozenset(Permission) - {Permission.ADMINISTER},
    Role.ADMIN: frozenset(Permission),
}


@dataclass(frozen=True, slots=True)
class Grants:
    """What somebody has been granted: a role everywhere, other roles in registries, and roles for labelled jobs."""

    role: Role
    """The role in all registries for which there is no other one."""
    by_registry: Mapping[str, Role] = field(default_factory=dict)
    by_label: Mapping[tuple[str, str], Role] = field(default_factory=dict)
    """By registry and label, such as ``team=billing``: a role that is added for the jobs that have this label."""

    def role_in(self, registry: str) -> Role:
        """Return the role in a registry.  Administrators are so in all registries."""
        return self.role if self.role is Role.ADMIN else self.by_registry.get(registry, self.role)

    def granted(self, registry: str, label: str = "") -> Role | None:
        """Return the role that was granted for a registry, or for its jobs with a label; None if none was."""
        return self.by_label.get((registry, label)) if label else self.by_registry.get(registry)

    def permissions(self, registry: str, labels: Mapping[str, str] | None = None) -> frozenset[Permission]:
        """Return what is allowed in a registry; with ``labels``, for a job that has these.

        A role for labelled jobs adds to the role in the registry.  Who sees only some jobs of it sees its pages, too:
        they are about these jobs then.
        """
        found = self.role_in(registry).permissions
        if not labels and self.labels_seen(registry):
            return found | {Permission.SEE}
        for label in labels_in_words(labels or {}):
            if (registry, label) in self.by_label:
                found |= self.by_label[registry, label].permissions
        return found

    def labels_seen(self, registry: str) -> frozenset[str]:
        """Return the labels of the jobs that are seen of a registry; none if all of it is seen, or nothing."""
        if Permission.SEE in self.role_in(registry).permissions:
            return frozenset()
        return frozenset(label for where, label in self.by_label if where == registry)

    def permissions_for_some_job(self, registry: str) -> frozenset[Permission]:
        """Return what is allowed in a registry for all jobs, or for those with some label."""
        found = self.permissions(registry)
        for (where, _), role in self.by_label.items():
            if where == registry:
                found |= role.permissions
        return found

    def allow_anywhere(self, permission: Permission) -> bool:
        """Whether a permission is granted for whole registries, be it for a single one."""
        return any(permission in role.permissions for role in (self.role, *self.by_registry.values()))


def labels_in_words(labels: Mapping[str, str]) -> list[str]:
    """Return labels as they are written in grants, such as ``team=billing``."""
    return [f"{name}={value}" for name, value in labels.items()]


def needed_to_change(settings: Iterable[str]) -> frozenset[Permission]:
    """Return the permissions that a change of these settings needs."""
    if DEFINING_SETTINGS.isdisjoint(settings):
        return frozenset({Permission.CHANGE})
    return frozenset({Permission.CHANGE, Permission.DEFINE})
