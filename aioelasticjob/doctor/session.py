"""Asks what our session may do in the registry, and measures writes to an ephemeral node that it removes again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from math import inf
from struct import Struct
from typing import Final

import anyio

from aioelasticjob.clock import Clock
from aioelasticjob.doctor.facts import Permissions, Quota, Writes
from aioelasticjob.doctor.line import Line
from aioelasticjob.errors import RegistryError, unwrapped
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.registry import codec as wire
from aioelasticjob.registry.codec import Codec
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set
from aioelasticjob.registry.tree import parent

PROBE: Final = "~doctor-"
"""The names of probes begin so; no job has such a name."""
WRITES: Final = 9
"""How many writes are measured."""
MAX_CHILDREN: Final = 500
"""How many nodes below the namespace are looked at."""
GET_ACL: Final = 6
WHO_AM_I: Final = 107
NEVER: Final = 0x7FFFFFFF
"""A version that no node has: a check for it lets a transaction fail."""
QUOTAS: Final = "/zookeeper/quota"
READ = 1
CREATE = 4
DELETE = 8
EVERYTHING = READ | CREATE | DELETE
"""The permissions that jobs need."""

PATHS: Final = Codec("", private=False)
"""Renders absolute paths."""
_int = Struct("!i")


async def permissions(line: Line, codec: Codec, namespace: str) -> Permissions:
    """Ask what our session may do, by transactions that fail in any case: nothing is written.

    ``codec`` renders absolute paths, and the access control list that jobs give to what they make.

    Raises: OSError, RegistryError.
    """
    place = await _deepest(line, namespace)
    exists = place == namespace
    names = await _children(line, namespace) if exists else ()
    nodes = [child(namespace, name) for name in names if not name.startswith(PROBE)]
    read_many = codec.multi_read([(wire.CHILDREN, "/zookeeper")])
    read_many_error, _, _ = await _sent(line, wire.MULTI_READ, read_many)
    return Permissions(
        identities=await _identities(line),
        multi_read=not read_many_error,
        exists=exists,
        place=place,
        refused=await _refused(line, codec, place),
        open_to_all=await _is_open(line, place),
        children=len(nodes),
        closed=await _closed(line, codec, nodes[:MAX_CHILDREN]),
        quotas=await _quotas(line, namespace),
    )


async def writes(line: Line, codec: Codec, place: str, clock: Clock) -> Writes:
    """Make an ephemeral node below ``place``, set it several times, and remove it; its session would remove it as well.

    Raises: OSError.
    """
    path = child(place, PROBE + secrets.token_hex(6))
    seconds = list[float]()
    best = inf
    skew = 0.0  # as of the fastest write, which leaves the least doubt
    try:
        await _commit(line, codec, Create(path, ephemeral=True))
        for _ in range(WRITES):
            began = anyio.current_time()
            before = clock.now()
            registry_time = await _commit(line, codec, Set(path, b"", -1))
            took = anyio.current_time() - began
            seconds.append(took)
            if took < best:
                best = took
                middle = (before + clock.now()) / 2
                skew = middle - registry_time
        await _commit(line, codec, Delete(path))
    except RegistryError as error:
        return Writes(failure=str(error))
    return Writes(tuple(seconds), skew, best / 2)


async def _commit(line: Line, codec: Codec, op: Op) -> float:
    """Write a transaction and return the registry's time of it, if the answer tells that."""
    error, zxid, frame = await _sent(line, wire.MULTI, codec.multi([op]))
    if error and len(frame) <= wire.BODY:
        raise wire.failure(error, op.path)
    return wire.committed(frame, zxid, [op]).time


async def _closed(line: Line, codec: Codec, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes at which our session may not do all that jobs do."""
    found = dict[str, bool]()

    async def look(path: str) -> None:
        found[path] = bool(await _refused(line, codec, path))

    with unwrapped():
        async with anyio.create_task_group() as tasks:
            for path in paths:
                tasks.start_soon(look, path)
    return tuple(path for path in paths if found[path])


async def _refused(line: Line, codec: Codec, path: str) -> Mapping[str, str]:
    """Return what our session may not do at a node, and why."""
    probe = child(path, PROBE + secrets.token_hex(6))
    found = dict[str, str]()
    asked: Mapping[str, Sequence[Op]] = {
        "read": [Check(path)],
        "create": [Create(probe)],
        "delete": [Create(probe), Delete(probe)],
    }
    for right, ops in asked.items():
        why = await _refusal(line, codec, ops)
        if why:
            found[right] = why
    return found


async def _refusal(line: Line, codec: Codec, ops: Sequence[Op]) -> str:
    """Return why our session may not do the last of these operations; the transaction as a whole always fails."""
    doomed = [*ops, Check("/", NEVER)]
    error, _, frame = await _sent(line, wire.MULTI, codec.multi(doomed))
    last = len(ops) - 1
    if len(frame) <= wire.BODY:  # the registry has looked at no operation
        code = error
    else:
        index, code = wire.refused_operation(frame, doomed) or (last, 0)
        if index != last:
            return ""
    if code in (0, wire.USED_UP):  # a quota is no lack of permission, and is judged by itself
        return ""
    return str(wire.failure(code, ops[last].path))


async def _sent(line: Line, opcode: int, body: bytes) -> wire.Reply:
    reply = await line.call(opcode, body)
    error, _, _ = reply
    if error == wire.LOST:
        raise ConnectionError(f"the connection ended: {line.connection.reason}")
    return reply


async def _identities(line: Line) -> tuple[str, ...] | None:
    error, _, frame = await _sent(line, WHO_AM_I, b"")
    if error:
        return None
    found = list[str]()
    at = wire.BODY
    (count,) = _int.unpack_from(frame, at)
    at += 4
    for _ in range(count):
        scheme, at = _text(frame, at)
        user, at = _text(frame, at)
        found.append(f"{scheme} {user}")
    return tuple(found)


async def _is_open(line: Line, path: str) -> bool:
    """Return whether anybody may do everything at a node; False if its access control list cannot be read."""
    error, _, frame = await _sent(line, GET_ACL, PATHS.path(path))
    if error:
        return False
    at = wire.BODY
    (count,) = _int.unpack_from(frame, at)
    at += 4
    for _ in range(count):
        (permitted,) = _int.unpack_from(frame, at)
        scheme, at = _text(frame, at + 4)
        user, at = _text(frame, at)
        if (scheme, user) == ("world", "anyone") and permitted & EVERYTHING == EVERYTHING:
            return True
    return False


async def _deepest(line: Line, path: str) -> str:
    """Return the path, or the deepest of its parents that exists."""
    while path != "/":
        error, _, _ = await _sent(line, wire.EXISTS, PATHS.watching(path))
        if error != wire.MISSING:
            break
        path = parent(path)
    return path


async def _children(line: Line, path: str) -> tuple[str, ...]:
    """Return the names below a node; none if they may not be read."""
    error, _, frame = await _sent(line, wire.CHILDREN, PATHS.watching(path))
    if error:
        return ()
    names, _ = wire.names(frame)
    return tuple(sorted(names))


async def _quotas(line: Line, namespace: str) -> tuple[Quota, ...] | None:
    """Return the quotas on the namespace, on its parents, and on what is directly below it."""
    paths = [namespace]
    path = namespace
    while path != "/":
        path = parent(path)
        paths.append(path)
    below = await _children(line, QUOTAS + namespace)
    paths += [child(namespace, name) for name in below if not name.startswith("zookeeper_")]
    found = list[Quota]()
    for path in paths:
        place = QUOTAS if path == "/" else QUOTAS + path
        try:
            limits = await _numbers_at(line, f"{place}/zookeeper_limits")
            used = await _numbers_at(line, f"{place}/zookeeper_stats")
        except _Unreadable:
            return None
        if limits is not None:
            found.append(Quota(path, limits, used or {}))
    return tuple(found)


class _Unreadable(Exception):
    """A node exists and cannot be read."""


async def _numbers_at(line: Line, path: str) -> dict[str, int] | None:
    """Read the numbers of a quota; None if there is no such node.

    Raises: _Unreadable.
    """
    error, _, frame = await _sent(line, wire.GET, PATHS.watching(path))
    if error == wire.MISSING:
        return None
    if error:
        raise _Unreadable
    node, _ = wire.node(frame)
    return _numbers(node.data)


def _numbers(data: bytes) -> dict[str, int]:
    """Read ``count=5,bytes=-1=;byteHardLimit=1000`` (StatsTrack of ZooKeeper)."""
    found = dict[str, int]()
    text = data.decode("utf-8", "replace")
    for pair in text.replace(";", ",").split(","):
        name, _, value = pair.partition("=")
        signed = value.strip("=")
        number = whole_number(signed.removeprefix("-"), digits=19)
        if number is not None:
            found[name] = -number if signed.startswith("-") else number
    return found


def child(path: str, name: str) -> str:
    """Return the path of a node below another one, which may be the root."""
    return f"/{name}" if path == "/" else f"{path}/{name}"


def _text(frame: bytes, at: int) -> tuple[str, int]:
    (size,) = _int.unpack_from(frame, at)
    at += 4
    end = at + max(size, 0)
    return frame[at:end].decode("utf-8", "replace"), end
