"""What the server does with every request, and the changes that no request makes: sessions expire, containers go.

One request at a time, in order: that order is the zxid's.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct

from aioelasticjob.zookeeper import acl, messages, replies
from aioelasticjob.zookeeper.acl import Identity
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.datatree import AppliedOperation, Author, DataTree
from aioelasticjob.zookeeper.digest_md5 import DigestError, challenge, verify
from aioelasticjob.zookeeper.jute import NULL, MalformedError, Reader, pack_buffer, pack_string
from aioelasticjob.zookeeper.messages import Connect
from aioelasticjob.zookeeper.queries import QUERIES
from aioelasticjob.zookeeper.sessions import Sessions
from aioelasticjob.zookeeper.settings import Settings
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


@dataclass(slots=True)
class Processor:
    """The server without its network, disk and clock.

    It has the tree, watches, sessions and connections, in one order of writes.
    """

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
            self._log_in(connection, xid, reader.buffer())
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

    def send(self, connection: Connection, frame: bytes) -> None:
        """Queue a frame for a client."""
        connection.send(frame)
        self.outbound[connection] = None

    def _connect(self, connection: Connection, request: Connect, now: int) -> None:
        if request.last_zxid > self.tree.zxid:
            raise MalformedError("the client has seen what is still to come")
        lower, upper = self.settings.session_timeouts
        connection.timeout = max(lower, min(request.timeout, upper))
        connection.connected = True
        session = request.session
        if session == 0:
            session = self.begin_session(connection.timeout, now)
        else:
            # Before the password is looked at, as the reference server does.
            former = self.connections.pop(session, None)
            if former is not None:
                self.close(former)
            admitted = self.sessions.admits(session, request.password)
            if not admitted or not self.sessions.touch(session, connection.timeout, now):
                self._welcome(connection, request, 0)
                self.close(connection)
                return
        connection.session = session
        self.connections[session] = connection
        self._welcome(connection, request, session)

    def _welcome(self, connection: Connection, request: Connect, session: int) -> None:
        if session:
            timeout = connection.timeout
            password = self.sessions.password(session)
        else:
            timeout = 0
            password = _NO_PASSWORD
        frame = replies.connect_reply(timeout, session, password, read_only_byte=request.knows_read_only)
        self.send(connection, frame)

    def _authenticate(self, connection: Connection, xid: int, request: messages.Auth) -> None:
        if request.scheme == "digest" and request.credentials is not None:
            who = acl.digest(request.credentials)
            if self.settings.super_digest is not None and who.id == self.settings.super_digest:
                connection.add_identity(acl.SUPER)
            connection.add_identity(who)
        elif request.scheme == "ip":
            connection.add_identity(Identity("ip", connection.host))
        else:
            self.send(connection, replies.reply(xid, 0, ErrorCode.AUTH_FAILED))
            self.close(connection)
            return
        self.send(connection, replies.reply(xid, 0))

    def _log_in(self, connection: Connection, xid: int, token: bytes | None) -> None:
        """Take one step of SASL DIGEST-MD5; what the first message says does not matter, as in the reference server."""
        passwords = self.settings.sasl_users
        nonce = connection.nonce
        if passwords is None:
            self.send(connection, replies.reply(xid, 0, 0, NULL))  # no mechanism is set up, as in a plain server
            return
        if token is None:
            raise MalformedError("a SASL message that is none")
        if nonce is None:
            connection.nonce = secrets.token_urlsafe(30)
            answer = challenge(connection.nonce)
        else:
            connection.nonce = ""
            try:
                user, answer = verify(token, nonce, passwords)
            except DigestError as error:
                self.login_failed(f"{connection.host} cannot log in: {error}")
                self.send(connection, replies.reply(xid, 0, ErrorCode.AUTH_FAILED, NULL))
                self.close(connection)
                return
            connection.add_identity(Identity("sasl", user))
        self.send(connection, replies.reply(xid, 0, 0, pack_buffer(answer)))

    def _answer(self, connection: Connection, xid: int, op: int, reader: Reader) -> None:
        error = ErrorCode.OK
        body = b""
        is_known = True
        try:
            query = QUERIES.get(op)
            if query is not None:
                body = query(self.tree, self.watches, connection, reader)
            elif op == OpCode.CLOSE_SESSION:
                self.end_session(connection.session)
            elif op in _WRITES:
                body = self._write(connection, op, reader)
            else:
                error = ErrorCode.UNIMPLEMENTED
                is_known = False
        except RequestError as refused:
            error = refused.code
            body = refused.body
        except MalformedError:
            error = ErrorCode.MARSHALLING_ERROR
        traffic = connection.traffic
        traffic.last_op = NAMES.get(op, "NA")
        traffic.last_cxid = xid
        traffic.last_zxid = self.tree.zxid
        if op == OpCode.CHECK and not error:
            return  # the reference server trips over a check outside a multi that holds, and says nothing
        if op == OpCode.PING:
            xid = -2
        zxid = self.tree.zxid if is_known else -1
        self.send(connection, replies.reply(xid, zxid, error, body))
        if op == OpCode.CLOSE_SESSION or not is_known:
            self.close(connection)

    def _write(self, connection: Connection, op: int, reader: Reader) -> bytes:
        if op == OpCode.RECONFIG:
            messages.read_reconfig(reader)
        before = self.tree.zxid
        sasl = self.settings.sasl_users is not None
        author = Author(connection.session, connection.identities, self.next_zxid(), self.wall(), sasl)
        if op in _REFUSED:
            raise RequestError(_REFUSED[op])
        if op == OpCode.MULTI:
            writes = messages.read_multi(reader)
            if any(write.path is None for write in writes):
                self.tree.zxid = before  # the number is gone, but nothing has taken effect under it
                raise RequestError(ErrorCode.MARSHALLING_ERROR, replies.MULTI_END)
            results = self.tree.apply_all(writes, author)
            body = b"".join(map(_multi_result, results)) + replies.MULTI_END
        else:
            write = messages.WRITES[op](reader)
            body = _result(self.tree.apply(write, author))
        self.publish()
        return body

    def _note_session(self, session: int, timeout: int | None) -> None:
        if self.dirty_sessions is not None:
            self.dirty_sessions[session] = timeout


def _result(applied: AppliedOperation) -> bytes:
    if applied.op in _CREATES:
        return pack_string(applied.path) + applied.stat
    return applied.stat


def _multi_result(result: AppliedOperation | ErrorCode) -> bytes:
    if isinstance(result, ErrorCode):
        return replies.multi_error(result)
    op = OpCode.CREATE2 if result.op in _CREATES and result.stat else result.op
    return replies.multi_result(op, _result(result))
