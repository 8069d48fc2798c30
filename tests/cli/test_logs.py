"""A log line says when, how bad, what, and the fields that the event carries."""

import logging
import re

import pytest

from aioelasticjob.cli import logs


def formatted(message: str, *arguments: object, error: BaseException | None = None, **fields: object) -> str:
    about = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("aioelasticjob.x", logging.WARNING, "x.py", 1, message, arguments, about)
    vars(record).update(fields)
    return logs.FieldFormatter().format(record)


def test_a_line_ends_with_the_fields_of_the_event() -> None:
    line = formatted("items assigned to %s", "a", job="billing", items=3)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING items assigned to a  job=billing items=3", line)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "x=''"),
        ("two words", "x='two words'"),
        ("a=b", "x='a=b'"),
        ("1\n2", r"x='1\n2'"),
        ((1, 2), "x=1,2"),
        (["a", "b"], "x=a,b"),
        (None, "x=None"),
        (0.25, "x=0.25"),
    ],
)
def test_values_are_shown_so_that_it_is_clear_where_they_end(value: object, shown: str) -> None:
    assert formatted("m", x=value).endswith(f"m  {shown}")


def test_an_event_without_fields_ends_with_its_message() -> None:
    assert formatted("registry lost").endswith("WARNING registry lost")


def test_a_message_of_several_lines_becomes_one() -> None:
    assert formatted("a\nb").endswith("a ⏎ b")


def test_a_traceback_follows_its_line() -> None:
    lines = formatted("item failed", error=ValueError("oops"), item=1).splitlines()
    assert lines[0].endswith("item failed  item=1")
    assert lines[-1] == "ValueError: oops"


def test_less_than_the_level_asked_for_is_not_logged(
    root_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(logs.LogLevel.WARNING)
    logging.getLogger("aioelasticjob.x").info("quiet")
    logging.getLogger("aioelasticjob.x").warning("loud", extra={"job": "a"})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith("loud  job=a\n")
