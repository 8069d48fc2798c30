"""The door alone: what passes, what becomes an Exception, and what it tidies up in our task."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aioelasticjob.engine.cancellation import HandlerScope
from aioelasticjob.errors import NotAnException, error_text
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.testing import run
from tests.support.loops import LoopKind, run_async


class Panic(BaseException):
    """What PyO3 raises when Rust panics."""


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise Panic


async def caught(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    """Return what comes out of the door, and see to it that the task can go on afterwards."""
    try:
        async with UserCode("the handler"):
            await call()
    except BaseException as error:
        return error
    return None


def came_out(raised: BaseException) -> BaseException | None:
    async def call() -> None:
        raise raised

    return run(lambda: caught(call))


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (Panic("index out of bounds"), "the handler raised Panic: index out of bounds"),
        (SystemExit(3), "the handler raised SystemExit: 3"),
        (asyncio.CancelledError(), "the handler was cancelled from within, not by us"),
        (BaseExceptionGroup("several", [Panic(), KeyError()]), "the handler raised BaseExceptionGroup: several"),
        (BaseExceptionGroup("closed", [GeneratorExit()]), "the handler raised BaseExceptionGroup: closed"),
        (GeneratorExit(), "the handler raised GeneratorExit"),
    ],
)
def test_what_is_no_exception_becomes_one(raised: BaseException, says: str) -> None:
    error = came_out(raised)
    assert isinstance(error, NotAnException)
    assert error.__cause__ is raised
    assert str(error).startswith(says)


@pytest.mark.parametrize("raised", [ValueError("x"), ExceptionGroup("x", [KeyError()]), Mute()])
def test_an_exception_comes_out_as_it_is(raised: Exception) -> None:
    assert came_out(raised) is raised


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), BaseExceptionGroup("x", [Panic(), KeyboardInterrupt()])])
def test_an_interrupt_passes(raised: BaseException) -> None:
    with pytest.raises(KeyboardInterrupt), UserCode("the strategy"):
        raise raised


def test_a_coroutine_that_is_closed_is_closed() -> None:
    async def call() -> None:
        async with UserCode("the handler"):
            await anyio.sleep_forever()

    async def main() -> None:
        coroutine = call()
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        coroutine.close()
        task.cancel()
        with pytest.raises(RuntimeError, match="already awaited"):
            await task

    run(main)


def test_without_a_loop_it_is_the_same() -> None:
    with pytest.raises(NotAnException, match="the strategy raised Panic"), UserCode("the strategy"):
        raise Panic


@pytest.mark.parametrize("wrapped", [False, True])
def test_our_own_cancellation_passes_even_as_a_group(wrapped: bool) -> None:
    async def call() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError as error:
            if wrapped:
                raise BaseExceptionGroup("theirs", [error]) from None
            raise

    async def main() -> None:
        with anyio.move_on_after(1) as scope:
            async with UserCode("the handler"):
                await call()
        assert scope.cancelled_caught

    run(main)


def test_our_cancellation_passes_though_it_is_held_back_behind_a_shield() -> None:
    async def main() -> None:
        with anyio.move_on_after(1) as scope, anyio.CancelScope() as held:
            async with UserCode("the handler"):
                try:
                    await anyio.sleep_forever()
                finally:
                    held.shield = True
        assert scope.cancelled_caught

    run(main)


def test_what_fails_while_we_cancel_it_has_failed() -> None:
    async def call() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise Panic

    async def main() -> None:
        with anyio.move_on_after(1):
            assert isinstance(await caught(call), NotAnException)

    run(main)


async def cancel_itself_and_wait() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep(1)


async def cancel_itself_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_itself_and_fail() -> None:
    await cancel_itself_and_return()
    raise KeyError("x")


async def leave_a_scope_behind() -> None:
    anyio.CancelScope().__enter__()


async def leave_a_cancelled_scope_behind() -> None:
    scope = anyio.CancelScope()
    scope.__enter__()
    scope.cancel()
    await anyio.sleep(1)


async def leave_an_open_group_behind() -> None:
    await anyio.create_task_group().__aenter__()
    await anyio.create_task_group().__aenter__()


async def await_what_was_cancelled() -> None:
    task = asyncio.ensure_future(anyio.sleep(1))
    task.cancel()
    await task


@pytest.mark.parametrize(
    "call",
    [
        cancel_itself_and_wait,
        cancel_itself_and_return,
        cancel_itself_and_fail,
        leave_a_scope_behind,
        leave_a_cancelled_scope_behind,
        leave_an_open_group_behind,
        await_what_was_cancelled,
    ],
)
def test_what_a_call_leaves_behind_in_our_task_is_tidied_up(call: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.CancelScope() as ours:
            for _ in range(2):
                error = await caught(call)
                assert error is None or isinstance(error, Exception)
                await anyio.sleep(1)
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
        assert not ours.cancelled_caught
        with anyio.move_on_after(1) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    run(main)


def test_an_error_without_a_text_has_words_all_the_same() -> None:
    assert error_text(Mute()) == "Mute: (its text cannot be had: __str__ failed)"
    assert error_text(KeyError("x")) == "KeyError: 'x'"
    assert error_text(ValueError()) == "ValueError"
    assert str(NotAnException("the handler", Panic(), is_cancelled=False)) == "the handler raised Panic"


def test_scopes_around_ours_stay_open_though_the_call_has_left_ours() -> None:
    async def main() -> None:
        with anyio.CancelScope() as outer:
            inner = anyio.CancelScope()
            inner.__enter__()
            async with UserCode("the provider"):
                inner.__exit__(None, None, None)
            assert not outer.cancel_called
            await anyio.sleep(1)

    run(main)


def fail() -> None:
    raise ValueError


def exit_with_a_text_that_cannot_be_written() -> None:
    sys.stderr.close()
    sys.exit("no more work")


@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (lambda: sys.exit(7), 7, ""),
        (sys.exit, 0, ""),
        (lambda: sys.exit("no more work"), 1, "no more work"),
        (exit_with_a_text_that_cannot_be_written, 1, ""),
        (fail, 1, "ValueError"),
        (lambda: None, 1, "has to end itself"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_that_a_call_has_made_ends_there_and_does_not_go_on_with_our_event_loop(
    real_loop_kind: LoopKind, end: Callable[[], None], code: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> int:
        child = 0
        try:
            async with UserCode("the handler"):
                with HandlerScope(None):
                    child = os.fork()
                    if not child:
                        logging.getLogger("aioelasticjob").addHandler(logging.StreamHandler())
                        end()
        finally:
            if not child:
                os._exit(99)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert run_async(real_loop_kind, main) == code
    assert says in capfd.readouterr().err
