"""A failure as text: one line for lists, and its stack.  The text is cached, so many equal failures cost little."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, TracebackType

from aioelasticjob.errors import ElasticJobError, error_text, stack_text
from aioelasticjob.ground.credentials import hide_in_text
from aioelasticjob.ground.encoding import encodable_text

MAX_CAUSE_CHARACTERS = 4_000
"""Characters that the one line may have."""
MAX_STACK_CHARACTERS = 16_000
"""Characters that the stack may have; a longer one loses its outermost frames, since the innermost ones tell most."""
MAX_TEXT_CHARACTERS = 6_000
"""Characters that the text of one error may have; the middle of a longer one is left out, so that its stack stays."""
MAX_FRAMES = 60
"""Frames shown of each of the errors in a chain."""
MAX_CHAINED_ERRORS = 10
"""Errors shown of a chain."""

MAX_REASON_BYTES = 500
"""Bytes that a reason may have: it stands in the record of each item."""

Frames = tuple[tuple[CodeType, int], ...]


def cause(error: BaseException) -> str:
    """Return the error in one line, as Python would, without the page that its stack names: lists would repeat it."""
    lines = stack_text(error, whole=False)
    if isinstance(error, ElasticJobError):
        lines = lines.replace(f"\n{error.reference}\n", "\n")
    return " ".join(lines.split())[:MAX_CAUSE_CHARACTERS]


def reason(error: BaseException) -> str:
    """Return an error's class and the first line of its text, as a record has it.

    Control characters and credentials are left out, and a long text is cut at a character.
    """
    lines = error_text(error).strip().splitlines() or [""]
    line = hide_in_text(encodable_text(" ".join(lines[0].split())))
    plain = "".join(mark for mark in line if mark.isprintable())
    return plain.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore")


def stack(error: BaseException) -> str:
    """Return the error with its stack, after the errors that caused it, the first cause first."""
    texts = [_text_of(one, link) for one, link in _chain(error)]
    text = "\n".join(reversed(texts))
    if len(text) <= MAX_STACK_CHARACTERS:
        return text
    return "…" + text[1 - MAX_STACK_CHARACTERS :]


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yield the error and its causes, each with the sentence that connects it with the one before."""
    link = ""
    seen = set[int]()
    following = error
    while id(following) not in seen and len(seen) < MAX_CHAINED_ERRORS:
        yield following, link
        seen.add(id(following))
        if following.__cause__ is not None:
            following = following.__cause__
            link = "\nThe above exception was the direct cause of the following one:\n"
        elif following.__context__ is not None and not following.__suppress_context__:
            following = following.__context__
            link = "\nDuring handling of the above exception, another one occurred:\n"
        else:
            return


def _text_of(error: BaseException, link: str) -> str:
    inner = ""
    if isinstance(error, BaseExceptionGroup):
        shown = error.exceptions[:MAX_CHAINED_ERRORS]
        inner = "".join(f"\n  {number}. {cause(one)}" for number, one in enumerate(shown, 1))
    all_frames = tuple(_frames(error.__traceback__))
    frames = all_frames[-MAX_FRAMES:]
    lines = f"Traceback (most recent call last):\n{_lines(frames)}" if frames else ""
    text = stack_text(error, whole=False).rstrip()
    if len(text) > MAX_TEXT_CHARACTERS:
        half = MAX_TEXT_CHARACTERS // 2
        text = f"{text[:half]}…{text[1 - half :]}"
    return f"{lines}{text}{inner}{link}"


def _frames(link: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while link is not None:
        yield link.tb_frame.f_code, link.tb_lineno
        link = link.tb_next


@lru_cache(256)
def _lines(frames: Frames) -> str:
    """Return the text of a stack; it is cached, since reading the sources is slow and equal failures are common."""
    summaries = [traceback.FrameSummary(code.co_filename, line, code.co_qualname) for code, line in frames]
    return "".join(traceback.StackSummary.from_list(summaries).format())
