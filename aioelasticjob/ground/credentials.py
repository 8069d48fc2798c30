"""Hides credentials in text and in JSON: what is marked as secret, and what looks like a credential."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aioelasticjob.ground.nesting import TooDeep, is_too_deep, read_json

HIDDEN: Final = "…"
"""What stands in place of a credential."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks a setting of a kind of job: its value, and everything below it, is shown to operators only."""


SECRET: Final = Secret()

_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|passwd|secret|token|credential|apikey|accesskey|authkey|privatekey|pass\d*$"
    r"|(^|_)(pwd|key|keys|auth|authorization|authentication|cookie|cookies|dsn|sig|sign|signature|jwt|bearer|webhook)"
    r"\d*(_|$)"
)
_CONTAINERS: Final = ("headers", "environment", "environ", "env", "url", "uri")
"""Names below which nothing is shown but the host of a URL, as they often hold credentials."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL)
_URL: Final = re.compile(r"(?<![\w+.-])([\w+.-]+)://([^\s\"'<>`|\\]+)")
_HOOK: Final = re.compile(r"hook|/robot/|/bot\d|api\.telegram", re.IGNORECASE)
_PAIR: Final = re.compile(r"(?P<name>[^?&#;=]+)=(?P<value>[^&#;]*)")
_QUOTED: Final = r"\\\"(?:(?!\\\").)*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_BARE: Final = r"(?:\\.|[^\s;&\"'\\])+"
_ASSIGNMENT: Final = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)\\?[\"']?\s*(?:=>|:=|=|(?P<colon>:))[ \t]*")
"""What stands before a value.  The value is read only if it is a credential: else others may be in it."""
_ASSIGNED: Final = re.compile(rf"(?:{_QUOTED}|{_BARE})+")
_ASSIGNED_TO_LINE: Final = re.compile(rf"(?:{_QUOTED})(?:{_QUOTED}|{_BARE})*|[^\n\"']+")
_OPTION: Final = re.compile(r"(?<![^\s\"'])--?(?P<name>[A-Za-z][\w-]*)\s+")
_OPTION_VALUE: Final = re.compile(rf"(?!-)(?:{_QUOTED}|{_BARE})+")
_SCHEME: Final = re.compile(r"\b(Bearer|(?:Basic|Token|Digest)(?=\s+\S*[\d=]))\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_USER: Final = re.compile(r"(?<!\S)((?:-u|-U|--user|--proxy-user)[\s=]*)[\"']?[^\s:\"']+:[^\s\"']+[\"']?")
_COMMAND: Final = re.compile(r"\b(mysql\w*|mariadb[\w-]*|sshpass|redis-cli)\b[^\n;|]*")
_COMMAND_PASSWORD: Final = re.compile(r"(?<=\s)(-[pa]\s*)(?:\"[^\"]*\"|'[^']*'|\S+)")
_KNOWN: Final = re.compile(
    r"\b(?:gh[a-z]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}"
    r"|[srp]k[_-][\w-]{16,}|eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?)"
)
_LOGIN: Final = re.compile(r"((?:^|[?&])(?:digest|sasl)=)[^&]+", re.IGNORECASE)
_LONG: Final = re.compile(r"(?<![\w-])[A-Za-z0-9_-]{24,}")
_LETTERS_AND_DIGITS: Final = re.compile(r"[A-Za-z0-9]{12,}")
_HEX: Final = re.compile(r"(?=.*\d)(?=.*[a-fA-F])[0-9a-fA-F]{32,}")


def is_secret_name(name: str) -> bool:
    """Whether a setting, variable, option or header of this name usually holds a credential."""
    if name.endswith(("Error", "Exception")):
        return False
    plain = re.sub(r"[^A-Za-z0-9]+", "_", _CAMEL.sub("_", name)).lower()
    return _SECRET_NAME.search(plain) is not None


def hide_in_json(value: object, marked: Collection[str] = ()) -> object:
    """Return a value of JSON without credentials; ``marked`` are names below which nothing is shown, at any depth.

    Of a value that is nested too deeply nothing is shown: nobody writes settings so deep.
    """
    if is_too_deep(value):
        return HIDDEN
    return _hidden(value, marked)


def hide_all(value: object) -> object:
    """Return a value of JSON that shows the names in it, and of a URL the host, but nothing else."""
    if is_too_deep(value):
        return HIDDEN
    return _names_only(value)


def hide_in_text(text: str, marked: Collection[str] = ()) -> str:
    """Return text without credentials; text that is a JSON object or list is read as such, as by ``hide_in_json``."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            read = read_json(text)
            hidden = hide_in_json(read, marked)
        except TooDeep:
            return HIDDEN
        except ValueError:
            pass
        else:
            return text if hidden == read else json.dumps(hidden, ensure_ascii=False)
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL.sub(lambda found: f"{found[1]}://{_rest_of_url(found[2])}", text)
    text = _hide_values(text, _ASSIGNMENT, _value_assigned)
    text = _hide_values(text, _OPTION, lambda found: _OPTION_VALUE)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = _USER.sub(rf"\1{HIDDEN}", text)
    text = _COMMAND.sub(lambda found: _COMMAND_PASSWORD.sub(rf"\1{HIDDEN}", found[0]), text)
    text = _KNOWN.sub(HIDDEN, text)
    return _LONG.sub(lambda found: HIDDEN if _looks_random(found[0]) else found[0], text)


def hide_in_address(text: str) -> str:
    """Return an address, or its options, without credentials, also those that have the names of our own options."""
    return _LOGIN.sub(rf"\1{HIDDEN}", hide_in_text(text))


def _hidden(value: object, marked: Collection[str]) -> object:
    if isinstance(value, Mapping):
        return {key: _below(str(key), part, marked) for key, part in value.items()}
    if isinstance(value, str):
        return hide_in_text(value)
    if isinstance(value, Sequence):
        return _words(value, marked)
    return value


def _names_only(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _names_only(part) for key, part in value.items()}
    if isinstance(value, str):
        if not value:
            return value
        return HIDDEN if _URL.fullmatch(value) is None else _host_only(value)
    if isinstance(value, Sequence):
        return [_names_only(part) for part in value]
    return None if value is None else HIDDEN


def _below(name: str, value: object, marked: Collection[str]) -> object:
    plain = name.lower()
    if name in marked or plain in _CONTAINERS or plain.startswith("header.") or is_secret_name(name):
        return _names_only(value)
    return _hidden(value, marked)


def _words(values: Sequence[object], marked: Collection[str]) -> list[object]:
    """Hide in a list, which may be a command line: the word after an option such as ``--password`` is its value."""
    hidden = list[object]()
    before = list[str]()
    for value in values:
        if before and _takes_secret(before):
            hidden.append(_names_only(value))
        else:
            hidden.append(_hidden(value, marked))
        before.append(value if isinstance(value, str) else "")
    return hidden


def _takes_secret(words: Sequence[str]) -> bool:
    """Whether the next word of a command line is a credential."""
    last = words[-1]
    short = {"-u": "curl", "-U": "curl", "-p": "sshpass", "-a": "redis-cli"}.get(last)
    if short is not None:
        return any(word.rpartition("/")[2] == short for word in words)
    return last.startswith("-") and "=" not in last and is_secret_name(last)


def _hide_values(text: str, names: re.Pattern[str], value_after: Callable[[re.Match[str]], re.Pattern[str]]) -> str:
    parts = list[str]()
    shown = 0
    position = 0
    while found := names.search(text, position):
        position = found.end()
        is_url = text[position - 1] == ":" and text.startswith("//", position)
        if is_url or not is_secret_name(found["name"]):
            continue
        value = value_after(found).match(text, position)
        if value is None:
            continue
        quote = value[0][:1]
        if quote not in ("'", '"'):
            quote = ""
        parts.append(f"{text[shown:position]}{quote}{HIDDEN}{quote}")
        position = value.end()
        shown = position
    return "".join([*parts, text[shown:]])


def _value_assigned(found: re.Match[str]) -> re.Pattern[str]:
    return _ASSIGNED if found["colon"] is None else _ASSIGNED_TO_LINE


def _rest_of_url(rest: str) -> str:
    authority, *_ = re.split(r"[/?#]", rest, maxsplit=1)
    if "@" in authority:
        after_login = rest[authority.rindex("@") + 1 :]
        return f"{HIDDEN}@{_rest_of_url(after_login)}"
    port = authority.partition("]")[2] or authority.rpartition(":")[2]
    if ":" in authority and "@" in rest and not port.lstrip(":").isdecimal():  # a password may contain a slash
        _, _, after_login = rest.rpartition("@")
        return f"{HIDDEN}@{_rest_of_url(after_login)}"
    path = rest[len(authority) :]
    if path.strip("/") and _HOOK.search(rest):
        return f"{authority}/{HIDDEN}"
    before, mark, query = _split_query(path)
    shown = "/".join(_path_part(part) for part in before.split("/"))
    return f"{authority}{shown}{mark}{_PAIR.sub(_hide_in_query, query)}"


def _path_part(part: str) -> str:
    is_secret = _KNOWN.fullmatch(part) is not None or _looks_random(part)
    return HIDDEN if is_secret else part


def _split_query(path: str) -> tuple[str, str, str]:
    found = re.search(r"[?#]", path)
    if found is None:
        return path, "", ""
    return path[: found.start()], found[0], path[found.end() :]


def _hide_in_query(found: re.Match[str]) -> str:
    if is_secret_name(found["name"]) or _looks_random(found["value"]):
        return f"{found['name']}={HIDDEN}"
    return found[0]


def _host_only(url: str) -> str:
    scheme, _, rest = url.partition("://")
    before_path, *_ = re.split(r"[/?#]", _rest_of_url(rest), maxsplit=1)
    _, _, authority = before_path.rpartition("@")
    shown = f"{scheme}://{authority}"
    if rest.rstrip("/") != authority:
        shown += f"/{HIDDEN}"
    return shown


def _looks_random(text: str) -> bool:
    """Whether text is a long mixture of letters and digits, as only machines write it."""
    if _HEX.fullmatch(text):
        return True
    if len(text) < 24 or not _LONG.fullmatch(text):
        return False
    return any(_is_mixture(part) for part in _LETTERS_AND_DIGITS.findall(text))


def _is_mixture(text: str) -> bool:
    digits = sum(map(str.isdigit, text))
    return digits >= 2 and not text.isupper() and not text.islower()
