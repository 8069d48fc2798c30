"""The state of the server, and the changes that no request makes: sessions expire, containers are removed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from aioelasticjob.zookeeper import acl, replies
from aioelasticjob.zookeeper.codes import Perms
from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.sessions import Sessions
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.watches import Watches

NUMBERS_BEGIN = 1_767_225_600_000
"""The time at which numbers by the clock begin: 2026, in ms since the epoch."""
NUMBERS_PER_MS = 4096
"""More writes than this server can make in a millisecond."""


def first_zxid(stored: int, now: int) -> int:
    """Return a number that no write before this start of the server has had; ``now`` is in ms since the epoch.

    Fences are such numbers, and stores refuse smaller ones than they have seen: also if the server kept nothing, or if
    its directory was restored from a copy.  So numbers follow the clock, as the epoch in the upper half of ZooKeeper's
    numbers follows elections.  Until 2095 they are below 2**53, so programs that read numbers of JSON as floating point
    keep them exactly.
    """
    return max(stored, (now - NUMBERS_BEGIN) * NUMBERS_PER_MS)


@dataclass(slots=True)
class State:
    """Tree, watches, sessions and connections, in one order of writes."""

    settings: Settings
    sessions: Sessions
    wall: Callable[[], int]  # ms since the epoch
    tree: DataTree
    watches: Watches[Connection] = field(default_factory=Watches)
    connections: dict[int, Connection] = field(default_factory=dict)  # by session
    outbound: dict[Connection, None] = field(default_factory=dict)  # have output or are to be closed
    dirty_sessions: dict[int, int | None] | None = None  # timeout, or none when ended; kept for a disk only
    issued_zxid: int = 0  # the last one given to a write; the tree's is the last one that took effect
    saved_zxid: int = 0
    login_failed: Callable[[str], None] = logging.getLogger("aioelasticjob.zookeeper").warning  # the server limits it

    def __post_init__(self) -> None:
        self.issued_zxid = self.tree.zxid

    def end_connection(self, connection: Connection) -> None:
        """Forget a connection; its session lives on."""
        self.watches.forget(connection)
        self.outbound.pop(connection, None)
        if self.connections.get(connection.session) is connection:
            del self.connections[connection.session]

    def expire(self, now: int) -> None:
        """End the sessions whose time is over."""
        for session in self.sessions.expired(now):
            self.end_session(session)
            connection = self.connections.pop(session, None)
            if connection is not None:
                self.close(connection)

    def reap(self) -> None:
        """Remove containers left empty and nodes that outlived their time."""
        for path in self.tree.stale(self.wall(), self.settings.container_max_never_used):
            self.tree.remove(path, self.next_zxid())
            self.publish()

    def close(self, connection: Connection) -> None:
        """Let a connection end once its output is written; events that are still to come would put that off."""
        self.watches.forget(connection)
        connection.closing = True
        self.outbound[connection] = None

    def keep_changes(self) -> None:
        """Begin to note changes, so that they can be written to disk."""
        self.tree.dirty = {}
        self.dirty_sessions = {}
        self.saved_zxid = self.tree.zxid

    def take_changes(self) -> tuple[int | None, dict[str, None], dict[int, int | None]]:
        """Hand out the zxid, the paths and the sessions that changed since the last time; no zxid: nothing did."""
        zxid = self.tree.zxid
        if zxid == self.saved_zxid:
            return None, {}, {}
        self.saved_zxid = zxid
        sessions = self.dirty_sessions or {}
        self.dirty_sessions = {}
        return zxid, self.tree.take_dirty(), sessions

    def begin_session(self, timeout: int, now: int) -> int:
        """Begin a session and name it; times in ms."""
        session = self.sessions.create(self.next_zxid(), timeout, now)
        self._note_session(session, timeout)
        return session

    def next_zxid(self) -> int:
        """Number a write; refused ones take a number, too."""
        self.issued_zxid += 1
        self.tree.zxid = self.issued_zxid
        return self.issued_zxid

    def publish(self) -> None:
        """Tell the watchers what changed, ahead of the reply to the one who changed it."""
        events = self.tree.events
        if not events:
            return
        self.tree.events = []
        for event in events:
            heard = self.watches.heard_by(event)
            if not heard:
                continue
            frame = replies.event(event.kind, event.path)
            for connection in heard:
                # A client that may not read the node must not be told of it (CVE-2024-23944).
                if acl.permitted(event.acl, Perms.READ, connection.identities):
                    self.send(connection, frame)

    def end_session(self, session: int) -> None:
        """End a session, and remove its ephemeral nodes."""
        self.sessions.close(session)
        self._note_session(session, None)
        self.tree.end_session(session, self.next_zxid())
        self.publish()

    def _note_session(self, session: int, timeout: int | None) -> None:
        if self.dirty_sessions is not None:
            self.dirty_sessions[session] = timeout

    def send(self, connection: Connection, frame: bytes) -> None:
        """Queue a frame for a client."""
        connection.send(frame)
        self.outbound[connection] = None
