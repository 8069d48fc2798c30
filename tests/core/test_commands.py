"""Commands and reports are plain values.  The type checker proves that each is performed and that none is changed."""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_args

import pytest

from aioelasticjob.core.commands import AnyReport, Command

COMMANDS, REPORTS = get_args(Command), get_args(AnyReport)


@pytest.mark.parametrize("kind", [*COMMANDS, *REPORTS])
def test_a_command_is_a_value(kind: type) -> None:
    made, again = (kind(*dataclasses.fields(kind)) for _ in range(2))  # any values will do
    assert made == again
    assert hash(made) == hash(again)
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_says_what_its_answer_is(kind: type) -> None:
    said = inspect.getdoc(kind) or ""
    assert "The answer is " in said or said.endswith("It has no answer.")


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_has_no_answer(kind: type) -> None:
    assert kind not in COMMANDS
    assert "answer" not in (inspect.getdoc(kind) or "")
