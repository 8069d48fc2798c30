"""Lease: until when the session is certain to live, and the work that must have been cancelled by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Protocol

from aioelasticjob import clock
from aioelasticjob.ground.values import value
from aioelasticjob.host.guard import Guard, Page, Start

HEARTBEATS_PER_TIMEOUT = 6  # heartbeats per session timeout
OVERDUE = 1.5  # pauses between two heartbeats after which an answer is overdue
RESOLUTION = 1e-6  # seconds; a remainder smaller than this is a rounding error of a timer that was on time
# at most so many seconds between two checks, by the loop's clock, which may stop while the machine is suspended
CHECK_INTERVAL = 1.0
# what the guard ends is ended so many seconds before the session may end
GUARD_MARGIN = 0.1
UNPROVEN = "the session may end soon, or has ended"
"""Why work is cancelled when the session is not certain to live."""


class Cancellable(Protocol):
    """A cancel scope, or an object that is used like one."""

    def cancel(self, reason: str | None = None) -> None:
        """Cancel what runs inside."""


class Lease:
    """The session's life as far as we can prove it.  All times are those of ``boot_time``, in seconds.

    That clock goes on while the machine is suspended, as the server's does; the loop's clock, by which timers come due,
    may not.  So while anything is bound the limit is compared with it every ``CHECK_INTERVAL`` seconds, and by
    ``check`` before anything begins that relies on it; ``expired`` is called whenever that finds the limit passed.

    A server ends a session ``timeout`` after it last heard of it, so each answered request proves life until
    ``timeout`` after it was *sent*.  Only answers through the leader count: a follower that is cut off goes on
    answering reads.
    """

    def __init__(self, *, expired: Callable[[], None] = lambda: None, ends_worker: bool = False) -> None:
        self.now: Callable[[], float] = clock.boot_time
        self._expired = expired
        self.incarnation = 0
        self.timeout = 0.0
        self._good_for = 0.0
        self.proven = -inf  # when the newest request was sent that was answered through the leader
        self.zxid = 0  # the newest one seen in a reply
        self.requests = 0  # sent so far, over all sessions
        self._scopes: dict[Cancellable, None] = {}  # a set that keeps its order, so simulations repeat
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.guard = Guard(self._write_page, ends_worker=ends_worker)
        """Ends child processes when the session may end, and this process if ``ends_worker`` is set."""
        self._at_work = dict[Cancellable, int]()
        """The session of each scope that is bound; only if the guard has to know of them."""

    @property
    def left(self) -> float:
        """Seconds until work under this session has to have been cancelled; -inf without a session."""
        return self.proven + self._good_for - self.now()

    @property
    def unheard(self) -> float:
        """Seconds since the newest answered request was sent, if a heartbeat is overdue; else, or without a session, 0.

        The answer to a heartbeat comes after the events of all changes that were made before the heartbeat was sent.
        """
        silence = self.now() - self.proven
        is_overdue = silence > OVERDUE * self.timeout / HEARTBEATS_PER_TIMEOUT
        return silence if is_overdue and self.incarnation else 0.0

    def check(self) -> bool:
        """Say whether the session can be proven alive now; if not, cancel all that is bound to it."""
        if self.left > RESOLUTION:
            return True
        self._cancel()
        self._expired()
        return False

    def begin(self, incarnation: int, timeout: float, sent: float) -> None:
        """Note that a server has confirmed the session in its answer to a request that was sent at ``sent``."""
        if incarnation != self.incarnation:
            self.end()
        self.incarnation = incarnation
        self.timeout = timeout
        self._good_for = timeout - margin(timeout)
        self.proven = max(self.proven, sent)
        self._tell_guard()
        self._arm()  # the timeout may have become a shorter one

    def prove(self, sent: float) -> None:
        """Note that a request that was sent at ``sent`` was answered through the leader."""
        if sent > self.proven:
            self.proven = sent
            self._tell_guard()

    def end(self) -> None:
        """Note that the session is over, and cancel all work that is bound to it."""
        self.incarnation = 0
        self.proven = -inf
        self._tell_guard()
        self.guard.look()
        self._cancel()

    def bind(self, scope: Cancellable, incarnation: int) -> None:
        """Cancel ``scope`` when the session ``incarnation`` can no longer be proven alive, until it is unbound."""
        if incarnation != self.incarnation or not self.check():
            scope.cancel(UNPROVEN)
            return
        self._scopes[scope] = None
        if self.guard.ends_worker:
            self._at_work[scope] = incarnation
            self._tell_guard()
        if self._timer is None:
            self._arm()

    def unbind(self, scope: Cancellable) -> None:
        """Bind a scope no longer: the end of the session does not cancel it any more."""
        self._scopes.pop(scope, None)
        if self._at_work.pop(scope, None) is not None:
            self._tell_guard()

    def close(self) -> None:
        """Cancel what is left and the timer, and end the guard."""
        self.end()
        self.guard.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_guard(self) -> None:
        if self.guard.page is not None:
            self._write_page(self.guard.page)

    def _write_page(self, page: Page) -> None:
        bound = list(self._at_work.values()).count(self.incarnation)
        bound_to_others = len(self._at_work) - bound
        may_end = self.proven + self.timeout - half_tick(self.timeout)
        left = may_end - GUARD_MARGIN - self.now()
        page.write(self.incarnation, left, bound, bound_to_others)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Replies only move ``proven``; the timer looks where the limit has moved to when it fires.
        if self._scopes:
            self._timer = self._loop.call_later(min(CHECK_INTERVAL, self.left), self._look)
        else:
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        self.check()
        self._arm()

    def _cancel(self) -> None:
        scopes = self._scopes
        self._scopes = {}
        for scope in scopes:
            scope.cancel(UNPROVEN)


@value
class SessionRunLease:
    """For how long no other instance can claim the items that were claimed under one session."""

    lease: Lease
    incarnation: int

    @property
    def left(self) -> float:
        """Seconds until the session may end if the registry answers no more; at 0 or less it may have ended."""
        lease = self.lease
        if lease.incarnation != self.incarnation:
            return -inf
        return lease.proven + lease.timeout - half_tick(lease.timeout) - lease.now()

    @property
    def margin(self) -> float:
        """Seconds before the possible end of the session at which its work is cancelled."""
        return slack(self.lease.timeout)

    def starting(self) -> AbstractAsyncContextManager[Start]:
        """Let a program that is started in the block be ended when the session may end."""
        return self.lease.guard.starting(self.incarnation)

    def watching(self, group: int) -> AbstractAsyncContextManager[None]:
        """Let a process group be ended when the session may end."""
        return self.lease.guard.watching(group, self.incarnation)


def half_tick(timeout: float) -> float:
    """Return at most how many seconds the leader's knowledge of a session may be older than ours.

    A follower tells the leader only every half tick which sessions it heard from, and nobody tells us how long a tick
    is.  But no server grants a timeout below two ticks (``minSessionTimeout``), so a quarter of the timeout is half a
    tick or more.  (Measured: 0.87 s at a tick of 2 s.)
    """
    return timeout / 4


def slack(timeout: float) -> float:
    """Return how many seconds a late event loop has to cancel work before the session may end."""
    return min(0.5, timeout / 20)


def margin(timeout: float) -> float:
    """Return how many seconds before the proven end of a session of ``timeout`` seconds its work is cancelled.

    The result is 1.2 s of 4 s, 3 s of 10 s, 8 s of 30 s.
    """
    return half_tick(timeout) + slack(timeout)
