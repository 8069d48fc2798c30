"""The base class of the simulated event loop, with what the network and suspended machines need of it."""

from __future__ import annotations

import asyncio
import contextvars
from abc import abstractmethod
from collections.abc import Callable
from random import Random
from typing import TypeVarTuple

from aioelasticjob.testing.process import Process

Ts = TypeVarTuple("Ts")


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop with a clock that no suspension stops, and with processes that can be held back."""

    random: Random
    _scheduled: list[asyncio.TimerHandle]

    @abstractmethod
    def boot_time(self) -> float:
        """Return the simulated seconds since the loop was made, on the clock that no suspension of a machine stops."""

    @abstractmethod
    def call_at_boot_time(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when`` by the clock that is never suspended."""

    @abstractmethod
    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
