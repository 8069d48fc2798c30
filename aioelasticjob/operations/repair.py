"""Setting right a configuration that no instance can use, because single settings of it are wrong."""

from __future__ import annotations

from collections.abc import Mapping

from aioelasticjob.config.job import JobConfig, settings_of
from aioelasticjob.config.mistakes import sifted
from aioelasticjob.core.stored_config import see_this_job
from aioelasticjob.core.view import JobView
from aioelasticjob.operations.results import NotPossible


def readable_settings(view: JobView) -> Mapping[str, object]:
    """Return the settings in the registry, by their names; those that are wrong are returned as they are written."""
    if view.fault is None:
        return _as_settings(view.config)
    stored = {**_stored(view), "job_name": view.layout.job}
    _, right = sifted(JobConfig.from_settings, stored)
    wrong = {name: value for name, value in stored.items() if name not in right}
    return {**_as_settings(JobConfig.from_settings(**right)), **wrong}


def repaired(view: JobView, given: Mapping[str, object]) -> JobConfig:
    """Return the configuration in the registry, which cannot be used, with some settings replaced.

    Raises:
        InvalidSetting: a given setting is wrong, or the configuration is that of another job.
        NotPossible: it has no settings, or others are wrong as well, which the error names.
    """
    stored = _stored(view)
    if not stored:
        raise NotPossible(f"{view.fault}: import a whole configuration in its place first")
    see_this_job(_data(view), view.layout)
    settings = {**stored, "job_name": view.layout.job, **given}
    wrong, _ = sifted(JobConfig.from_settings, settings)
    for mistake in wrong:
        if mistake.setting.partition(".")[0] in given:
            raise mistake
    if wrong:
        others = "; ".join(map(str, wrong))
        raise NotPossible(
            f"{view.layout.job}: other settings in the registry are wrong as well: {others}:"
            " give these as well, or import a whole configuration in its place"
        )
    return JobConfig.from_settings(**settings)


def _as_settings(config: JobConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in JobConfig.model_fields}


def _stored(view: JobView) -> dict[str, object]:
    return settings_of(_data(view))


def _data(view: JobView) -> bytes:
    node = view.tree.get(view.layout.config)
    return b"" if node is None else node.data
