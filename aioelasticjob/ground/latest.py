"""A value that changes, for readers that need only the newest one: a slow reader skips values, but not the last one."""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A value with any number of readers; each of them sees the newest one."""

    def __init__(self, first: T) -> None:
        self.value = first
        self._changed: Event | None = None  # None until somebody waits
        self._listeners: tuple[Callable[[], object], ...] = ()

    def set(self, value: T) -> None:
        """Replace the value, wake every reader, and call every listener."""
        stale = self._changed
        self.value = value
        self._changed = None
        if stale is not None:
            stale.set()
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` whenever the value has been replaced."""
        self._listeners += (listener,)

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            changed = self._next()  # taken before the reader works, so that no change is missed
            yield self.value
            await changed.wait()

    async def changed(self) -> T:
        """Wait for the next ``set`` and return the value that is current then."""
        await self._next().wait()
        return self.value

    async def until(self, holds: Callable[[T], bool]) -> T:
        """Wait for a value that satisfies ``holds``."""
        while not holds(self.value):
            await self._next().wait()
        return self.value

    def _next(self) -> Event:
        """Return what is set with the next value."""
        if self._changed is None:
            self._changed = Event()
        return self._changed
