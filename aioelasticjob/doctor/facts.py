"""Facts that an examination gathers about a registry, before anything is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from aioelasticjob.registry.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class Encryption:
    """What a server and this client have agreed on, and until when the server's certificate is valid."""

    version: str
    cipher: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class Member:
    """What one address of one server has shown; ``failure`` is why it gave no session."""

    server: str
    failure: Exception | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    """The answers to the four-letter words that it answers."""
    timeouts: tuple[float, float] | None = None
    """The shortest and the longest session timeout that it grants, in seconds."""
    read_only: bool = False
    encryption: Encryption | None = None
    max_request: int | None = None
    """The largest request that it took, in bytes, up to the largest one that jobs send."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota on a path: limits and use of nodes and of bytes; -1 stands for no limit."""

    path: str
    limits: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Permissions:
    """What our session may do at the namespace; if that does not exist, where it would be made."""

    identities: tuple[str, ...] | None
    """Who we are to the registry; None if it does not say, since it is older than ZooKeeper 3.7."""
    multi_read: bool
    """Whether the registry can read many nodes in one request, as ZooKeeper can since 3.6."""
    exists: bool
    place: str
    """The namespace, or the deepest of its parents that exists."""
    refused: Mapping[str, str]
    """What our session may not do there (read, create, delete), and why."""
    open_to_all: bool
    children: int
    closed: tuple[str, ...]
    """The nodes below the namespace at which our session may not do all of that."""
    quotas: tuple[Quota, ...] | None
    """None if they could not be read."""


@dataclass(frozen=True, slots=True)
class Writes:
    """What the writes to an ephemeral node have shown."""

    seconds: tuple[float, ...] = ()
    """How long each of them took."""
    skew: float = 0.0
    """This host's clock minus the registry's, in seconds."""
    uncertainty: float = 0.0
    """By how much that may be wrong."""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one registry."""

    settings: ConnectionSettings
    now: datetime
    client: str
    members: tuple[Member, ...]
    login: Exception | None = None
    """Why the registry has refused us."""
    own_certificate: datetime | None = None
    """Until when our own certificate is valid."""
    permissions: Permissions | None = None
    writes: Writes | None = None
