"""The promises about checkpoints: a handler is given the newest, and who was cut off cannot save any."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.facts import Facts, Violation
from tests.simulation.judges import excuses
from tests.support.history import Begun, Saved, Written


def begin_at_the_newest(facts: Facts) -> Iterator[Violation]:
    """A run is given the checkpoint that was the newest when its item was claimed."""
    newest: dict[str, str] = {}
    found: dict[tuple[str, int, int], str | None] = {}
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            if path.startswith("offset/") and change.data is not None:
                newest[change.path] = change.data.decode("utf-8", "replace")
            elif path.startswith("offset/"):
                newest.pop(change.path, None)
            elif path.startswith("execution/") and path.endswith("/running") and change.created:
                item = int(path.split("/")[1])
                found[job, item, written.zxid] = newest.get(f"/{job}/offset/{item}")
    for one in (run.begun for run in facts.runs):
        key = one.job, one.item, one.fence
        if key in found and found[key] != one.offset and not _was_nonsense(facts, one):
            text = f"{one.job}/{one.item}: run {one.run} begins at {one.offset}, the newest is {found[key]}"
            yield Violation("newest checkpoint", one.at, text)


def _was_nonsense(facts: Facts, one: Begun) -> bool:
    """Say whether a run begins at nonsense that stood in place of the checkpoint when that was read for its claim.

    An offset is whatever text the users like: nobody can know that it was not they who wrote it.
    """
    since = facts.knows_since(one.host, facts.claimed[one.job, one.item, one.fence])
    stood = excuses.nonsense(facts, f"/{one.job}/offset/{one.item}")
    values = {data.decode("utf-8", "replace") for start, end, data in stood if start <= one.at and since <= end}
    return one.offset in values


def only_runners_save(facts: Facts) -> Iterator[Violation]:
    """A checkpoint is written by who holds the item's lock: its value begins with the fence of that claim.

    A run that is not monitored has no fence, and writes 0.  Writes under all sessions are judged: a handler that goes
    on after its session may save under the next one, in which no instance has registered.  Nonsense that operators
    write is not among them, because the history has it apart.
    """
    holding: dict[str, int] = {}
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            if path.startswith("execution/") and path.endswith("/running"):
                holding[f"/{job}/offset/{path.split('/')[1]}"] = 0 if change.data is None else written.zxid
            elif path.startswith("offset/") and change.data is not None:
                saved = int(change.data.decode().partition(".")[0], 16)
                if saved != holding.get(change.path, 0) and (saved or excuses.monitored(facts, job, written.at)):
                    text = f"{change.path} is written under {saved:#x}, held under {holding.get(change.path, 0):#x}"
                    yield Violation("fenced checkpoint", written.at, text)


def saved_is_saved(facts: Facts) -> Iterator[Violation]:
    """What a handler was told is saved has been written."""
    begun = {run.begun.run: run.begun.at for run in facts.runs}
    for saved in facts.of_kind(Saved):
        if saved.value.encode() not in facts.nodes.over(saved.path, begun[saved.run], saved.at):
            yield Violation("lost checkpoint", saved.at, f"{saved.path}={saved.value} was never written")


RULES = (begin_at_the_newest, only_runners_save, saved_is_saved)
