"""Times as values, and as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """Return ``seconds`` since the epoch as an aware datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def time_text(when: datetime, *, milliseconds: bool = False) -> str:
    """Return an aware time as people read it everywhere: ISO 8601 to the second, such as 2026-11-01T02:00:00+08:00.

    It always has its offset, so that nobody has to know in which zone a list, a message or a log is written.  It has no
    space, so that it can be given to a command as it is.
    """
    unit = "milliseconds" if milliseconds else "seconds"
    return when.isoformat(timespec=unit)
