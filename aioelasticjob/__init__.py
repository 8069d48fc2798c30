"""Distributed cron for asyncio: sharded jobs, elastic re-sharding and failover over ZooKeeper."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioelasticjob.app import ElasticJob
    from aioelasticjob.config import JobConfig
    from aioelasticjob.coordination.streams import Streams
    from aioelasticjob.cron import Cron, fire_times
    from aioelasticjob.errors import ElasticJobError, InvalidSetting, RegistryError
    from aioelasticjob.jobs.context import InstanceContext, ItemContext
    from aioelasticjob.jobs.dataflow import Dataflow
    from aioelasticjob.jobs.dependencies import Depends
    from aioelasticjob.jobs.listeners import JobListener, OnceListener
    from aioelasticjob.model import FireSource, Outcome
    from aioelasticjob.registry.tls import TlsSettings
    from aioelasticjob.retry import Retry

__all__ = [
    "Cron",
    "Dataflow",
    "Depends",
    "ElasticJob",
    "ElasticJobError",
    "FireSource",
    "InstanceContext",
    "InvalidSetting",
    "ItemContext",
    "JobConfig",
    "JobListener",
    "OnceListener",
    "Outcome",
    "RegistryError",
    "Retry",
    "Streams",
    "TlsSettings",
    "fire_times",
]

_HOMES = {
    "Cron": "cron",
    "Dataflow": "jobs.dataflow",
    "Depends": "jobs.dependencies",
    "ElasticJob": "app",
    "ElasticJobError": "errors",
    "FireSource": "model",
    "InstanceContext": "jobs.context",
    "InvalidSetting": "errors",
    "ItemContext": "jobs.context",
    "JobConfig": "config",
    "JobListener": "jobs.listeners",
    "OnceListener": "jobs.listeners",
    "Outcome": "model",
    "RegistryError": "errors",
    "Retry": "retry",
    "Streams": "coordination.streams",
    "TlsSettings": "registry.tls",
    "fire_times": "cron",
}


def __getattr__(name: str) -> object:
    """Import a promised name when it is first asked for: the embedded server starts without the rest of the package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
