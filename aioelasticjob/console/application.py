"""The console as an ASGI application: what it is made of, and when it opens and closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from argon2 import PasswordHasher
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.config.job import label_of
from aioelasticjob.config.links import filled_links
from aioelasticjob.console import acknowledgement_ends
from aioelasticjob.console.connections.live_pages import LivePages
from aioelasticjob.console.connections.middleware import HeadersAndLimits
from aioelasticjob.console.connections.proxies import ProxyHeaders, TrustedProxies
from aioelasticjob.console.drawing.sparkline import duration_text, outcome_class
from aioelasticjob.console.language.i18n import Language
from aioelasticjob.console.language.reason_sentences import reason_sentence
from aioelasticjob.console.language.schedule_sentences import schedule_sentence
from aioelasticjob.console.routes import routes
from aioelasticjob.console.settings import ConsoleSettings, RegistrySettings, registry_name
from aioelasticjob.console.state import ConsoleState, open_storage
from aioelasticjob.console.storage.database import DatabaseUnwritable
from aioelasticjob.console.users.throttle import LoginThrottle
from aioelasticjob.console.watching import own_metrics
from aioelasticjob.console.watching.allowed_addresses import check_allowed
from aioelasticjob.console.watching.own_health import ConsoleHealth
from aioelasticjob.console.watching.process_notices import notices
from aioelasticjob.console.watching.registry_watch import Registries
from aioelasticjob.console.web.request import ROOT, read_request
from aioelasticjob.errors import ElasticJobError, RegistryUnreachable, SessionEnded, Suspended
from aioelasticjob.ground.credentials import hide_in_text
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.ground.times import moment
from aioelasticjob.logging import logger
from aioelasticjob.registry.session import beside

UNREACHABLE: Final = (Suspended, SessionEnded, RegistryUnreachable, DatabaseUnwritable)

log = logger(__name__)


class Console:
    """The web console.  Serve it as it is, or mount it into another ASGI application.

    Where the host runs lifespans (uvicorn with the console itself) it opens and closes with them; mounted, it opens at
    the first request.  ``async with console.running():`` in the host's own lifespan opens and closes it in good order.
    """

    def __init__(
        self, settings: ConsoleSettings, *, clock: Clock | None = None, hasher: PasswordHasher | None = None
    ) -> None:
        used = clock or SystemClock()
        self.state = ConsoleState(
            settings=settings,
            clock=used,
            templates=_templates(),
            registries=Registries(used),
            login_throttle=LoginThrottle(used),
            live_pages=LivePages(settings.live_pages),
        )
        self._hasher = hasher or PasswordHasher()
        self._open: asyncio.Future[None] | None = None
        """Done when the console is open; None while it is closed."""
        self._task: asyncio.Task[None] | None = None
        """Keeps the console open where no lifespan does."""
        self._task_has_begun = asyncio.Event()
        starlette = Starlette(
            routes=routes(self.state),
            lifespan=self._lifespan,
            exception_handlers=dict.fromkeys((HTTPException, ElasticJobError, Exception), self._error_response),
        )
        proxies = TrustedProxies.parse(settings.trusted_proxies, settings.user_header)
        self._app = ProxyHeaders(HeadersAndLimits(starlette, settings.largest_form), proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] == "http":
            scope = {**scope, ROOT: scope.get("root_path", "").rstrip("/")}
            await self._ensure_open()
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the registries and let people in while the block runs.

        Raises:
            DataUnusable: the data directory cannot be used.
        """
        state = self.state
        self._open = asyncio.get_running_loop().create_future()
        try:
            async with open_storage(state.settings, state.clock, self._hasher) as state.storage:
                accounts = state.storage.accounts
                if await accounts.nobody_there():
                    state.invitation = f"/welcome/{await accounts.invite_first()}"
                registries = [*state.settings.registries, *await _added_registries(state)]
                ends = partial(acknowledgement_ends.watch, state)
                async with state.registries.watching(registries), state.bulk_actions.running(), beside(ends):
                    self._open.set_result(None)
                    yield
        except BaseException as error:
            if not self._open.done():
                self._open.set_exception(error)
                self._open.exception()  # a request may wait for it, or none
            raise
        finally:
            self._open = None

    @property
    def health(self) -> ConsoleHealth:
        """How the console itself is, while it is open."""
        return self.state.own_health

    async def render_metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the console's own metrics as text for Prometheus, and its content type.

        Raises:
            InvalidSetting: prometheus-client is not installed.
        """
        return own_metrics.render(self.health, accept)

    def _log_invitation(self) -> None:
        """Write to the log where the first password is set: in another application we have no terminal."""
        if self.state.invitation is not None:
            text = "nobody can sign in yet: open the one-time link %s"
            path = self.state.invitation
            log.warning(text, path, extra={"path": path})

    async def _ensure_open(self) -> None:
        """Open the console where no lifespan has done it: those of mounted applications are not run by their hosts."""
        if self._open is None:
            if self._task is None or self._task.done():
                self._task_has_begun = asyncio.Event()
                # The task outlives the request and ends with its loop.
                self._task = asyncio.create_task(self._stay_open(self._task_has_begun))
            await self._task_has_begun.wait()
        if self._open is None and self._task is not None:
            await asyncio.shield(self._task)  # it ended before the console was open, and its error says why
        if self._open is not None:
            await asyncio.shield(self._open)

    async def _stay_open(self, begun: asyncio.Event) -> None:
        try:
            async with self.running():
                self._log_invitation()
                begun.set()
                await anyio.sleep_forever()
        finally:
            begun.set()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.running():
            self._log_invitation()
            yield

    async def _error_response(self, http: Request, error: Exception) -> Response:
        """Answer with a page that says what was wrong."""
        try:
            request = await read_request(self.state, http)
        except DatabaseUnwritable as unwritable:
            request = await read_request(self.state, http, signed_in=False)
            error = unwritable
        status, message = _status_and_message(error, request.translate)
        if request.is_fragment:
            return request.show_notice(message, error=True, status=status)
        return request.page("error.html", status, code=status, why=message)


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
    settings = []
    for one in registries:
        if not isinstance(one, RegistrySettings):
            one = RegistrySettings(registry_name(one), one, event_store=event_store)
        settings.append(one)
    directory = None if data_dir is None else Path(data_dir)
    return Console(ConsoleSettings(tuple(settings), directory, read_only))


async def _added_registries(state: ConsoleState) -> list[RegistrySettings]:
    """Return the registries that were added on the page and are allowed; those given at the start go before them."""
    given = {registry.name for registry in state.settings.registries}
    rows = await state.storage.database.run(lambda db: db.execute("select * from registries order by name").fetchall())
    found = []
    for row in rows:
        if row["name"] in given:
            continue
        try:
            access = read_json(row["access"] or "{}")
            one = RegistrySettings(row["name"], row["address"], row["digest"], row["event_store"], **access)
            check_allowed(one, state.settings.allowed_addresses)
            found.append(one)
        except ElasticJobError as error:  # right when it was added: a driver or a directory may have gone
            log.warning("registry left out", extra={"registry": row["name"], "reason": str(error)})
    return found


def _status_and_message(error: Exception, translate: Language) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, translate.message(error.detail)
    if isinstance(error, ElasticJobError):
        return 503 if isinstance(error, UNREACHABLE) else 409, translate.error(error)
    return 500, translate("something is wrong with the console itself; its log says what")


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("aioelasticjob.console"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    environment.globals |= {
        "duration_text": duration_text,
        "reason_sentence": reason_sentence,
        "utc_text": _utc_text,
        "schedule_sentence": schedule_sentence,
        "outcome_class": outcome_class,
        "label": label_of,
        "hide_in_text": hide_in_text,
        "filled_links": filled_links,
        "notices": notices,
    }
    return environment


def _utc_text(milliseconds: float) -> str:
    """Return a time as it is shown where no script shows it in the viewer's time zone."""
    return f"{moment(milliseconds / 1000):%Y-%m-%d %H:%M:%S} UTC"
