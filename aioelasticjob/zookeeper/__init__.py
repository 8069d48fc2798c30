"""An embedded server that speaks ZooKeeper 3.8's client protocol.  It imports nothing else of aioelasticjob."""

from aioelasticjob.zookeeper.processor import Settings
from aioelasticjob.zookeeper.server import Server, serve

__all__ = ["Server", "Settings", "serve"]
