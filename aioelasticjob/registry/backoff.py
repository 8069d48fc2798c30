"""Backoff: how long to wait before the next try."""

from __future__ import annotations

from random import Random
from typing import Final

from aioelasticjob.registry.settings import ConnectionSettings

FIRST: Final = 0.03  # seconds
STEADY: Final = 1.0  # seconds a connection has to live to be worth another one at once


class Backoff:
    """Pauses between tries to connect, and between those of a read; all with jitter, all in seconds."""

    def __init__(self, settings: ConnectionSettings, random: Random) -> None:
        self._settings, self._random, self._failures = settings, random, 0

    def ended(self, lived: float) -> None:
        """Note the end of a connection, or of a try that made none (0)."""
        # A short one was a refusal in disguise: credentials or watches that make the server close at once.
        self._failures = 0 if lived >= STEADY else self._failures + 1

    def before_connecting(self, *, urgent: bool) -> float:
        """Return no pause after a good connection, else 30 ms, doubling.

        The longest is the base sleep time while it is urgent, which is as long as the session may be saved, and the max
        sleep time from then on.
        """
        if not self._failures:
            return 0
        longest = self._settings.base_sleep_time if urgent else self._settings.max_sleep_time
        return self._jitter(min(longest, FIRST * 2 ** min(self._failures - 1, 16)))

    def before_reading(self, retries: int) -> float:
        """Return the base sleep time, doubling up to the max sleep time."""
        return self._jitter(min(self._settings.max_sleep_time, self._settings.base_sleep_time * 2 ** min(retries, 16)))

    def _jitter(self, seconds: float) -> float:
        # Those who fell together should not come back together.
        return self._random.uniform(0.5, 1) * seconds
