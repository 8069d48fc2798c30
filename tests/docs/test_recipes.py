"""Each program of the page "Recipes" runs as printed, in virtual time, and prints what stands below it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from aioelasticjob.testing import run
from tests.docs.pages import Block, blocks, execute, read

PAGE = "docs/how-to/recipes.md"
AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
PROGRAMS = blocks(PAGE, "python")
OUTPUTS = blocks(PAGE, "text")


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    """Let each program set up the log, without what programs of other tests have set up in this process."""
    loggers = logging.getLogger(), logging.getLogger("aioelasticjob")
    before = [(logger, logger.handlers.copy(), logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers[:] = [one for one in logger.handlers if type(one).__module__.startswith("_pytest")]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.level, logger.propagate = handlers, level, propagate


@pytest.mark.parametrize(("program", "output"), list(zip(PROGRAMS, OUTPUTS, strict=True)), ids=str)
def test_a_recipe_prints_what_stands_below_it(
    program: Block, output: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    run(execute(program)["main"], start=AT.timestamp())
    lines = [line for printed in capsys.readouterr() for line in printed.splitlines()]
    for pattern in output.text.splitlines():
        shown = re.compile(".*".join(map(re.escape, pattern.split("…"))))
        lines.remove(next((line for line in lines if shown.fullmatch(line)), pattern))
    assert lines == []


def test_each_recipe_is_a_whole_program_below_a_heading_of_its_own() -> None:
    assert len(re.findall(r"^## ", read(PAGE), re.MULTILINE)) == len(PROGRAMS)
    assert all("asyncio.run(main())" in program.text for program in PROGRAMS)
