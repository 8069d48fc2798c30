"""The settings of a connection to a registry: parsed and checked once, when they come from a person."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypedDict, Unpack, cast

from aioelasticjob.config.durations import Duration, as_seconds
from aioelasticjob.config.mistakes import unknown_setting
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.credentials import HIDDEN, hide_in_address
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.registry.host_names import is_ip
from aioelasticjob.registry.secrets import is_login, is_path
from aioelasticjob.registry.tls import TlsSettings

DURATIONS = ("session_timeout", "connection_timeout", "base_sleep_time", "max_sleep_time")
SHORTEST_SESSION = 0.1
"""The least seconds that a session timeout may have."""
LONGEST_SESSION = 2_147_483
"""The most seconds that a session timeout may have."""
DEFAULT_PORTS: Final = {"zk": 2181, "zks": 2281}
MAX_REQUEST = 1_000_000
"""Bytes: a server closes the connection on a request beyond its jute.maxbuffer, 1,048,575 by default."""
_CREDENTIALS: Final = 'must have no credentials: give them as digest or sasl, "user:password"'


class ConnectionOptions(TypedDict, total=False):
    """The settings that may be given beside an address; durations are seconds, text such as ``30s``, or a timedelta."""

    session_timeout: Duration
    connection_timeout: Duration
    base_sleep_time: Duration
    max_sleep_time: Duration
    max_retries: int
    digest: str | None
    digest_file: str | None
    sasl: str | None
    sasl_file: str | None
    tls: TlsSettings | Mapping[str, Any] | None
    ip: str | None
    max_request: int
    exit_at_lease_end: bool


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
    digest: str | None = field(default=None, repr=False)
    digest_file: str | None = None
    sasl: str | None = field(default=None, repr=False)
    sasl_file: str | None = None
    tls: TlsSettings | None = None  # exactly for addresses zks://…
    ip: str | None = None
    max_request: int = MAX_REQUEST
    exit_at_lease_end: bool = False
    private: bool = False
    """Whether the server is one in memory, inside this process, that no other process knows."""

    @classmethod
    def parse(cls, address: str, **options: Unpack[ConnectionOptions]) -> ConnectionSettings:
        """Read ``zk://host:port,host:port/namespace``, or ``zks://…`` for encrypted connections.

        Raises: InvalidSetting, which names the setting, its value and what would be right.
        """
        known = {field.name for field in fields(cls)} - {"hosts", "namespace", "private"}
        for name, value in options.items():
            if name not in known:
                raise unknown_setting(name, value, known)
        scheme, separator, rest = address.partition("://")
        if scheme not in DEFAULT_PORTS or not separator:
            raise wrong_address(address, "write zk://host:port,host:port/namespace")
        servers, _, namespace = rest.partition("/")
        if "@" in servers:
            raise wrong_address(address, _CREDENTIALS)
        if "?" in rest:
            raise wrong_address(address, "takes no options after a '?': give them beside the address")
        tls = TlsSettings.of(options.get("tls"))
        if scheme == "zk" and tls not in (None, TlsSettings()):
            raise InvalidSetting("tls", tls, "connections of zk://… are not encrypted: write zks://…, or leave tls out")
        hosts = tuple(_host(server, address, DEFAULT_PORTS[scheme]) for server in servers.split(","))
        times = {name: _seconds(name, value) for name, value in options.items() if name in DURATIONS}
        used = (tls or TlsSettings()) if scheme == "zks" else None
        return cls(hosts, namespace.strip("/"), **cast(Any, {**options, **times, "tls": used}))

    def __post_init__(self) -> None:
        if not self.hosts:
            raise InvalidSetting("hosts", self.hosts, "name at least one server")
        if self.namespace.split("/")[0] == "zookeeper":
            raise InvalidSetting("namespace", self.namespace, "not /zookeeper, which is the registry's own")
        names = self.namespace.split("/")
        if self.namespace and not {"", ".", ".."}.isdisjoint(names):
            raise InvalidSetting("namespace", self.namespace, "names parted by single slashes, none of them . or ..")
        for name in ("namespace", "digest"):  # the bytes of an environment variable may be no text
            if not _encodable(getattr(self, name)):
                raise InvalidSetting(name, "…", "must be text that UTF-8 can spell")
        _check_letters(self.namespace)
        for name in DURATIONS:
            _positive(name, getattr(self, name))
        if not SHORTEST_SESSION <= self.session_timeout <= LONGEST_SESSION:
            expected = f"from {SHORTEST_SESSION:g} s to {LONGEST_SESSION:,} s: servers take milliseconds in 32 bits"
            raise InvalidSetting("session_timeout", self.session_timeout, expected)
        if self.base_sleep_time > self.max_sleep_time:
            raise InvalidSetting(
                "base_sleep_time", self.base_sleep_time, f"at most max_sleep_time ({self.max_sleep_time:g})"
            )
        if not _whole(self.max_retries) or self.max_retries < 0:
            raise InvalidSetting("max_retries", self.max_retries, "a whole number, 0 or more")
        if not _whole(self.max_request) or self.max_request < 1:
            raise InvalidSetting("max_request", self.max_request, "a number of bytes, 1 or more")
        if not isinstance(self.exit_at_lease_end, bool):
            raise InvalidSetting("exit_at_lease_end", self.exit_at_lease_end, "True or False")
        _check_login("digest", self.digest, self.digest_file)
        _check_login("sasl", self.sasl, self.sasl_file)
        if self.ip is not None and not is_ip(self.ip):
            raise InvalidSetting("ip", self.ip, "an address of this host, such as 10.0.0.7")

    @property
    def authenticated(self) -> bool:
        """Whether the registry is told who we are: then what we make is open to us alone."""
        credentials = (self.digest, self.digest_file, self.sasl, self.sasl_file)
        return any(one is not None for one in credentials)

    @property
    def place(self) -> str:
        """Where the registry is, for logs."""
        return "a private registry, in memory" if self.private else f"the registry at {self.address}"

    @property
    def address(self) -> str:
        """The registry's address, for people."""
        scheme = "zk" if self.tls is None else "zks"
        return f"{scheme}://{self.servers}/{self.namespace}"

    @property
    def servers(self) -> str:
        """The hosts as a person would write them."""
        return ",".join(_server_text(host, port) for host, port in self.hosts)


def wrong_address(address: str, expected: str) -> InvalidSetting:
    """Return the error for an address, which shows the address without credentials that may be in it."""
    return InvalidSetting("address", address_without_credentials(address), expected)


def address_without_credentials(address: str) -> str:
    """Return the address of a registry or a database with ``…`` in place of credentials that may be in it."""
    if not re.match(r"[\w+.-]*://", address):  # else what hides the credentials of addresses would not know it as one
        return address_without_credentials(f"zk://{address}").removeprefix("zk://")
    before, mark, rest = hide_in_address(address).rpartition("@")  # a password behind a ``?`` may have an ``@`` in it
    scheme, separator, _ = before.partition("://")
    return f"{scheme if separator else ''}{separator}{HIDDEN if mark else ''}{mark}{rest}"


def _no_host(address: str, expected: str) -> InvalidSetting:
    return wrong_address(address, _CREDENTIALS if "@" in address else expected)  # a password may contain a slash


def _host(server: str, address: str, default: int) -> tuple[str, int]:
    name, _, text = server.rpartition(":")
    if server.endswith("]") or not name:  # no port, or an IPv6 address without one
        name = server
        text = str(default)
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    elif ":" in name:
        raise _no_host(address, f"write an IPv6 address in brackets, such as [::1]:{default}")
    port = whole_number(text, digits=5)
    if not _resolvable(name) or port is None or not 0 < port < 65536:
        raise _no_host(address, f"{server!r} is not host:port with a port from 1 to 65535")
    return name, port


def _resolvable(name: str) -> bool:
    """Whether the resolver accepts a name; for some names it raises a UnicodeError, which no caller expects."""
    try:
        return bool(name.encode("idna")) and name.isprintable() and " " not in name
    except UnicodeError:
        return False


def _server_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _encodable(text: object) -> bool:
    return not isinstance(text, str) or text.encode("utf-8", "ignore").decode() == text


def _seconds(name: str, given: object) -> Any:
    try:
        return as_seconds(given)
    except ValueError as error:
        raise InvalidSetting(name, given, str(error)) from None


def _check_letters(namespace: str) -> None:
    if namespace.isascii() and namespace.isprintable():
        return
    # imported at the first use: a client needs nothing else of the embedded server
    from aioelasticjob.zookeeper.paths import FORBIDDEN

    if (wrong := re.search(f"[{FORBIDDEN}]", namespace)) is not None:
        raise InvalidSetting("namespace", namespace, f"must not contain {wrong[0]!r}, which ZooKeeper refuses")


def _check_login(name: str, login: str | None, file: str | None) -> None:
    if login is not None and not is_login(login):
        raise InvalidSetting(name, "…", "write user:password")  # the value is a secret
    if file is None:
        return
    if login is not None:
        raise InvalidSetting(f"{name}_file", file, f"leave it out, or {name}")
    if not is_path(file):
        raise InvalidSetting(f"{name}_file", file, "the path of a file")


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidSetting(name, value, "a number of seconds above 0")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
