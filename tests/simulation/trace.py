"""The history of a simulated cluster as lines for people."""

from __future__ import annotations

from tests.support.history import (
    Attempted,
    AttemptOver,
    Begun,
    Called,
    Change,
    ClockSet,
    Drained,
    Entry,
    Fault,
    Finished,
    Held,
    Nonsense,
    Phase,
    Raised,
    Refusal,
    Repeated,
    Reported,
    Saved,
    Started,
    Stopped,
    Written,
)


def describe(entry: Entry, origin: float) -> str:
    """Return an entry as a line of a trace, with seconds since ``origin``."""
    prefix = f"{entry.at - origin:9.3f}  "
    match entry:
        case Phase(_, name):
            return f"{prefix}=== {name}"
        case Fault(_, kind, hosts, over, detail):
            return f"{prefix}{'mend' if over else 'FAULT'} {kind} {' '.join(hosts)} {detail}"
        case Started(_, process, _):
            return f"{prefix}start {process}"
        case Stopped(_, process, _, how):
            return f"{prefix}end of {process}: {how}"
        case Held(_, process, paused, suspended):
            words = ("suspend", "wake") if suspended else ("pause", "resume")
            return f"{prefix}{words[not paused]} {process}"
        case Begun():
            slot = entry.slot / 1000 - origin
            run = f"{entry.job}/{entry.item} {entry.source} {slot:.3f} fence {entry.fence:#x}"
            return f"{prefix}run {entry.run} begins: {run} in {entry.process} as {entry.instance}"
        case Saved(_, run, path, value):
            return f"{prefix}run {run} has saved {path}={value}"
        case Finished(_, run, how):
            return f"{prefix}run {run} is over: {how}"
        case Reported(_, process, _, event):
            return f"{prefix}{process} tells {event}"
        case Written(_, zxid, session, changes, ending):
            what = ", ".join(_change(change) for change in changes)
            return f"{prefix}{zxid:#x} by {session:#x}{' (its end)' if ending else ''}: {what}"
        case _:
            return prefix + _describe_rare(entry, origin)


def _describe_rare(
    entry: Drained | Attempted | AttemptOver | Refusal | Repeated | ClockSet | Raised | Called | Nonsense, origin: float
) -> str:
    match entry:
        case Drained(_, job, item, run):
            return f"{job}/{item}: there are no more records of {run}"
        case Attempted(_, run, number):
            return f"run {run} begins its attempt {number}"
        case AttemptOver(_, run, number, how):
            return f"attempt {number} of run {run} is over: {how}"
        case Refusal(_, host, _, code, applied, paths):
            return f"refused {host} with {code}{' (but applied)' if applied else ''}: {' '.join(paths)}"
        case Repeated(_, host, _, op, times):
            return f"{host} has sent the same request (operation {op}) {times} times within a second"
        case ClockSet(_, host, ahead):
            return f"clock of {host} is {ahead:+.3f} s ahead"
        case Raised(_, process, _, job, where, error):
            return f"{where} of {job} in {process} raises {error}"
        case Called(_, process, _, job, which, slot, source):
            return f"{which} of {job} {source} {slot / 1000 - origin:.3f} is called in {process}"
        case Nonsense(_, path, data, gone):
            return f"nonsense {'-' if gone else ''}{path}={data!r}"


def _change(change: Change) -> str:
    if change.data is None:
        return f"-{change.path}"
    text = change.data.decode("utf-8", "replace").replace("\n", "")
    return f"{'+' if change.created else ''}{change.path}" + (f"={text}" if text else "")
