"""Whoever asks for a page: who that is, from where, and how they like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from aioelasticjob.console.live import Watched
from aioelasticjob.console.words import Language

if TYPE_CHECKING:
    from aioelasticjob.console.application import Console
    from aioelasticjob.console.sessions import SignedIn

THEME = "aioej_theme"
"""The cookie for the colours."""


@dataclass
class Visitor:
    """Somebody with a request."""

    console: Console
    request: Request
    words: Language
    session: SignedIn | None
    stranger: str
    """Stands for a browser that is not signed in, so that its forms can be known again."""
    form: Mapping[str, str] = field(default_factory=dict)
    registry: Watched | None = None

    @property
    def name(self) -> str:
        """Who asks, for the audit log."""
        return self.session.person.name if self.session else ""

    @property
    def address(self) -> str:
        """Where from."""
        return self.request.client.host if self.request.client else ""

    @property
    def agent(self) -> str:
        """Which browser."""
        return self.request.headers.get("user-agent", "")[:500]

    @property
    def operator(self) -> bool:
        """Whether this person is shown what may hold secrets, and may change things where anybody may."""
        return self.session is not None and self.session.person.operates

    @property
    def may_operate(self) -> bool:
        """Whether this person may change what the registries hold, now."""
        return self.operator and not self.console.settings.read_only

    @property
    def token(self) -> str:
        """What this visitor's forms carry."""
        return self.session.token if self.session else self.console.sessions.form_token(self.stranger)

    @property
    def theme(self) -> str:
        """The colours wished: light, dark, or auto."""
        wanted = self.request.cookies.get(THEME, "")
        return wanted if wanted in ("light", "dark") else "auto"
