"""What the server does with every request.  One request at a time, in order: that order is the zxid's."""

import secrets
from collections.abc import Mapping
from struct import Struct

from aioelasticjob.zookeeper import acl, messages, replies
from aioelasticjob.zookeeper.acl import Identity
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode, RequestError
from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.datatree import AppliedOperation, Author
from aioelasticjob.zookeeper.digest_md5 import DigestError, challenge, verify
from aioelasticjob.zookeeper.jute import NULL, MalformedError, Reader, pack_buffer, pack_string
from aioelasticjob.zookeeper.messages import Connect
from aioelasticjob.zookeeper.queries import QUERIES
from aioelasticjob.zookeeper.state import State

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


class Processor(State):
    """The server without its network, disk and clock."""

    __slots__ = ()

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


def _result(applied: AppliedOperation) -> bytes:
    if applied.op in _CREATES:
        return pack_string(applied.path) + applied.stat
    return applied.stat


def _multi_result(result: AppliedOperation | ErrorCode) -> bytes:
    if isinstance(result, ErrorCode):
        return replies.multi_error(result)
    op = OpCode.CREATE2 if result.op in _CREATES and result.stat else result.op
    return replies.multi_result(op, _result(result))
