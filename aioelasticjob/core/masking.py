"""Finds addresses, host names and credentials in what the registry holds of a job, and replaces them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any

from aioelasticjob.core.instances import is_host
from aioelasticjob.core.layout import Layout
from aioelasticjob.ground.credentials import hide_in_json, hide_in_text
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.jobs.kinds import without_secrets
from aioelasticjob.registry.tree import Node, Tree

_V4 = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9]|\.[0-9])")
_V6 = re.compile(r"[0-9A-Fa-f:.]+")
"""Characters that may contain an IPv6 address; ``ipaddress`` then decides."""
_SHAPE = re.compile(
    r"(?:(?:H:){6}(?:V|H:H)|(?:H(?::H){0,6})?::(?:(?:H:){0,5}V|H(?::H){0,6})?)(?![0-9A-Fa-f])".replace(
        "H", "[0-9A-Fa-f]{1,4}"
    ).replace("V", r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
)
_HEX = frozenset("0123456789abcdefABCDEF")
_ZONE = re.compile(r"%\w+")
_NEWLINE = (r"\n", r"\r", r"\t")
"""Escape sequences of JSON that may precede an address and whose letter does not belong to it."""


class Mask:
    """Replaces every address by ip1, ip2, … and every server's host name by host1, host2, …, the same everywhere."""

    def __init__(self, tree: Tree, layout: Layout) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for ip in sorted(tree.children(layout.servers)):
            self._host(ip, node_text(tree.get(layout.server(ip))))
        for name in tree.children(layout.instances):
            node = tree.get(layout.instance(name))
            data = {} if node is None else json_object(node.data)
            host = data.get("host")
            self._host(name.partition("@-@")[0], str(host) if is_host(host) else "")
            if is_host(data.get("ip")):
                self._host(str(data["ip"]), "")
        for number, host in enumerate(sorted(_hosts_of_operators(tree, layout)), start=1):
            self._names.setdefault(host, f"operatorhost{number}")
        for name, mask in list(self._names.items()):
            escaped = json.dumps(name)[1:-1]  # as in JSON
            self._names[escaped] = mask
        spelt = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        domain = r"(?:\.[^\W_][\w-]*)*"  # a host name may be followed by its domain
        known = rf"(?:(?<![^\W_])(?<![.-])|(?<=\\[nrt]))({spelt}){domain}(?![^\W_]|-)"
        self._known = re.compile(known, re.IGNORECASE) if spelt else None

    def __call__(self, text: str) -> str:
        """Return the text with addresses and host names replaced."""
        if self._known is not None:
            text = self._known.sub(lambda found: self._names.get(found[1].lower(), "host"), text)
        parts = list[str]()
        at = 0
        for start, end in _sixes(text):
            parts.append(self._fours(text[at:start]))
            found = text[start:end]
            parts.append(self._address(found) or found)
            at = end
        return "".join([*parts, self._fours(text[at:])])

    def _fours(self, text: str) -> str:
        return _V4.sub(lambda found: self._address(found[0]) or found[0], text)

    def _host(self, ip: str, host: str) -> None:
        """Note a server.  An operator may have made one whose name is not an address."""
        if not (ip := ip.strip()):
            return
        mask = self._address(ip) or self._names.setdefault(ip.lower(), self._next())
        if host.strip() and _canonical(host) is None:
            self._names.setdefault(host.strip().lower(), mask.replace("ip", "host"))

    def _address(self, text: str) -> str | None:
        same = _canonical(text)
        return None if same is None else self._addresses.setdefault(same, self._next())

    def _next(self) -> str:
        odd = sum(mask.startswith("ip") for mask in self._names.values())
        return f"ip{len(self._addresses) + odd + 1}"


def node_text(node: Node | None) -> str:
    """Return the data of a node as text; bytes that are not text can be told from it.  Empty if there is no node."""
    return "" if node is None else node.data.decode("utf-8", "surrogateescape")


def config_without_credentials(text: str) -> str:
    """Return a job's configuration, as its node holds it, without credentials and what its kind marks as secret."""
    try:
        settings = read_json(text)
        hidden = settings_without_credentials(settings) if isinstance(settings, dict) else None
    except ValueError:
        hidden = settings = None
    if hidden is None:
        return hide_in_text(text)
    return text if hidden == settings else json.dumps(hidden, ensure_ascii=False, indent=1)


def settings_without_credentials(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's settings under the keys of the registry, without credentials and what its kind marks as secret."""
    hidden = hide_in_json({key: value for key, value in settings.items() if key != "options"})
    assert isinstance(hidden, dict)
    if "options" in settings:
        hidden["options"] = without_secrets(settings.get("jobType"), settings["options"])
    return hidden


def _hosts_of_operators(tree: Tree, layout: Layout) -> set[str]:
    """Return the hosts in the names ``user@host`` of operators who acted on the job or asked for runs."""
    found = set[str]()
    requests = [layout.request(name) for name in tree.children(layout.requests)]
    for path in (layout.operator, *requests):
        try:
            user, _, host = read_json(node_text(tree.get(path)))["by"].rpartition("@")
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if user and is_host(host) and _canonical(host) is None:  # addresses are masked by their form anyway
            found.add(host.lower())
    return found


def _sixes(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each IPv6 address in a text."""
    for run in _V6.finditer(text):
        at, end = run.span()
        if text.count(":", at, end) < 2:
            continue
        while (found := _six(text, at, end)) is not None:
            zone = _ZONE.match(text, found[1])
            at = found[1]
            yield found[0], zone.end() if zone else at


def _six(text: str, at: int, end: int) -> tuple[int, int] | None:
    """Return the start and end of the first IPv6 address between two positions; None if there is none.

    The beginning of a match may be the end of a word, as in ``node:fe80::1``.  Then a match that begins later is
    preferred, if there is one.
    """
    touching = None
    for start in range(at, end):
        if touching is not None and start >= touching[1]:
            break
        before = text[start - 1 : start]
        if text[start] == ":":
            begins = not before.isalnum()
        else:
            begins = start == at or before in ":."
        if not begins or (stop := _stop(text, start)) is None:
            continue
        touches = before.isalnum() and text[max(0, start - 2) : start] not in _NEWLINE
        if not touches or _has_digit(text[start:stop].partition(":")[0]):
            return start, stop
        if _has_digit(text[start:stop]) or not text[stop : stop + 1].isalnum():  # std::cout is not an address
            touching = start, stop
    return touching


def _stop(text: str, start: int) -> int | None:
    """Return the end of the longest IPv6 address that begins at ``start``; None if there is none."""
    shaped = _SHAPE.match(text, start)
    for stop in range(shaped.end() if shaped else start, start + 1, -1):
        if text[stop : stop + 1] not in _HEX and _is_six(text[start:stop]):
            return stop
    return None


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_six(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _canonical(text: str) -> str | None:
    """Return an address in its canonical form; None if the text is not an address."""
    text = text.strip().partition("%")[0]
    try:
        if ":" not in text:
            numbers = [part.lstrip("0") or part[-1:] for part in text.split(".")]
            return str(IPv4Address(".".join(numbers)))
        address = IPv6Address(text)
    except AddressValueError:
        return None
    return str(address.ipv4_mapped or address)
