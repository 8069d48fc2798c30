"""The promises about listeners: those of the whole cluster are called once, and each is called at its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aioelasticjob.model import ASKED, Fire, FireSource
from tests.simulation.facts import PROMPT, RESENT, Facts, Violation
from tests.simulation.judges.excuses import nonsense
from tests.support.history import Begun, Called, Written

ONCE = ("once before", "once after")
Key = tuple[str, int]
"""A job and a scheduled moment."""


def called_once(facts: Facts) -> Iterator[Violation]:
    """What is called once in the cluster is called again only if something befell who called it before."""
    last: dict[tuple[str, str, int, str], Called] = {}
    for called in facts.of_kind(Called):
        if called.which not in ONCE or called.source is FireSource.TRIGGER:
            continue
        key = called.job, called.which, called.slot, called.run
        before = last.get(key)
        last[key] = called
        if before is None or _forgotten(facts, before, called):
            continue
        first = last.get((called.job, "once before", called.slot, called.run))
        if called.which == "once after" and first is not None and first.at > before.at:
            continue  # the run was begun again: that was judged
        host = before.instance.partition("@-@")[0]
        lived = facts.alive(before.instance, called.at) and facts.leaving.get(before.instance, called.at) >= called.at
        if lived and facts.undisturbed(host, before.at - RESENT, called.at):
            text = f"{called.job}: {called.which} of {called.slot} by {called.process}, after {before.process} had"
            yield Violation("called once", called.at, f"{text} at {before.at:.3f}")


def _forgotten(facts: Facts, before: Called, called: Called) -> bool:
    """Say whether nonsense was written over how far a run had come, which stands nowhere else, so it seemed new.

    It seems so to who takes the right to call while the nonsense stands, or after it was written over; not if it was
    mended.
    """
    path, slot = f"/{called.job}/guarantee", str(called.slot)
    turns = [
        (written.at, change.path.removeprefix(f"{path}/"))
        for written in facts.of_kind(Written)
        for change in written.changes
        if change.created and re.fullmatch(rf"{path}/(backfill-\d+-)?{slot}", change.path)
    ]
    taken, run = max((turn for turn in turns if turn[0] <= called.at), default=(before.at, slot))
    wiped = (end for start, end, _ in nonsense(facts, path) if before.at <= start <= taken)
    return called.which == "once before" and any(
        taken <= end or f'"{run}"'.encode() not in (facts.nodes.at(path, end) or b"") for end in wiped
    )


def called_before(facts: Facts) -> Iterator[Violation]:
    """No handler begins before what is to be called before it has been called."""
    listened = {called.job for called in facts.of_kind(Called)}
    once, own = set[Key](), set[tuple[str, str, int]]()
    for entry in facts.entries:
        if isinstance(entry, Called):
            once.add((entry.job, entry.slot)) if entry.which == "once before" else None
            own.add((entry.job, entry.instance, entry.slot)) if entry.which == "before" else None
        elif isinstance(entry, Begun) and entry.job in listened:
            missing = (entry.job, entry.instance, entry.slot) not in own
            missing = missing or (entry.source is FireSource.SCHEDULE and (entry.job, entry.slot) not in once)
            if missing:
                text = f"{entry.job}/{entry.item} {entry.slot} begins in {entry.process} before its listeners"
                yield Violation("called before", entry.at, text)


def called_in_peace(facts: Facts) -> Iterator[Violation]:
    """In calm the listeners of a run that anybody takes part in are called, before and after it."""
    called: dict[Key, list[str]] = {}
    for one in facts.of_kind(Called):
        asked = one.source is FireSource.TRIGGER  # an old trigger's moment may not be known any more
        if not asked and one.run in ("", Fire(one.slot, FireSource.SCHEDULE).run):  # and not a run for a request
            called.setdefault((one.job, one.slot), []).append(one.which)
    listened = {job for job, _ in called}
    begun = {(one.job, one.slot): one.at for one in facts.of_kind(Begun) if one.source is FireSource.SCHEDULE}
    for (job, slot), at in begun.items():
        calm = any(start + PROMPT <= at and at + 2 * PROMPT <= end for start, end in facts.calm)
        for which in ONCE if calm and job in listened else ():
            count = called.get((job, slot), []).count(which)
            if count != 1 and (which == "once before" or _all_took_part(facts, job, slot)):
                yield Violation("called in peace", at, f"{job} {slot}: {which} is called {count} times")


def _all_took_part(facts: Facts, name: str, slot: int) -> bool:
    """Say whether all items of a job were run at a moment: while one is not, its moment is not over.

    A backfill of the moment is another run, with listeners of its own.
    """
    moment, begun = slot / 1000, [run.begun for run in facts.runs]
    (config, *others) = facts.job(name).configs(moment - PROMPT, moment + PROMPT)
    there = {one.item for one in begun if (one.job, one.slot) == (name, slot) and one.source not in ASKED}
    return not others and there.issuperset(range(config.sharding_total_count))


RULES = (called_once, called_before, called_in_peace)
