"""Nothing the console says is left untranslated, and what a browser prefers is what it gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.actions.job_actions import ACTIONS as JOB_ACTIONS
from aioelasticjob.console.actions.job_actions import BULK
from aioelasticjob.console.drawing.sparkline import _TONES
from aioelasticjob.console.language.i18n import NOUNS, choose, language
from aioelasticjob.console.pages import history, job
from aioelasticjob.console.pages.fields import SECTIONS, field_of
from aioelasticjob.console.users.permissions import MEANINGS, Permission, Role
from aioelasticjob.console.watching.health import _REASONS_IN_PLACE
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.operations import SERVER_ACTIONS
from aioelasticjob.operations.open_runs import ENDED
from aioelasticjob.operations.settings import UNCHANGEABLE

CONSOLE = Path(job.__file__).parents[1]
SAID = re.compile(r"""(?:\b_|\btranslate)\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
STATES = (
    "running",
    "waiting",
    "assigning",
    "switched off",
    "nobody there",
    "nobody able",
    "clock differs",
    "finished",
    "never fires",
    "partly off",
    "faulty",
    "foreign",
    "restarting",
)
NO_OUTCOMES = ("nothing was run", "nothing yet")
REQUEST_STATES = ("planned", "waiting", "running", "paused", "cancelled", "expired", "done", "unknown", "given up")
ACTIONS = re.compile(r"""(?:\baudited\(|_entry\(request, |AuditEntry\([^\n"]*)"([a-z ]+)\"""")
CATALOGUE = json.loads((CONSOLE / "language" / "locale" / "zh.json").read_text())


def _written() -> set[str]:
    """Return the sentences that templates and code spell out."""
    files = [*CONSOLE.rglob("*.html"), *CONSOLE.rglob("*.py")]
    return {found[1] or found[2] for file in files for found in SAID.finditer(file.read_text())}


def _made() -> Iterator[str]:
    """Yield the words that come out of values."""
    yield from STATES
    yield ENDED
    yield from _REASONS_IN_PLACE
    yield from (sentence for noun in NOUNS.values() for sentence in noun)
    attention = (CONSOLE.parent / "operations" / "attention.py").read_text()
    yield from re.findall(r'(?:Reason\("[^"]*", |sentence = )"([^"]+)"', attention)
    yield from (*Permission, *MEANINGS.values())
    yield from (*Role, *FireSource, *Outcome, *history.OUTCOMES, *history.STATES.values(), *_TONES)
    for action in JOB_ACTIONS.values():
        yield from (action.label, *action.asks, *(one.label for one in action.inputs))
        yield from (one.name for one in action.inputs if action.plan)  # the question names them
        yield from filter(None, [action.warning])
    yield from (words for action in SERVER_ACTIONS.values() for words in (action.label, action.outcome))
    yield from JOB_ACTIONS
    yield from BULK.values()
    yield from (*REQUEST_STATES, *NO_OUTCOMES)
    yield from (f"{name} server" for name in SERVER_ACTIONS)
    yield from (*(section.title for section in SECTIONS), "automatic", "yes", "no")
    for name in JobConfig.model_fields.keys() - UNCHANGEABLE.keys():
        field = field_of(JobConfig(job_name="job"), name)
        yield field.label
        yield field.help
        yield from (
            choice for choice in field.choices if field.kind == "choice" and choice not in ("", "true", "false")
        )
    for file in CONSOLE.rglob("*.py"):
        yield from ACTIONS.findall(file.read_text())


def test_the_chinese_catalogue_has_every_sentence() -> None:
    assert sorted((_written() | set(_made())) - CATALOGUE.keys()) == []


def test_a_translation_has_the_same_blanks_to_fill_in() -> None:
    def blanks(text: str) -> set[str]:
        return set(re.findall(r"\{\w+\}", text))

    assert all(blanks(sentence) == blanks(said) for sentence, said in CATALOGUE.items())


def test_only_words_that_are_the_same_in_both_languages_are_left_as_they_are() -> None:
    assert [sentence for sentence, said in CATALOGUE.items() if not re.search(r"[一-鿿]", said)] == []


@pytest.mark.parametrize(
    ("wanted", "accepted", "code"),
    [
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "en-GB,en;q=0.9,zh;q=0.5", "en"),
        (None, "de;q=1, zh;q=0.4, en;q=0.3", "zh"),
        (None, "fr, *;q=0.1", "en"),
        (None, "zh;q=0", "en"),
        (None, "zh;q=nonsense", "en"),
        (None, "", "en"),
        ("zh", "en", "zh"),
        ("../../etc/passwd", "en", "en"),
    ],
)
def test_the_language_is_the_one_chosen_else_the_one_the_browser_likes_most(
    wanted: str | None, accepted: str, code: str
) -> None:
    assert choose(wanted, accepted).code == code


def test_a_sentence_that_is_not_in_the_catalogue_stays_english() -> None:
    assert language("zh")("Not in {any} catalogue", any="one") == "Not in one catalogue"
