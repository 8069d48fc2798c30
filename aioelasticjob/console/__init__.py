"""The web console: it shows all jobs of several registries on live pages, under any ASGI server or application."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioelasticjob.console.application import Console, asgi
    from aioelasticjob.console.settings import ConsoleSettings, RegistrySettings

__all__ = ["Console", "ConsoleSettings", "RegistrySettings", "asgi"]

_HOMES = {
    "Console": "application",
    "ConsoleSettings": "settings",
    "RegistrySettings": "settings",
    "asgi": "application",
}


def __getattr__(name: str) -> object:
    """Import a promised name when it is first asked for, and say which extra it needs where that is missing.

    Raises:
        InvalidSetting: the extra ``console`` is not installed.
    """
    from importlib import import_module

    from aioelasticjob.errors import InvalidSetting

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("aioelasticjob"):
            raise
        raise InvalidSetting("console", error.name, "is not installed: pip install 'aioelasticjob[console]'") from error
    globals()[name] = found
    return found
