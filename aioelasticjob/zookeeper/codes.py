"""The numbers of the protocol: operations, errors, event types, permissions, kinds of znodes."""

from enum import IntEnum, IntFlag


class OpCode(IntEnum):
    """What a request asks for (ZooDefs.OpCode of ZooKeeper 3.8)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(IntEnum):
    """What a reply header says (KeeperException.Code of ZooKeeper 3.8)."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class EventType(IntEnum):
    """What a watch event reports."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Perms(IntFlag):
    """What an ACL entry allows."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class CreateFlag(IntEnum):
    """The kinds of znodes a create may ask for (CreateMode)."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_TTL = 5
    PERSISTENT_SEQUENTIAL_TTL = 6

    @property
    def ephemeral(self) -> bool:
        """Whether the znode ends with its session."""
        return self in (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENTIAL)

    @property
    def sequential(self) -> bool:
        """Whether the server appends its counter to the name."""
        return self in (
            CreateFlag.PERSISTENT_SEQUENTIAL,
            CreateFlag.EPHEMERAL_SEQUENTIAL,
            CreateFlag.PERSISTENT_SEQUENTIAL_TTL,
        )

    @property
    def ttl(self) -> bool:
        """Whether the znode goes after a time without change or children."""
        return self in (CreateFlag.PERSISTENT_TTL, CreateFlag.PERSISTENT_SEQUENTIAL_TTL)


class RequestError(Exception):
    """A request the server refuses; its code goes into the reply header, what was answered before it into the body."""

    def __init__(self, code: ErrorCode, body: bytes = b"") -> None:
        super().__init__(code.name)
        self.code = code
        self.body = body
