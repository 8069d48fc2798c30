"""Settings of an application from a YAML or TOML file and from the environment, which overrides the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from aioelasticjob.config.job import JobConfig
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Job, check_sendable
from aioelasticjob.settings.checking import Application, JobSettings, SettingsCheck
from aioelasticjob.settings.environment import spelt
from aioelasticjob.settings.errors import Mistake, WrongSettings
from aioelasticjob.settings.files import SettingsFile, read

__all__ = ["Mistake", "Settings", "WrongSettings", "examine", "load"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a file and the environment, checked as far as that is possible without the application's code."""

    _seen: SettingsCheck

    @property
    def application(self) -> Application:
        """The settings of the application as a whole."""
        return self._seen.application

    @property
    def jobs(self) -> Mapping[str, str | None]:
        """The jobs that have settings here, with the kind of each; None for a job that is declared in code."""
        return {name: given.kind for name, given in self._seen.jobs.items()}

    def declared(self, name: str, *, look: bool = True) -> JobConfig:
        """Return the configuration of a job that is declared by its kind; with ``look``, check that this host can run
        it, and has the exceptions that its ``retry`` names.

        Raises:
            WrongSettings: the configuration is wrong, for instance because its script does not exist.
        """
        given = self._seen.jobs[name]
        assert given.kind is not None
        try:
            values = {**self._defaults(in_processes=False), **given.values}
            config = kinds.declared(given.kind, name, values, look=look)
            return _with_known_names(config) if look else config
        except InvalidSetting as wrong:
            raise self._wrong(name, given, wrong) from None

    def applied(self, job: Job) -> JobConfig:
        """Return a job's configuration with its settings from here; the ``defaults`` apply to what the code does not
        set.

        Raises:
            WrongSettings: code and settings contradict each other.
        """
        config = job.config
        engine = job.engine
        names = {spelt(name): name for name in self._seen.jobs}
        name = config.job_name if config.job_name in self._seen.jobs else names.get(spelt(config.job_name), "")
        given = self._seen.jobs.get(name, JobSettings())
        found = self._defaults(in_processes=engine is not None or (job.blocking and config.job_type in kinds.CODED))
        defaults = {key: one for key, one in found.items() if key not in config.model_fields_set}
        if given.kind is not None and given.kind.upper() != config.job_type:
            wrong = InvalidSetting("kind", given.kind, f"the code declares {name} as {config.job_type}")
            raise self._wrong(name, given, wrong)
        try:
            changed = kinds.configured(config, {**defaults, **given.values})
            if changed.executor == "process" and engine is None:
                check_sendable(job.handler, job.blocking)
            return changed if changed.retry == config.retry else _with_known_names(changed)
        except InvalidSetting as wrong:
            raise self._wrong(name or config.job_name, given, wrong) from None

    def all_declared(self, names: Iterable[str]) -> None:
        """Check that every job that has settings here is declared.

        Raises:
            WrongSettings: a job is declared nowhere.
        """
        known = {spelt(name): name for name in names}
        amiss = []
        for name, given in self._seen.jobs.items():
            if given.kind is None and spelt(name) not in known:
                near = get_close_matches(spelt(name), known, n=1)
                hint = f"did you mean {known[near[0]]}?" if near else "give it a kind: script or http, or declare it"
                first = next(iter(given.keys.values()), ("jobs", name))
                amiss.append(self._seen.mistake(first[:3], None, f"no job of this name is declared; {hint}"))
        if amiss:
            raise WrongSettings(amiss)

    def _defaults(self, *, in_processes: bool) -> Mapping[str, object]:
        """Return the settings that all jobs have here, for a job that can run in processes, or one that cannot.

        An async function, a script or a request stays where it runs: who gives all jobs processes means the others.
        """
        values = self._seen.defaults.values
        if in_processes or values.get("executor") != "process":
            return values
        return {key: one for key, one in values.items() if key != "executor"}

    def _wrong(self, name: str, given: JobSettings, wrong: InvalidSetting) -> WrongSettings:
        first, *deeper = wrong.setting.split(".")
        keys = given.keys.get(first) or self._seen.defaults.keys.get(first) or ("jobs", name, first)
        return WrongSettings([self._seen.mistake((*keys, *deeper), wrong.value, wrong.expected)])


def _with_known_names(config: JobConfig) -> JobConfig:
    """Return a configuration after a check of the exceptions that its ``retry`` names."""
    if config.retry is not None:
        config.retry.check_names()
    return config


def examine(file: str | Path | None = None, *, elsewhere: bool = False) -> tuple[Settings, tuple[Mistake, ...]]:
    """Return the settings and every mistake; if ``elsewhere``, scripts and the event store are not looked at here."""
    written = SettingsFile("environment") if file is None else read(file)
    examination = SettingsCheck(written, os.environ, elsewhere)
    examination.run()
    return Settings(examination), examination.mistakes


def load(file: str | Path | None = None) -> Settings:
    """Read a settings file, and the environment, which overrides it.

    Raises:
        WrongSettings: with all mistakes there are.
    """
    settings, found = examine(file)
    if found:
        raise WrongSettings(found)
    return settings
