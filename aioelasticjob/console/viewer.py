"""The person or browser that sends a request: who it is, from which address, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.console.sessions import SignedIn


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

    @property
    def name(self) -> str:
        """The user's name for the audit log; empty where nobody is signed in."""
        return self.session.person.name if self.session else ""

    @property
    def is_operator(self) -> bool:
        """Whether this person is shown what may hold secrets, and may change things where anybody may."""
        return self.session is not None and self.session.person.operates

    @property
    def may_operate(self) -> bool:
        """Whether this person may change what the registries hold, now."""
        return self.is_operator and not self.read_only
