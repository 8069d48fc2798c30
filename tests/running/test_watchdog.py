from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from aioelasticjob.running import watchdog as module
from aioelasticjob.running.watchdog import watchdog
from tests.support.loops import LoopKind, run_async


class Waiting(logging.Handler):
    """Tells another thread that something was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.heard.set()


def a_handler_that_blocks(until: threading.Event) -> None:
    assert until.wait(10)


@pytest.fixture
def logged() -> Iterator[Waiting]:
    handler = Waiting()
    module.log.addHandler(handler)
    yield handler
    module.log.removeHandler(handler)


def test_a_blocked_loop_is_named_with_its_stack_while_it_is_blocked(real_loop_kind: LoopKind, logged: Waiting) -> None:
    async def main() -> float:
        with watchdog():
            began = time.monotonic()
            a_handler_that_blocks(logged.heard)
            noticed = time.monotonic() - began
            logged.heard.clear()
            while not logged.heard.is_set():
                await asyncio.sleep(0.01)  # the loop turns, which is what ends the block
            return noticed

    run_async(real_loop_kind, main)
    assert "the event loop is blocked" in logged.texts[0]
    assert "a_handler_that_blocks" in logged.texts[0]
    assert logged.texts[1:] == ["the event loop goes on"]


def test_a_loop_that_turns_is_left_alone(real_loop_kind: LoopKind, logged: Waiting) -> None:
    async def main() -> None:
        with watchdog():
            await asyncio.sleep(module.BLOCKED + 2 * module.BEAT)

    run_async(real_loop_kind, main)
    assert logged.texts == []
