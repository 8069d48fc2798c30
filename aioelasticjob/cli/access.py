"""The options with which a command gets into its registry: credentials and certificates."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, get_type_hints

import typer

from aioelasticjob.errors import InvalidSetting

PREFIX: Final = "AIOELASTICJOB_"
TLS: Final = "tls_"
PAIRS: Final = (("digest", "digest_file"), ("sasl", "sasl_file"), ("tls_key_password", "tls_key_password_file"))
"""Settings of which one replaces the other."""
_HELP: Final = {
    "digest": "user:password, where the registry asks for it.",
    "digest_file": "A file that holds it.",
    "sasl": "user:password of SASL DIGEST-MD5.",
    "sasl_file": "A file that holds it.",
    "tls_ca": "Certificates that the server's is verified with (PEM); the system's if it is left out.",
    "tls_certificate": "Our certificate, where the registry asks for one (PEM).",
    "tls_key": "Its private key, unless it is in the same file.",
    "tls_key_password": "The key's password.",
    "tls_key_password_file": "A file that holds it.",
    "tls_server_name": "The name in the server's certificate, if the address has another one.",
    "tls_minimum_version": "1.2 (the default) or 1.3.",
}


def variable(name: str) -> str:
    """Return the environment variable of an option."""
    return f"{PREFIX}{name.replace(TLS, 'tls__', 1)}".upper()


def refuse_mistyped_variables(options: Iterable[str]) -> None:
    """Refuse a variable that looks like a mistyped one: a command would act on another registry than was meant.

    Raises: InvalidSetting.
    """
    read = {variable(name) for name in options}
    if not any(name.upper().startswith(PREFIX) and name.upper() not in read for name in os.environ):
        return
    from aioelasticjob.settings.checking import Application  # takes long to import, and is seldom needed
    from aioelasticjob.settings.environment import mistyped

    for name, near in mistyped(os.environ, (*Application.model_fields, "profile", "profiles")):
        raise InvalidSetting("environment", name, f"sets nothing; did you mean {near}?")
    of_tls = sorted(name for name in map(variable, OPTIONS) if name.startswith(variable(TLS)))
    for name in os.environ:
        if name.upper().startswith(variable(TLS)) and name.upper() not in of_tls:
            raise InvalidSetting("environment", name, f"sets nothing; known are {', '.join(of_tls)}")


def _option(name: str, text: str) -> inspect.Parameter:
    panel = "Encryption" if name.startswith(TLS) else "Registry"
    option = typer.Option(envvar=variable(name), help=text, rich_help_panel=panel)
    annotation = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)


OPTIONS: Final[Mapping[str, inspect.Parameter]] = {name: _option(name, text) for name, text in _HELP.items()}


def access_to(address: str, given: Mapping[str, Any], profile: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what options and environment say, and for the rest what a profile says, as settings of a connection.

    For an address that is not encrypted, certificates are left out: the environment may have them for another one.
    """
    profile = profile or {}
    before = {**profile, **{f"{TLS}{name}": value for name, value in (profile.get("tls") or {}).items()}}
    chosen = {name: given[name] for name in OPTIONS if given.get(name) is not None}
    for pair in PAIRS:
        if any(name in chosen for name in pair):
            before = {name: value for name, value in before.items() if name not in pair}
    found = {name: value for name, value in {**before, **chosen}.items() if name in OPTIONS and value is not None}
    tls = {name.removeprefix(TLS): found.pop(name) for name in tuple(found) if name.startswith(TLS)}
    return {**found, "tls": tls} if tls and address.startswith("zks://") else found


def refuse_typed_tls(context: typer.Context, address: str) -> None:
    """Refuse certificates that are typed for an address that is not encrypted.

    Raises: InvalidSetting.
    """
    if address.startswith("zks://"):
        return
    for name in OPTIONS:
        source = context.get_parameter_source(name)
        if name.startswith(TLS) and source is not None and source.name == "COMMANDLINE":
            raise InvalidSetting(name, "…", f"{address} is not encrypted: write zks://…, or leave it out")


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets all of them as its first argument."""

    def called(context: typer.Context, **given: Any) -> None:
        refuse_mistyped_variables((*OPTIONS, "registry"))
        options = {name: given.pop(name) for name in OPTIONS}
        command(options, **given)

    return with_options(command, called, OPTIONS.values())


def with_options(
    command: Callable[..., None], called: Callable[..., None], options: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Let ``called`` take what ``command`` takes, but for its first parameter, and the options, as typer reads it."""
    hints = get_type_hints(command, include_extras=True)
    own = [one.replace(annotation=hints[one.name]) for one in list(inspect.signature(command).parameters.values())[1:]]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *options))]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called
