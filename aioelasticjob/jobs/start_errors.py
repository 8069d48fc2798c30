"""Why the operating system did not start a script, in words that name what has to be changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from errno import E2BIG, EACCES, EAGAIN, ENOENT, ENOEXEC, ENOMEM, ENOTDIR
from typing import Final

from aioelasticjob.ground.nesting import read_json

_HINTS: Final[Mapping[int, str]] = {
    ENOENT: "the program, the directory, or the interpreter in the script's first line does not exist",
    ENOTDIR: "a part of its path is a file and no directory",
    EACCES: "chmod +x it",
    ENOEXEC: "a script begins with a line like #!/bin/sh",
    EAGAIN: "this host or user has as many processes as it may have",
    ENOMEM: "this host has too little memory for another process",
}
_OF_ALL_ITEMS: Final = frozenset({"shardingItems", "shardingItemParameters", "fences", "offsets"})
"""Fields of a context that grow with the number of items."""


def start_error(error: OSError, words: Sequence[str], variables: Mapping[str, str], context: str) -> str:
    """Return why a program was not started with these arguments, variables, and this context as JSON."""
    number = error.errno or 0
    if number == E2BIG:
        hint = _too_large(words, variables, context)
    else:
        hint = _HINTS.get(number, "")
    why = os.strerror(number)
    if hint:
        why += f" ({hint})"
    return f"cannot start {words[0]!r}: {why}"


def _too_large(words: Sequence[str], variables: Mapping[str, str], context: str) -> str:
    """Return which of the arguments and variables is the largest, and what to do about it."""
    sizes = {f"argument {number}": _size(word) for number, word in enumerate(words)}
    sizes |= {f"the environment variable {name}": _size(value) for name, value in variables.items()}
    largest = max(sizes, key=sizes.__getitem__)
    limits = "Linux takes 131,072 bytes for each argument and variable, and about 2,000,000 for all"
    if sizes[largest] > _size(context):
        return f"{largest} has {sizes[largest]:,} bytes; {limits}"
    parts = {name: _size(json.dumps(value)) for name, value in read_json(context).items()}
    part = max(parts, key=parts.__getitem__)
    if part in _OF_ALL_ITEMS:
        advice = 'with per="item" it is about one item only'
    else:
        advice = "write a file's name in its place"
    has = f"the context has {_size(context):,} bytes, and {parts[part]:,} of them are {part}"
    return f"{has}: {advice}; {limits}"


def _size(text: str) -> int:
    return len(os.fsencode(text))
