"""Simulated time, simulated networks and the faults of both, for tests of jobs and of this package."""

from aioelasticjob.testing.faults import Farewell, Faults
from aioelasticjob.testing.loop import Deadlock, Livelock, OutsideWorld, UnhandledErrors, VirtualClock, VirtualLoop, run
from aioelasticjob.testing.network import Link, Network
from aioelasticjob.testing.process import Process, ProcessKilled, current_process

__all__ = [
    "Deadlock",
    "Farewell",
    "Faults",
    "Link",
    "Livelock",
    "Network",
    "OutsideWorld",
    "Process",
    "ProcessKilled",
    "UnhandledErrors",
    "VirtualClock",
    "VirtualLoop",
    "current_process",
    "run",
]
