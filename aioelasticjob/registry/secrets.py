"""Secrets: given as a text, or as the file that holds it, which is read anew each time."""

from __future__ import annotations

import os
from pathlib import Path

from aioelasticjob.errors import InvalidSetting


def secret(setting: str, text: str | None, file: str | None) -> str | None:
    """Return a secret, without the line's end of a file; None if neither is given.

    Raises: InvalidSetting, which names the file and shows nothing of its contents.
    """
    if file is None:
        return text
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise InvalidSetting(f"{setting}_file", file, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidSetting(f"{setting}_file", file, "is no text in UTF-8") from None


def is_path(value: object) -> bool:
    """Return whether a value may be the path of a file: neither empty nor with a zero byte, which no path has."""
    return isinstance(value, str | os.PathLike) and bool(os.fspath(value)) and "\0" not in os.fsdecode(value)


def is_login(value: object) -> bool:
    """Return whether a value is ``user:password``."""
    return isinstance(value, str) and all(value.partition(":"))
