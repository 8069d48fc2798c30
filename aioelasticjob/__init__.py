"""Distributed cron for asyncio: sharded jobs, elastic re-sharding and failover over ZooKeeper."""

from aioelasticjob.app import ElasticJob
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.streams import Streams
from aioelasticjob.cron import Cron, fire_times
from aioelasticjob.errors import ElasticJobError, InvalidSetting, RegistryError
from aioelasticjob.jobs.base import InstanceContext, ItemContext
from aioelasticjob.jobs.listeners import JobListener, OnceListener
from aioelasticjob.model import FireSource, Outcome

__all__ = [
    "Cron",
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
    "Streams",
    "fire_times",
]
