"""Why a simulated world can go no further, or was asked for what it does not have."""

from __future__ import annotations


class Deadlock(RuntimeError):
    """Every task waits and no timer is set: nothing can ever happen again."""

    def __init__(self, waiting: list[str]) -> None:
        super().__init__("nothing is scheduled and nothing is ready; waiting are:\n" + "\n".join(waiting))
        self.waiting = waiting


class Livelock(RuntimeError):
    """Tasks keep waking each other and time stands still."""


class OutsideWorld(RuntimeError):
    """Something was asked for that a simulation cannot have."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} cannot be simulated: use the in-memory network, and asyncio.sleep for time")


class UnhandledErrors(ExceptionGroup[Exception]):
    """Errors that reached the loop's exception handler during a run, where they would only have been logged."""
