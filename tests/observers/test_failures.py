"""A failure as text tells what Python's own does, is bounded, and costs little when it comes again."""

from __future__ import annotations

import traceback

import pytest

from aioelasticjob.errors import NodeMissing
from aioelasticjob.observers import failures
from aioelasticjob.observers.failures import (
    MAX_CAUSE_CHARACTERS,
    MAX_STACK_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cause,
    stack,
)


def deep(levels: int, text: str = "at the bottom") -> None:
    if levels == 0:
        raise ValueError(text)
    deep(levels - 1, text)


def caught(levels: int = 3, text: str = "at the bottom") -> ValueError:
    with pytest.raises(ValueError, match=r".*") as failure:
        deep(levels, text)
    return failure.value


def plain(text: str) -> list[str]:
    """Return the lines of a stack without the marks below them, which Python may draw or not."""
    return [line for line in text.splitlines() if not line.strip().startswith("^") and set(line.strip()) != {"~", "^"}]


def test_the_stack_is_pythons() -> None:
    error = caught()
    assert plain(stack(error)) == plain("".join(traceback.format_exception(error)))
    assert cause(error) == "ValueError: at the bottom"


def test_the_stack_names_the_page_of_an_error_and_the_line_does_not() -> None:
    error = NodeMissing("/report")
    error.add_note("and a note")
    assert stack(error).endswith("no node /report\ndocs: errors/NodeMissing\nand a note")
    assert cause(error) == "aioelasticjob.errors.NodeMissing: no node /report and a note"


def test_what_it_came_from_comes_first() -> None:
    def chained() -> None:
        try:
            deep(1)
        except ValueError as error:
            try:
                raise KeyError("second")
            except KeyError:
                raise RuntimeError("third") from error

    with pytest.raises(RuntimeError) as failure:
        chained()
    text = stack(failure.value)
    assert "second" not in text  # as in Python, where a cause is named its context is not
    assert text.index("at the bottom") < text.index("direct cause") < text.index("RuntimeError: third")


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert stack(one).count("ValueError: one") == 1


def test_a_group_names_its_members() -> None:
    text = stack(ExceptionGroup("several", [ValueError("one"), OSError("other")]))
    assert "1. ValueError: one" in text
    assert "2. OSError: other" in text


def test_lengths_are_bounded_and_the_innermost_frames_are_kept() -> None:
    error = caught(800, "x" * 50_000)
    assert len(cause(error)) <= MAX_CAUSE_CHARACTERS
    assert len(stack(error)) <= MAX_STACK_CHARACTERS
    assert stack(error).endswith("x" * 100)
    assert "raise ValueError(text)" in stack(caught(800))


def test_a_long_text_loses_its_middle_and_not_its_stack() -> None:
    text = stack(caught(3, "begins " + "x" * 50_000 + " ends"))
    assert len(text) < 2 * MAX_TEXT_CHARACTERS
    assert "raise ValueError(text)" in text
    assert "ValueError: begins xxx" in text
    assert text.endswith("xxx ends")
    just = stack(caught(3, "x" * (MAX_TEXT_CHARACTERS - len("ValueError: "))))
    assert "…" not in just


def test_like_failures_are_formatted_once() -> None:
    failures._lines.cache_clear()
    for n in range(100):
        assert f"number {n}" in stack(caught(3, f"number {n}"))
    assert failures._lines.cache_info().misses == 1
