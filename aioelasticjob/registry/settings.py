"""The settings of a connection to a registry: parsed and checked once, when they come from a person."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from aioelasticjob.durations import Duration, as_seconds
from aioelasticjob.errors import InvalidSetting

DURATIONS = ("session_timeout", "connection_timeout", "base_sleep_time", "max_sleep_time")
DEFAULT_PORT = 2181
MAX_REQUEST = (
    1_000_000  # bytes: the server closes the connection on a request beyond jute.maxbuffer, 1,048,575 by default
)


class ConnectionOptions(TypedDict, total=False):
    """The settings that may be given beside an address; durations are seconds, text such as ``30s``, or a timedelta."""

    session_timeout: Duration
    connection_timeout: Duration
    base_sleep_time: Duration
    max_sleep_time: Duration
    max_retries: int
    digest: str | None
    max_request: int


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The registry's servers, namespace, timeouts and retries; times are in seconds."""

    hosts: tuple[tuple[str, int], ...]
    namespace: str = ""
    session_timeout: float = 30
    connection_timeout: float = 15
    base_sleep_time: float = 1
    max_sleep_time: float = 3
    max_retries: int = 3
    digest: str | None = None
    max_request: int = MAX_REQUEST
    private: bool = False
    """Whether the server is one in memory, inside this process, that no other process knows."""

    @classmethod
    def parse(cls, address: str, **options: Unpack[ConnectionOptions]) -> ConnectionSettings:
        """Read ``zk://host:port,host:port/namespace``.

        Raises: InvalidSetting, which names the setting, its value and what would be right.
        """
        known = {field.name for field in fields(cls)} - {"hosts", "namespace", "private"}
        for name, value in options.items():
            if name not in known:
                raise InvalidSetting(name, value, f"no such setting; there are {', '.join(sorted(known))}")
        scheme, separator, rest = address.partition("://")
        servers, _, namespace = rest.partition("/")
        if "@" in servers:
            wrong = 'must have no credentials: give them as digest, "user:password"'
            raise InvalidSetting("address", f"{scheme}://…@{rest.rpartition('@')[2]}", wrong)
        if scheme != "zk" or not separator:
            raise InvalidSetting("address", address, "write zk://host:port,host:port/namespace")
        if "?" in rest:
            raise InvalidSetting("address", address, "takes no options after a '?': give them beside the address")
        hosts = tuple(_host(server, address) for server in servers.split(","))
        times = {name: _seconds(name, value) for name, value in options.items() if name in DURATIONS}
        return cls(hosts, namespace.strip("/"), **{**options, **times})

    def __post_init__(self) -> None:
        if not self.hosts:
            raise InvalidSetting("hosts", self.hosts, "name at least one server")
        if self.namespace.split("/")[0] == "zookeeper":
            raise InvalidSetting("namespace", self.namespace, "not /zookeeper, which is the registry's own")
        if any(name in ("", ".", "..") for name in self.namespace.split("/")) and self.namespace:
            raise InvalidSetting("namespace", self.namespace, "names parted by single slashes, none of them . or ..")
        for name in ("namespace", "digest"):  # the bytes of an environment variable may be no text
            if not _encodable(getattr(self, name)):
                raise InvalidSetting(name, "…", "must be text that UTF-8 can spell")
        for name in DURATIONS:
            _positive(name, getattr(self, name))
        if self.base_sleep_time > self.max_sleep_time:
            raise InvalidSetting(
                "base_sleep_time", self.base_sleep_time, f"at most max_sleep_time ({self.max_sleep_time:g})"
            )
        if not _whole(self.max_retries) or self.max_retries < 0:
            raise InvalidSetting("max_retries", self.max_retries, "a whole number, 0 or more")
        if not _whole(self.max_request) or self.max_request < 1:
            raise InvalidSetting("max_request", self.max_request, "a number of bytes, 1 or more")
        if self.digest is not None and not _credentials(self.digest):
            raise InvalidSetting("digest", "…", "write user:password")  # the value is a secret

    @property
    def place(self) -> str:
        """Where the registry is, for logs."""
        return "a private registry, in memory" if self.private else f"the registry at {self.servers}"

    @property
    def servers(self) -> str:
        """The hosts as a person would write them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


def _host(server: str, address: str) -> tuple[str, int]:
    name, _, port = server.rpartition(":")
    if server.endswith("]") or not name:  # no port, or an IPv6 address without one
        name, port = server, str(DEFAULT_PORT)
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    elif ":" in name:
        raise InvalidSetting("address", address, f"write an IPv6 address in brackets, [{server}]:{DEFAULT_PORT}")
    if not _resolvable(name) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidSetting("address", address, f"{server!r} is not host:port with a port from 1 to 65535")
    return name, int(port)


def _resolvable(name: str) -> bool:
    """Whether the resolver accepts a name; for some names it raises a UnicodeError, which no caller expects."""
    try:
        return bool(name.encode("idna")) and name.isprintable() and " " not in name
    except UnicodeError:
        return False


def _encodable(text: object) -> bool:
    return not isinstance(text, str) or text.encode("utf-8", "ignore").decode() == text


def _seconds(name: str, given: object) -> Any:
    try:
        return as_seconds(given)
    except ValueError as error:
        raise InvalidSetting(name, given, str(error)) from None


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidSetting(name, value, "a number of seconds above 0")


def _credentials(value: object) -> bool:
    return isinstance(value, str) and all(value.partition(":"))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
