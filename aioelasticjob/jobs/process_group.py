"""Waits until no process of a group is left: a script's processes end together."""

from __future__ import annotations

import os
from pathlib import Path

from anyio import current_time, sleep

from aioelasticjob.jobs.context import RunLease

KILL_MARGIN = 0.2
"""A script that was told to end is killed at the latest so many seconds before the session may have ended."""


async def gone(group: int, limit: float, claimed: RunLease | None = None) -> bool:
    """Wait until no process of a group is left; False if that takes too long, or if the session may end soon.

    The session is looked at again and again, since it may be about to end only after the wait has begun.
    """
    until = current_time() + limit
    pause = 0.005
    while _lives(group):
        left = until - current_time()
        if claimed is not None:
            left = min(left, claimed.left - KILL_MARGIN)
        if left <= 0:
            return False
        await sleep(min(pause, left))
        pause = min(2 * pause, 0.1)
    return True


def _lives(group: int) -> bool:
    """Whether the group has a process that is no zombie: in containers often nothing waits for orphaned processes."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # PermissionError: on macOS, if there are only zombies
        return False
    processes = [path.name for path in Path("/proc").glob("[0-9]*")]
    if not processes:  # there is no /proc, as on macOS
        return True
    return any(_is_alive_in(group, process) for process in processes)


def _is_alive_in(group: int, process: str) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_bytes()
        _, _, after_name = stat.rpartition(b")")
        state, _, its_group, *_ = after_name.split()
    except (OSError, ValueError):  # the process has ended in the meantime
        return False
    return int(its_group) == group and state not in b"ZX"
