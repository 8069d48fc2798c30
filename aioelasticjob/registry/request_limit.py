"""RequestLimit: the largest request that the servers take, learned from the connections that they have closed.

A ZooKeeper server answers a request that is larger than its ``jute.maxbuffer`` by closing the connection, and does not
say why.  If such a request were sent again on the next connection, that one would end too, and so on for ever.
"""

from __future__ import annotations

from typing import Final

from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.logging import logger
from aioelasticjob.registry.codec import EXISTS, LOST, Codec
from aioelasticjob.registry.connection import Connection

ALWAYS_TAKEN: Final = 1024
"""Bytes of a request that every server takes; smaller ones are never suspected."""
SUSPICIOUS_ENDS: Final = 2
"""After so many connections in a row that have ended while a large request was unanswered, sizes are tried."""
RESOLUTION: Final = 16
"""The limit that is found may be too small by this part of it."""

MOST_NAMED: Final = 5
"""How many jobs a line names whose transactions were in one request."""

log = logger(__name__)


class RequestLimit:
    """Finds out how large a request may be.

    It is told how connections have ended, and says which sizes are to be tried on the next ones before anything else is
    sent there.  A size counts as refused only if two connections have ended that tried it: a server may stop for
    another reason at any time.  After each lost connection the limit is tried once again, because the server may have
    been started anew with a larger one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = most
        """The largest request that may be sent, in bytes of its body."""
        self._refused = 0  # the smallest size that is not taken, as far as known; 0: all sizes seem to be taken
        self._taken = ALWAYS_TAKEN  # the largest size that is known to be taken, if there is a refused one
        self._ends = 0  # how many suspicious ends there were in a row
        self._suspect = 0  # the smallest of the requests that were unanswered at these ends
        self.suspect = ""
        """The request that was unanswered when the last suspicious connection ended, in words."""
        self._to_confirm = False  # whether the refused size has to be tried again

    @property
    def is_found(self) -> bool:
        """Whether the servers take less than the settings allow."""
        return self.bytes < self._most

    def connection_ended(self, answered: int, unanswered: int, request: str) -> None:
        """Note that a connection has ended; the sizes are those of the largest requests on it.

        If the end has other reasons than the server, ``unanswered`` is 0.  ``request`` names the unanswered one.
        """
        if unanswered > max(answered, ALWAYS_TAKEN):
            self.suspect = request
            self._suspect = min(self._suspect or unanswered, unanswered)
            self._ends += 1
        else:
            self._suspect = 0
            self._ends = 0
        if self._ends >= SUSPICIOUS_ENDS:
            if not self._refused or self._suspect < self._refused:
                self._refused = self._suspect
                self._taken = ALWAYS_TAKEN
            self._suspect = 0
            self._ends = 0
        self._to_confirm = self._refused > 0

    @property
    def size_to_try(self) -> int:
        """Return the size of the next request that is to be tried; 0 if there is none."""
        if self._to_confirm:
            return self._refused
        if self._refused - self._taken > max(self._taken // RESOLUTION, 1):
            return (self._refused + self._taken) // 2
        return 0

    def tried(self, size: int, *, is_taken: bool) -> None:
        """Note whether the server has answered a request of the size that was to be tried."""
        if not is_taken:
            self._to_confirm = size < self._refused
            self._refused = size
        elif size < self._refused:
            self._taken = size
        else:  # the connections have ended for another reason, or the server was started anew with a larger limit
            self._refused = 0
            self._taken = ALWAYS_TAKEN
        if not self._refused:
            self.bytes = self._most
            self._to_confirm = False
        elif not self.size_to_try:
            self.bytes = min(self._taken, self._most)


def note_end(limit: RequestLimit, connection: Connection, codec: Codec) -> None:
    """Tell ``limit`` how a connection has ended."""
    opcode, body = connection.suspect
    request = ""
    if len(body) > ALWAYS_TAKEN:
        jobs = list(dict.fromkeys("/" + path.split("/")[1] for path in codec.paths(opcode, body)))
        named = jobs[:MOST_NAMED]
        if len(jobs) > MOST_NAMED:
            named.append("…")
        request = f"one of {len(body):,} bytes for {', '.join(named)}"
    limit.connection_ended(connection.largest_answered, len(body), request)


async def try_sizes(limit: RequestLimit, connection: Connection, codec: Codec, limited_log: LimitedLog) -> bool:
    """Try how large a request may be, if that is in doubt; False if the server has refused a size.

    Then the connection has ended, and the next size is tried on the next one.
    """
    before = limit.bytes
    while size := limit.size_to_try:
        error, _, _ = await connection.call(EXISTS, codec.long_question(size))
        is_taken = error != LOST
        limit.tried(size, is_taken=is_taken)
        if not is_taken:
            break
    is_new = limit.is_found and limit.bytes != before
    if is_new and limited_log.admits(log, None, "the registry closes the connection on large requests"):
        text = (
            "the registry closes the connection on requests of more than %d bytes, such as %s: larger requests are sent"
            " in parts, or fail if they have no parts; raise jute.maxbuffer of its servers"
        )
        log.error(text, limit.bytes, limit.suspect, extra={"bytes": limit.bytes})
    return not connection.lost.is_set()
