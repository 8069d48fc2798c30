"""A tree as text: one line for each node, and on request without anybody's address."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address

from aioelasticjob.coordination.view import is_item
from aioelasticjob.layout import Layout
from aioelasticjob.registry.tree import Node, Tree

_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?:%\w+)?(?![\w:])"
)
"""What looks like an IPv4 or IPv6 address; whether it is one is asked of those who know."""


def render(tree: Tree, layout: Layout, *, masked: bool = False, limit: int | None = None) -> str:
    """Return ``path | data | version`` of every node, sorted by path, items by number.

    ``masked`` replaces addresses and the servers' host names.  What exceeds ``limit`` characters is only counted.
    """
    mask, paths = Mask(tree, layout) if masked else None, sorted(tree, key=_place)
    lines, size = list[str](), 0
    for number, path in enumerate(paths):
        line = _line(path, tree.get(path), mask)
        size += len(line) + 1
        if limit is not None and size > limit:
            lines.append(f"… and {len(paths) - number} nodes more")
            break
        lines.append(line)
    return "\n".join(lines)


class Mask:
    """Replaces every address by ip1, ip2, … and a server's host name by host1, host2, …: the same one everywhere."""

    def __init__(self, tree: Tree, layout: Layout) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for ip in sorted(tree.children(layout.servers), key=_place):
            self._host(ip, _text(tree.get(layout.server(ip))))
        for name in tree.children(layout.instances):
            self._host(*_told(name, tree.get(layout.instance(name))))
        self._names |= {json.dumps(name)[1:-1]: mask for name, mask in self._names.items()}  # as JSON spells it
        spelt = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        self._known = re.compile(rf"(?<![\w.-])(?:{spelt})(?![\w-]|\.\w)", re.IGNORECASE) if spelt else None

    def __call__(self, text: str) -> str:
        """Return the text without addresses."""
        if self._known is not None:
            text = self._known.sub(lambda found: self._names.get(found[0].lower(), "host"), text)
        return _ADDRESS.sub(lambda found: self._address(found[0]) or found[0], text)

    def _host(self, ip: str, host: str) -> None:
        """Take note of a server; an operator may have made one whose name is no address."""
        mask = self._address(ip) or self._names.setdefault(ip.lower(), self._next())
        if host.strip() and _canonical(host) is None:
            self._names.setdefault(host.strip().lower(), mask.replace("ip", "host"))

    def _address(self, text: str) -> str | None:
        same = _canonical(text)
        return None if same is None else self._addresses.setdefault(same, self._next())

    def _next(self) -> str:
        odd = sum(mask.startswith("ip") for mask in self._names.values())
        return f"ip{len(self._addresses) + odd + 1}"


def _canonical(text: str) -> str | None:
    """Return an address in its one form, None for what is none."""
    try:
        address = ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _told(name: str, node: Node | None) -> tuple[str, str]:
    """Return what an instance says of its server."""
    try:
        told = json.loads(_text(node))
        return str(told["ip"]), str(told["host"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return name.partition("@-@")[0], ""


def _line(path: str, node: Node | None, mask: Mask | None) -> str:
    data = _text(node)
    if mask is not None:
        path, data = mask(path), mask(data)
    owner = "" if node is None or not node.stat.ephemeral_owner else f"ephemeral {node.stat.ephemeral_owner:#x} "
    version = 0 if node is None else node.stat.version
    return f"{_escaped(path)} | {_escaped(data)} | {owner}v{version}"


def _text(node: Node | None) -> str:
    return "" if node is None else node.data.decode("utf-8", "surrogateescape")


def _escaped(text: str) -> str:
    """Return text on one line that can be taken apart again: a bar of its own is ``\\|``, a strange byte ``\\xff``."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|")
    return plain if plain.isprintable() else "".join(map(_shown, plain))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def _place(path: str) -> list[tuple[int, int, str]]:
    return [(0, int(name), "") if is_item(name) else (1, 0, name) for name in path.split("/")]
