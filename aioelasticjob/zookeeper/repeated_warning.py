"""A warning about something that happens again and again: logged when it begins, and when it has been over a while.

This is no limit as in ``ground/repeat_limit.py``: it says when a problem is over, and the server imports no other room.
"""

import asyncio
import logging

QUIET_PERIOD = 10.0
"""Seconds without another occurrence after which the problem counts as over."""

log = logging.getLogger("aioelasticjob.zookeeper")


class RepeatedWarning:
    """One kind of problem of a server; ``over`` is the sentence that is logged when it is over."""

    def __init__(self, over: str) -> None:
        self._over = over
        self._count = 0
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def happened(self, text: str) -> None:
        """Count an occurrence; only the first one is logged, with ``text``."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._count = 0
            self._began = loop.time()
            log.warning(text)
        else:
            self._timer.cancel()
        self._count += 1
        self._timer = loop.call_later(QUIET_PERIOD, self._end)

    def stop(self) -> None:
        """Stop waiting for the end of the problem."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        seconds = asyncio.get_running_loop().time() - self._began - QUIET_PERIOD
        often = "once" if self._count == 1 else f"{self._count} times in {seconds:.0f} s"
        log.warning("%s; it had happened %s", self._over, often)
