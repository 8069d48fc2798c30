"""Access control lists: their entries, the identities they name, and the two checks against them."""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from aioelasticjob.zookeeper.codes import ErrorCode, Perms, RequestError
from aioelasticjob.zookeeper.jute import decode


class Identity(NamedTuple):
    """A client's identity in one scheme."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """The permissions of one identity."""

    perms: int
    scheme: str | None
    id: str | None


AclList = tuple[Acl, ...]

OPEN_UNSAFE: AclList = (Acl(Perms.ALL, "world", "anyone"),)
READ_UNSAFE: AclList = (Acl(Perms.READ, "world", "anyone"),)
SUPER = Identity("super", "")
SASL_SUPER = Identity("sasl", "super")  # every entry of scheme sasl admits this user
_PROVEN = frozenset({"digest", "sasl", "super"})
_KERBEROS_NAME = re.compile(r"[^/@]*(/[^/@]*)?@[^/@]*")


def digest(credentials: bytes) -> Identity:
    """Turn `user:password` into the identity ACLs carry (DigestAuthenticationProvider)."""
    text = decode(credentials)
    hashed = hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    user, _, _ = text.partition(":")
    return Identity("digest", f"{user}:{base64.b64encode(hashed).decode('ascii')}")


def permitted(acl: AclList, perm: int, identities: Sequence[Identity]) -> bool:
    """Answer whether one of the identities holds the permission."""
    if acl is OPEN_UNSAFE:
        return True
    if not acl or SUPER in identities:
        return True
    return any(entry.perms & perm and _names_one(entry, identities) for entry in acl)


def require(acl: AclList, perm: int, identities: Sequence[Identity]) -> None:
    """Raise an error unless one of the identities holds the permission.

    Raises: RequestError with NO_AUTH.
    """
    if acl is not OPEN_UNSAFE and not permitted(acl, perm, identities):
        raise RequestError(ErrorCode.NO_AUTH)


def resolve(wanted: Sequence[Acl] | None, identities: Sequence[Identity], *, sasl: bool = False) -> AclList:
    """Check the entries a client wants to set and write out `auth` as the client's own identities.

    Entries of scheme `sasl` are refused unless the server knows it.

    Raises: RequestError with INVALID_ACL.
    """
    known = ["world", "digest", "ip"]
    if sasl:
        known.append("sasl")
    resolved: list[Acl] = []
    for entry in dict.fromkeys(wanted or ()):
        if entry.scheme == "auth":  # whatever the id: some clients send none
            own = [Acl(entry.perms, *who) for who in identities if who.scheme in _PROVEN]
            if not own:
                raise RequestError(ErrorCode.INVALID_ACL)
            resolved += own
        elif entry.id is None and entry.scheme in known:
            raise RequestError(ErrorCode.MARSHALLING_ERROR)
        elif _names_anyone(entry) or _well_formed(entry.scheme, entry.id or "", sasl):
            resolved.append(entry)
        else:
            raise RequestError(ErrorCode.INVALID_ACL)
    if not resolved:
        raise RequestError(ErrorCode.INVALID_ACL)
    return intern(tuple(resolved))


def intern(acl: AclList) -> AclList:
    """Return the one shared object for the most common list, so that it is recognised by identity."""
    return OPEN_UNSAFE if acl == OPEN_UNSAFE else acl


def masked(acl: AclList) -> AclList:
    """Return a list without its password hashes, for a client that may read the node but not administer it."""
    shown = list[Acl]()
    for entry in acl:
        if entry.scheme == "digest":
            user, _, _ = (entry.id or "").partition(":")
            shown.append(entry._replace(id=f"{user}:x"))
        else:
            shown.append(entry)
    return tuple(shown)


def _names_anyone(entry: Acl) -> bool:
    return entry.scheme == "world" and entry.id == "anyone"


def _names_one(entry: Acl, identities: Sequence[Identity]) -> bool:
    if _names_anyone(entry):
        return True
    return any(who.scheme == entry.scheme and _matches(who, entry.id or "") for who in identities)


def _well_formed(scheme: str | None, id_: str, sasl: bool) -> bool:
    if scheme == "sasl":
        return sasl and ("@" not in id_ or _KERBEROS_NAME.fullmatch(id_) is not None)
    if scheme == "digest":
        parts = id_.split(":")
        while parts and not parts[-1]:  # Java's split drops empty strings at the end
            parts.pop()
        return len(parts) == 2
    return scheme == "ip" and _network(id_) is not None


def _matches(who: Identity, wanted: str) -> bool:
    if who.scheme != "ip":
        return who.id == wanted or who == SASL_SUPER
    network = _network(wanted)
    address = _network(who.id)
    if network is None or address is None:
        return False
    wanted_number, length = network
    number, _ = address
    unused = 32 - length
    return wanted_number >> unused == number >> unused


def _network(expression: str) -> tuple[int, int] | None:
    """Read an IPv4 address or `address/bits`; the reference server knows no other addresses in an ACL."""
    address, slash, bits = expression.partition("/")
    try:
        parts = [_java_int(part) for part in address.split(".")]
        length = _java_int(bits) if slash else 32
    except ValueError:
        return None
    if len(parts) != 4 or not all(0 <= part <= 255 for part in parts) or not 0 <= length <= 32:
        return None
    return int.from_bytes(parts, "big"), length


def _java_int(text: str) -> int:
    """Read a number as Integer.parseInt does, which allows neither spaces nor underscores."""
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(text)
    return int(text)
