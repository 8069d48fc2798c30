"""Names of znodes: which are allowed, and what their parents are."""

import re

from aioelasticjob.zookeeper.codes import ErrorCode, RequestError

FORBIDDEN = r"\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
"""What names must not contain, for a regular expression.

PathUtils.validatePath judges UTF-16 units, so everything beyond the basic plane is a forbidden surrogate.
"""
_is_valid = re.compile(rf"/(?:(?!\.{{1,2}}(?:/|\Z))[^/{FORBIDDEN}]+(?:/(?=.)|\Z))*\Z", re.DOTALL).match

_SPECIAL = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})


def validate(path: str) -> None:
    """Refuse a name no znode can have.

    Raises: RequestError with BAD_ARGUMENTS.
    """
    if not _is_valid(path):
        raise RequestError(ErrorCode.BAD_ARGUMENTS)


def parent_for_create(path: str) -> str:
    """Name the parent of a znode to be; the root's name is then the empty string.

    Raises: RequestError with BAD_ARGUMENTS.
    """
    slash = path.rfind("/")
    if slash < 0 or "\0" in path:
        raise RequestError(ErrorCode.BAD_ARGUMENTS)
    return path[:slash]


def parent_for_delete(path: str) -> str:
    """Name the parent of a znode to go, which must not be one of the server's own.

    Raises: RequestError with BAD_ARGUMENTS.
    """
    if path in _SPECIAL:
        raise RequestError(ErrorCode.BAD_ARGUMENTS)
    return parent_for_create(path)
