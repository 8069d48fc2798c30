"""One znode: its data, its place in time, its children; and how its owner field tells its kind."""

from struct import Struct
from typing import NamedTuple

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE, AclList
from aioelasticjob.zookeeper.javaset import JavaSet

# Versions are Java ints: they are kept as any number and wrap when they are written.
_STAT = Struct(">qqqqIIIqiiq")
STAT_SIZE = _STAT.size
_U32 = 0xFFFFFFFF

CONTAINER_OWNER = -(2**63)
_TTL_MARK = 0xFF << 56
_TTL_MASK = (1 << 40) - 1
MAX_TTL = _TTL_MASK


class Contents(NamedTuple):
    """The part of a node that setData replaces; mtime in ms since the epoch."""

    data: bytes | None
    version: int
    mtime: int
    mzxid: int


class Znode:
    """A node of the tree, mutable in place because every write of every client ends here."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "ctime",
        "cversion",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, acl: AclList = OPEN_UNSAFE, owner: int = 0, zxid: int = 0, now: int = 0):
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = zxid
        self.mzxid = zxid
        self.pzxid = zxid
        self.ctime = now
        self.mtime = now
        self.version = 0
        self.cversion = 0  # counts creations below; the wire shows creations and deletions, see stat()
        self.aversion = 0
        self.children = JavaSet(8)

    @property
    def contents(self) -> Contents:
        """The part of the node that setData replaces."""
        return Contents(self.data, self.version, self.mtime, self.mzxid)

    @contents.setter
    def contents(self, contents: Contents) -> None:
        self.data, self.version, self.mtime, self.mzxid = contents

    def stat(self) -> bytes:
        """Encode the Stat record clients see."""
        children = len(self.children)
        data = self.data
        return _STAT.pack(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version & _U32,
            (self.cversion * 2 - children) & _U32,
            self.aversion & _U32,
            self.owner if self.owner > 0 else 0,  # the marks of containers and times to live are not shown
            len(data) if data else 0,
            children,
            self.pzxid,
        )


def ttl_owner(ttl: int) -> int:
    """Write a time to live (ms) as an owner (EphemeralType.TTL)."""
    return (_TTL_MARK | ttl) - (1 << 64)


def is_container(owner: int) -> bool:
    """Whether an owner marks a container."""
    return owner == CONTAINER_OWNER


def is_ttl(owner: int) -> bool:
    """Whether an owner marks a node with a time to live."""
    return owner < 0 and owner >> 56 == -1


def ttl_of(owner: int) -> int:
    """Read the time to live (ms) from an owner."""
    return owner & _TTL_MASK
