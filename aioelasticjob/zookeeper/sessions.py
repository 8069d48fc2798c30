"""Sessions: their ids, passwords and deadlines, in buckets of one tick.  Time is passed in, in ms."""

import hashlib
import hmac

_SERVER = 1 << 56  # the server's number in the top byte of every id; a standalone server is number 1


class Sessions:
    """All living sessions."""

    def __init__(self, *, tick: int, secret: bytes) -> None:
        self.tick = tick
        self.timeouts: dict[int, int] = {}
        self._secret = secret
        self._buckets: dict[int, dict[int, None]] = {}
        self._bucket_of: dict[int, int] = {}

    def create(self, zxid: int, timeout: int, now: int) -> int:
        """Begin a session and name it.

        Its transaction is its id, since that is the only one with this number, also over restarts of the server.
        """
        session = _SERVER | zxid
        self.restore(session, timeout, now)
        return session

    def restore(self, session: int, timeout: int, now: int) -> None:
        """Restore a session of an earlier start of the server, with its whole timeout ahead of it."""
        self.timeouts[session] = timeout
        self.touch(session, timeout, now)

    def touch(self, session: int, timeout: int, now: int) -> bool:
        """Move the deadline to the tick after now + timeout; answers whether the session lives."""
        if session not in self.timeouts:
            return False
        ticks = (now + timeout) // self.tick + 1
        bucket = ticks * self.tick
        present = self._bucket_of.get(session)
        if present == bucket:
            return True
        if present is not None:
            self._leave(session, present)
        self._bucket_of[session] = bucket
        self._buckets.setdefault(bucket, {})[session] = None
        return True

    def give_back(self, late: int) -> None:
        """Move every deadline by the time for which this server stood still: it could hear nobody meanwhile.

        No client loses by that: a session only lives longer.
        """
        buckets = self._buckets
        self._buckets = {}
        self._bucket_of = {}
        for bucket, sessions in buckets.items():
            ticks = -(-(bucket + late) // self.tick)  # rounded up
            later = ticks * self.tick
            for session in sessions:
                self._bucket_of[session] = later
                self._buckets.setdefault(later, {})[session] = None

    def close(self, session: int) -> None:
        """End a session, if it exists."""
        if self.timeouts.pop(session, None) is not None:
            self._leave(session, self._bucket_of.pop(session))

    def expired(self, now: int) -> list[int]:
        """Return the sessions whose deadline has passed."""
        found = list[int]()
        for bucket in sorted(self._buckets):
            if bucket <= now:
                found += self._buckets[bucket]
        return found

    def password(self, session: int) -> bytes:
        """Derive the password of a session: nothing to keep, nothing to guess."""
        name = session.to_bytes(8, "big", signed=True)
        return hashlib.blake2b(name, key=self._secret, digest_size=16).digest()

    def admits(self, session: int, password: bytes) -> bool:
        """Answer whether the password opens the session."""
        return session != 0 and hmac.compare_digest(self.password(session), password)

    def deadlines(self) -> dict[int, list[int]]:
        """List the sessions by the time (ms) at which they expire."""
        return {bucket: list(sessions) for bucket, sessions in sorted(self._buckets.items())}

    def _leave(self, session: int, bucket: int) -> None:
        del self._buckets[bucket][session]
        if not self._buckets[bucket]:
            del self._buckets[bucket]
