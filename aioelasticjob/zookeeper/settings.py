"""The settings of a server."""

from dataclasses import dataclass, field

from aioelasticjob.zookeeper.connection import MAX_FRAME
from aioelasticjob.zookeeper.digest_md5 import Passwords

MAX_CLIENT_CONNECTIONS = 500
"""Connections from one address.

ZooKeeper's 60 are meant for machines that hold one process each.  Here all clients may come from 127.0.0.1, one
connection for each worker process: 500 are more than one machine runs, and leave half of the usual 1,024 descriptors.
"""
MIN_MAX_FRAME = 1024
MAX_UNFINISHED = 32 * 1024 * 1024
"""Bytes kept for frames that are not whole yet: those of 32 clients in the middle of the largest request.

ZooKeeper's largeRequestMaxBytes is 100 MiB, counts what a request announces, and is off by default.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a server; times in ms, sizes in bytes."""

    tick_time: int = 2000
    min_session_timeout: int | None = None  # two ticks
    max_session_timeout: int | None = None  # twenty ticks
    max_frame: int = MAX_FRAME  # jute.maxbuffer, with its default
    extended_types: bool = True  # the reference server's default is False: no times to live
    container_check_interval: int = 60_000
    container_max_never_used: int = 0  # never
    super_digest: str | None = None  # `super:<hash>` of who may do everything
    sasl_users: Passwords | None = field(default=None, repr=False)  # who may log in with SASL DIGEST-MD5
    max_client_connections: int = MAX_CLIENT_CONNECTIONS  # maxClientCnxns, per address; 0: any number
    sessionless_timeout: int = 10_000  # nio.sessionlessCnxnTimeout, with its default: for the connect request to come
    max_unfinished: int = MAX_UNFINISHED  # of all connections together, in the place of largeRequestMaxBytes
    max_output: int = 64 * 1024 * 1024  # a connection whose unread replies and events exceed this is dropped

    def __post_init__(self) -> None:
        for name in ("tick_time", "container_check_interval", "sessionless_timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and has to be at least 1 ms")
        if self.max_client_connections < 0:
            raise ValueError(f"max_client_connections is {self.max_client_connections}, and 0 stands for any number")
        if self.max_frame < MIN_MAX_FRAME:
            raise ValueError(f"max_frame is {self.max_frame}, and has to be at least {MIN_MAX_FRAME} bytes")
        if self.max_unfinished < self.max_frame:
            raise ValueError(
                f"max_unfinished is {self.max_unfinished}, and has to be at least max_frame, {self.max_frame} bytes"
            )

    @property
    def session_timeouts(self) -> tuple[int, int]:
        """The bounds a session's timeout is negotiated into."""
        shortest = self.min_session_timeout
        if shortest is None:
            shortest = 2 * self.tick_time
        longest = self.max_session_timeout
        if longest is None:
            longest = 20 * self.tick_time
        return shortest, longest
