"""The links of a job: addresses for people, by what is found there, such as its runbook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

BLANKS: Final = ("job", "run_id", "task_id")
"""What an address may have in braces: the job's name, and ids of one run."""
_BLANK: Final = re.compile(r"\{(\w*)\}")
_PAIRS: Final = re.compile(r",\s*(?=[^,=]+=https?://)")
"""Stands between two links in a text; an address may have commas and equals signs."""
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"]{1,2000}")
_NAME: Final = re.compile(r"[\w ./-]{1,100}")


def as_links(given: object) -> object:
    """Return links as a mapping; text such as ``runbook=https://…`` is accepted as well."""
    if given is None:
        return {}
    if not isinstance(given, str):
        return given
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, _PAIRS.split(given))):
        name, equals, address = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is no pair like runbook=https://wiki.example.org/report")
        if name.strip() in found:
            raise ValueError(f"{name.strip()!r} is given twice")
        found[name.strip()] = address.strip()
    return found


def checked_links(links: dict[str, str]) -> dict[str, str]:
    """Refuse what is no link: a browser would run some addresses as a script."""
    for name, address in links.items():
        if not _NAME.fullmatch(name) or name != name.strip():
            raise ValueError(f"the name {name[:120]!r} must be 1 to 100 letters, digits, spaces or any of _ . / -")
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"the address of {name} must begin with http:// or https:// and have no spaces")
        for blank in _BLANK.findall(address):
            if blank not in BLANKS:
                raise ValueError(f"the address of {name} may have in braces only {', '.join(BLANKS)}, not {blank!r}")
    return links


def filled_links(links: Mapping[str, str], **known: str) -> dict[str, str]:
    """Return links with their blanks filled in, without those that have a blank of which nothing is known here."""
    found = {}
    for name, address in links.items():
        if all(known.get(blank) for blank in _BLANK.findall(address)):
            found[name] = _BLANK.sub(lambda blank: quote(known[blank[1]], safe=""), address)
    return found
