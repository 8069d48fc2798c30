"""Every error has a page that shows its text, and is in the list of all errors; what is printed names the page."""

from __future__ import annotations

import pickle
import re
import traceback
from importlib import import_module
from typing import Any

import pytest

from aioelasticjob import errors as module_of_errors
from aioelasticjob.cli.target import ImportFailed
from aioelasticjob.cli.terminal import print_error
from aioelasticjob.errors import ElasticJobError, InvalidSetting, RegistryError
from aioelasticjob.settings import WrongSettings
from tests.docs.error_examples import EXAMPLES
from tests.docs.pages import ROOT, read
from tests.docs.test_site import SITE

LIST = "docs/reference/errors.md"
QUESTIONS = ["What has happened?", "What do I do?"]
QUIET = {InvalidSetting, WrongSettings, ImportFailed}
"""Their texts name what has to be corrected, and often stand in a list of several: the page would be noise."""
_ENTRY = re.compile(r"^( *)\* \[`(\w+)`\]\(\.\./errors/(\w+)\.md\): \S", re.MULTILINE)


def classes() -> set[type[ElasticJobError]]:
    """Return all errors of this package, from all modules that define one."""
    for path in sorted((ROOT / "aioelasticjob").rglob("*.py")):
        if re.search(r"^class \w+\(.*(Error|Setting|Failed)\b", path.read_text(), re.MULTILINE):
            import_module(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"))
    found, left = set[type[ElasticJobError]](), [ElasticJobError]
    while left:
        one = left.pop()
        left += one.__subclasses__()
        if one.__module__.startswith("aioelasticjob."):
            found.add(one)
    return found


CLASSES = {one.__name__: one for one in classes()}


def page(name: str) -> str:
    return read(f"docs/errors/{name}.md")


def printed(error: BaseException) -> str:
    """Return the last lines of an error's traceback."""
    return "".join(traceback.format_exception_only(error))


def section(nav: list[dict[str, Any]], title: str) -> Any:
    """Return a section of the navigation."""
    return next(part[title] for part in nav if title in part)


def test_each_class_has_a_page_and_each_page_has_a_class() -> None:
    assert {path.stem for path in (ROOT / "docs/errors").iterdir()} == CLASSES.keys()
    assert len(CLASSES) == len(classes()), "two classes of one name would share a page"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_page_shows_the_error_and_answers_the_readers_questions(name: str) -> None:
    assert page(name).startswith(f"# {name}\n\n```text\n")
    assert re.findall(r"^## (.+)$", page(name), re.MULTILINE) == QUESTIONS
    assert len(page(name).splitlines()) <= 40


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"ElasticJobError"}))
def test_the_text_shown_is_the_text_of_the_error(name: str) -> None:
    assert f"```text\n{printed(EXAMPLES[CLASSES[name]])}```\n" in page(name)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_what_is_printed_names_the_page(kind: type[ElasticJobError], capsys: pytest.CaptureFixture[str]) -> None:
    error = EXAMPLES[kind]
    print_error(error.with_page())
    names = ("", "") if kind in QUIET else (f"\ndocs: errors/{kind.__name__}\n", f" (docs: errors/{kind.__name__})\n")
    assert printed(error).endswith(names[0] or f"{error}\n")
    assert capsys.readouterr().err.endswith(names[1] or f"{' '.join(str(error).split())}\n")


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_pickle_names_the_page_once_too(kind: type[ElasticJobError]) -> None:
    error = EXAMPLES[kind]
    assert printed(pickle.loads(pickle.dumps(error))) == printed(error)


def test_a_class_of_another_package_has_the_page_of_its_base() -> None:
    class OfAnApplication(RegistryError):
        """A class that is not ours."""

    assert OfAnApplication("why").with_page() == "why (docs: errors/RegistryError)"


def test_the_list_has_each_error_once_below_its_base() -> None:
    entries = [(len(indent) // 4, name, link) for indent, name, link in _ENTRY.findall(read(LIST))]
    assert sorted(name for _, name, _ in entries) == sorted(CLASSES)
    assert all(name == link for _, name, link in entries)
    above = list[type[ElasticJobError]]()
    for depth, name, _ in entries:
        above[depth:] = [CLASSES[name]]
        base = above[depth - 1] if depth else ElasticJobError
        assert base in (CLASSES[name].__bases__[0], CLASSES[name]), f"{name} stands at another place than its class"


def test_the_navigation_has_the_pages_in_the_order_of_the_list() -> None:
    first, *groups = section(SITE["nav"], "Errors")
    assert first == {"All errors": "reference/errors.md"}
    pages = [path for group in groups for pages in group.values() for page in pages for path in page.values()]
    titles = re.findall(r"^## (.+)$", read(LIST), re.MULTILINE)
    assert [title for group in groups for title in group] == titles
    assert pages == [f"errors/{link}.md" for _, _, link in _ENTRY.findall(read(LIST))]


def test_the_tree_in_the_module_has_its_classes() -> None:
    tree = re.findall(r"^[│ ]*[├└]── (\w+)", module_of_errors.__doc__ or "", re.MULTILINE)
    own = [name for name, one in CLASSES.items() if one.__module__ == module_of_errors.__name__]
    assert sorted(["ElasticJobError", *tree]) == sorted(own)
