"""What the server does with every request.  One request at a time, in order: that order is the zxid's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct

from aioelasticjob.zookeeper import acl, messages, replies
from aioelasticjob.zookeeper.acl import Identity
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.connection import MAX_FRAME, Connection
from aioelasticjob.zookeeper.datatree import Applied, Author, DataTree
from aioelasticjob.zookeeper.jute import NULL, MalformedError, Reader, pack_string
from aioelasticjob.zookeeper.messages import Connect
from aioelasticjob.zookeeper.queries import QUERIES
from aioelasticjob.zookeeper.sessions import Sessions
from aioelasticjob.zookeeper.watches import Watches

_HEADER = Struct(">ii")
_NO_PASSWORD = bytes(16)
# Only the server's own sweep may remove containers, and a single server cannot be reconfigured.
_REFUSED: Mapping[int, ErrorCode] = {
    OpCode.DELETE_CONTAINER: ErrorCode.BAD_ARGUMENTS,
    OpCode.RECONFIG: ErrorCode.RECONFIG_DISABLED,
}
_CREATES = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL})
_WRITES = frozenset({*messages.WRITES, *_REFUSED, OpCode.MULTI})

NAMES: Mapping[int, str] = {
    OpCode.CREATE: "CREA",
    OpCode.CREATE2: "CREA",
    OpCode.CREATE_CONTAINER: "CREA",
    OpCode.CREATE_TTL: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.DELETE_CONTAINER: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA",
    OpCode.SET_ACL: "SETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.SYNC: "SYNC",
    OpCode.PING: "PING",
    OpCode.CHECK: "CHEC",
    OpCode.MULTI: "MULT",
    OpCode.MULTI_READ: "MLTR",
    OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW",
    OpCode.SET_WATCHES: "SETW",
    OpCode.SET_WATCHES2: "STW2",
    OpCode.ADD_WATCH: "ADDW",
    OpCode.GET_EPHEMERALS: "GETE",
    OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN",
    OpCode.WHO_AM_I: "HOMI",
    OpCode.CLOSE_SESSION: "CLOS",
}


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


@dataclass(slots=True)
class Processor:
    """The server without its network, disk and clock."""

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

    def __post_init__(self) -> None:
        self.issued_zxid = self.tree.zxid

    def receive(self, connection: Connection, frame: bytes, now: int) -> None:
        """Answer one frame.

        Raises: MalformedError if the connection is to be dropped without an answer.
        """
        if not connection.connected:
            self._connect(connection, messages.read_connect(frame), now)
            return
        if len(frame) < _HEADER.size:
            raise MalformedError("frame ends within its header")
        xid, op = _HEADER.unpack_from(frame)
        reader = Reader(frame, _HEADER.size)
        if op == OpCode.AUTH:
            self._authenticate(connection, xid, messages.read_auth(reader))
        elif op == OpCode.SASL:
            reader.buffer()
            self._send(connection, replies.reply(xid, 0, 0, NULL))  # no mechanism is set up, as in a plain server
        elif self.sessions.touch(connection.session, connection.timeout, now):
            self._answer(connection, xid, op, reader)

    def end_connection(self, connection: Connection) -> None:
        """Forget a connection; its session lives on."""
        self.watches.forget(connection)
        self.outbound.pop(connection, None)
        if self.connections.get(connection.session) is connection:
            del self.connections[connection.session]

    def expire(self, now: int) -> None:
        """End the sessions whose time is over."""
        for session in self.sessions.expired(now):
            self._end_session(session)
            connection = self.connections.pop(session, None)
            if connection is not None:
                self.close(connection)

    def reap(self) -> None:
        """Remove containers left empty and nodes that outlived their time."""
        for path in self.tree.stale(self.wall(), self.settings.container_max_never_used):
            self.tree.remove(path, self._next_zxid())
            self._publish()

    def close(self, connection: Connection) -> None:
        """Let a connection end once its output is written."""
        connection.closing = True
        self.outbound[connection] = None

    def keep_changes(self) -> None:
        """Begin to note what changes, for a disk."""
        self.tree.dirty, self.dirty_sessions, self.saved_zxid = {}, {}, self.tree.zxid

    def take_changes(self) -> tuple[int | None, dict[str, None], dict[int, int | None]]:
        """Hand out the zxid, the paths and the sessions that changed since the last time; no zxid: nothing did."""
        zxid = self.tree.zxid
        if zxid == self.saved_zxid:
            return None, {}, {}
        self.saved_zxid = zxid
        sessions, self.dirty_sessions = self.dirty_sessions or {}, {}
        return zxid, self.tree.take_dirty(), sessions

    def _connect(self, connection: Connection, request: Connect, now: int) -> None:
        if request.last_zxid > self.tree.zxid:
            raise MalformedError("the client has seen what is still to come")
        lower, upper = self.settings.session_timeouts
        connection.timeout = max(lower, min(request.timeout, upper))
        connection.connected = True
        session = request.session
        if session == 0:
            session = self.sessions.create(connection.timeout, now)
            self._next_zxid()
            self._note_session(session, connection.timeout)
        else:
            # Before the password is looked at, as the reference server does.
            former = self.connections.pop(session, None)
            if former is not None:
                self.close(former)
            if not self.sessions.admits(session, request.password) or not self.sessions.touch(
                session, connection.timeout, now
            ):
                self._welcome(connection, request, 0)
                self.close(connection)
                return
        connection.session = session
        self.connections[session] = connection
        self._welcome(connection, request, session)

    def _welcome(self, connection: Connection, request: Connect, session: int) -> None:
        timeout = connection.timeout if session else 0
        password = self.sessions.password(session) if session else _NO_PASSWORD
        self._send(
            connection,
            replies.connect_reply(timeout, session, password, read_only_byte=request.knows_read_only),
        )

    def _authenticate(self, connection: Connection, xid: int, request: messages.Auth) -> None:
        if request.scheme == "digest" and request.credentials is not None:
            who = acl.digest(request.credentials)
            if self.settings.super_digest is not None and who.id == self.settings.super_digest:
                connection.add_identity(acl.SUPER)
            connection.add_identity(who)
        elif request.scheme == "ip":
            connection.add_identity(Identity("ip", connection.host))
        else:
            self._send(connection, replies.reply(xid, 0, ErrorCode.AUTH_FAILED))
            self.close(connection)
            return
        self._send(connection, replies.reply(xid, 0))

    def _answer(self, connection: Connection, xid: int, op: int, reader: Reader) -> None:
        error, body, zxid = ErrorCode.OK, b"", None
        try:
            query = QUERIES.get(op)
            if query is not None:
                body = query(self.tree, self.watches, connection, reader)
            elif op == OpCode.CLOSE_SESSION:
                self._end_session(connection.session)
            elif op in _WRITES:
                body = self._write(connection, op, reader)
            else:
                error, zxid = ErrorCode.UNIMPLEMENTED, -1
        except RequestError as refused:
            error, body = refused.code, refused.body
        except MalformedError:
            error = ErrorCode.MARSHALLING_ERROR
        traffic = connection.traffic
        traffic.last_op, traffic.last_cxid, traffic.last_zxid = NAMES.get(op, "NA"), xid, self.tree.zxid
        if op == OpCode.CHECK and not error:
            return  # the reference server trips over a check outside a multi that holds, and says nothing
        if op == OpCode.PING:
            xid = -2
        self._send(connection, replies.reply(xid, self.tree.zxid if zxid is None else zxid, error, body))
        if op == OpCode.CLOSE_SESSION or zxid == -1:
            self.close(connection)

    def _write(self, connection: Connection, op: int, reader: Reader) -> bytes:
        if op == OpCode.RECONFIG:
            messages.read_reconfig(reader)
        before = self.tree.zxid
        author = Author(connection.session, connection.identities, self._next_zxid(), self.wall())
        if op in _REFUSED:
            raise RequestError(_REFUSED[op])
        if op == OpCode.MULTI:
            writes = messages.read_multi(reader)
            if any(write.path is None for write in writes):
                self.tree.zxid = before  # the number is gone, but nothing has taken effect under it
                raise RequestError(ErrorCode.MARSHALLING_ERROR, replies.MULTI_END)
            body = b"".join(map(_multi_result, self.tree.apply_all(writes, author))) + replies.MULTI_END
        else:
            body = _result(self.tree.apply(messages.WRITES[op](reader), author))
        self._publish()
        return body

    def _next_zxid(self) -> int:
        """Number a write; refused ones take a number, too."""
        self.issued_zxid += 1
        self.tree.zxid = self.issued_zxid
        return self.issued_zxid

    def _publish(self) -> None:
        """Tell the watchers what changed, ahead of the reply to the one who changed it."""
        events = self.tree.events
        if not events:
            return
        self.tree.events = []
        for event in events:
            heard = self.watches.heard_by(event)
            if heard:
                frame = replies.event(event.kind, event.path)
                for connection in heard:
                    # Who may not read the node shall not learn of it (CVE-2024-23944).
                    if acl.permitted(event.acl, Perms.READ, connection.identities):
                        self._send(connection, frame)

    def _end_session(self, session: int) -> None:
        self.sessions.close(session)
        self._note_session(session, None)
        self.tree.end_session(session, self._next_zxid())
        self._publish()

    def _note_session(self, session: int, timeout: int | None) -> None:
        if self.dirty_sessions is not None:
            self.dirty_sessions[session] = timeout

    def _send(self, connection: Connection, frame: bytes) -> None:
        connection.send(frame)
        self.outbound[connection] = None


def _result(applied: Applied) -> bytes:
    return pack_string(applied.path) + applied.stat if applied.op in _CREATES else applied.stat


def _multi_result(result: Applied | ErrorCode) -> bytes:
    if isinstance(result, ErrorCode):
        return replies.multi_error(result)
    op = OpCode.CREATE2 if result.op in _CREATES and result.stat else result.op
    return replies.multi_result(op, _result(result))
