"""The errors of a simulation: it cannot go on, code needs something that it lacks, or nothing came of a wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, get_args

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import JobEvent

_INSTEAD = {
    "time.sleep": "an async function awaits asyncio.sleep; in a test of a plain one, replace the function that sleeps",
    "from_thread.run": "a plain handler is called in the loop, which cannot wait for itself: call the handler alone, "
    "in a thread with item_context(), or test it in real time",
}
"""What to do in place of something that cannot be simulated, where the general advice does not help."""


class Deadlock(RuntimeError):
    """Every task waits and no timer is set, so nothing can ever happen again."""

    def __init__(self, waiting: list[str]) -> None:
        super().__init__("nothing is scheduled and nothing is ready; waiting are:\n" + "\n".join(waiting))
        self.waiting = waiting


class Livelock(RuntimeError):
    """Tasks wake each other without end, and the simulated time does not advance."""


class OutsideWorld(RuntimeError):
    """Code in a simulation asked for something of the real world, such as a thread or a file descriptor."""

    def __init__(self, what: str) -> None:
        instead = _INSTEAD.get(what, "use the in-memory network, and asyncio.sleep for time")
        super().__init__(f"{what} cannot be simulated: {instead}")


def refusing(name: str) -> Callable[..., NoReturn]:
    """Return a function that raises OutsideWorld."""

    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise OutsideWorld(name)

    return refuse


class UnhandledErrors(ExceptionGroup[Exception]):
    """Errors that reached the loop's exception handler during a run, where they would only have been logged."""


class NotSeen(AssertionError):
    """What a test waited for did not happen, or cannot happen: then nothing was waited for (``seconds`` is None)."""

    def __init__(self, what: str, seconds: float | None, events: Iterable[JobEvent]) -> None:
        last = "".join(f"\n  {event}" for event in events) or " nothing"
        waited = "" if seconds is None else f" within {seconds:g} simulated seconds"
        super().__init__(f"no {what}{waited}; the last events:{last}")


def see_what_is_wanted(kind: object, wanted: Mapping[str, object]) -> None:
    """Check that a test can wait for events of this kind with these attributes.

    Raises: InvalidSetting.
    """
    known = get_args(JobEvent)
    found = [one for one in known if isinstance(kind, type) and issubclass(one, kind)]
    if not found:
        names = sorted(one.__name__ for one in known)
        raise InvalidSetting("kind", kind, f"must be a class of events: {', '.join(names)}")
    for name, value in wanted.items():
        if not any(hasattr(one, name) for one in found):
            raise InvalidSetting(name, value, f"{found[0].__name__} has no attribute of this name")
