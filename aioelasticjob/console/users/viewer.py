"""The person or browser that sends a request: who it is, from which address, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.console.users.accounts import Role
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

    @property
    def name(self) -> str:
        """The user's name for the audit log; empty where nobody is signed in."""
        return self.session.person.name if self.session else ""

    @property
    def role(self) -> Role:
        """The role in the registry that the page is about; on a page about none, the role in all of them."""
        if self.session is None:
            return Role.NONE
        person = self.session.person
        return person.role_in(self.registry) if self.registry else person.role

    @property
    def is_operator(self) -> bool:
        """Whether this person is shown what may hold secrets, and may change things where anybody may."""
        return self.role.includes(Role.OPERATOR)

    def may(self, role: Role) -> bool:
        """Whether this person may do now what a role is for, if that changes something."""
        return self.role.includes(role) and not self.read_only

    @property
    def may_trigger(self) -> bool:
        """Whether this person may run jobs now."""
        return self.may(Role.TRIGGER)

    @property
    def may_operate(self) -> bool:
        """Whether this person may change what the registry holds, now."""
        return self.may(Role.OPERATOR)

    @property
    def is_admin(self) -> bool:
        """Whether this person may see users and everything in the audit log."""
        return self.role is Role.ADMIN

    @property
    def may_administer(self) -> bool:
        """Whether this person may change registries and users, now."""
        return self.is_admin and not self.read_only

    @property
    def operates_somewhere(self) -> bool:
        """Whether this person is an operator of any registry."""
        if self.session is None:
            return False
        person = self.session.person
        return any(role.includes(Role.OPERATOR) for role in (person.role, *person.grants.values()))
