"""An embedded server that speaks ZooKeeper 3.8's client protocol.  It imports no other package of aioelasticjob."""

from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings

__all__ = ["Server", "Settings", "serve"]
