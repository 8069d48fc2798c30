"""Sets of names that are read in the order of Java's hash sets, as clients of the reference server read them.

Whoever relies on another order, say that of creation, shall fail here as they would there.  A bucket keeps the order of
insertion, and so do the halves it splits into when the table grows: a stable sort by bucket is all there is to it.
(Buckets of more than eight become trees with an order of their own; only names made to collide get there.)
Source: `java.util.HashMap` of OpenJDK 17.
"""

from functools import lru_cache
from operator import itemgetter, mul
from struct import unpack

_U32 = 0xFFFFFFFF
_CHUNK = 256
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_CHUNK + 1)]


class JavaSet(dict[str, int]):
    """A `HashSet` of names, which knows when each was added."""

    __slots__ = ("_added", "buckets")

    def __init__(self, buckets: int = 16) -> None:
        super().__init__()
        self.buckets = buckets
        self._added = 0

    def add(self, name: str) -> None:
        """Add a name that is not there."""
        self._added += 1
        self[name] = self._added
        if len(self) > self.buckets * 3 // 4:
            self.buckets *= 2

    def put_back(self, name: str, added: int) -> None:
        """Add a name as if it had never been removed."""
        self[name] = added
        entries = sorted(self.items(), key=itemgetter(1))
        self.clear()
        self.update(entries)

    def ordered(self) -> list[str]:
        """Read the names as Java reads the set."""
        return _by_bucket(list(self), self.buckets)

    def ordered_as_copy(self) -> list[str]:
        """Read the names as Java reads a clone of the set, whose table is as large as its names need."""
        needed = int(len(self) / 0.75 + 1)
        return _by_bucket(self.ordered(), 1 << (needed - 1).bit_length())


def string_hash(text: str) -> int:
    """Compute `String.hashCode`, unsigned."""
    units = text.encode() if text.isascii() else _utf_16(text)
    value = 0
    for start in range(0, len(units), _CHUNK):
        chunk = units[start : start + _CHUNK]
        # The sum of units by powers of 31, which C adds up faster than Python steps through Horner's rule.
        added = sum(map(mul, reversed(chunk), _POWERS))
        value = (value * _POWERS[len(chunk)] + added) & _U32
    return value


def spread(hash_code: int) -> int:
    """Mix a hash code (any int) as `HashMap.hash` does, so that its low bits choose the bucket."""
    hash_code &= _U32
    return hash_code ^ hash_code >> 16


def _utf_16(text: str) -> tuple[int, ...]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return unpack(f">{len(encoded) // 2}H", encoded)


@lru_cache(maxsize=1 << 15)
def _spread_hash(name: str) -> int:
    return spread(string_hash(name))


def _by_bucket(names: list[str], buckets: int) -> list[str]:
    if len(names) > 1:
        mask = buckets - 1
        names.sort(key=lambda name: _spread_hash(name) & mask)
    return names
