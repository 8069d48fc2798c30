"""Simulated time and networks, and faults in them, for tests of jobs and of this package."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioelasticjob.testing.contexts import RunFields, instance_context, item_context
    from aioelasticjob.testing.errors import NotSeen
    from aioelasticjob.testing.faults import Farewell, Faults
    from aioelasticjob.testing.loop import (
        Deadlock,
        Livelock,
        OutsideWorld,
        UnhandledErrors,
        VirtualClock,
        VirtualLoop,
        run,
    )
    from aioelasticjob.testing.network import Link, Network
    from aioelasticjob.testing.process import Process, ProcessKilled, current_process
    from aioelasticjob.testing.virtual_cluster import Instance, VirtualCluster, simulated

__all__ = [
    "Deadlock",
    "Farewell",
    "Faults",
    "Instance",
    "Link",
    "Livelock",
    "Network",
    "NotSeen",
    "OutsideWorld",
    "Process",
    "ProcessKilled",
    "RunFields",
    "UnhandledErrors",
    "VirtualClock",
    "VirtualCluster",
    "VirtualLoop",
    "current_process",
    "instance_context",
    "item_context",
    "run",
    "simulated",
]

_HOMES = {
    "contexts": ("RunFields", "instance_context", "item_context"),
    "faults": ("Farewell", "Faults"),
    "loop": ("Deadlock", "Livelock", "OutsideWorld", "UnhandledErrors", "VirtualClock", "VirtualLoop", "run"),
    "network": ("Link", "Network"),
    "process": ("Process", "ProcessKilled", "current_process"),
    "errors": ("NotSeen",),
    "virtual_cluster": ("Instance", "VirtualCluster", "simulated"),
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: pytest loads the plugin of this package in every project."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
