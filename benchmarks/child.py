"""A question to a module that is run as a process of its own: one value as JSON there, another one back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")


def ask(module: str, question: DataclassInstance, patience: float) -> dict[str, Any]:
    """Run ``python -m MODULE QUESTION`` and return what it answered.

    Raises: RuntimeError when it fails, TimeoutExpired when it takes more seconds than ``patience``.
    """
    command = [sys.executable, "-m", module, json.dumps(asdict(question))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def answer(question: type[Asked], measure: Callable[[Asked], Awaitable[DataclassInstance]]) -> None:
    """Measure on uvloop what the first argument asks for, and print the answer."""

    async def measured(asked: Asked) -> DataclassInstance:
        return await measure(asked)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(asdict(runner.run(measured(question(**json.loads(sys.argv[1]))))), sys.stdout)
