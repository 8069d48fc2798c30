"""Which address leads to which page, and who may go there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from aioelasticjob.console.pages import (
    account,
    acknowledging,
    alerts,
    bulk,
    calendars,
    configuring,
    creating,
    history,
    job,
    overview,
    registries,
    server,
    servers,
    transfer,
    users,
)
from aioelasticjob.console.state import ConsoleState
from aioelasticjob.console.users.permissions import Permission
from aioelasticjob.console.web import frame
from aioelasticjob.console.web.access import restricted
from aioelasticjob.console.web.request import Handler, assets_version


class Assets(StaticFiles):
    """Style sheet and scripts: their address changes with their content, so browsers may keep them."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Answer with a file."""
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def routes(state: ConsoleState) -> list[BaseRoute]:
    """Return the pages of a console."""
    return [
        *_console_pages(_RouteFactory(state)),
        *_registry_pages(_RouteFactory(state, "/r/{registry}")),
        Route("/healthz", _Health(state).ready, methods=["GET"]),
        Route("/healthz/live", _Health(state).live, methods=["GET"]),
        Mount(f"/assets/{assets_version()}", Assets(directory=Path(__file__).parent / "assets")),
    ]


@dataclass(frozen=True, slots=True)
class _RouteFactory:
    """Makes routes below a prefix; those with a prefix are about a registry."""

    state: ConsoleState
    prefix: str = ""

    def get(
        self, path: str, handler: Handler, needs: Permission | None = Permission.SEE, *, signed_in: bool = True
    ) -> Route:
        """Return the route to a page."""
        endpoint = restricted(self.state, handler, needs=needs, signed_in=signed_in, registry=bool(self.prefix))
        return Route(f"{self.prefix}{path}", endpoint, methods=["GET"])

    def post(
        self, path: str, handler: Handler, needs: Permission | None, *, signed_in: bool = True, changes: bool = True
    ) -> Route:
        """Return the route that a form is sent to."""
        registry = bool(self.prefix)
        endpoint = restricted(self.state, handler, needs=needs, signed_in=signed_in, changes=changes, registry=registry)
        return Route(f"{self.prefix}{path}", endpoint, methods=["POST"])


def _console_pages(to: _RouteFactory) -> list[BaseRoute]:
    return [
        to.get("/", account.front, None),
        to.get("/live", frame.live, None),
        to.get("/login", account.sign_in_page, None, signed_in=False),
        to.post("/login", account.sign_in, None, signed_in=False, changes=False),
        to.post("/logout", account.sign_out, None, changes=False),
        to.get("/welcome/{token}", account.welcome_page, None, signed_in=False),
        to.post("/welcome/{token}", account.welcome, None, signed_in=False, changes=False),
        to.post("/preferences", account.set_preferences, None, signed_in=False, changes=False),
        to.get("/account", account.account_page, None),
        to.post("/account", account.change_password, None, changes=False),
        to.get("/users", users.page, Permission.ADMINISTER),
        to.post("/users", users.invite, Permission.ADMINISTER),
        to.post("/users/{name}", users.change, Permission.ADMINISTER),
        to.get("/audit", users.audit_log, None),
        to.get("/registries", registries.page, None),
        to.get("/registries/live", registries.live, None),
        to.post("/registries", registries.add, Permission.ADMINISTER),
        to.post("/registries/{name}/drop", registries.drop, Permission.ADMINISTER),
    ]


def _registry_pages(to: _RouteFactory) -> list[BaseRoute]:
    return [
        to.get("/live", frame.live),
        to.get("/jobs", overview.page),
        to.get("/jobs/live", overview.live),
        to.get("/jobs/new", creating.page, Permission.DEFINE),
        to.post("/jobs/new", creating.create, Permission.DEFINE),
        to.post("/jobs/do", bulk.ask, Permission.SEE),
        to.post("/jobs/do/{action}", bulk.act, Permission.SEE),
        to.get("/jobs/report/{id}", bulk.report),
        to.get("/jobs/report/{id}/live", bulk.live),
        to.get("/servers", servers.page),
        to.get("/servers/live", servers.live),
        to.get("/servers/{ip}", server.page),
        to.get("/servers/{ip}/live", server.live),
        to.get("/servers/{ip}/{action}", servers.confirm, Permission.OPERATE),
        to.post("/servers/{ip}/{action}", servers.act, Permission.OPERATE),
        to.get("/alerts", alerts.page),
        to.get("/alerts/live", alerts.live),
        to.get("/history", history.page),
        to.get("/history/live", history.live),
        to.get("/history/{run}", history.run),
        to.get("/calendars", calendars.page),
        to.post("/calendars", calendars.make, Permission.CHANGE),
        to.get("/calendars/{calendar}", calendars.one),
        to.post("/calendars/{calendar}", calendars.save, Permission.CHANGE),
        to.post("/calendars/{calendar}/remove", calendars.remove, Permission.CHANGE),
        to.get("/export", transfer.export, Permission.CHANGE),
        to.get("/transfer", transfer.page, Permission.CHANGE),
        to.post("/transfer", transfer.import_jobs, Permission.CHANGE),
        to.get("/job/{job}", job.page),
        to.get("/job/{job}/live", job.live),
        to.get("/job/{job}/dump", job.dump, Permission.CHANGE),
        to.get("/job/{job}/settings", configuring.page),
        to.post("/job/{job}/settings", configuring.save, Permission.CHANGE),
        to.post("/job/{job}/preview", configuring.preview, Permission.CHANGE, changes=False),
        to.get("/job/{job}/acknowledge", acknowledging.form, Permission.OPERATE),
        to.post("/job/{job}/acknowledge", acknowledging.acknowledge, Permission.OPERATE),
        to.post("/job/{job}/acknowledge/end", acknowledging.end, Permission.OPERATE),
        to.get("/job/{job}/do/{action}", job.confirm),
        to.post("/job/{job}/do/{action}", job.act, Permission.SEE),
    ]


@dataclass(frozen=True, slots=True)
class _Health:
    """Answers anybody who asks how the console is."""

    state: ConsoleState

    async def ready(self, _: Request) -> Response:
        """Answer whether everything answers that the console needs: 200, or 503."""
        health = self.state.own_health
        return JSONResponse(health.without_names(), health.status_code("ready"))

    async def live(self, _: Request) -> Response:
        """Answer that the console answers: as long as it does, a restart would not help."""
        return PlainTextResponse("ok\n")
