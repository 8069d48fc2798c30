"""``write``: what an instance of a job decides is written to the registry once or never.

A transaction is applied whole or not at all, and it is conditional on what was read.  So if its reply is lost, the
instance reads the nodes that the transaction would have changed, and they show whether it was applied.  If it was not
applied, it is sent again.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from aioelasticjob.engine.member import Member
from aioelasticjob.errors import Conflict, NodeTooLarge, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node

T = TypeVar("T")
ENDED_STATES = (SessionState.EXPIRED, SessionState.CLOSED)
MAX_CONFLICTS = 50
"""Conflicts after which a write fails.  In each one another instance succeeds, so 50 mean that something is wrong."""


@dataclass(slots=True)
class SentTransaction:
    """A transaction on its way to the registry, and its answer."""

    ops: Sequence[Op]
    what: str
    """What the job wants, as in "to settle items"."""
    since: int
    """The zxid of a transaction that was written before this one."""
    answer: Future[Committed]


def send(member: Member, ops: Sequence[Op], what: str) -> SentTransaction:
    """Send a transaction under the member's session, and do not wait for its answer."""
    try:
        answer = member.session.commit(ops, incarnation=member.incarnation)
    except RegistryError as error:
        answer = get_running_loop().create_future()
        answer.set_exception(error)
    return SentTransaction(ops, what, member.session.zxid, answer)


async def write(
    member: Member, ops: Sequence[Op], what: str, *, wait: bool = False, has_parts: bool = False
) -> Committed:
    """Write a transaction under the member's session.  ``what`` says what the job wants, as in "to settle items".

    Without a connection this raises Suspended; with ``wait`` it waits for a connection of the same session.  Every wait
    can be cancelled, and ends when the session ends.  If the transaction ``has_parts``, and is too large, the caller
    sends the parts, so that does not count as a refusal.

    Raises:
        SessionEnded: the session is over, so every lock that the transaction may have made is gone.
        RegistryError: nothing was written, and the session goes on.
    """
    return await result_of(member, send(member, ops, what), wait=wait, has_parts=has_parts)


async def result_of(
    member: Member, sent: SentTransaction, *, wait: bool = False, insist: bool = False, has_parts: bool = False
) -> Committed:
    """Wait for the result of a transaction that was sent, as ``write`` does.

    With ``insist`` it also waits for a connection, and a transaction that is refused is sent again, as long as the
    session lives.  Then only a Conflict, a SessionEnded, and a NodeTooLarge if it ``has_parts``, are raised.
    """
    refused = 0
    while True:
        try:
            committed = await _result_of(member, sent, wait or insist)
            break
        except (Conflict, Suspended, SessionEnded):  # a conflict and a missing connection do not count as refusals
            raise
        except RegistryError as error:
            if has_parts and isinstance(error, NodeTooLarge):
                raise
            member.refusals.refused(sent.what, error)
            if not insist:
                raise
            await member.session.back_off(refused)
            refused += 1
            sent = send(member, sent.ops, sent.what)
    if member.refusals.open:
        member.refusals.accepted(sent.what)
    return committed


async def _result_of(member: Member, sent: SentTransaction, wait: bool) -> Committed:
    lost = 0
    while True:
        try:
            return await sent.answer
        except OutcomeUnknown as error:
            if (found := await _look(member, sent)) is not None:
                return found
            if lost:  # pause longer each time if a server fails again and again
                member.refusals.refused(sent.what, error)
                await member.session.back_off(lost - 1)
            lost += 1
        except Suspended:
            if not wait:
                raise
            if not await connected(member):
                raise _lost(sent.what) from None
        except SessionEnded as error:
            if wait and await connected(member):
                raise RegistryError(str(error)) from error  # the session, with its locks, goes on
            raise
        sent = send(member, sent.ops, sent.what)


def answer_to(member: Member, sent: SentTransaction) -> Committed | Conflict | None:
    """Return what a transaction has written, or its conflict; None if ``result_of`` has to be awaited.

    A conflict is not raised: its traceback would have the answer, and the answer has it, so it would be garbage in a
    cycle.
    """
    answer = sent.answer
    if not answer.done() or answer.cancelled():
        return None
    if (error := answer.exception()) is not None:
        return error if isinstance(error, Conflict) else None
    if member.refusals.open:
        member.refusals.accepted(sent.what)
    return answer.result()


async def write_if_unchanged(member: Member, ops: Sequence[Op], what: str) -> bool:
    """Write a transaction; return False if nothing was written, because a node has changed on which it depends.

    Raises:
        RegistryError: there is no connection, or the registry refuses it; nothing was written.
    """
    try:
        await write(member, ops, what)
    except Conflict:
        return False
    return True


async def write_anew(
    member: Member,
    decide: Callable[[], Awaitable[Sequence[Op]]],
    what: str,
    *,
    wait: bool = False,
    is_final: Callable[[Conflict], bool] = lambda conflict: False,
) -> None:
    """Write what ``decide`` wants; if a node has changed on which that depends, decide anew.

    ``decide`` reads nodes, and returns operations that are conditional on them; none if all is well.  With ``wait`` it
    and the write wait for a connection.

    Raises:
        Conflict: a conflict ``is_final``, or too many attempts have met one.
        SessionEnded: the session is over.
        RegistryError: nothing was written.
    """
    for attempt in range(1, MAX_CONFLICTS + 1):
        operations = await (when_connected(member, what, decide) if wait else decide())
        if not operations:
            return
        try:
            await write(member, operations, what, wait=wait)
            return
        except Conflict as conflict:
            if is_final(conflict) or attempt == MAX_CONFLICTS:
                raise


async def when_connected(member: Member, what: str, request: Callable[[], Awaitable[T]]) -> T:
    """Make a request; without a connection wait for one of the same session.  ``what`` says what the job wants.

    Raises:
        SessionEnded: the session is over.
        RegistryError: the registry refuses the request.
    """
    while await connected(member):
        with suppress(Suspended):
            return await request()
    raise _lost(what)


async def until_answered(member: Member, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Make a request again and again until the registry answers it.  ``what`` says what the job wants.

    Raises:
        Conflict: the request was a write, and what it depends on has changed.
        SessionEnded: the session is over.
    """
    failures = 0
    while True:
        try:
            return await when_connected(member, what, attempt)
        except (Conflict, SessionEnded):
            raise
        except RegistryError as error:
            member.refusals.refused(what, error)
            await member.session.back_off(failures)
            failures += 1


async def connected(member: Member) -> bool:
    """Wait for a connection of the member's session; False if that session is over."""
    answers = {SessionState.CONNECTED, *ENDED_STATES}
    mine = member.incarnation
    status = await member.session.status.until(lambda now: now.state in answers or now.incarnation != mine)
    return status.state is SessionState.CONNECTED and status.incarnation == mine


def committed_by_nodes(
    ops: Sequence[Op], nodes: Mapping[str, Node | None], incarnation: int, since: int
) -> Committed | None:
    """Return what the lost reply would have said if the nodes show that ``ops`` were applied, else None.

    ``nodes`` were read after ``ops`` had been sent, and ``since`` is the zxid of a transaction that was written before
    them.  If the nodes do not show it, ``ops`` count as not applied and are sent again: they are conditional, so they
    are refused if they were applied after all.  A new lock of this session proves that ``ops`` were applied, because
    nobody else can make it, even if somebody has changed other nodes by hand since.

    Another process may have written the same data to the same nodes.  If the caller would then do what only the writer
    may do, such as report what was missed, the data of at least one node has to name the writer.
    """
    made = {op.path for op in ops if isinstance(op, Create)}
    removed = {op.path for op in ops if isinstance(op, Delete)}
    shown = list[bool | None]()
    locked = False
    for op in ops:
        is_shown = None
        if op.path not in made or op.path not in removed:
            is_shown = _shows_applied(op, nodes.get(op.path), incarnation, since)
        shown.append(is_shown)
        if is_shown and isinstance(op, Create) and op.ephemeral:
            locked = True
    if not any(shown) or (False in shown and not locked):
        return None
    zxid = 0
    versions = list[int]()
    for op, is_shown in zip(ops, shown, strict=True):
        node = nodes.get(op.path)
        if is_shown and node is not None and isinstance(op, Create):
            zxid = node.stat.czxid
        elif is_shown and node is not None and isinstance(op, Set):
            zxid = zxid or node.stat.mzxid
        versions.append(_version_after(op, node))
    return Committed(zxid or since, tuple(versions))


def _shows_applied(op: Op, node: Node | None, incarnation: int, since: int) -> bool | None:
    """Return whether a node shows that an operation was applied; None if the node does not show it."""
    match op:
        case Create(ephemeral=True):
            return node is not None and node.stat.ephemeral_owner == incarnation and node.stat.czxid > since
        case Create():
            if node is None or node.stat.czxid <= since:
                return False
            if node.data == op.data:
                return True
            was_made_with_other_data = node.stat.version == 0
            return False if was_made_with_other_data else None
        case Set():
            if node is None:
                return None
            if node.stat.mzxid <= since:
                return False
            is_our_version = op.version < 0 or node.stat.version == op.version + 1
            if is_our_version and node.data == op.data:
                return True
            was_written_by_another = is_our_version and op.version >= 0 and node.stat.czxid <= since
            return False if was_written_by_another else None
        case Delete():
            return node is None or node.stat.czxid > since
        case Check():
            return None


def _version_after(op: Op, node: Node | None) -> int:
    """Return the version that the reply has for an operation that was applied."""
    match op:
        case Create():
            return 0
        case Set(version=version) if version >= 0:
            return version + 1
        case Set() if node is not None:
            return node.stat.version
        case _:
            return -1


async def _look(member: Member, sent: SentTransaction) -> Committed | None:
    """Find out whether a transaction was applied, trying until the session ends; None if it was not."""
    paths = list(dict.fromkeys(op.path for op in sent.ops if not isinstance(op, Check)))

    async def read() -> list[Node | None]:
        await member.session.sync()  # a server that lags behind does not show yet what was written
        return await member.session.get_many(paths)

    nodes = await until_answered(member, sent.what, read)
    return committed_by_nodes(sent.ops, dict(zip(paths, nodes, strict=True)), member.incarnation, sent.since)


def _lost(what: str) -> SessionEnded:
    return SessionEnded(f"the session was lost before the registry answered ({what})")
