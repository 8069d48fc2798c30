"""`--watch`: a display that is drawn again whenever the registry changes, and once a second for countdowns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Generic, TypeVar

from anyio import move_on_after
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli.registry import RegistryOptions
from aioelasticjob.cli.terminal import out, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.operations import ProcessStatus, StatusStream
from aioelasticjob.registry.session import Session, SessionState, beside

T = TypeVar("T")
REDRAW_INTERVAL = 1.0
"""Seconds after which the display is drawn again if only the time has changed."""


class Watch(Generic[T]):
    """A state that is followed, and the functions that show it.

    ``problems`` returns what is said below the state of what its processes cannot do.
    """

    def __init__(
        self,
        follow: Callable[[Session], AbstractAsyncContextManager[StatusStream[T]]],
        picture: Callable[[T, float], RenderableType],
        as_json: Callable[[T], object] | None,
        problems: Callable[[T, Sequence[ProcessStatus]], list[Text]] = lambda state, processes: [],
    ) -> None:
        self._follow, self._picture, self._as_json = follow, picture, as_json
        self._problems = problems
        self._processes: Sequence[ProcessStatus] = ()

    def show(self, where: RegistryOptions) -> None:
        """Show it until Ctrl-C, or until there is nothing left to follow.

        Raises:
            InvalidSetting: the address makes no sense, or there is no such job.
            RegistryError: the registry did not answer, or refused the credentials.
        """
        try:
            where.use(self._show)
        except KeyboardInterrupt:  # Ctrl-C is the way to end it
            return

    async def _show(self, session: Session) -> None:
        async with self._follow(session) as states, beside(partial(self._follow_processes, session)):
            console = out()
            if self._as_json is not None:
                async for state in states:
                    write_json(self._as_json(state), line=True)
            elif console.is_terminal:
                await self._draw(session, states, console)
            else:
                async for state in states:
                    console.print(self._drawn(state))

    async def _follow_processes(self, session: Session) -> None:
        async with operations.watch_processes(session) as states:
            async for processes in states:
                self._processes = processes

    def _drawn(self, state: T) -> RenderableType:
        return Group(self._picture(state, SystemClock().now()), *self._problems(state, self._processes))

    async def _draw(self, session: Session, states: StatusStream[T], console: Console) -> None:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            state = await anext(states)
            while True:
                live.update(Group(_connection(session), self._drawn(state)), refresh=True)
                with move_on_after(REDRAW_INTERVAL):
                    try:
                        state = await anext(states)
                    except StopAsyncIteration:
                        return


def _connection(session: Session) -> Text:
    if session.status.value.state is SessionState.CONNECTED:
        return Text("Ctrl-C ends this", style="dim")
    return Text("no connection to the registry: this is what was seen last", style="bold red")
