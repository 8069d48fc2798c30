"""Real processes that are process 1 of a PID namespace, as the command of a container is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import TIMEOUT, ChildProcess, Workers

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
WAYS = (UNSHARE, (*UNSHARE, "--user", "--map-root-user"))
"""Ways to make a PID namespace: as root, and as any user where the system allows that."""


@cache
def _way() -> tuple[str, ...]:
    for way in WAYS:
        try:
            if subprocess.run([*way, "true"], capture_output=True, timeout=TIMEOUT, check=False).returncode == 0:
                return way
        except FileNotFoundError:
            break
    pytest.skip("no PID namespace can be made here: it needs unshare, and root or user namespaces")


def start_as_process_1(workers: Workers, *arguments: str, environment: Mapping[str, str] | None = None) -> ChildProcess:
    """Start this Python interpreter as process 1 of a PID namespace, in which ``/proc`` shows that namespace.

    What is returned is the ``unshare`` around it.
    """
    return workers.start(*arguments, environment=environment, below=_way())


def process_1_of(child: ChildProcess) -> int:
    """Return the id, as it is outside of the namespace, of the process that is process 1 inside."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        if children:
            return int(children[0])
        assert time.monotonic() < deadline, f"{sys.executable} has not been started: {child.output}"
        time.sleep(0.02)
