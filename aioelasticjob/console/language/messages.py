"""Sentences that the library makes, such as errors and results of actions, in the languages of the console.

The library speaks English, also in the console's audit log.  The catalogue has each sentence with named blanks
for its values, which are copied.  Blanks called ``text``, ``text2`` … hold sentences or parts of them, which are
translated, too; one called ``count`` holds a number.  A sentence that the catalogue does not have stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

MAX_CHARACTERS: Final = 500
"""Characters of a sentence that is translated; a longer one holds what somebody has typed."""
BLANK: Final = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
_WORDS: Final = re.compile(r"[\u4e00-\u9fff]")
_SETTING: Final = re.compile(
    r"""(?P<start>[^='"]+ = (?:b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\{.*?\}|\[.*?\]"""
    r"""|-?\d+(?:, -?\d+)+|[^\s'":{\[]+)): (?P<text>.+)""",
    re.DOTALL,
)
"""An error of a setting: its name and its value, which may hold anything, and what is wrong."""
PARTS: Final = "; "
"""Stands between the parts of some sentences."""


class Messages:
    """The catalogue of one language."""

    def __init__(self, phrases: Mapping[str, str]) -> None:
        self.phrases = phrases
        self._exact = dict[str, str]()
        with_blanks = list[str]()
        for english, said in phrases.items():
            if BLANK.search(english):
                with_blanks.append(english)
            else:
                self._exact[english.format()] = said.format()
        with_blanks.sort(
            key=_length_without_blanks, reverse=True
        )  # the one with the most text of its own is tried first
        self._patterns = [(_pattern(english), phrases[english]) for english in with_blanks]

    def __call__(self, text: str, depth: int = 3) -> str:
        """Return a sentence in this language."""
        if not text or len(text) > MAX_CHARACTERS or text.isdecimal():
            return text
        if text in self._exact:
            return self._exact[text]
        setting = _SETTING.fullmatch(text) if depth else None
        if setting is not None:
            wrong = self(setting["text"], depth - 1)
            if wrong != setting["text"]:
                return f"{setting['start']}：{wrong}"
        for pattern, said in self._patterns:
            found = pattern.fullmatch(text)
            if found is None:
                continue
            blanks = found.groupdict()
            texts = {name: value for name, value in blanks.items() if name.startswith("text")}
            translated = texts
            if depth:
                translated = {name: self(value, depth - 1) for name, value in texts.items()}
            has_own_words = _WORDS.search(BLANK.sub("", said))  # one of blanks only is used if a blank was translated
            if has_own_words or translated != texts:
                return said.format(**blanks | translated)
        parts = text.split(PARTS)
        if len(parts) == 1 or not depth:
            return text
        said_parts = [self(part, depth - 1) for part in parts]
        return text if said_parts == parts else "；".join(said_parts)


def _length_without_blanks(english: str) -> int:
    return len(BLANK.sub("", english))


def _pattern(english: str) -> re.Pattern[str]:
    """Return what matches a sentence with its blanks filled in; only a blank for text may be empty."""
    found = ""
    for index, part in enumerate(BLANK.split(english)):
        if index % 2:  # the name of a blank; the texts between blanks have even numbers
            held = ".+?"
            if part.startswith("text"):
                held = ".*?"
            elif part == "count":
                held = r"\d[\d,]*"
            found += f"(?P<{part}>{held})"
        else:
            found += re.escape(part.format())
    return re.compile(found, re.DOTALL)


@cache
def messages(code: str) -> Messages:
    """Return the catalogue of a language; that of English is empty."""
    if code == "en":
        return Messages({})
    text = files(__package__).joinpath("locale", f"{code}-messages.json").read_text("utf-8")
    return Messages(json.loads(text))
