"""The console as an ASGI application: what it is made of, which pages it has, and how long it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from argon2 import PasswordHasher
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.config import label_of
from aioelasticjob.console.accounts import Accounts
from aioelasticjob.console.audit import Audit
from aioelasticjob.console.database import Database, open_database
from aioelasticjob.console.drawing import spell, tone
from aioelasticjob.console.gate import Gate
from aioelasticjob.console.live import Registries, Watched
from aioelasticjob.console.routes import routes
from aioelasticjob.console.sessions import Sessions, secret_of
from aioelasticjob.console.settings import ConsoleSettings, RegistrySettings
from aioelasticjob.console.standing import Standing
from aioelasticjob.console.throttle import Guesses
from aioelasticjob.console.visit import ROOT, receive
from aioelasticjob.errors import ElasticJobError, RegistryUnreachable, SessionEnded, Suspended

Rows: TypeAlias = dict[tuple[str, str], dict[str, tuple[int, str]]]
"""By language and root, then by job: since which version it looks so, and the HTML."""
UNREACHABLE: Final = (Suspended, SessionEnded, RegistryUnreachable)

log = logging.getLogger(__name__)


class Console:
    """The web console.  Serve it as it is, or mount it into another ASGI application.

    Where the host runs lifespans (uvicorn with the console itself) it opens and closes with them; mounted, it opens at
    the first request.  ``async with console.running():`` in the host's own lifespan opens and closes it in good order.
    """

    def __init__(
        self, settings: ConsoleSettings, *, clock: Clock | None = None, hasher: PasswordHasher | None = None
    ) -> None:
        self.settings, self.clock, self._hasher = settings, clock or SystemClock(), hasher or PasswordHasher()
        self.registries = Registries(self.clock)
        self.streams: set[object] = set()
        """The live pages that are open."""
        self.leaving = False
        """Set by whoever serves it and is about to end: open pages are let go, and come back to the next console."""
        self.rows: WeakKeyDictionary[Watched, Rows] = WeakKeyDictionary()
        """Rows of each registry's overview, rendered once for all pages."""
        self.standings: WeakKeyDictionary[Watched, Standing] = WeakKeyDictionary()
        """How the jobs of each registry stand."""
        self.templates = _templates()
        self.guesses = Guesses(self.clock)
        self.database: Database
        self.accounts: Accounts
        self.sessions: Sessions
        self.audit: Audit
        self.invitation: str | None = None
        """The path of the one-time link to set the first password; None once somebody has."""
        self._up: asyncio.Future[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        starlette = Starlette(
            routes=routes(self),
            lifespan=self._lifespan,
            exception_handlers=dict.fromkeys((HTTPException, ElasticJobError, Exception), self._answer),
        )
        self._app = Gate(starlette, settings.largest_form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] == "http":
            scope = {**scope, ROOT: scope.get("root_path", "").rstrip("/")}
            await self._awake()
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the registries and let people in while the block runs.

        Raises:
            DataUnusable: the data directory cannot be used.
        """
        self._up = asyncio.get_running_loop().create_future()
        try:
            async with open_database(self.settings.directory) as self.database:
                self.accounts = Accounts(self.database, self.clock, self._hasher)
                self.sessions = Sessions(self.database, self.settings, self.clock, await secret_of(self.database))
                self.audit = Audit(self.database, self.clock)
                await self._invite()
                async with self.registries.watching([*self.settings.registries, *await self._added()]):
                    self._up.set_result(None)
                    yield
        except BaseException as error:
            if not self._up.done():
                self._up.set_exception(error)
                self._up.exception()  # somebody may wait for it, or nobody
            raise
        finally:
            self._up = None

    async def _invite(self) -> None:
        if await self.accounts.nobody_there():
            self.invitation = f"/welcome/{await self.accounts.invite_first()}"

    def _tell(self) -> None:
        """Say in the log where the first password is set: inside another application there is no terminal of ours."""
        if self.invitation is not None:
            log.warning("nobody can sign in yet: open the one-time link", extra={"path": self.invitation})

    async def _added(self) -> list[RegistrySettings]:
        """Return the registries added on the page; those given at the start go before them."""
        given = {registry.name for registry in self.settings.registries}
        rows = await self.database.run(lambda db: db.execute("select * from registries order by name").fetchall())
        found = []
        for row in rows:
            try:
                if row["name"] not in given:
                    found.append(RegistrySettings(row["name"], row["address"], row["digest"], row["event_store"]))
            except ElasticJobError as error:  # right when it was added: a driver or a directory may have gone
                log.warning("registry left out", extra={"registry": row["name"], "reason": str(error)})
        return found

    async def _awake(self) -> None:
        """Open, where no lifespan has done it: those of mounted applications are not run by their hosts."""
        if self._up is None:
            if self._life is None or self._life.done():
                self._begun = asyncio.Event()
                self._life = asyncio.create_task(self._live(self._begun))  # outlives the request, ends with its loop
            await self._begun.wait()
        if self._up is None and self._life is not None:
            await asyncio.shield(self._life)  # it ended before it was up, and its error says why
        if self._up is not None:
            await asyncio.shield(self._up)

    async def _live(self, begun: asyncio.Event) -> None:
        try:
            async with self.running():
                self._tell()
                begun.set()
                await anyio.sleep_forever()
        finally:
            begun.set()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.running():
            self._tell()
            yield

    async def _answer(self, request: Request, error: Exception) -> Response:
        """Answer with a page that says what was wrong."""
        if isinstance(error, HTTPException):
            return await self._say(request, error.status_code, error.detail)
        if isinstance(error, ElasticJobError):
            return await self._say(request, 503 if isinstance(error, UNREACHABLE) else 409, str(error))
        return await self._say(request, 500, "something is wrong with the console itself; its log says what")

    async def _say(self, request: Request, status: int, why: str) -> Response:
        visit = await receive(self, request)
        if visit.live:
            return visit.say(why, error=True, status=status)
        return visit.page("error.html", status, code=status, why=why)


def asgi(
    *registries: str | RegistrySettings,
    data_dir: Path | str | None = None,
    read_only: bool = False,
    event_store: str | None = None,
) -> Console:
    """Return the console for registries given by address (``zk://host:port/namespace``), to serve or to mount.

    Raises:
        InvalidSetting: an address makes no sense.
    """
    from aioelasticjob.console.settings import named

    told = tuple(
        one if isinstance(one, RegistrySettings) else RegistrySettings(named(one), one, event_store=event_store)
        for one in registries
    )
    return Console(ConsoleSettings(told, None if data_dir is None else Path(data_dir), read_only))


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("aioelasticjob.console"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    environment.globals |= {"spell": spell, "tone_of": tone, "label": label_of}
    return environment
