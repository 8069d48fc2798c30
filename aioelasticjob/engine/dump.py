"""Renders a tree as text: one line for each node, on request without addresses and credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyio.lowlevel import checkpoint

from aioelasticjob.core.layout import Layout
from aioelasticjob.core.masking import Mask, config_without_credentials, node_text
from aioelasticjob.core.nodes import is_item
from aioelasticjob.ground.credentials import hide_in_text
from aioelasticjob.registry.tree import Node, Tree

NODES_AT_ONCE = 100
"""Nodes that are rendered in one turn of the event loop: masking tens of thousands takes seconds."""


async def render(tree: Tree, layout: Layout, *, masked: bool = False, limit: int | None = None) -> str:
    """Return the ``lines`` of a tree as one text; the event loop goes on meanwhile."""
    found = list[str]()
    for number, line in enumerate(lines(tree, layout, masked=masked, limit=limit), 1):
        found.append(line)
        if number % NODES_AT_ONCE == 0:
            await checkpoint()
    return "\n".join(found)


def lines(tree: Tree, layout: Layout, *, masked: bool = False, limit: int | None = None) -> Iterator[str]:
    """Yield ``path | data | version`` of every node, sorted by path; items are sorted by number.

    ``masked`` replaces addresses, the servers' host names and credentials.  Nodes beyond ``limit`` characters are
    only counted.
    """
    mask = Mask(tree, layout) if masked else None
    paths = sorted(tree, key=_place)
    size = 0
    for number, path in enumerate(paths):
        hide = config_without_credentials if path == layout.config else hide_in_text
        masks = None if mask is None else (mask, hide)
        line = _line(path, tree.get(path), masks)
        size += len(line) + 1
        if limit is not None and size > limit:
            yield f"… and {len(paths) - number} nodes more"
            return
        yield line


def _line(path: str, node: Node | None, masks: tuple[Mask, Callable[[str], str]] | None) -> str:
    data = node_text(node)
    if masks is not None:
        mask, hide = masks
        path = mask(path)
        data = mask(hide(data))
    owner = ""
    if node is not None and node.stat.ephemeral_owner:
        owner = f"ephemeral {node.stat.ephemeral_owner:#x} "
    version = 0 if node is None else node.stat.version
    return f"{_escaped(path)} | {_escaped(data)} | {owner}v{version}"


def _escaped(text: str) -> str:
    """Return text on one line that can be parsed again: a bar becomes ``\\|``, a byte that is not text ``\\xff``."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|")
    return plain if plain.isprintable() else "".join(map(_shown, plain))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is not text
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def _place(path: str) -> list[tuple[int, int, str]]:
    """Return the key by which paths are sorted: the numbers of items by their value, other names by their letters."""
    place = list[tuple[int, int, str]]()
    for name in path.split("/"):
        if is_item(name):
            place.append((0, int(name), ""))
        else:
            place.append((1, 0, name))
    return place
