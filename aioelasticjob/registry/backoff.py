"""Backoff: how long to wait before the next try."""

from __future__ import annotations

from random import Random
from typing import Final

from aioelasticjob.registry.settings import ConnectionSettings

FIRST_PAUSE: Final = 0.03  # seconds
MAX_DOUBLINGS: Final = 16  # a pause is longer than any setting by then
STABLE_AFTER: Final = 1.0  # seconds a connection has to live to be worth another one at once


class Backoff:
    """Says how long to wait before the next try to connect and before the next try to read; seconds, with jitter."""

    def __init__(self, settings: ConnectionSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._failures = 0

    def ended(self, lived: float) -> None:
        """Note how long a connection lived before it ended; 0 for a try that made no connection."""
        # A server that does not accept our credentials or watches closes the connection at once, without a reason.
        self._failures = 0 if lived >= STABLE_AFTER else self._failures + 1

    def before_connecting(self, *, urgent: bool) -> float:
        """Return no pause after a good connection, else 30 ms, doubling.

        As long as the session can still be saved, the pause is at most the base sleep time; after that, at most the max
        sleep time.
        """
        if not self._failures:
            return 0
        longest = self._settings.base_sleep_time if urgent else self._settings.max_sleep_time
        return self._jitter(min(longest, _doubled(FIRST_PAUSE, self._failures - 1)))

    def before_reading(self, retries: int) -> float:
        """Return the base sleep time, doubling up to the max sleep time."""
        longest = self._settings.max_sleep_time
        return self._jitter(min(longest, _doubled(self._settings.base_sleep_time, retries)))

    def _jitter(self, seconds: float) -> float:
        # Clients that lost their connections at the same moment should not all come back at the same moment.
        return self._random.uniform(0.5, 1) * seconds


def _doubled(seconds: float, times: int) -> float:
    return float(seconds * 2 ** min(times, MAX_DOUBLINGS))
