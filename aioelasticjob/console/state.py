"""What the pages of one console share.  It imports none of the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary, proxy

from anyio import CancelScope
from argon2 import PasswordHasher
from jinja2 import Environment

from aioelasticjob.clock import Clock
from aioelasticjob.console.actions.bulk_actions import BulkActions
from aioelasticjob.console.connections.live_pages import LivePages
from aioelasticjob.console.settings import ConsoleSettings
from aioelasticjob.console.storage.audit import Audit
from aioelasticjob.console.storage.database import Database, open_database
from aioelasticjob.console.storage.refusals import Refusals
from aioelasticjob.console.users.accounts import Accounts
from aioelasticjob.console.users.devices import Devices
from aioelasticjob.console.users.sessions import Sessions, secret_of
from aioelasticjob.console.users.throttle import LoginThrottle
from aioelasticjob.console.watching.acknowledgements import Acknowledgements
from aioelasticjob.console.watching.health import HealthGroups
from aioelasticjob.console.watching.own_health import ConsoleHealth
from aioelasticjob.console.watching.partial_registry import PartialRegistry, SeenRegistry
from aioelasticjob.console.watching.registry_watch import Registries, RegistrySnapshot, RegistryWatch
from aioelasticjob.console.watching.strip import Strips

RenderedRows: TypeAlias = dict[tuple[str, str, bool], dict[str, tuple[int, str]]]
"""By language, root and whether jobs can be selected, then by job: the version since which the row looks so, and its
HTML."""
REFUSALS_SINGLY: Final = 20
"""Entries of the audit log, in five minutes, for what roles do not allow; others are counted."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What the console keeps in its own database."""

    database: Database
    accounts: Accounts
    sessions: Sessions
    audit: Audit
    failed_sign_ins: Refusals
    roles_refused: Refusals
    """What people have asked for that their role does not allow."""
    devices: Devices
    acknowledgements: Acknowledgements

    async def complete_audit(self) -> None:
        """Write down what was only counted until now."""
        await self.failed_sign_ins.flush()
        await self.roles_refused.flush()


@dataclass
class ConsoleState:
    """The state of one console."""

    settings: ConsoleSettings
    clock: Clock
    templates: Environment
    registries: Registries
    login_throttle: LoginThrottle
    live_pages: LivePages
    bulk_actions: BulkActions = field(default_factory=BulkActions)
    storage: Storage = field(init=False)
    """There while the console is open."""
    invitation: str | None = None
    """The path of the one-time link to set the first password; None once somebody has."""
    closing: bool = False
    """Set by the server that is about to stop: open pages end, and reconnect to the next console."""
    health: WeakKeyDictionary[SeenRegistry, HealthGroups] = field(default_factory=WeakKeyDictionary)
    """The health of each registry's jobs."""
    rows: WeakKeyDictionary[SeenRegistry, RenderedRows] = field(default_factory=WeakKeyDictionary)
    """The rows of each registry's overview, rendered once for all pages."""
    strips: Strips = field(default_factory=Strips)
    """The health strip of each registry, counted once for all pages."""
    parts: dict[str, dict[frozenset[str], PartialRegistry]] = field(default_factory=dict)
    """By registry and labels, the parts of registries that somebody has looked at."""

    @property
    def own_health(self) -> ConsoleHealth:
        """How the console itself is."""
        return ConsoleHealth.of(self.registries, self.storage.database.newest_problem(), len(self.live_pages))

    def seen(self, watch: RegistryWatch, labels: frozenset[str]) -> SeenRegistry:
        """Return a registry as somebody sees it: only the jobs with some labels, or, without any, all of it."""
        if not labels:
            return watch
        parts = self.parts.setdefault(watch.settings.name, {})
        part = parts.get(labels)
        if part is None or not part.is_of(watch):
            part = parts[labels] = PartialRegistry(watch, labels, self.clock)
        return part

    def health_of(self, watch: SeenRegistry, snapshot: RegistrySnapshot) -> HealthGroups:
        """Return the health of a registry's jobs at a moment."""
        groups = self.health.get(watch)
        if groups is None:
            seen = proxy(watch)  # a value that held its own key would keep it for ever
            groups = HealthGroups(seen, self.clock, self.storage.acknowledgements.of)
            self.health[watch] = groups
        return groups.update(snapshot)


@asynccontextmanager
async def open_storage(settings: ConsoleSettings, clock: Clock, hasher: PasswordHasher) -> AsyncIterator[Storage]:
    """Open the console's own database.

    Raises:
        DataUnusable: the data directory cannot be used.
    """
    async with open_database(settings.directory) as database:
        secret = await secret_of(database)
        audit = Audit(database, clock)
        sessions = Sessions(database, settings, clock, secret)
        accounts = Accounts(database, clock, hasher)
        failed = Refusals(audit, clock, "sign in", "with a wrong name or password")
        refused = Refusals(audit, clock, "ask for", "that the role does not allow", REFUSALS_SINGLY)
        acknowledgements = Acknowledgements(database, clock)
        await acknowledgements.load()
        storage = Storage(
            database=database,
            accounts=accounts,
            sessions=sessions,
            audit=audit,
            failed_sign_ins=failed,
            roles_refused=refused,
            devices=Devices(secret),
            acknowledgements=acknowledgements,
        )
        try:
            yield storage
        finally:
            with CancelScope(shield=True):
                await storage.complete_audit()
