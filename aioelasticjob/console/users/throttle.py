"""Limits to wrong passwords: after a number of failures within some minutes, the next attempt has to wait."""

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

    def reset(self, key: str) -> None:
        """Forget the failures of somebody who got it right."""
        self._seen.pop(key, None)

    def _wait(self, key: str, now: float) -> float:
        failures = self._seen.get(key)
        if failures is None or len(failures) < self.failures:
            return 0.0
        return max(0.0, failures[0] + self.within - now)


class LoginThrottle:
    """Counts wrong passwords.  The limit for a name from one address is low; that for a name from anywhere is high.

    So nobody can lock other people out from another address; from the same one, a browser in which somebody has signed
    in before is counted by itself.
    """

    def __init__(self, clock: Clock) -> None:
        self._together = Throttle(clock, failures=5, within=300)
        self._by_address = Throttle(clock, failures=20, within=300)
        self._by_name = Throttle(clock, failures=200, within=300)
        self._by_device = Throttle(clock, failures=5, within=300)

    def wait(self, name: str, address: str, device: str | None = None) -> float:
        """Return the seconds until this name may be tried from there; 0 if now.

        ``device`` stands for a browser in which this person has signed in before: only what was tried there counts.
        """
        if device is not None:
            return self._by_device.wait(device)
        name = name.casefold()
        both = self._together.wait(f"{address} {name}")
        return max(both, self._by_address.wait(address), self._by_name.wait(name))

    def failed(self, name: str, address: str, device: str | None = None) -> None:
        """Count a wrong one."""
        if device is not None:
            self._by_device.failed(device)
            return
        name = name.casefold()
        self._together.failed(f"{address} {name}")
        self._by_address.failed(address)
        self._by_name.failed(name)

    def reset(self, name: str, address: str, device: str | None = None) -> None:
        """Forget the wrong passwords that came before the right one."""
        if device is not None:
            self._by_device.reset(device)
            return
        self._together.reset(f"{address} {name.casefold()}")
