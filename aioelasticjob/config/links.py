"""Addresses for people: the links of a job, such as that to its runbook, and the pages of the console."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from aioelasticjob.errors import InvalidSetting

BLANKS: Final = ("job", "run_id", "task_id")
"""What an address may have in braces: the job's name, and ids of one run."""
_BLANK: Final = re.compile(r"\{(\w*)\}")
_PAIRS: Final = re.compile(r",\s*(?=[^,=]+=https?://)")
"""Stands between two links in a text; an address may have commas and equals signs."""
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"]{1,2000}")
ADDRESS_OF_PAGES: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
"""An address that those of pages begin with."""
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


def checked_console_url(given: object) -> str:
    """Return where a console shows a registry, without a slash at its end.

    Raises:
        InvalidSetting: it is no address that others can be appended to.
    """
    if not isinstance(given, str) or not ADDRESS_OF_PAGES.fullmatch(given):
        raise InvalidSetting("console_url", given, "an address such as https://jobs.example.org/r/billing")
    return given.rstrip("/")


def console_link(console_url: str, job: str = "", run_id: str = "") -> str:
    """Return the page of a run, else that of a job, else that of the alerts; empty without a console.

    ``console_url`` is where the console shows the registry.
    """
    if not console_url:
        return ""
    page = "alerts"
    if run_id:
        page = f"history?{urlencode({'job': job, 'run': run_id})}"
    elif job:
        page = f"job/{quote(job, safe='')}"
    return f"{console_url}/{page}"
