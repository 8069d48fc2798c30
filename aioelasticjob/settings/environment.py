"""Settings from the environment, also those of single jobs: ``AIOELASTICJOB_JOBS__BACKUP__CRON``.

pydantic-settings would read the values, but it does not say which variable a value comes from, which every mistake has
to name.  Besides, it splits the name of a job that has ``__`` in it, and leaves out mistyped variables without a word.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from aioelasticjob.ground.nesting import read_json

PREFIX = "AIOELASTICJOB_"
SIMILARITY = 0.85
"""How similar a variable's name must be to that of a setting to be taken for a mistyped one; 1 is equal."""
_OF_A_JOB = f"{PREFIX}JOBS__"
_LIKE_A_JOBS = (f"{PREFIX}JOBS_", f"{PREFIX}DEFAULTS_")
"""How variables begin that are meant for jobs: with one underscore in place of two, or for the defaults of a file."""
_READ_ELSEWHERE = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("PROFILE", "PROFILES"),  # by the command line
        *("CONTEXT", "JOB_NAME", "TASK_ID", "JOB_PARAMETER", "FIRE_TIME", "SOURCE"),  # by scripts
        *("ITEMS", "ITEM", "PARAMETER", "FENCE", "ATTEMPT"),
    )
)
_OF_TLS = f"{PREFIX}TLS__"
_SECRET = re.compile("passw|secret|token|credential|login")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that sets one setting of one job."""

    name: str
    job: str
    """The job's name, spelt as in the file if the file has the job."""
    setting: str
    value: object

    def advice(self, names: Container[str], settings: Container[str]) -> str:
        """Return what to write in its place if it names no setting of a job, or a part of one; else nothing."""
        if not self.setting:
            return f"write {_OF_A_JOB}JOB__SETTING"
        outer, _, whole = self.job.rpartition("__")
        if not outer or self.job in names or self.setting in settings or whole not in settings:
            return ""
        example = f'{{"{self.setting}": …}}'
        return f"sets nothing: write {self.name.rpartition('__')[0]}, with all parts of {whole} as JSON: {example}"


def spelt(name: str) -> str:
    """Return a job's name as it is spelt in a variable's name: ``order-export`` becomes ``order_export``."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def of_jobs(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[Variable]:
    """Return the variables that set a setting of a job; the setting is empty if the variable does not name one."""
    known = {spelt(name): name for name in names}
    for variable, value in environment.items():
        if variable.upper().startswith(_OF_A_JOB):
            job, _, setting = variable[len(_OF_A_JOB) :].rpartition("__")
            yield Variable(variable, known.get(spelt(job), spelt(job)), setting.lower() if job else "", _value(value))


def name_of(field: str, environment: Mapping[str, str]) -> str | None:
    """Return the variable that sets a field of the settings, None if there is none; an empty one sets nothing."""
    wanted = f"{PREFIX}{field}".upper()
    return next((name for name, value in environment.items() if name.upper() == wanted and value), None)


def mistyped(environment: Mapping[str, str], fields: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that nothing reads and that looks like another one, with the name of that other one."""
    read = {f"{PREFIX}{field}".upper() for field in fields}
    for variable in environment:
        name = variable.upper()
        if name.startswith(PREFIX) and name not in read | _READ_ELSEWHERE and not name.startswith((_OF_A_JOB, _OF_TLS)):
            head, separator, _ = name.partition("__")
            near = get_close_matches(name, read, n=1, cutoff=SIMILARITY)
            is_like_jobs = separator and get_close_matches(head, [_OF_A_JOB.rstrip("_")], cutoff=SIMILARITY)
            if is_like_jobs or f"{name}_".startswith(_LIKE_A_JOBS):
                near = [f"{_OF_A_JOB}JOB__SETTING"]
            if near:
                yield variable, near[0]


def tls_of(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the settings below ``tls`` that variables set, such as ``AIOELASTICJOB_TLS__CA``: variable and value."""
    found = ((name, value) for name, value in environment.items() if name.upper().startswith(_OF_TLS) and value)
    return {name[len(_OF_TLS) :].lower(): (name, value) for name, value in found}


def may_be_secret(keys: Sequence[str]) -> bool:
    """Return whether the value of a setting of the application may be a secret, judged by its name, even if that is
    misspelt.
    """
    name = keys[-1] if keys[:1] == ("tls",) else keys[0] if len(keys) == 1 else ""
    return not name.endswith("_file") and bool(_SECRET.search(name) or get_close_matches(name, ("digest", "sasl"), n=1))


def _value(text: str) -> object:
    """Return a list or an object if the text is one in JSON; any other text is returned as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return read_json(text)
    except ValueError:
        return text
