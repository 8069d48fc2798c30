"""Jute, the wire's encoding: big-endian numbers, length-prefixed strings, buffers and vectors."""

import codecs
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

T = TypeVar("T")

INT = Struct(">i")
LONG = Struct(">q")

_unpack_int = INT.unpack_from
_unpack_long = LONG.unpack_from
_pack_int = INT.pack

_AS_JAVA = "aioelasticjob.zookeeper.replace"
_REPLACEMENT = "\ufffd"


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Replace what is no UTF-8; a surrogate, whole or cut short, is one mistake to Java, where Python sees several."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    mistake = error.object[error.start : error.start + 3]
    begins_surrogate = len(mistake) > 1 and mistake[0] == 0xED and mistake[1] >> 5 == 0b101
    if not begins_surrogate:
        return _REPLACEMENT, error.end
    is_whole = len(mistake) == 3 and mistake[2] >> 6 == 0b10
    return _REPLACEMENT, error.start + (3 if is_whole else 2)


codecs.register_error(_AS_JAVA, _replace)

NULL = _pack_int(-1)  # the length of a string, buffer or vector that is absent


class MalformedError(ValueError):
    """Bytes that are not what the protocol allows at this place."""


class Reader:
    """Reads one frame from front to back; everything raises `MalformedError` past the end."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def integer(self) -> int:
        """Read a signed 32-bit number."""
        position = self.position
        self.position = position + 4
        if self.position > len(self.data):
            raise MalformedError("frame ends within an int")
        value: int
        (value,) = _unpack_int(self.data, position)
        return value

    def long(self) -> int:
        """Read a signed 64-bit number."""
        position = self.position
        self.position = position + 8
        if self.position > len(self.data):
            raise MalformedError("frame ends within a long")
        value: int
        (value,) = _unpack_long(self.data, position)
        return value

    def boolean(self) -> bool:
        """Read a byte as a truth value."""
        position = self.position
        self.position = position + 1
        if position >= len(self.data):
            raise MalformedError("frame ends within a boolean")
        return self.data[position] != 0

    def buffer(self) -> bytes | None:
        """Read a length and that many bytes; -1 stands for none."""
        length = self.integer()
        if length < 0:
            if length == -1:
                return None
            raise MalformedError(f"length {length}")
        start = self.position
        self.position = start + length
        if self.position > len(self.data):
            raise MalformedError("frame ends within a buffer")
        return self.data[start : self.position]

    def string(self) -> str | None:
        """Read a string; broken UTF-8 is replaced, not refused, as the reference server does."""
        raw = self.buffer()
        return None if raw is None else decode(raw)

    def vector(self, item: Callable[[], T]) -> list[T] | None:
        """Read a count and that many items; -1 stands for none."""
        count = self.integer()
        if count == -1:
            return None
        # Every item takes at least a byte, so a lying count ends at the frame's end, not at memory's.
        return [item() for _ in range(count)]


def pack_buffer(value: bytes | None) -> bytes:
    """Encode a buffer, or its absence."""
    return NULL if value is None else _pack_int(len(value)) + value


def pack_string(value: str | None) -> bytes:
    """Encode a string, or its absence."""
    return NULL if value is None else pack_buffer(encode(value))


def decode(raw: bytes) -> str:
    """Decode text as Java does."""
    return raw.decode("utf-8", _AS_JAVA)


def encode(value: str) -> bytes:
    """Encode text as the reference server does: each UTF-16 unit for itself, so that beyond U+FFFF it is CESU-8."""
    if value.isascii():
        return value.encode()
    units = value.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    characters = [chr(high << 8 | low) for high, low in pairs]
    return "".join(characters).encode("utf-8", "surrogatepass")


def pack_strings(values: Iterable[str]) -> bytes:
    """Encode a vector of strings."""
    parts = [b""]
    for value in values:
        raw = encode(value)
        parts.append(_pack_int(len(raw)))
        parts.append(raw)
    parts[0] = _pack_int(len(parts) // 2)
    return b"".join(parts)
