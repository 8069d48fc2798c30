"""How a console is set up: which registries it shows, where it keeps its own things, what it allows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aioelasticjob.config.links import ADDRESS_OF_PAGES
from aioelasticjob.console.connections.live_pages import LivePageLimits
from aioelasticjob.console.connections.proxies import TrustedProxies
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.tls import TlsSettings

SESSION_TIMEOUT: Final = 10.0
"""Seconds; a registry that says nothing is taken for lost after half of them, while a page waits for news of it."""
MAX_RETRIES: Final = 2
"""How often a read is tried again at most, so that an action soon says that the registry does not answer."""
MAX_PAUSE: Final = 1.0
"""Seconds that a read, or the next attempt to connect, waits at most."""
_NAME: Final = re.compile(r"[\w.-]{1,60}")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A registry to show: its name on the pages, its address, and where its jobs' events are stored."""

    name: str
    address: str
    digest: str | None = field(default=None, repr=False)
    event_store: str | None = field(default=None, repr=False)
    """A database URL; it may hold a password."""
    digest_file: str | None = None
    sasl: str | None = field(default=None, repr=False)
    sasl_file: str | None = None
    tls: TlsSettings | Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or set(self.name) <= {"."}:
            raise InvalidSetting("name", self.name, "1 to 60 letters, digits, '_', '-' or '.'")
        if self.parsed_address().private:
            raise InvalidSetting("address", self.address, "a private registry lives within its process: nothing to see")
        if self.event_store is not None:
            from aioelasticjob.observers.sql import EventStoreSettings  # SQLAlchemy, where there is a store to ask

            EventStoreSettings.of(self.event_store)

    @property
    def access(self) -> dict[str, Any]:
        """What the settings say of credentials and certificates, besides the digest."""
        found = {"digest_file": self.digest_file, "sasl": self.sasl, "sasl_file": self.sasl_file, "tls": self.tls}
        return {name: value for name, value in found.items() if value is not None}

    def parsed_address(self, timeout: float = 15.0) -> Address:
        """Return how to connect, waiting ``timeout`` seconds at most.

        Raises:
            InvalidSetting: the address, the credentials or the certificates make no sense.
        """
        return Address.parse(
            self.address,
            digest=self.digest,
            digest_file=self.digest_file,
            sasl=self.sasl,
            sasl_file=self.sasl_file,
            tls=self.tls,
            connection_timeout=timeout,
            session_timeout=SESSION_TIMEOUT,
            max_sleep_time=MAX_PAUSE,
            max_retries=MAX_RETRIES,
        )


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Everything a console is told at its start; times in seconds."""

    registries: tuple[RegistrySettings, ...] = ()
    data_dir: Path | None = None
    """Where users, sessions, the audit log and added registries are kept; the user's data directory by default."""
    read_only: bool = False
    time_zone: str = "UTC"
    """The time zone in which times are shown and read, until a viewer chooses another one."""
    idle: float = 12 * 3600
    """A session ends when nothing was asked for so long."""
    lifetime: float = 7 * 86_400
    """A session ends so long after it began, whatever happens."""
    largest_form: int = 1_000_000
    """Bytes of a request's body."""
    live_pages: LivePageLimits = field(default_factory=LivePageLimits)
    public_url: str = ""
    """Where people reach the console; invitation links begin with it."""
    allowed_addresses: tuple[str, ...] = ()
    """Patterns of registries and event stores that administrators may add on the page; none by default."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of the proxies whose headers are believed; none by default."""
    user_header: str = ""
    """The header by which trusted proxies sign users in; none by default."""

    def __post_init__(self) -> None:
        names = [registry.name for registry in self.registries]
        for name in names:
            if names.count(name) > 1:
                raise InvalidSetting("registries", name, "two registries need two names")
        if not is_zone(self.time_zone):
            raise InvalidSetting("time_zone", self.time_zone, "a time zone such as UTC or Asia/Shanghai")
        if self.public_url and not ADDRESS_OF_PAGES.fullmatch(self.public_url):
            raise InvalidSetting("public_url", self.public_url, "an address such as https://jobs.example.org")
        TrustedProxies.parse(self.trusted_proxies, self.user_header)
        for setting in ("idle", "lifetime", "largest_form"):
            if not getattr(self, setting) > 0:
                raise InvalidSetting(setting, getattr(self, setting), "a number above 0")

    @property
    def directory(self) -> Path:
        """The data directory, whether or not it is there yet."""
        if self.data_dir is not None:
            return self.data_dir
        home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return Path(home) / "aioelasticjob" / "console"


def is_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):  # a name may also be a path that cannot be read
        return False
    return True


def registry_name(address: str) -> str:
    """Return a name for a registry that came without one: its namespace, or its first host."""
    settings = Address.parse(address).settings
    name = settings.namespace.replace("/", "-") or settings.hosts[0][0]
    return re.sub(r"[^\w.-]", "-", name)[:60]
