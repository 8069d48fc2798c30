"""What can be set about a server."""

from dataclasses import dataclass

from aioelasticjob.zookeeper.connection import MAX_FRAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set about a server; times in ms, sizes in bytes."""

    tick_time: int = 2000
    min_session_timeout: int | None = None  # two ticks
    max_session_timeout: int | None = None  # twenty ticks
    max_frame: int = MAX_FRAME  # jute.maxbuffer
    extended_types: bool = True  # the reference server's default is False: no times to live
    container_check_interval: int = 60_000
    container_max_never_used: int = 0  # never
    super_digest: str | None = None  # `super:<hash>` of who may do everything
    max_client_connections: int = 0  # per address; 0: any number
    sessionless_timeout: int = 10_000
    max_output: int = 64 * 1024 * 1024  # a connection whose unread replies and events exceed this is dropped

    def __post_init__(self) -> None:
        if self.tick_time < 1 or self.container_check_interval < 1:
            raise ValueError("tick_time and container_check_interval are at least 1 ms")

    @property
    def session_timeouts(self) -> tuple[int, int]:
        """The bounds a session's timeout is negotiated into."""
        return (
            2 * self.tick_time if self.min_session_timeout is None else self.min_session_timeout,
            20 * self.tick_time if self.max_session_timeout is None else self.max_session_timeout,
        )
