"""The person or browser that sends a request: who it is, from which address, and what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aioelasticjob.console.users.permissions import Permission, Role
from aioelasticjob.console.users.sessions import SignedIn


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks at the console, signed in or not."""

    session: SignedIn | None
    address: str
    """The network address that the request came from."""
    agent: str
    """What the browser calls itself."""
    theme: str
    """The colours wished: light, dark, or auto."""
    zone: str
    """The time zone in which times are shown and read."""
    form_key: str
    """Stands for a browser that is not signed in, so that its forms can be known again."""
    form_token: str
    """What every form of this viewer carries."""
    read_only: bool
    """Whether this console lets nobody change anything."""
    registry: str = ""
    """The registry that the page is about; empty for a page about none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the job that the page is about; none for a page about no job."""

    @property
    def name(self) -> str:
        """The user's name for the audit log; empty where nobody is signed in."""
        return self.session.person.name if self.session else ""

    @property
    def role(self) -> Role:
        """The role in the registry that the page is about; on a page about none, the role in all of them."""
        return Role.NONE if self.session is None else self.session.person.grants.role_in(self.registry)

    @property
    def labels_seen(self) -> frozenset[str]:
        """The labels of the jobs that this person sees of the registry; none if all of it is seen, or nothing."""
        return frozenset() if self.session is None else self.session.person.grants.labels_seen(self.registry)

    def on(self, labels: Mapping[str, str]) -> Viewer:
        """Return this viewer as they look at a job that has these labels."""
        return replace(self, labels=labels)

    def has(self, permission: Permission) -> bool:
        """Whether this person has a permission where the page is, also if this console changes nothing."""
        if self.session is None:
            return False
        return permission in self.session.person.grants.permissions(self.registry, self.labels)

    def may(self, permission: Permission) -> bool:
        """Whether this person may do now what a permission is for."""
        return self.has(permission) and not self.read_only

    def may_for_some_job(self, permission: Permission) -> bool:
        """Whether this person may do now, to one job of the registry at least, what a permission is for."""
        if self.session is None or self.read_only:
            return False
        return permission in self.session.person.grants.permissions_for_some_job(self.registry)

    @property
    def may_ask(self) -> bool:
        """Whether this person may run jobs now."""
        return self.may(Permission.ASK)

    @property
    def may_operate(self) -> bool:
        """Whether this person may pause and stop jobs and servers, now."""
        return self.may(Permission.OPERATE)

    @property
    def may_operate_some_job(self) -> bool:
        """Whether this person may pause and stop one of the jobs at least, now."""
        return self.may_for_some_job(Permission.OPERATE)

    @property
    def may_change(self) -> bool:
        """Whether this person may change settings, now."""
        return self.may(Permission.CHANGE)

    @property
    def may_define(self) -> bool:
        """Whether this person may change what runs, now."""
        return self.may(Permission.DEFINE)

    @property
    def sees_credentials(self) -> bool:
        """Whether this person is shown what may hold secrets."""
        return self.has(Permission.CHANGE)

    @property
    def is_admin(self) -> bool:
        """Whether this person may see users and everything in the audit log."""
        return self.has(Permission.ADMINISTER)

    @property
    def may_administer(self) -> bool:
        """Whether this person may change registries and users, now."""
        return self.may(Permission.ADMINISTER)

    @property
    def operates_somewhere(self) -> bool:
        """Whether this person operates any registry."""
        return self.session is not None and self.session.person.grants.allow_anywhere(Permission.OPERATE)
