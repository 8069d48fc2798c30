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
READ, CREATE, DELETE = 1, 4, 8

PATHS: Final = Codec("", private=False)
"""Renders absolute paths."""
_int = Struct("!i")


async def permissions(line: Line, codec: Codec, namespace: str) -> Permissions:
    """Ask what our session may do, by transactions that fail in any case: nothing is written.

    ``codec`` renders absolute paths, and the access control list that jobs give to what they make.

    Raises: OSError, RegistryError.
    """
    place = await _deepest(line, namespace)
    names = await _children(line, namespace) if place == namespace else ()
    nodes = [name for name in names if not name.startswith(PROBE)]
    read_many = await _sent(line, wire.MULTI_READ, codec.multi_read([(wire.CHILDREN, "/zookeeper")]))
    return Permissions(
        await _identities(line),
        not read_many[0],
        place == namespace,
        place,
        await _refused(line, codec, place),
        await _is_open(line, place),
        len(nodes),
        await _closed(line, codec, [child(namespace, name) for name in nodes[:MAX_CHILDREN]]),
        await _quotas(line, namespace),
    )


async def writes(line: Line, codec: Codec, place: str, clock: Clock) -> Writes:
    """Make an ephemeral node below ``place``, set it several times, and remove it; its session would remove it as well.

    Raises: OSError.
    """
    path = child(place, PROBE + secrets.token_hex(6))
    best, seconds, skew = inf, list[float](), 0.0
    try:
        await _commit(line, codec, Create(path, ephemeral=True))
        for _ in range(WRITES):
            began, before = anyio.current_time(), clock.now()
            registry_time = await _commit(line, codec, Set(path, b"", -1))
            seconds.append(anyio.current_time() - began)
            if seconds[-1] < best:
                best, skew = seconds[-1], (before + clock.now()) / 2 - registry_time
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
    probe, found = child(path, PROBE + secrets.token_hex(6)), dict[str, str]()
    asked: Mapping[str, Sequence[Op]] = {
        "read": [Check(path)],
        "create": [Create(probe)],
        "delete": [Create(probe), Delete(probe)],
    }
    for right, ops in asked.items():
        if why := await _refusal(line, codec, ops):
            found[right] = why
    return found


async def _refusal(line: Line, codec: Codec, ops: Sequence[Op]) -> str:
    """Return why our session may not do the last of these operations; the transaction as a whole always fails."""
    doomed = [*ops, Check("/", NEVER)]
    error, _, frame = await _sent(line, wire.MULTI, codec.multi(doomed))
    whole = len(frame) <= wire.BODY  # the registry has looked at no operation
    index, code = (0, error) if whole else wire.refused_operation(frame, doomed) or (0, 0)
    if code == wire.USED_UP:  # that is no lack of permission, and is judged by itself
        return ""
    return str(wire.failure(code, ops[-1].path)) if code and (whole or index == len(ops) - 1) else ""


async def _sent(line: Line, opcode: int, body: bytes) -> wire.Reply:
    reply = await line.call(opcode, body)
    if reply[0] == wire.LOST:
        raise ConnectionError(f"the connection ended: {line.connection.reason}")
    return reply


async def _identities(line: Line) -> tuple[str, ...] | None:
    error, _, frame = await _sent(line, WHO_AM_I, b"")
    if error:
        return None
    at, found = wire.BODY, list[str]()
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
        if (scheme, user) == ("world", "anyone") and permitted & READ and permitted & CREATE and permitted & DELETE:
            return True
    return False


async def _deepest(line: Line, path: str) -> str:
    """Return the path, or the deepest of its parents that exists."""
    while path != "/" and (await _sent(line, wire.EXISTS, PATHS.watching(path)))[0] == wire.MISSING:
        path = parent(path)
    return path


async def _children(line: Line, path: str) -> tuple[str, ...]:
    """Return the names below a node; none if they may not be read."""
    error, _, frame = await _sent(line, wire.CHILDREN, PATHS.watching(path))
    return () if error else tuple(sorted(wire.names(frame)[0]))


async def _quotas(line: Line, namespace: str) -> tuple[Quota, ...] | None:
    """Return the quotas on the namespace, on its parents, and on what is directly below it."""
    paths, path = [namespace], namespace
    while path != "/":
        path = parent(path)
        paths.append(path)
    below = await _children(line, QUOTAS + namespace)
    paths += [child(namespace, name) for name in below if not name.startswith("zookeeper_")]
    found = list[Quota]()
    for path in paths:
        place = QUOTAS + ("" if path == "/" else path)
        values = []
        for name in ("zookeeper_limits", "zookeeper_stats"):
            error, _, frame = await _sent(line, wire.GET, PATHS.watching(f"{place}/{name}"))
            if error not in (0, wire.MISSING):
                return None
            values.append(None if error else _numbers(wire.node(frame)[0].data))
        limits, used = values
        if limits is not None:
            found.append(Quota(path, limits, used or {}))
    return tuple(found)


def _numbers(data: bytes) -> dict[str, int]:
    """Read ``count=5,bytes=-1=;byteHardLimit=1000`` (StatsTrack of ZooKeeper)."""
    found = dict[str, int]()
    for pair in data.decode("utf-8", "replace").replace(";", ",").split(","):
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
