from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from aioelasticjob.ground.limited_log import INTERVAL, MOST
from aioelasticjob.host import watchdog as module
from aioelasticjob.host.watchdog import watchdog
from aioelasticjob.testing import run
from tests.support.loops import LoopKind, run_async
from tests.support.processes import TIMEOUT

ALL_THREADS = "and all threads of this process with it"


def not_held_up(record: logging.LogRecord) -> bool:
    """Return whether a line is not about the whole process, which a busy machine may hold up at any time."""
    return ALL_THREADS not in record.getMessage()


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
    assert until.wait(90)


@pytest.fixture
def logged() -> Iterator[Waiting]:
    handler = Waiting()
    module.log.addHandler(handler)
    yield handler
    module.log.removeHandler(handler)


def test_a_blocked_loop_is_named_with_its_stack_while_it_is_blocked(real_loop_kind: LoopKind, logged: Waiting) -> None:
    async def main() -> None:
        with watchdog():
            a_handler_that_blocks(logged.heard)
            logged.heard.clear()
            while not logged.heard.is_set():
                await asyncio.sleep(0.01)  # the loop turns, which is what ends the block

    logged.addFilter(not_held_up)
    run_async(real_loop_kind, main)
    assert "the event loop has been blocked" in logged.texts[0]
    assert "a_handler_that_blocks" in logged.texts[0]
    assert logged.texts[1].partition(";")[0] == "the event loop runs again"


def test_the_thread_has_ended_when_the_block_is_left(real_loop_kind: LoopKind, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> bool:
        with watchdog():
            await asyncio.sleep(0)
        return any(thread.name == "aioelasticjob-watchdog" for thread in threading.enumerate())

    monkeypatch.setattr(module, "END_TIMEOUT", TIMEOUT)
    assert not any(run_async(real_loop_kind, main) for _ in range(20))


class WaitingForLoop(logging.Handler):
    """Hands each record to the event loop, and waits until the loop has taken it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop, self.called, self.texts = loop, threading.Event(), list[str]()

    async def _take(self, text: str) -> None:
        self.texts.append(text)

    def emit(self, record: logging.LogRecord) -> None:
        self.called.set()
        asyncio.run_coroutine_threadsafe(self._take(record.getMessage()), self.loop).result(TIMEOUT)


def test_a_log_handler_that_waits_for_the_loop_holds_the_loop_up_for_a_moment_only(real_loop_kind: LoopKind) -> None:
    async def main() -> tuple[float, list[str]]:
        handler = WaitingForLoop(asyncio.get_running_loop())
        handler.addFilter(not_held_up)
        module.log.addHandler(handler)
        try:
            with watchdog():
                a_handler_that_blocks(handler.called)
                began = time.monotonic()
            seconds = time.monotonic() - began
            while not handler.texts:
                await asyncio.sleep(0)
        finally:
            module.log.removeHandler(handler)
        return seconds, handler.texts

    seconds, texts = run_async(real_loop_kind, main)
    assert seconds < TIMEOUT, "it has waited for as long as the handler"
    assert module.END_TIMEOUT < module.BLOCKED
    assert texts[0].startswith("the event loop has been blocked for ")


async def look(monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step]) -> None:
    """Have the watchdog look once after each step, in the place of time and of its wait."""
    watch = module._Watch(asyncio.get_running_loop())
    thread = SteppedThread(watch, steps)
    monkeypatch.setattr(watch, "_stopped", thread)
    monkeypatch.setattr(module, "time", thread)
    watch.look()
    watch._limited_log.close()


@dataclass(frozen=True)
class Step:
    """What passes between two looks: seconds, and whether the loop has shown that it is not blocked."""

    seconds: float
    beats: bool = True


class SteppedThread:
    def __init__(self, watch: module._Watch, steps: Sequence[Step]) -> None:
        self.now = 0.0
        self._watch = watch
        self._steps = iter(steps)
        watch._alive = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, _seconds: float) -> bool:
        step = next(self._steps, None)
        if step is None:
            return True
        self.now += step.seconds
        if step.beats:
            self._watch._alive = self.now
        return False


TURNS = Step(0.1)
STANDS = Step(0.1, beats=False)
HELD_UP_FOR_THREE_SECONDS = Step(3, beats=False)
ALL_WITH_IT = f"was blocked for 3.0 s, {ALL_THREADS}"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([TURNS] * 20, []),
        ([TURNS, *[STANDS] * 6, TURNS], []),
        ([TURNS, *[STANDS] * 9], ["has been blocked for 0.7 s"]),
        ([TURNS, *[STANDS] * 20, TURNS], ["has been blocked for 0.7 s", "runs again; it was blocked for 2.1 s"]),
        ([TURNS, HELD_UP_FOR_THREE_SECONDS, TURNS, TURNS], [ALL_WITH_IT]),
        (
            [TURNS, HELD_UP_FOR_THREE_SECONDS, *[STANDS] * 9, TURNS],
            [
                "was blocked for 3.0 s, and all threads",
                "has been blocked for 0.7 s",
                "runs again; it was blocked for 1.0 s",
            ],
        ),
        (
            [TURNS, *[STANDS] * 9, HELD_UP_FOR_THREE_SECONDS, *[STANDS] * 9, TURNS],
            [
                "has been blocked for 0.7 s",
                "was blocked for 3.0 s, and all threads",
                "runs again; it was blocked for 4.9 s",
            ],
        ),
    ],
)
def test_what_is_said_follows_from_what_passes_between_two_looks(
    logged: Waiting, monkeypatch: pytest.MonkeyPatch, steps: list[Step], said: list[str]
) -> None:
    run(lambda: look(monkeypatch, steps))
    assert len(logged.texts) == len(said)
    for text, expected in zip(logged.texts, said, strict=True):
        assert text.startswith(f"the event loop {expected}")


def test_after_a_hold_up_the_log_says_what_can_be_known_and_shows_the_users_code_of_all_threads(
    logged: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def number_cruncher() -> None:
        begun.set()
        may_end.wait(90)

    thread = threading.Thread(target=number_cruncher, name="number-cruncher")
    thread.start()
    assert begun.wait(90)
    try:
        run(lambda: look(monkeypatch, [HELD_UP_FOR_THREE_SECONDS]))
    finally:
        may_end.set()
        thread.join()
    (text,) = logged.texts
    assert module.HELD_UP in text
    assert "thread number-cruncher:\n" in text
    assert "in number_cruncher" in text
    assert "aioelasticjob-watchdog" not in text


def test_after_a_hold_up_a_loop_that_ran_no_code_of_users_shows_no_frames(
    real_loop_kind: LoopKind, logged: Waiting
) -> None:
    async def main() -> None:
        watch = module._Watch(asyncio.get_running_loop())

        def held_up() -> None:
            while module._are_of_users(watch._frames()):  # until the loop waits for this thread
                pass
            watch._log_held_up(3.0)

        await asyncio.to_thread(held_up)
        watch.stop()

    run_async(real_loop_kind, main)
    (message,) = logged.texts
    assert message.endswith(module.HELD_UP)
    assert "\n" not in message


def test_a_loop_whose_thread_has_ended_is_reported_as_that() -> None:
    async def main() -> module._Watch:
        return module._Watch(asyncio.get_running_loop())

    with ThreadPoolExecutor(1) as pool:
        watch = pool.submit(asyncio.run, main()).result()
    assert watch._stack() == "(the thread has ended)"


class SimulatedThread:
    """In the place of the watchdog's time and of its wait: the loop is blocked for a second, again and again."""

    def __init__(self, watch: module._Watch, blocks: int) -> None:
        self.now, self._watch, self._end = 0.0, watch, 2.0 * blocks
        watch._alive = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now = round(self.now + seconds, 3)
        if self.now % 2 < 1:
            self._watch._alive = self.now
        return self.now >= self._end


def test_a_loop_that_is_blocked_again_and_again_fills_no_log_and_its_newest_state_is_logged(
    logged: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        watch = module._Watch(asyncio.get_running_loop())
        thread = SimulatedThread(watch, 50)
        monkeypatch.setattr(watch, "_stopped", thread)
        monkeypatch.setattr(module, "time", thread)
        watch.look()
        assert len(logged.texts) == MOST
        await asyncio.sleep(INTERVAL + 1)
        assert not watch._limited_log._intervals

    run(main)
    blocked, again = logged.texts[:MOST:2], logged.texts[1:MOST:2]
    assert all(text.startswith("the event loop has been blocked for 0.7 s") for text in blocked)
    assert all(text.startswith("the event loop runs again; it was blocked for ") for text in again)
    *_, count = logged.texts
    assert count.startswith(f"{2 * 50 - MOST - 1} more lines were left out: the event loop was blocked; the newest: ")
