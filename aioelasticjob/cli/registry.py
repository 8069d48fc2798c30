"""The options with which a command finds its registry, and a session that ends with the command.

What speaks to a registry is imported when a command uses it: `schedule` needs it only for jobs and calendars.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import typer

from aioelasticjob.cli import profiles
from aioelasticjob.cli.access import OPTIONS, access_to, refuse_mistyped_variables, refuse_typed_tls, with_options
from aioelasticjob.cli.profiles import Profile
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.errors import InvalidSetting

if TYPE_CHECKING:
    from aioelasticjob.registry.addresses import Address
    from aioelasticjob.registry.session import Session

T = TypeVar("T")
P = ParamSpec("P")

DEFAULT = "zk://127.0.0.1:2181"
DEFAULT_TIMEOUT = 5.0
"""Seconds to wait for the registry, unless an option or a profile gives another number."""

Registry: TypeAlias = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="AIOELASTICJOB_REGISTRY",
        help="zk://host:port,host:port/namespace, zks://… with TLS, or embedded://host:port/…",
        rich_help_panel="Registry",
    ),
]
RegistryArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        envvar="AIOELASTICJOB_REGISTRY",
        help="zk://host:port,host:port/namespace, zks://… with TLS, or embedded://host:port/…",
    ),
]
ProfileName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        envvar="AIOELASTICJOB_PROFILE",
        help="A registry by its name in profiles.toml.",
        rich_help_panel="Registry",
        autocompletion=lambda: sorted(profiles.load().by_name),
    ),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=seconds_from(0.1),
        metavar="DURATION",
        help=f"How long to wait for the registry, {DEFAULT_TIMEOUT:g} s by default.",
        rich_help_panel="Registry",
    ),
]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The address of a registry, its credentials, and how long to wait for it."""

    address: str
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    is_given: bool = False
    """Whether somebody has named the registry: by an option, the environment, or a profile."""

    @classmethod
    def of(cls, context: typer.Context, given: Mapping[str, Any]) -> RegistryOptions:
        """Return what options, environment and profiles say: the command line goes first, and an address before a
        profile.

        Raises:
            InvalidSetting: there is no such profile, or both an address and a profile are typed.
        """

        def said(option: str) -> str:
            source = context.get_parameter_source(option)
            return "nowhere" if source is None or given.get(option) is None else source.name.lower()

        address, name = said("registry"), said("profile")
        by_hand = ("commandline", "environment")
        if address == name == "commandline":
            raise InvalidSetting("profile", given["profile"], "give either a profile or a registry")
        if name == "commandline" or address not in by_hand:
            profile = _profile(given.get("profile"))
        else:
            profile = Profile(registry=given["registry"])
        refuse_typed_tls(context, profile.registry)
        timeout = given.get("timeout") or profile.timeout or DEFAULT_TIMEOUT
        is_given = address in by_hand or name in by_hand or profiles.load().default is not None
        return cls(profile.registry, access_to(profile.registry, given, profile.access), timeout, is_given)

    def parsed(self, **options: Any) -> Address:
        """Return the registry and how to connect to it; ``options`` are further settings of the connection.

        Raises: InvalidSetting.
        """
        from aioelasticjob.registry.addresses import Address

        return Address.parse(self.address, connection_timeout=self.timeout, **self.access, **options)

    def shared(self) -> Address:
        """Return the registry and how to connect to it.

        Raises:
            InvalidSetting: the address makes no sense, or it names a registry that is private to its process.
        """
        registry = self.parsed()
        if registry.private:
            raise InvalidSetting(
                "address",
                self.address,
                "a private registry exists only inside its own process, so a command cannot read it",
            )
        return registry

    def look(self, read: Callable[[Session], Awaitable[T]], *, creates: bool = False) -> T:
        """Run ``read`` with a session and return its result, within the timeout; raises the same errors as ``use``."""
        with _no_collection():
            return self.use(read, creates=creates)

    def use(self, work: Callable[[Session], Awaitable[T]], *, creates: bool = False) -> T:
        """Run ``work`` with a session and return its result, however long that takes.

        A namespace that is missing is created only with ``creates``.

        Raises:
            InvalidSetting: the address makes no sense.
            RegistryError: the registry did not answer, or refused the credentials.
        """
        import asyncio

        from aioelasticjob.registry.addresses import open_registry

        registry = self.shared()

        async def main() -> T:
            async with open_registry(registry, creates=creates) as session:
                return await work(session)

        return asyncio.run(main())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: a command ends before there is much garbage, and searching costs time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def on_a_registry(command: Callable[Concatenate[RegistryOptions, P], None]) -> Callable[..., None]:
    """Add the options of a registry to a command, which is called with the resulting address and credentials."""
    return _with_registry(command, _OPTIONS)


def on_an_address(command: Callable[Concatenate[RegistryOptions, P], None]) -> Callable[..., None]:
    """Do the same for a command whose first argument is the registry's address."""
    return _with_registry(command, {**_OPTIONS, "registry": _option("registry", RegistryArgument, DEFAULT)})


def _with_registry(
    command: Callable[Concatenate[RegistryOptions, P], None], parameters: Mapping[str, inspect.Parameter]
) -> Callable[..., None]:
    def called(context: typer.Context, **given: Any) -> None:
        refuse_mistyped_variables(parameters)
        options = {name: given.pop(name) for name in parameters}
        command(RegistryOptions.of(context, options), **given)  # type: ignore[call-arg]

    return with_options(command, called, parameters.values())


def _profile(name: str | None) -> Profile:
    known = profiles.load()
    if name is None and known.default is None:
        return Profile(registry=DEFAULT)
    return known.named(str(name or known.default))


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


_OPTIONS: Mapping[str, inspect.Parameter] = {
    "registry": _option("registry", Registry, DEFAULT),
    "profile": _option("profile", ProfileName, None),
    **OPTIONS,
    "timeout": _option("timeout", Timeout, None),
}
