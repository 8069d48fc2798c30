"""Group commit: transactions of one turn of the loop share a request, yet each one is written whole or not at all.

A registry spends far more time on a request than on an operation in it: a thousand claims that fall due together take
a real ensemble 200 ms as a thousand requests, and 25 ms as requests of forty claims each.  When the registry refuses
one transaction of a group, it has written nothing of the group: every transaction is then sent again in a request of
its own, and gets an answer of its own.  An overloaded registry refuses a whole group without having looked at it; then
nothing is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import error as Malformed  # noqa: N812  # a class, whatever its name
from typing import Final

from aioelasticjob.errors import OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.values import value
from aioelasticjob.registry.codec import (
    LOST,
    MULTI,
    SESSION_OVER,
    THROTTLED,
    UNCERTAIN,
    Reply,
    committed,
    failure,
    joined,
)
from aioelasticjob.registry.session_keeper import SessionKeeper
from aioelasticjob.registry.transaction import Committed, Op

MAX_GROUP_OPERATIONS: Final = 128  # operations in a group: larger ones gain nothing, and keep the first of them waiting
MAX_GROUP_BYTES: Final = 64 * 1024  # bytes in a group: a transaction beyond that goes alone
HOW_TO_FIND_OUT: Final = "look whether it was written"


@value
class _Transaction:
    """One caller's transaction, and the future on which the caller waits for its answer."""

    ops: Sequence[Op]
    body: bytes
    incarnation: int
    answer: asyncio.Future[Committed]

    def fail(self, error: RegistryError) -> None:
        """Raise an error in the caller that awaits the answer, unless that caller was cancelled."""
        if not self.answer.done():
            self.answer.set_exception(error)


class GroupCommit:
    """Gathers transactions until the turn of the loop is over or the group is full, and sends them as one request."""

    def __init__(self, keeper: SessionKeeper, note_time: Callable[[float, float], None]) -> None:
        self._keeper = keeper
        self._note_time = note_time
        self._loop = asyncio.get_running_loop()
        self._group: list[_Transaction] = []
        self._operations = 0
        self._bytes = 0
        self._waiting = False

    def commit(self, ops: Sequence[Op], body: bytes, incarnation: int) -> asyncio.Future[Committed]:
        """Send a transaction, rendered as ``body``, with others of its turn; only under the session given."""
        transaction = _Transaction(ops, body, incarnation, self._loop.create_future())
        if self._group and not self._has_room(transaction):
            self._send_group()
        if not self._waiting:
            self._waiting = True
            self._loop.call_soon(self._end_round)
        self._group.append(transaction)
        self._operations += len(ops)
        self._bytes += len(body)
        return transaction.answer

    def _has_room(self, transaction: _Transaction) -> bool:
        """Whether a transaction can go with those that have been gathered."""
        most_bytes = min(MAX_GROUP_BYTES, self._keeper.request_limit.bytes)
        return (
            self._group[0].incarnation == transaction.incarnation
            and self._operations + len(transaction.ops) <= MAX_GROUP_OPERATIONS
            and self._bytes + len(transaction.body) <= most_bytes
        )

    def _end_round(self) -> None:
        self._waiting = False
        self._send_group()

    def _send_group(self) -> None:
        group = self._group
        self._group = []
        self._operations = 0
        self._bytes = 0
        self._send([transaction for transaction in group if not transaction.answer.done()])

    def _send(self, group: Sequence[_Transaction]) -> None:
        if not group:
            return
        keeper = self._keeper
        incarnation = group[0].incarnation
        if incarnation != keeper.lease.incarnation or not incarnation:
            _fail(group, SessionEnded, f"session {incarnation:#x} is over; nothing was written")
        elif keeper.connection is None or not keeper.lease.check():
            _fail(group, Suspended, f"no connection to the registry ({keeper.reason}); nothing was written")
        else:
            body = joined([transaction.body for transaction in group])
            reply = keeper.connection.call(MULTI, body)
            reply.add_done_callback(partial(self._answered, group, keeper.lease.now()))

    def _answered(self, group: Sequence[_Transaction], sent: float, reply: asyncio.Future[Reply]) -> None:
        error, zxid, frame = reply.result()
        if error == LOST:
            why = f"the connection was lost ({self._keeper.reason}) before the reply: {HOW_TO_FIND_OUT}"
            return _fail(group, OutcomeUnknown, why)
        if error in UNCERTAIN:
            return _fail(group, OutcomeUnknown, f"{failure(error, group[0].ops[0].path)}: {HOW_TO_FIND_OUT}")
        if error in SESSION_OVER:
            return _fail(group, SessionEnded, "the registry has ended the session; nothing was written")
        if error == THROTTLED:  # a request for each transaction would be still more load
            for transaction in group:
                transaction.fail(failure(error, transaction.ops[0].path))
            return
        ops = [op for transaction in group for op in transaction.ops]
        try:
            if error:
                raise failure(error, ops[0].path)
            whole = committed(frame, zxid, ops)
        except RegistryError as refusal:
            if len(group) == 1:
                return group[0].fail(refusal)
            for transaction in group:
                if not transaction.answer.done():  # its caller may have gone meanwhile
                    self._send([transaction])
        except (Malformed, ValueError) as mistake:
            _fail(group, OutcomeUnknown, f"the reply made no sense ({mistake}): {HOW_TO_FIND_OUT}")
        else:
            if whole.time:
                self._note_time(whole.time, self._keeper.lease.now() - sent)
            _tell(group, whole)


def _tell(group: Sequence[_Transaction], whole: Committed) -> None:
    """Give every transaction of a group its part of the answer."""
    at = 0
    for transaction in group:
        end = at + len(transaction.ops)
        if not transaction.answer.done():
            transaction.answer.set_result(Committed(whole.zxid, whole.versions[at:end], whole.time))
        at = end


def _fail(group: Sequence[_Transaction], kind: type[RegistryError], why: str) -> None:
    for transaction in group:
        transaction.fail(kind(why))
