"""Distributed cron for asyncio: sharded jobs, elastic re-sharding and failover over ZooKeeper."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioelasticjob import operations
    from aioelasticjob.app import ElasticJob
    from aioelasticjob.config.job import JobConfig
    from aioelasticjob.config.retry import Retry
    from aioelasticjob.cron import Cron, fire_times
    from aioelasticjob.errors import (
        AuthenticationFailed,
        CertificateExpired,
        CertificateMissing,
        CertificateRefused,
        ClockSkew,
        Conflict,
        ElasticJobError,
        FaultAlert,
        Fenced,
        ForeignData,
        GivenUp,
        InvalidSetting,
        InvalidState,
        JobConflict,
        MissedRuns,
        NodeMissing,
        NodeTooLarge,
        NotAnException,
        NotPermitted,
        OutcomeUnknown,
        Overloaded,
        RegistryError,
        RegistryUnreachable,
        SessionEnded,
        Suspended,
        TlsFailed,
    )
    from aioelasticjob.jobs.context import InstanceContext, ItemContext
    from aioelasticjob.jobs.dataflow import Dataflow
    from aioelasticjob.jobs.dependencies import Depends
    from aioelasticjob.jobs.listeners import JobListener, OnceListener
    from aioelasticjob.model import FireSource, Outcome
    from aioelasticjob.operations.streams import Streams
    from aioelasticjob.registry.tls import TlsSettings

__all__ = [
    "AuthenticationFailed",
    "CertificateExpired",
    "CertificateMissing",
    "CertificateRefused",
    "ClockSkew",
    "Conflict",
    "Cron",
    "Dataflow",
    "Depends",
    "ElasticJob",
    "ElasticJobError",
    "FaultAlert",
    "Fenced",
    "FireSource",
    "ForeignData",
    "GivenUp",
    "InstanceContext",
    "InvalidSetting",
    "InvalidState",
    "ItemContext",
    "JobConfig",
    "JobConflict",
    "JobListener",
    "MissedRuns",
    "NodeMissing",
    "NodeTooLarge",
    "NotAnException",
    "NotPermitted",
    "OnceListener",
    "Outcome",
    "OutcomeUnknown",
    "Overloaded",
    "RegistryError",
    "RegistryUnreachable",
    "Retry",
    "SessionEnded",
    "Streams",
    "Suspended",
    "TlsFailed",
    "TlsSettings",
    "fire_times",
    "operations",
]

_HOMES = {
    "AuthenticationFailed": "errors",
    "CertificateExpired": "errors",
    "CertificateMissing": "errors",
    "CertificateRefused": "errors",
    "ClockSkew": "errors",
    "Conflict": "errors",
    "Cron": "cron",
    "Dataflow": "jobs.dataflow",
    "Depends": "jobs.dependencies",
    "ElasticJob": "app",
    "ElasticJobError": "errors",
    "FaultAlert": "errors",
    "Fenced": "errors",
    "FireSource": "model",
    "ForeignData": "errors",
    "GivenUp": "errors",
    "InstanceContext": "jobs.context",
    "InvalidSetting": "errors",
    "InvalidState": "errors",
    "ItemContext": "jobs.context",
    "JobConfig": "config.job",
    "JobConflict": "errors",
    "JobListener": "jobs.listeners",
    "MissedRuns": "errors",
    "NodeMissing": "errors",
    "NodeTooLarge": "errors",
    "NotAnException": "errors",
    "NotPermitted": "errors",
    "OnceListener": "jobs.listeners",
    "Outcome": "model",
    "OutcomeUnknown": "errors",
    "Overloaded": "errors",
    "RegistryError": "errors",
    "RegistryUnreachable": "errors",
    "Retry": "config.retry",
    "SessionEnded": "errors",
    "Streams": "operations.streams",
    "Suspended": "errors",
    "TlsFailed": "errors",
    "TlsSettings": "registry.tls",
    "fire_times": "cron",
}
_MODULES = ("operations",)


def __getattr__(name: str) -> object:
    """Import a promised name when it is first asked for: the embedded server starts without the rest of the package."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
