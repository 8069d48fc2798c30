"""The history of a chaos run: what the workers wrote down, and what was done to them, ready to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tests.support.history import Begun, Entry, Finished, Held, Stopped, of_kind

WAKING = 0.5
"""Seconds a handler may need, once its process goes on, to learn that it was cut off while it slept."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """A whole history, ready to be judged."""

    entries: tuple[Entry, ...]
    tails: tuple[float, ...]
    """Seconds that handlers that were cut off went on after their process had woken up, those within ``WAKING``."""


def arrange(journal: Sequence[Entry], actions: Iterable[Entry]) -> Arranged:
    """Add what was done to the processes: the dead run nothing, and whoever wakes up is given a moment to notice.

    That moment does not count as running.  It cannot be helped: nothing in a process can act before the process does.
    What a handler writes then is refused by its fence.
    """
    done = list(actions)
    wakings = _wakings(done)
    begun = {one.run: one for one in of_kind(journal, Begun)}
    finished = {one.run for one in of_kind(journal, Finished)}
    stopped = {one.process: one.at for one in of_kind(done, Stopped)}
    entries, tails = list(done), list[float]()
    for entry in journal:
        if isinstance(entry, Finished):
            woken = _woken(begun[entry.run], entry.at, wakings)
            if woken is not None:
                if entry.how == "cut off":
                    tails.append(entry.at - woken)
                entry = replace(entry, at=woken)
        entries.append(entry)
    for run, one in begun.items():
        if run not in finished and one.process in stopped:
            entries.append(Finished(max(one.at, stopped[one.process]), run, "crashed"))
    return Arranged(tuple(sorted(entries, key=lambda entry: entry.at)), tuple(tails))


def _wakings(actions: Sequence[Entry]) -> Mapping[str, list[tuple[float, float]]]:
    """Return when each process was paused and went on."""
    found: dict[str, list[tuple[float, float]]] = {}
    for held in of_kind(actions, Held):
        spans = found.setdefault(held.process, [])
        if held.paused:
            spans.append((held.at, inf))
        else:
            spans[-1] = (spans[-1][0], held.at)
    return found


def _woken(begun: Begun, end: float, wakings: Mapping[str, list[tuple[float, float]]]) -> float | None:
    """Return when the process of a run woke up, if the run ended right then."""
    for asleep, awake in wakings.get(begun.process, ()):
        if begun.at < asleep and awake <= end <= awake + WAKING:
            return awake
    return None
