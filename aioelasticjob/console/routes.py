"""Which address leads to which page, and who may go there."""

from __future__ import annotations

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


REGISTRY = "/r/{registry}"


def routes(console: Console) -> list[BaseRoute]:
    """Return the pages of a console."""

    def seen(path: str, handler: Handler, role: Role | None = Role.VIEWER) -> Route:
        registry = path.startswith(REGISTRY)
        return Route(path, open_to(role, console, handler, registry=registry), methods=["GET"])

    def done(path: str, handler: Handler, role: Role | None = Role.OPERATOR, *, changes: bool = True) -> Route:
        registry = path.startswith(REGISTRY)
        return Route(path, open_to(role, console, handler, changes=changes, registry=registry), methods=["POST"])

    return [
        seen("/", access.front),
        seen("/login", access.sign_in_page, None),
        done("/login", access.sign_in, None, changes=False),
        done("/logout", access.sign_out, Role.VIEWER, changes=False),
        seen("/welcome/{token}", access.welcome_page, None),
        done("/welcome/{token}", access.welcome, None, changes=False),
        done("/preferences", access.prefer, None, changes=False),
        seen("/account", access.account_page),
        done("/account", access.change_password, Role.VIEWER, changes=False),
        seen("/users", people.users, Role.OPERATOR),
        done("/users", people.invite),
        done("/users/{name}", people.change),
        seen("/audit", people.audit, Role.OPERATOR),
        seen("/registries", registries.page),
        done("/registries", registries.add),
        done("/registries/{name}/drop", registries.drop),
        seen(f"{REGISTRY}/jobs", overview.overview),
        seen(f"{REGISTRY}/jobs/live", overview.live),
        seen(f"{REGISTRY}/servers", servers.page),
        seen(f"{REGISTRY}/servers/live", servers.live),
        done(f"{REGISTRY}/servers/{{ip}}/{{action}}", servers.act),
        seen(f"{REGISTRY}/history", history.page),
        seen(f"{REGISTRY}/history/{{run}}", history.run),
        seen(f"{REGISTRY}/export", configuring.export, Role.OPERATOR),
        seen(f"{REGISTRY}/transfer", configuring.transfer, Role.OPERATOR),
        done(f"{REGISTRY}/transfer", configuring.take_in),
        seen(f"{REGISTRY}/job/{{job}}", job.page),
        seen(f"{REGISTRY}/job/{{job}}/live", job.live),
        seen(f"{REGISTRY}/job/{{job}}/dump", job.dump, Role.OPERATOR),
        seen(f"{REGISTRY}/job/{{job}}/settings", configuring.page),
        done(f"{REGISTRY}/job/{{job}}/settings", configuring.save),
        done(f"{REGISTRY}/job/{{job}}/preview", configuring.preview, changes=False),
        seen(f"{REGISTRY}/job/{{job}}/do/{{action}}", job.confirm, Role.OPERATOR),
        done(f"{REGISTRY}/job/{{job}}/do/{{action}}", job.act),
        Route("/healthz", _healthy, methods=["GET"]),
        Mount(f"/assets/{assets_version()}", Assets(directory=Path(__file__).parent / "assets")),
    ]


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")
