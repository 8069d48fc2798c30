"""`aioelasticjob console`: the web console as a process."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from aioelasticjob.cli import logs, profiles
from aioelasticjob.cli.access import access_to, with_access
from aioelasticjob.cli.terminal import out, print_warning
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.host.signals import stopping_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import uvicorn

    from aioelasticjob.console import Console, RegistrySettings

LAST_PAGES = 3
"""Seconds that open pages have to end when the console is stopped."""


Registries: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--registry",
        "-r",
        envvar="AIOELASTICJOB_REGISTRY",
        help="zk://host:port/namespace, or NAME=zk://… to give it a name; may be given again.",
    ),
]
Profiles: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        "-p",
        help="A registry of profiles.toml; may be given again.  All of them if none is given.",
        autocompletion=lambda: sorted(profiles.load().by_name),
    ),
]
PublicUrl: TypeAlias = Annotated[
    str, typer.Option(help="Where people reach the console, such as https://jobs.example.org; for one-time links.")
]
AllowedAddresses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A registry or database that admins may add, such as zk://zk*.example.org; may be given again."),
]
TrustedProxies: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Address or network of a proxy whose X-Forwarded-For and -Proto are believed; may be given again."
    ),
]
UserHeader: TypeAlias = Annotated[
    str, typer.Option(help="The header by which a trusted proxy signs users in, such as X-Forwarded-User.")
]


@with_access
def console(
    given: Mapping[str, Any],
    registry: Registries = None,
    profile: Profiles = None,
    event_store: Annotated[
        str | None, typer.Option(envvar="AIOELASTICJOB_EVENT_STORE", help="Database URL of the runs' history.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; beyond this machine only if you say so.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at; 0 picks a free one.")] = 8899,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where users, sessions, the audit log and added registries are kept.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nobody may change anything.")] = False,
    public_url: PublicUrl = "",
    allow_address: AllowedAddresses = None,
    trusted_proxy: TrustedProxies = None,
    user_header: UserHeader = "",
    metrics: Annotated[
        str, typer.Option(help="A port, or HOST:PORT, for /metrics and /health of the console itself.")
    ] = "",
    time_zone: Annotated[str, typer.Option(help="The time zone of times, until somebody chooses another one.")] = "UTC",
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.WARNING,
) -> None:
    """Serve the web console until SIGTERM or Ctrl-C.  Its first start prints a one-time link to set a password."""
    from aioelasticjob.console import Console, ConsoleSettings

    logs.set_up(log_level)
    settings = ConsoleSettings(
        _registries(registry or [], profile or [], given, event_store),
        data_dir,
        read_only,
        time_zone,
        public_url=public_url,
        allowed_addresses=tuple(allow_address or ()),
        trusted_proxies=tuple(trusted_proxy or ()),
        user_header=user_header,
    )
    asyncio.run(_serve(Console(settings), host, port, metrics))


def _registries(
    addresses: Sequence[str], chosen: Sequence[str], given: Mapping[str, Any], event_store: str | None
) -> tuple[RegistrySettings, ...]:
    """Return the registries given by address, and those of the profiles chosen: all where nothing is named."""
    from aioelasticjob.console import RegistrySettings

    found = list[RegistrySettings]()
    for name, address in map(_named, addresses):
        found.append(RegistrySettings(name, address, event_store=event_store, **access_to(address, given)))
    known = profiles.load()
    for name in chosen or ([] if found else sorted(known.by_name)):
        one = known.named(name)
        access = access_to(one.registry, given, one.access)
        found.append(RegistrySettings(name, one.registry, event_store=event_store, **access))
    return tuple(found)


def _named(registry: str) -> tuple[str, str]:
    """Take ``name=address`` apart; an address alone is named after its namespace."""
    from aioelasticjob.console.settings import registry_name

    name, equals, address = registry.partition("=")
    return (name, address) if equals and "://" not in name else (registry_name(registry), registry)


@asynccontextmanager
async def _serving_metrics(application: Console, at: str) -> AsyncIterator[None]:
    """Serve the console's own metrics and health while the block is open, if a place is named.

    Raises:
        InvalidSetting: the place makes no sense, or prometheus-client is not installed.
    """
    if not at:
        yield
        return
    from aioelasticjob.observers.endpoint import serving, where
    from aioelasticjob.observers.metrics import prometheus_library

    prometheus_library()
    host, port = where(at)
    async with serving(application.render_metrics, host, port, application):
        yield


async def _serve(application: Console, host: str, port: int, metrics: str = "") -> None:
    import uvicorn

    from aioelasticjob.console.connections.half_open import HttpProtocol

    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        http=HttpProtocol,
        proxy_headers=False,  # the console believes those of trusted proxies only
        timeout_graceful_shutdown=LAST_PAGES,
    )

    class Server(uvicorn.Server):
        """A server that closes open pages when it is stopped, instead of waiting for them."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            application.state.closing = True
            self.force_exit = self.should_exit  # a second signal stops at once
            self.should_exit = True  # uvicorn's own method would raise the signal again, once all has ended well

    server = Server(config)
    async with application.running(), _serving_metrics(application, metrics):
        with _listening(host, port) as listening:  # before the link is printed: who follows it at once waits a moment
            bound = listening.getsockname()[1]
            _announce(application, host, bound)
            _stop_on_hangup(server)
            await server.serve(sockets=[listening])


def _stop_on_hangup(server: uvicorn.Server) -> None:
    """Let SIGHUP, which uvicorn does not handle, stop the server as SIGTERM does; below ``nohup`` it stays ignored."""
    for number in stopping_signals():
        if number not in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]  # Python adds the address there
        text = f"cannot be listened at on {host} ({reason}): choose another port or host"
        raise InvalidSetting("port", port, text) from error


def _announce(application: Console, host: str, port: int) -> None:
    """Print where the console is, and where the first password is set."""
    if not _is_loopback(host):
        print_warning("other machines can reach this console, unencrypted: put a proxy with TLS before it")
    shown = f"[{host}]" if ":" in host else host
    base = f"http://{shown}:{port}"
    if application.state.invitation is not None:
        public = application.state.settings.public_url.rstrip("/") or base
        out().print(f"Set the first password (once, within 24 hours): {public}{application.state.invitation}")
    out().print(f"The console is at {base}/  (Ctrl-C ends it)")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
