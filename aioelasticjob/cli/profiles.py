"""Profiles: registries by name, in the file `profiles.toml` of the user who types the command."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aioelasticjob.config.mistakes import unknown_setting
from aioelasticjob.errors import InvalidSetting

FILE = "AIOELASTICJOB_PROFILES"
"""The environment variable that names another file than the usual one."""


class Profile(BaseModel):
    """One registry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    registry: str
    digest: Annotated[str | None, Field(repr=False)] = None
    digest_file: str | None = None
    sasl: Annotated[str | None, Field(repr=False)] = None
    sasl_file: str | None = None
    tls: Annotated[dict[str, Any] | None, Field(repr=False)] = None
    timeout: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None
    """Seconds to wait for the registry."""

    @property
    def access(self) -> Mapping[str, Any]:
        """Credentials and certificates."""
        return self.model_dump(exclude={"registry", "timeout"}, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of a file."""

    path: Path
    by_name: Mapping[str, Profile]
    default: str | None

    def named(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises:
            InvalidSetting: there is none of that name.
        """
        if name not in self.by_name:
            there = ", ".join(sorted(self.by_name)) or "none"
            raise InvalidSetting("profile", name, f"{self.path} has no such profile; there are: {there}")
        return self.by_name[name]


def path() -> Path:
    """Return the path of the file, which need not exist."""
    return Path(os.environ.get(FILE) or Path(typer.get_app_dir("aioelasticjob")) / "profiles.toml")


def load() -> Profiles:
    """Return the profiles; none if there is no file.

    Raises:
        InvalidSetting: the file cannot be read, or makes no sense; names the file and the place.
    """
    file = path()
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return Profiles(file, {}, None)
    except (OSError, ValueError) as error:  # a file that is not UTF-8 or not TOML raises a ValueError
        raise InvalidSetting("profiles", str(file), f"cannot be read: {error}") from None
    default = content.pop("default", None)
    found = Profiles(file, {name: _profile(file, name, value) for name, value in content.items()}, default)
    if default is not None:
        found.named(str(default))
    return found


def _profile(file: Path, name: str, table: object) -> Profile:
    try:
        return Profile.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]  # the input may be a digest
        where, said = ".".join([name, *map(str, first["loc"])]), first["msg"]
        if first["type"] == "extra_forbidden":
            said = unknown_setting(str(first["loc"][-1]), "…", Profile.model_fields).expected
        raise InvalidSetting("profiles", str(file), f"{where}: {said}") from None
