"""Reads settings files together with their line numbers, so that a mistake can be shown with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep
from aioelasticjob.ground.yaml_scalars import float_as_written, reading_as_written
from aioelasticjob.registry.secrets import is_path
from aioelasticjob.settings.errors import Mistake

Keys: TypeAlias = tuple[str, ...]
"""The place of a value: the keys that lead to it."""
_TABLE = re.compile(r"\s*\[\[?\s*(?P<keys>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_PAIR = re.compile(r"""\s*(?P<keys>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_KEY = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The values of a file, the line of each, and the mistakes that make it unreadable."""

    file: str
    values: Mapping[str, object] = field(default_factory=dict)
    lines: Mapping[Keys, int] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()

    def line(self, keys: Keys) -> int | None:
        """Return the line of a value, or of the innermost mapping around it whose line is known."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)


def read(file: str | Path) -> SettingsFile:
    """Read a YAML, JSON or TOML file; this raises nothing, the result has all mistakes."""
    name = str(file)
    if not is_path(file):
        return _unread(name, None, "must be the path of a file")
    path = Path(file)
    readers = {".yaml": _read_yaml, ".yml": _read_yaml, ".json": _read_yaml, ".toml": _read_toml}
    if path.suffix.lower() not in readers:
        return _unread(name, None, f"must end in {', '.join(readers)}")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        return _unread(name, None, f"is no UTF-8: byte {error.start}")
    except OSError as error:
        return _unread(name, None, f"cannot be read: {error.strerror}")
    return readers[path.suffix.lower()](name, text)


def _unread(file: str, line: int | None, why: str) -> SettingsFile:
    return SettingsFile(file, mistakes=(Mistake(file, line, "", None, why),))


_Loader = reading_as_written(yaml.SafeLoader)


def _read_yaml(file: str, text: str) -> SettingsFile:
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return SettingsFile(file)
            document = _Document(file, loader)
            values = document.value(root, ())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        return _unread(file, line, f"is no YAML: {error.problem}{_quoting(error)}")
    except yaml.YAMLError as error:  # a character that YAML does not allow
        return _unread(file, None, f"is no YAML: {' '.join(str(error).split())}")
    except RecursionError:
        return _unread(file, None, f"{TOO_DEEP}, or refers to itself")
    if is_too_deep(values):
        return _unread(file, None, f"{TOO_DEEP}, or refers to itself")
    if not isinstance(values, dict):
        return _unread(file, 1, "must be a mapping, such as registry: …, jobs: …")
    return SettingsFile(file, values, document.lines, tuple(document.mistakes))


def _quoting(error: yaml.MarkedYAMLError) -> str:
    """Return a hint about quotes if a value begins with a character that has a meaning in YAML, as ``*/5`` does."""
    problem = error.problem or ""
    if "expected ',' or" in problem:
        return "; a value like ${NAME} or 0 0 3 * * ? needs quotes between braces or brackets"
    hints = ("alias", "cannot start any token", "expected alphabetic", "mapping values are not allowed")
    return "; a value like */5 * * * * or @daily needs quotes" if any(hint in problem for hint in hints) else ""


class _Document:
    """A YAML document's values, with the line of each key."""

    def __init__(self, file: str, loader: yaml.SafeLoader) -> None:
        self.lines: dict[Keys, int] = {}
        self.mistakes: list[Mistake] = []
        self._file = file
        self._loader = loader

    def value(self, node: yaml.Node, keys: Keys) -> object:
        """Return the value of a node, with everything inside it."""
        if isinstance(node, yaml.SequenceNode):
            return [self.value(one, (*keys, str(index))) for index, one in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return self._loader.construct_object(node, deep=True)
        self._note_doubles(node, keys)
        self._loader.flatten_mapping(node)
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            # a key is its text: YAML would take ``on`` and ``NO`` for True and False
            is_text = isinstance(key_node, yaml.ScalarNode)
            key = key_node.value if is_text else str(self._loader.construct_object(key_node, deep=True))
            self.lines[(*keys, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*keys, key))
        return found

    def _note_doubles(self, node: yaml.MappingNode, keys: Keys) -> None:
        """Note a mistake for each key that is given twice; YAML would silently take the last one."""
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in first:
                again = f"is given twice, first in line {first[key]}"
                self.mistakes.append(Mistake(self._file, line, ".".join((*keys, key)), None, again))
            first.setdefault(key, line)


def _read_toml(file: str, text: str) -> SettingsFile:
    try:
        values = tomllib.loads(text, parse_float=float_as_written)
    except RecursionError:
        return _unread(file, None, TOO_DEEP)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        last = text.count("\n") + 1
        return _unread(file, int(found[1] or last) if found else None, f"is no TOML: {_TOML_PLACE.sub('', str(error))}")
    if is_too_deep(values):
        return _unread(file, None, TOO_DEEP)
    return SettingsFile(file, values, dict(_toml_lines(text)))


def _toml_lines(text: str) -> Iterator[tuple[Keys, int]]:
    """Yield each key with its line; keys inside an inline table have no line of their own."""
    table: Keys = ()
    quotes = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quotes:  # a line inside a multi-line text has no key
            quotes = "" if quotes in line else quotes
            continue
        if header := _TABLE.match(line):
            table = _keys(header["keys"])
            yield table, number
        elif pair := _PAIR.match(line):
            keys = _keys(pair["keys"])
            for length in range(1, len(keys) + 1):
                yield (*table, *keys[:length]), number
            rest = line[pair.end() :]
            quotes = next((mark for mark in ('"""', "'''") if rest.count(mark) == 1), "")


def _keys(written: str) -> Keys:
    return tuple(key.strip("\"'") for key in _KEY.findall(written))
