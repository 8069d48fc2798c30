"""The pages for people who read the code name what is there: modules, functions, and who writes which field."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read, table

MAP, STATE = "docs/reference/code-map.md", "docs/reference/job-state.md"
PACKAGE = ROOT / "aioelasticjob"
PACKAGES = "core", "engine", "registry", "model.py"


def modules(page: str) -> list[str]:
    """Return the modules that the map names, in its order."""
    section = read(page).partition("\n## One fire")[0]
    return re.findall(r"^\| `([\w/]+)` \|", section, re.MULTILINE)


def there(package: str) -> list[str]:
    """Return the modules below a package, as the map spells them; a package that has modules is one of them."""
    paths = (path.relative_to(PACKAGE / package) for path in (PACKAGE / package).rglob("*.py"))
    names = (path.parent if path.name == "__init__.py" else path.with_suffix("") for path in paths)
    return [name.as_posix() for name in names if name.name]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for one in PACKAGES for path in _files(PACKAGE / one)]


def functions() -> Iterator[tuple[str, ast.AST]]:
    """Yield the name of each function, with its class if it is a method, and its code."""
    for tree in trees():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for owner, body in [("", tree.body), *((f"{one.name}.", one.body) for one in classes)]:
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{owner}{node.name}", node


def names() -> set[str]:
    """Return the names of classes, constants and functions, and of what a class defines or its methods set."""
    found = {name for name, _ in functions()}
    for tree in trees():
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef):
                stored = [node for node in ast.walk(one) if isinstance(getattr(node, "ctx", None), ast.Store)]
                attributes = {node.attr for node in stored if isinstance(node, ast.Attribute)}
                attributes |= {node.id for node in stored if isinstance(node, ast.Name)}
                found |= {one.name, *(f"{one.name}.{name}" for name in attributes)}
    return found


def test_every_module_has_its_line_in_the_map_and_each_line_a_module() -> None:
    assert sorted(modules(MAP)) == sorted([*there("core"), *there("engine")])


def test_the_rooms_are_in_the_order_of_their_layers_and_none_is_missing() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["aioelasticjob"])
    layer = {name: number for number, names in enumerate(layers) for name in names.split(" | ")}
    rooms = [row[0].strip("`").removeprefix("aioelasticjob.") for row in table(MAP, "| room |")]
    assert sorted(rooms) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert [layer[room] for room in rooms] == sorted(layer[room] for room in rooms)


def test_the_drawing_of_the_rooms_shows_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["aioelasticjob"])
    rooms = [room for layer in layers for room in layer.split(" | ") if room != "__main__"]
    assert re.findall(r'<text class="room"[^>]*>(\w+)<', read("docs/images/rooms.svg")) == rooms


def test_the_modules_to_read_first_are_there() -> None:
    first = re.findall(r"`((?:core|engine)/\w+\.py)`", read(MAP))
    assert len(first) == 8
    assert all((PACKAGE / path).is_file() for path in first)


@pytest.mark.parametrize("page", [MAP, STATE])
def test_the_functions_and_fields_named_are_there(page: str) -> None:
    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?|\w+)`", read(page)))
    lines = re.findall(r"\b[A-Z]\w+\.\w+", "".join(re.findall(r"```\n(.*?)```", read(page), re.DOTALL)))
    spelt = {name for name in named if "." in name or name[0].isupper()} | set(lines)
    assert spelt
    assert spelt - names() == set()


def test_only_the_functions_of_one_module_replace_what_is_known_of_an_item() -> None:
    makers = {"learned", "claimed", "settled", "reported", "assumed"}
    found = {
        name
        for name, code in functions()
        for node in ast.walk(code)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Item"
    }
    assert found == makers
    assert all(one in read("aioelasticjob/core/items.py") for one in makers)
