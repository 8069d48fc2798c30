"""How often somebody may guess: so many failures within a while, then a wait."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from aioelasticjob.clock import Clock


@dataclass
class Throttle:
    """Counts failures by key (an address, a name); ``within`` is seconds."""

    clock: Clock
    failures: int
    within: float
    most_keys: int = 10_000
    """Keys remembered: an attacker who makes up names must not fill the memory."""
    _seen: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def wait(self, *keys: str) -> float:
        """Return the seconds until any of these may try again; 0 if now."""
        now = self.clock.now()
        return max((self._wait(key, now) for key in keys), default=0.0)

    def failed(self, *keys: str) -> None:
        """Count a failure."""
        for key in keys:
            self._seen.setdefault(key, deque(maxlen=self.failures)).append(self.clock.now())
            self._seen.move_to_end(key)
        while len(self._seen) > self.most_keys:
            self._seen.popitem(last=False)

    def forgive(self, key: str) -> None:
        """Forget the failures of somebody who got it right."""
        self._seen.pop(key, None)

    def _wait(self, key: str, now: float) -> float:
        failures = self._seen.get(key)
        if failures is None or len(failures) < self.failures:
            return 0.0
        return max(0.0, failures[0] + self.within - now)
