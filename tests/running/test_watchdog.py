from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioelasticjob.limited_log import INTERVAL, MOST
from aioelasticjob.running import watchdog as module
from aioelasticjob.running.watchdog import watchdog
from aioelasticjob.testing import run
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
    assert until.wait(90)


def compute_in_c() -> None:
    """Use a processor and keep the interpreter's lock: no bytecode runs in here, as in a long ``re.match``."""
    next(filter((time.thread_time() + 1.2 * module.BLOCKED).__lt__, iter(time.thread_time, None)))


def stand_still(seconds: float) -> None:
    """Keep the interpreter's lock and use no processor, which is what a stopped process looks like from inside."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


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
    assert "the event loop has been blocked" in logged.texts[0]
    assert "a_handler_that_blocks" in logged.texts[0]
    assert [text.partition(";")[0] for text in logged.texts[1:]] == ["the event loop runs again"]


def test_a_loop_that_turns_is_left_alone(real_loop_kind: LoopKind, logged: Waiting) -> None:
    async def main() -> None:
        with watchdog():
            await asyncio.sleep(module.BLOCKED + 2 * module.BEAT)

    run_async(real_loop_kind, main)
    assert logged.texts == []


def test_the_thread_has_ended_when_the_block_is_left(real_loop_kind: LoopKind) -> None:
    async def main() -> bool:
        with watchdog():
            await asyncio.sleep(0)
        return any(thread.name == "aioelasticjob-watchdog" for thread in threading.enumerate())

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
        asyncio.run_coroutine_threadsafe(self._take(record.getMessage()), self.loop).result(90)


def test_a_log_handler_that_waits_for_the_loop_holds_the_loop_up_for_a_moment_only(real_loop_kind: LoopKind) -> None:
    async def main() -> tuple[float, list[str]]:
        handler = WaitingForLoop(asyncio.get_running_loop())
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

    seconds, (text,) = run_async(real_loop_kind, main)
    assert seconds < module.BLOCKED
    assert text.startswith("the event loop has been blocked for ")


def logged_while(hold_up: Callable[[], object], kind: LoopKind, logged: Waiting) -> list[str]:
    """Return what the watchdog says of what happens in the loop."""

    async def main() -> None:
        with watchdog():
            await asyncio.sleep(module.BEAT)  # the thread looks by now
            hold_up()
            while not logged.heard.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(2 * module.BEAT)

    run_async(kind, main)
    return logged.texts


def test_a_handler_that_keeps_the_interpreters_lock_is_named_afterwards(
    real_loop_kind: LoopKind, logged: Waiting
) -> None:
    blocked, goes_on = logged_while(compute_in_c, real_loop_kind, logged)
    assert blocked.startswith("code in the event loop kept the interpreter's lock for ")
    assert "compute_in_c" in blocked
    assert goes_on.startswith("the event loop runs again")


def test_a_process_that_was_stopped_blames_nobody(real_loop_kind: LoopKind, logged: Waiting) -> None:
    (message,) = logged_while(lambda: stand_still(1.5 * module.BLOCKED), real_loop_kind, logged)
    assert message.startswith("the whole process stood still")
    assert "in stand_still" in message


def test_a_process_that_was_stopped_while_its_loop_was_idle_shows_no_frames(
    real_loop_kind: LoopKind, logged: Waiting
) -> None:
    async def main() -> None:
        watch = module._Watch(asyncio.get_running_loop())

        def look() -> None:
            while module._are_of_users(watch._frames()):  # until the loop waits for this thread
                pass
            watch._held_up(3.0, 0.0, 0.0)

        await asyncio.to_thread(look)
        watch.stop()

    run_async(real_loop_kind, main)
    (message,) = logged.texts
    assert message.startswith("the whole process stood still for 3.0 s")
    assert message.endswith(module._IDLE)
    assert "\n" not in message


def test_a_thread_that_keeps_the_interpreters_lock_is_among_those_named(
    real_loop_kind: LoopKind, logged: Waiting
) -> None:
    def compute() -> None:
        compute_in_c()
        while not logged.texts:  # with three threads after the lock, the watchdog may come last
            pass

    thread = threading.Thread(target=compute, name="number-cruncher")
    (message,) = logged_while(thread.start, real_loop_kind, logged)
    thread.join()
    assert message.startswith("a thread kept the interpreter's lock for ")
    assert "thread number-cruncher:\n" in message
    assert "in compute" in message
    assert "aioelasticjob-watchdog" not in message


def test_where_a_threads_time_cannot_be_told_the_loop_is_among_those_named(
    logged: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    (message,) = logged_while(compute_in_c, "asyncio", logged)
    assert message.startswith("a thread kept the interpreter's lock for ")
    assert "compute_in_c" in message


def test_a_blocked_loop_does_not_go_on_because_the_process_does(real_loop_kind: LoopKind, logged: Waiting) -> None:
    async def main() -> None:
        with watchdog():
            a_handler_that_blocks(logged.heard)
            logged.heard.clear()
            stand_still(1.5 * module.BLOCKED)
            a_handler_that_blocks(logged.heard)
            logged.heard.clear()
            assert not logged.heard.wait(2 * module.BEAT)  # for as long as the loop stands

    run_async(real_loop_kind, main)
    assert [text.partition(" for ")[0] for text in logged.texts] == [
        "the event loop has been blocked",
        "the whole process stood still",
    ]


def test_a_loop_whose_thread_has_ended_is_reported_as_that() -> None:
    async def main() -> module._Watch:
        return module._Watch(asyncio.get_running_loop())

    with ThreadPoolExecutor(1) as pool:
        watch = pool.submit(asyncio.run, main()).result()
    while watch._spent()[0]:  # the clock goes a moment after the thread
        pass
    assert watch._stack() == "(the thread has ended)"


class SimulatedThread:
    """In the place of the watchdog's time and of its wait: the loop is blocked for a second, again and again."""

    def __init__(self, watch: module._Watch, blocks: int) -> None:
        self.now, self._watch, self._end = 0.0, watch, 2.0 * blocks
        watch._alive = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
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
        monkeypatch.setattr(watch, "_spent", lambda: (0.0, 0.0))
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
