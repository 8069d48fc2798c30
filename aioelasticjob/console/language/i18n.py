"""The console's sentences in English and in Chinese.  The English sentence is the key of the Chinese catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final

from aioelasticjob.console.language.messages import messages
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.observers.missed import Count

NAMES: Final = {"en": "English", "zh": "中文"}
"""The languages by code, each by its own name."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language of the console; call it with an English sentence to translate it."""

    code: str
    phrases: Mapping[str, str] = field(repr=False)

    def __call__(self, sentence: str, **values: object) -> str:
        """Return the sentence in this language with its ``{names}`` filled in; an unknown one stays English."""
        said = self.phrases.get(sentence, sentence)
        return said.format(**values) if values else said

    def message(self, text: str | None) -> str:
        """Return a sentence that the library has made in this language; one that is not known stays English."""
        return messages(self.code)(text or "")

    def error(self, error: Exception) -> str:
        """Return what an error says in this language."""
        text = str(error)
        if isinstance(error, InvalidSetting) and text.endswith(ending := f": {error.expected}"):
            colon = "：" if self.code == "zh" else ": "
            return f"{text.removesuffix(ending)}{colon}{self.message(error.expected)}"  # the value may hold anything
        return self.message(text)

    def count(self, number: int, noun: str) -> str:
        """Return a number with what it counts, such as "1 item" and "2 items"."""
        one, many = NOUNS[noun]
        return self(one if number == 1 else many, number=f"{number:,}")

    def counted(self, count: Count, noun: str) -> str:
        """Return a number that may be a lower bound, with what it counts."""
        return self._bounded(count, self.count(count.number, noun))

    def number(self, count: Count) -> str:
        """Return a number that may be a lower bound."""
        return self._bounded(count, f"{count.number:,}")

    def _bounded(self, count: Count, text: str) -> str:
        return self("at least {counted}", counted=text) if count.is_least else text


NOUNS: Final = {
    "item": ("{number} item", "{number} items"),
    "instance": ("{number} instance", "{number} instances"),
    "job": ("{number} job", "{number} jobs"),
    "run": ("{number} run", "{number} runs"),
    "missed moment": ("{number} missed moment", "{number} missed moments"),
    "failure": ("{number} failure", "{number} failures"),
    "time": ("once", "{number} times"),
    "alert": ("{number} alert", "{number} alerts"),
    "change": ("{number} change", "{number} changes"),
}
"""What is counted: a sentence for one of it and one for any other number."""


@cache
def language(code: str) -> Language:
    """Return a language by its code, English for one that is not spoken here."""
    if code not in NAMES or code == "en":
        return Language("en", {})
    text = files(__package__).joinpath("locale", f"{code}.json").read_text("utf-8")
    return Language(code, json.loads(text))


def choose(wanted: str | None, accepted: str) -> Language:
    """Return the language chosen on the page, else the one the browser likes most (``Accept-Language``)."""
    if wanted in NAMES:
        return language(wanted)
    ranked = sorted(map(_preference, accepted.split(",")[:20]), key=lambda one: -one[1])
    return language(next((code for code, weight in ranked if code in NAMES and weight > 0), "en"))


def _preference(entry: str) -> tuple[str, float]:
    tag, _, weight = entry.partition(";q=")
    try:
        return tag.strip().lower().split("-")[0], float(weight or 1)
    except ValueError:
        return "", 0.0
