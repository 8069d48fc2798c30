"""The settings of the event store; they are checked when the application is made, before the database is used."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from aioelasticjob.config.durations import EXPECTED, Duration, as_seconds
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.credentials import HIDDEN
from aioelasticjob.observers.url_options import connect_options

if TYPE_CHECKING:
    from sqlalchemy import URL

DRIVERS = {
    "sqlite": ("aiosqlite", "sql"),
    "postgresql": ("asyncpg", "postgresql"),
    "mysql": ("asyncmy", "mysql"),
    "mariadb": ("asyncmy", "mysql"),
}
"""The driver of each kind of database, and the extra that installs it."""
EXAMPLES = "write sqlite:///events.db, postgresql://user:password@host/database or mysql://user:password@host/database"

_PASSWORD = re.compile(r"://([^:/?#]*):.*@", re.DOTALL)
"""Matches up to the last @, since a password may contain an unescaped one."""


@dataclass(frozen=True, slots=True, repr=False)
class EventStoreSettings:
    """The event store's database, how long events are kept, and how many may wait to be written; times are in seconds.

    Raises:
        InvalidSetting: names the setting, its value and what would be right.
    """

    url: str
    retention_days: float | None = 30
    """Rows that are older than this are removed; None keeps them for ever."""
    retention_rows: int | None = None
    """The number of newest rows that are kept of each table; None keeps all."""
    batch_size: int = 1000
    """Rows written by one transaction at most."""
    batch_age: float = 0.25
    """How long an event may wait for others to be written with it."""
    backlog: int = 20_000
    """Events that wait while the database is slow or absent; beyond that the oldest are dropped and counted."""
    write_timeout: float = 10
    shutdown_timeout: float = 5
    """Seconds for writing the remaining events when the application ends."""

    if TYPE_CHECKING:  # the durations are kept in seconds, and may be given in other ways

        def __init__(
            self,
            url: str,
            retention_days: float | None = 30,
            retention_rows: int | None = None,
            batch_size: int = 1000,
            batch_age: Duration = 0.25,
            backlog: int = 20_000,
            write_timeout: Duration = 10,
            shutdown_timeout: Duration = 5,
        ) -> None: ...

    def __post_init__(self) -> None:
        database(self.url)
        for name in ("batch_age", "write_timeout", "shutdown_timeout"):
            given = getattr(self, name)
            try:
                seconds = as_seconds(given)
            except ValueError:
                raise InvalidSetting(name, given, f"{EXPECTED}, above 0") from None
            _above_zero(name, seconds, int | float, f"{EXPECTED}, above 0")
            object.__setattr__(self, name, seconds)
        for name in ("batch_size", "backlog"):
            _above_zero(name, getattr(self, name), int, "a whole number, 1 or more")
        if self.retention_days is not None:
            _above_zero("retention_days", self.retention_days, int | float, "a number of days above 0, or None")
        if self.retention_rows is not None:
            _above_zero("retention_rows", self.retention_rows, int, "a whole number, 1 or more, or None")

    @classmethod
    def of(cls, given: object) -> EventStoreSettings:
        """Return settings for a URL; settings are returned as they are.

        Raises: InvalidSetting, which names the setting, its value and what would be right.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str):
            raise InvalidSetting("event_store", given, f"must be a URL or EventStoreSettings: {EXAMPLES}")
        return cls(given)

    def __repr__(self) -> str:
        others = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.name != "url"]
        return f"EventStoreSettings({masked(self.url)!r}, {', '.join(others)})"


def database(url: str) -> URL:
    """Return the URL with the driver that serves it.

    Raises:
        InvalidSetting: no such kind of database or port, no file or database named, or what serves it is not
            installed.
    """
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in DRIVERS or "://" not in url:
        raise InvalidSetting("event_store", masked(url), EXAMPLES)
    driver, extra = DRIVERS[kind]
    sqlalchemy = _extra("sqlalchemy", "sql", url)
    _extra(driver, extra, url)
    try:
        parsed: URL = sqlalchemy.make_url(url)
    except Exception as error:  # SQLAlchemy's own, or a ValueError about the port
        raise InvalidSetting("event_store", masked(url), f"{EXAMPLES} ({type(error).__name__})") from None
    named = parsed.get_driver_name() if "+" in parsed.drivername else driver
    if named != driver:
        raise InvalidSetting(
            "event_store", masked(url), f"is served by {driver}: write {kind}://… or {kind}+{driver}://…"
        )
    if kind == "sqlite" and (parsed.host or parsed.username):
        expected = "a file has three slashes before it, as in sqlite:///events.db, or four if its path is absolute"
        raise InvalidSetting("event_store", masked(url), expected)
    if kind == "sqlite" and parsed.database and not Path(parsed.database).absolute().parent.is_dir():
        raise InvalidSetting("event_store", masked(url), "the directory of that file does not exist: make it first")
    if not parsed.database and kind != "sqlite":
        raise InvalidSetting("event_store", masked(url), f"names no database; {EXAMPLES}")
    served = parsed.set(drivername=f"{kind}+{driver}")
    _see_options(served, masked(url))
    return served


def file_of(url: str) -> Path | None:
    """Return the file of a SQLite database; None for other databases, and for one in memory.

    Raises: InvalidSetting, as `database` does.
    """
    parsed = database(url)
    name = parsed.database or ":memory:"
    in_file = parsed.get_backend_name() == "sqlite" and not name.startswith((":memory:", "file:"))
    return Path(name) if in_file else None


def masked(url: str) -> str:
    """Return a URL for logs and pages: without its password, and without its options, which may contain one."""
    if "://" not in url and "@" in url:  # it is written wrong, so any text before the host may be the password
        url = f"{HIDDEN}@{url.rpartition('@')[2]}"
    return _PASSWORD.sub(r"://\1:…@", url).partition("?")[0]


def _see_options(url: URL, shown: str) -> None:
    """Refuse a port that no server can have, and options behind the ``?`` that the driver does not take."""
    connect_options(url, shown)
    try:
        _, options = url.get_dialect()().create_connect_args(url)
    except Exception as error:  # SQLAlchemy's own, or a ValueError about one of the options
        text = f"the value of an option behind the ? is not right ({type(error).__name__})"
        raise InvalidSetting("event_store", shown, text) from None
    ports = options.get("port")
    for port in [url.port, *(ports if isinstance(ports, list) else [ports])]:
        if isinstance(port, int) and not 0 < port < 65536:
            raise InvalidSetting("event_store", shown, f"has the port {port}: write one from 1 to 65535")


def _extra(module: str, extra: str, url: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise InvalidSetting(
            "event_store", masked(url), f"needs {module}, which is not installed: pip install 'aioelasticjob[{extra}]'"
        ) from None


def _above_zero(name: str, value: object, kind: type | object, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:  # type: ignore[arg-type, operator]
        raise InvalidSetting(name, value, expected)
