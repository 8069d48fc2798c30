"""Which address leads to which page, and who may go there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from aioelasticjob.console.accounts import Role
from aioelasticjob.console.pages import access, configuring, history, job, overview, people, registries, servers
from aioelasticjob.console.visit import Handler, assets_version, open_to

if TYPE_CHECKING:
    from aioelasticjob.console.application import Console


class Assets(StaticFiles):
    """Style sheet and scripts: their address changes with their content, so browsers may keep them."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Answer with a file."""
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def routes(console: Console) -> list[BaseRoute]:
    """Return the pages of a console."""
    return [
        *_own(_Doors(console)),
        *_of_a_registry(_Doors(console, "/r/{registry}")),
        Route("/healthz", _healthy, methods=["GET"]),
        Mount(f"/assets/{assets_version()}", Assets(directory=Path(__file__).parent / "assets")),
    ]


@dataclass(frozen=True, slots=True)
class _Doors:
    """Makes routes below a prefix; those with one are about a registry."""

    console: Console
    prefix: str = ""

    def seen(self, path: str, handler: Handler, role: Role | None = Role.VIEWER) -> Route:
        """Return the route to a page."""
        endpoint = open_to(role, self.console, handler, registry=bool(self.prefix))
        return Route(f"{self.prefix}{path}", endpoint, methods=["GET"])

    def done(self, path: str, handler: Handler, role: Role | None = Role.OPERATOR, *, changes: bool = True) -> Route:
        """Return the route that a form is sent to."""
        endpoint = open_to(role, self.console, handler, changes=changes, registry=bool(self.prefix))
        return Route(f"{self.prefix}{path}", endpoint, methods=["POST"])


def _own(doors: _Doors) -> list[BaseRoute]:
    return [
        doors.seen("/", access.front),
        doors.seen("/login", access.sign_in_page, None),
        doors.done("/login", access.sign_in, None, changes=False),
        doors.done("/logout", access.sign_out, Role.VIEWER, changes=False),
        doors.seen("/welcome/{token}", access.welcome_page, None),
        doors.done("/welcome/{token}", access.welcome, None, changes=False),
        doors.done("/preferences", access.prefer, None, changes=False),
        doors.seen("/account", access.account_page),
        doors.done("/account", access.change_password, Role.VIEWER, changes=False),
        doors.seen("/users", people.users, Role.OPERATOR),
        doors.done("/users", people.invite),
        doors.done("/users/{name}", people.change),
        doors.seen("/audit", people.audit, Role.OPERATOR),
        doors.seen("/registries", registries.page),
        doors.done("/registries", registries.add),
        doors.done("/registries/{name}/drop", registries.drop),
    ]


def _of_a_registry(doors: _Doors) -> list[BaseRoute]:
    return [
        doors.seen("/jobs", overview.overview),
        doors.seen("/jobs/live", overview.live),
        doors.seen("/servers", servers.page),
        doors.seen("/servers/live", servers.live),
        doors.seen("/servers/{ip}/{action}", servers.confirm, Role.OPERATOR),
        doors.done("/servers/{ip}/{action}", servers.act),
        doors.seen("/history", history.page),
        doors.seen("/history/{run}", history.run),
        doors.seen("/export", configuring.export, Role.OPERATOR),
        doors.seen("/transfer", configuring.transfer, Role.OPERATOR),
        doors.done("/transfer", configuring.take_in),
        doors.seen("/job/{job}", job.page),
        doors.seen("/job/{job}/live", job.live),
        doors.seen("/job/{job}/dump", job.dump, Role.OPERATOR),
        doors.seen("/job/{job}/settings", configuring.page),
        doors.done("/job/{job}/settings", configuring.save),
        doors.done("/job/{job}/preview", configuring.preview, changes=False),
        doors.seen("/job/{job}/do/{action}", job.confirm, Role.OPERATOR),
        doors.done("/job/{job}/do/{action}", job.act),
    ]


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")
