"""A job's steps are made in turns: commands are performed, and their answers or errors are sent in."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import pytest

from aioelasticjob.engine.passes import Awaited, InTask, Pass, Passes
from aioelasticjob.engine.turns import Work
from aioelasticjob.errors import Conflict, RegistryError, Suspended
from aioelasticjob.testing import run

Script = Callable[[], Iterator[Any]]
REFUSED = Conflict(0, "/job", "exists")


@dataclass
class ScriptedJob:
    """A job whose passes follow a script and whose commands are their own answers, and what was done."""

    script: Script
    did: list[object] = field(default_factory=list)
    context: Context = field(default_factory=copy_context)
    asked: int = 0
    """How often a turn was asked for because an answer is there."""

    reports: tuple[object, ...] = ()

    @property
    def scheduler(self) -> ScriptedJob:
        return self

    @property
    def state(self) -> ScriptedJob:
        return self

    def __post_init__(self) -> None:
        self.passes = Passes(self, cast(Any, self), cast(Any, self))

    def now(self) -> int:
        self.did.append("clocks")
        return 0

    def go_on(self, _activity: object) -> None:
        self.asked += 1

    def work(self) -> Work:
        found = self.passes.turn()
        assert not isinstance(found, float)
        return found

    def begin(self) -> Pass:
        return cast(Any, self.script())

    def perform(self, command: object) -> object:
        if isinstance(command, Exception):
            raise command
        return command

    def refused(self, error: RegistryError) -> float:
        self.did.append(error)
        return 7.0


def noting(did: list[object], *commands: object, rest: float | None = 3.0) -> Script:
    """Return a pass that gives these commands, and notes what each of them is answered."""

    def script() -> Iterator[Any]:
        for command in commands:
            try:
                did.append((yield command))
            except RegistryError as error:
                did.append(error)
        return rest  # as passes do

    return script


def test_answers_that_are_there_are_sent_in_within_one_turn_and_the_clocks_are_read_once() -> None:
    did = list[object]()
    here = ScriptedJob(noting(did, "one", "two"), did)
    assert here.passes.turn() == 3.0
    assert did == ["clocks", "one", "two"]


def test_a_pass_that_may_leave_more_to_do_is_followed_by_another_at_once() -> None:
    did = list[object]()
    passes = [noting(did, "first", rest=None), noting(did, "second")]
    assert ScriptedJob(lambda: passes.pop(0)(), did).passes.turn() == 3.0
    assert did == ["clocks", "first", "second"]


def test_an_awaited_answer_asks_for_a_turn_and_turns_before_it_do_nothing() -> None:
    async def scene() -> None:
        did, future = list[object](), asyncio.get_running_loop().create_future()
        answered = Awaited(lambda: f"{future.result()} answered", future=future)
        passes = [noting(did, answered, "after"), noting(did, rest=inf)]
        here = ScriptedJob(lambda: passes.pop(0)(), did)
        assert here.passes.turn() == here.passes.turn() == inf
        assert did == ["clocks"]
        future.set_result("it is")
        await asyncio.sleep(0)
        assert here.asked == 1
        assert here.passes.turn() == 0.0  # what has asked for the second turn is looked at in another pass
        assert did == ["clocks", "clocks", "it is answered", "after"]
        assert here.passes.turn() == inf

    run(scene)


def test_an_answer_without_a_future_is_there_when_somebody_says_so() -> None:
    did, answered = list[object](), Awaited(lambda: "it has come")
    here = ScriptedJob(noting(did, answered), did)
    assert here.passes.turn() == inf
    assert here.asked == 0
    answered.come()
    assert here.asked == 1
    assert here.passes.turn() == 3.0
    assert did == ["clocks", "clocks", "it has come"]


def test_an_error_of_the_registry_is_looked_at_also_if_nobody_waits_for_the_answer_any_more() -> None:
    def begin_and_close() -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        here = ScriptedJob(noting([], Awaited(lambda: "never", future=future)), [])
        here.passes.turn()
        here.passes.end_pass()
        return future

    async def scene() -> None:
        begin_and_close().set_exception(REFUSED)
        await asyncio.sleep(0)
        gc.collect()  # an exception that nobody has looked at fails the run of the virtual loop now

    run(scene)


def test_a_step_may_wait_until_other_jobs_have_had_their_turns() -> None:
    did = list[object]()
    here = ScriptedJob(noting(did, Awaited(lambda: "later", is_there=True)), did)
    assert here.passes.turn() == inf
    assert here.asked == 1
    assert here.passes.turn() == 3.0
    assert did == ["clocks", "clocks", "later"]


def test_work_for_a_task_is_followed_there_by_the_next_steps_and_by_further_work() -> None:
    async def scene() -> None:
        did, future = list[object](), asyncio.get_running_loop().create_future()

        async def work() -> object:
            await asyncio.sleep(1)
            return "worked"

        async def begin() -> object:
            return Awaited(lambda: InTask(work), future=future)  # as a run does whose settlement was refused

        here = ScriptedJob(noting(did, InTask(work), InTask(work), InTask(begin)), did)
        assert await here.work()() == inf
        assert did == ["clocks", "clocks", "worked", "clocks", "worked"]
        future.set_result(None)
        await asyncio.sleep(0)
        assert await here.work()() == 3.0
        assert did[-1] == "worked"

    run(scene)


@pytest.mark.parametrize("where", ["performing", "concluding", "in a task"])
def test_what_the_registry_refuses_is_thrown_in(where: str) -> None:
    async def scene() -> None:
        did, future = list[object](), asyncio.get_running_loop().create_future()
        future.set_exception(REFUSED)
        future.exception()  # it is looked at, whatever is tested

        async def work() -> object:
            raise REFUSED

        commands = {
            "performing": REFUSED,
            "concluding": Awaited(future.result, is_there=True),
            "in a task": InTask(work),
        }
        here = ScriptedJob(noting(did, commands[where], "after"), did)
        found = here.passes.turn()
        if where == "concluding":
            found = here.passes.turn()
        assert (found if isinstance(found, float) else await found()) == 3.0
        assert did[-2:] == [REFUSED, "after"]

    run(scene)


def test_a_refusal_that_ends_a_pass_says_when_the_next_one_begins() -> None:
    did, error = list[object](), Suspended("no connection")

    def script() -> Iterator[Any]:
        yield error

    here = ScriptedJob(script, did)
    assert here.passes.turn() == here.passes.turn() == 7.0
    assert did == ["clocks", error] * 2


def test_a_defect_passes_and_the_next_turn_begins_a_new_pass() -> None:
    did = list[object]()
    passes = [noting(did, AssertionError("a defect")), noting(did, "again")]
    here = ScriptedJob(lambda: passes.pop(0)(), did)
    with pytest.raises(AssertionError, match="a defect"):
        here.passes.turn()
    assert here.passes.turn() == 3.0
    assert did[-1] == "again"


def test_a_pass_whose_work_is_cancelled_is_over() -> None:
    async def scene() -> None:
        did = list[object]()
        passes = [noting(did, InTask(asyncio.Event().wait), "never"), noting(did, "again")]
        here = ScriptedJob(lambda: passes.pop(0)(), did)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.work()(), 1)
        assert here.passes.turn() == 3.0
        assert did[-1] == "again"

    run(scene)


def test_a_closed_pass_is_not_gone_on_with() -> None:
    async def scene() -> None:
        did, future = list[object](), asyncio.get_running_loop().create_future()
        passes = [noting(did, Awaited(lambda: "never", future=future)), noting(did, "again")]
        here = ScriptedJob(lambda: passes.pop(0)(), did)
        assert here.passes.turn() == inf
        here.passes.end_pass()
        assert here.passes.turn() == 3.0
        assert did[-1] == "again"

    run(scene)
