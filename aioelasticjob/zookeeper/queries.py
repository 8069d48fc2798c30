"""Requests that change no znode: reads, watches, questions about oneself."""

from collections.abc import Callable, Mapping

from aioelasticjob.zookeeper import acl, messages, replies
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.jute import INT, MalformedError, Reader, pack_string, pack_strings
from aioelasticjob.zookeeper.watches import Watches
from aioelasticjob.zookeeper.znode import Znode

MAX_MULTI_READ = 64 * 1024 * 1024  # bytes: a few hundred thousand reads of one large znode fit into one request


def _ping(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    return b""


def _exists(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path, watch = messages.read_read(reader)
    if path is None:
        raise RequestError(ErrorCode.MARSHALLING_ERROR)
    if "\0" in path:
        raise RequestError(ErrorCode.BAD_ARGUMENTS)
    if watch:
        watches.data.add(path, connection)  # also, and above all, for a znode that is not there
    return tree.node(path).stat()


def _get_data(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path, watch = messages.read_read(reader)
    node = _readable(tree, path, connection)
    if watch and path is not None:
        watches.data.add(path, connection)
    return replies.data(node.data, node.stat())


def _get_children(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    node = _children(tree, watches, connection, reader)
    return replies.children(node.children.ordered())


def _get_children2(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    node = _children(tree, watches, connection, reader)
    return replies.children(node.children.ordered(), node.stat())


def _get_acl(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    node = tree.node(reader.string())
    acl.require(node.acl, Perms.READ | Perms.ADMIN, connection.identities)
    if acl.permitted(node.acl, Perms.ADMIN, connection.identities):
        shown = node.acl
    else:
        shown = acl.masked(node.acl)
    return replies.acls(shown) + node.stat()


def _sync(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    return pack_string(reader.string())


def _count_children(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path = reader.string()
    _readable(tree, path, connection)
    if path is None or path in ("/", ""):
        # The root is in the table twice; asked by its empty name, the reference server counts itself, too.
        return INT.pack(len(tree.nodes) - (2 if path else 1))
    return INT.pack(sum(1 for _ in tree.below(path)))


def _get_ephemerals(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    prefix = reader.string()
    own = list[str]()
    if connection.session in tree.ephemerals:
        own = tree.ephemerals[connection.session].ordered_as_copy()
    if prefix is None or prefix.strip() in ("", "/"):
        return pack_strings(own)
    return pack_strings(path for path in own if path.startswith(prefix))


def _who_am_i(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    return replies.identities(connection.identities)


def _multi_read(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    parts: list[bytes] = []
    size = 0
    for operation in messages.read_multi_read(reader):
        if not isinstance(operation, messages.ReadOf) or operation.path is None:
            raise RequestError(ErrorCode.MARSHALLING_ERROR, b"".join(parts) + replies.MULTI_END)
        op, path = operation
        try:
            node = _readable(tree, path, connection)
        except RequestError as refused:
            parts.append(replies.multi_error(refused.code))
            continue
        if op is OpCode.GET_DATA:
            body = replies.data(node.data, node.stat())
        else:
            body = replies.children(node.children.ordered())
        parts.append(replies.multi_result(op, body))
        size += len(body)
        if size > MAX_MULTI_READ:
            raise MalformedError("a multi-read that asks for more than the server would hold")
    return b"".join(parts) + replies.MULTI_END


def _set_watches(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    return _restore(tree, watches, connection, messages.read_set_watches(reader))


def _set_watches2(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    return _restore(tree, watches, connection, messages.read_set_watches2(reader))


def _add_watch(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path, mode = _path_mode(reader)
    watches.add(path, connection, mode)
    return INT.pack(ErrorCode.OK)


def _remove_watches(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path, kind = messages.read_path_mode(reader)
    watches.remove(path, connection, kind)
    return b""


def _check_watches(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> bytes:
    path, kind = _path_mode(reader)
    if path and "/" not in path:
        raise RequestError(ErrorCode.MARSHALLING_ERROR)
    watches.check(path, kind)
    return b""


def _readable(tree: DataTree, path: str | None, connection: Connection) -> Znode:
    node = tree.node(path)
    acl.require(node.acl, Perms.READ, connection.identities)
    return node


def _children(tree: DataTree, watches: Watches[Connection], connection: Connection, reader: Reader) -> Znode:
    path, watch = messages.read_read(reader)
    node = _readable(tree, path, connection)
    if watch and path is not None:
        watches.child.add(path, connection)
    return node


def _restore(
    tree: DataTree, watches: Watches[Connection], connection: Connection, wanted: messages.SetWatches
) -> bytes:
    for kind, path in watches.restore(wanted, connection, tree):
        connection.send(replies.event(kind, path))
    return b""


def _path_mode(reader: Reader) -> tuple[str, int]:
    path, mode = messages.read_path_mode(reader)
    if path is None:
        raise RequestError(ErrorCode.MARSHALLING_ERROR)
    return path, mode


Query = Callable[[DataTree, Watches[Connection], Connection, Reader], bytes]

QUERIES: Mapping[int, Query] = {
    OpCode.PING: _ping,
    OpCode.EXISTS: _exists,
    OpCode.GET_DATA: _get_data,
    OpCode.GET_CHILDREN: _get_children,
    OpCode.GET_CHILDREN2: _get_children2,
    OpCode.GET_ACL: _get_acl,
    OpCode.SYNC: _sync,
    OpCode.GET_ALL_CHILDREN_NUMBER: _count_children,
    OpCode.GET_EPHEMERALS: _get_ephemerals,
    OpCode.WHO_AM_I: _who_am_i,
    OpCode.MULTI_READ: _multi_read,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.SET_WATCHES2: _set_watches2,
    OpCode.ADD_WATCH: _add_watch,
    OpCode.REMOVE_WATCHES: _remove_watches,
    OpCode.CHECK_WATCHES: _check_watches,
}
