"""What is said of an event store is checked when the application is made, and its password is never shown."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.config.durations import Duration
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.observers.settings import EventStoreSettings, database, masked
from aioelasticjob.observers.sql.engine import engine_for
from aioelasticjob.observers.url_options import connect_options

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///events.db", "sqlite+aiosqlite"),
        ("sqlite://", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///events.db", "sqlite+aiosqlite"),
        ("postgresql://me@host/events", "postgresql+asyncpg"),
        ("mysql://me@host/events", "mysql+asyncmy"),
        ("mariadb://me@host/events", "mariadb+asyncmy"),
    ],
)
def test_urls_get_the_driver_that_serves_them(url: str, driver: str) -> None:
    assert database(url).drivername == driver


@pytest.mark.parametrize(
    "url",
    [
        "",
        "events.db",
        "sqlite:events.db",
        f"me:{SECRET}@host/events",
        f"postgresql:/me:{SECRET}@host/events",
        f"oracle://me:{SECRET}@host/events",
        f"postgres://me:{SECRET}@host/events",
        f"postgresql+psycopg2://me:{SECRET}@host/events",
        f"postgresql://me:{SECRET}@host",
        f"postgresql://me:{SECRET}@host:port/events",
        f"mysql://me:{SECRET}/@host:70000000/",
        f"mysql://me:{SECRET}@host?password={SECRET}",
        "sqlite:////no/such/directory/events.db",
        f"postgresql://me:{SECRET}@host/events?prepared_statement_cache_size={SECRET}",
        f"mysql://me:{SECRET}@host/events?connect_timeout={SECRET}",
        f"postgresql://me@host/events?password={SECRET}&password={SECRET}",
        "sqlite://?timeout=soon",
    ],
)
def test_urls_that_make_no_sense(url: str) -> None:
    with pytest.raises(InvalidSetting, match="event_store") as failure:
        ElasticJob("embedded://", event_store=url)
    assert SECRET not in str(failure.value)
    assert SECRET not in repr(failure.value.value)


@pytest.mark.parametrize("url", ["sqlite://events.db", "sqlite://var/lib/events.db", "sqlite://me@/events.db"])
def test_a_file_with_too_few_slashes_before_it_is_told_how_many_there_must_be(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"a file has three slashes before it, as in sqlite:///events\.db"):
        ElasticJob("embedded://", event_store=url)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("postgresql", "host:{port}/events"),
        ("postgresql", "/events?host=host:{port}"),
        ("postgresql", "host/events?port={port}"),
        ("mysql", "host:{port}/events"),
    ],
)
def test_a_port_that_no_server_can_have_is_named(kind: str, where: str) -> None:
    for port in (0, 65536, 99999):
        with pytest.raises(InvalidSetting, match=f"has the port {port}: write one from 1 to 65535") as failure:
            ElasticJob("embedded://", event_store=f"{kind}://me:{SECRET}@{where.format(port=port)}")
        assert failure.value.setting == "event_store"
        assert SECRET not in str(failure.value)
    database(f"{kind}://me:{SECRET}@{where.format(port=65535)}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///x.db?nonsense=1", "aiosqlite has no option 'nonsense' behind the ?: it has cached_statements, "),
        ("sqlite+aiosqlite:///x.db?timeot=1", "aiosqlite has no option 'timeot' behind the ?: did you mean timeout?"),
        ("postgresql://me@host/events?sslmode=require", "asyncpg has no option 'sslmode' .* did you mean ssl?"),
        ("postgresql://me@host/events?comand_timeout=1", "asyncpg has no option .* did you mean command_timeout?"),
        ("mysql://me@host/events?foo=bar", "asyncmy has no option 'foo' behind the ?: it has autocommit, "),
    ],
)
def test_an_option_that_the_driver_does_not_know_is_named(url: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says.replace("?", r"\?")) as failure:
        ElasticJob("embedded://", event_store=url)
    assert failure.value.setting == "event_store"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///x.db?timeout=5&isolation_level=DEFERRED",
        "sqlite:///file:x.db?uri=true&mode=ro&vfs=unix",
        "postgresql://me@host/events?ssl=require&command_timeout=5&prepared_statement_cache_size=0",
        "postgresql://me@/events?host=a:1&host=b:2&target_session_attrs=read-write",
        "mysql://me@host/events?ssl_ca=/ca.pem&ssl_check_hostname=false&charset=utf8mb4&read_timeout=5",
    ],
)
def test_options_of_the_driver_are_accepted(url: str) -> None:
    assert database(url).query


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("sqlite:///x.db?timeout=2.5&cached_statements=0&detect_types=1", (2.5, 0, 1)),
        ("sqlite:///x.db?isolation_level=IMMEDIATE&check_same_thread=no", ("IMMEDIATE", False)),
        ("sqlite:///file:x.db?uri=true&mode=ro&vfs=unix", (True,)),
        ("postgresql://me@host/events?statement_cache_size=0&max_cached_statement_lifetime=7", (0, 7)),
        ("postgresql://me@host/events?command_timeout=2.5&timeout=5&direct_tls=true", (2.5, 5.0, True)),
        ("postgresql://me@host/events?prepared_statement_cache_size=0&passfile=/a", (0, "/a")),
        ("postgresql://me@host/events?ssl=require", ("require",)),
        ("postgresql://me@host/events?ssl=true", (True,)),
        ("postgresql://me@/events?host=a:1&host=b:2&target_session_attrs=read-write", ("read-write",)),
        ("mysql://me@host/events?ssl=true", ({"check_hostname": False},)),
        ("mysql://me@host/events?ssl=false", (None,)),
        ("mysql://me@host/events?ssl_ca=/ca.pem&ssl_check_hostname=false&ssl=true", ()),  # SQLAlchemy makes it
        ("mysql://me@host/events?connect_timeout=5&read_timeout=6&local_infile=on", (5, 6, True)),
        ("mysql://me@host/events?max_allowed_packet=1000&autocommit=0&sql_mode=ANSI", (1000, False, "ANSI")),
    ],
)
def test_options_are_converted_to_what_the_driver_takes(url: str, options: tuple[object, ...]) -> None:
    found = tuple(connect_options(database(url), "").values())
    assert (found, [type(value) for value in found]) == (options, [type(value) for value in options])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///x.db?timeout=soon", "aiosqlite's option timeout = 'soon' .* a number of seconds above 0"),
        ("sqlite:///x.db?isolation_level=NONE", "isolation_level = 'NONE' .* one of DEFERRED, IMMEDIATE, EXCLUSIVE"),
        ("postgresql://me@host/events?statement_cache_size=many", "asyncpg's option statement_cache_size = 'many'"),
        ("postgresql://me@host/events?statement_cache_size=-1", "= '-1' .* must be a whole number, 0 or more"),
        ("postgresql://me@host/events?command_timeout=0", "command_timeout = '0' .* a number of seconds above 0"),
        ("postgresql://me@host/events?timeout=nan", "timeout = 'nan' behind"),
        ("postgresql://me@host/events?ssl=sure", "ssl = 'sure' .* must be one of disable, allow, prefer, require"),
        ("postgresql://me@host/events?direct_tls=2", "direct_tls = '2' .* must be true or false"),
        ("postgresql://me@host/events?timeout=1&timeout=2", r"timeout = \('1', '2'\) .* a number of seconds"),
        ("postgresql://me@host/events?server_settings=x", "server_settings cannot be written behind the"),
        ("postgresql://me@host/events?prepared_statement_name_func=x", "no option 'prepared_statement_name_func'"),
        ("mysql://me@host/events?ssl=require", "asyncmy's option ssl = 'require' .* must be one of true, false"),
        ("mysql://me@host/events?read_timeout=0", "read_timeout = '0' .* a whole number of seconds above 0"),
        ("mysql://me@host/events?ssl_check_hostname=7", "ssl_check_hostname = '7' .* must be true or false"),
        ("mysql://me@host/events?init_command=SELECT+1", "init_command cannot be written behind the"),
        ("mysql://me@host/events?cursor_cls=x", "cursor_cls cannot be written behind the"),
    ],
)
def test_a_value_that_the_driver_does_not_take_is_named_with_its_option(url: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says) as failure:
        ElasticJob("embedded://", event_store=url)
    assert failure.value.setting == "event_store"


@pytest.mark.parametrize("url", ["postgresql://me@host/events", "mysql://me@host/events"])
def test_the_timeout_in_a_url_takes_the_place_of_ours(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    option = "timeout" if url.startswith("postgresql") else "connect_timeout"
    for given, expected in ((url, 20), (f"{url}?{option}=7", 7)):
        engine = engine_for(EventStoreSettings(given, write_timeout=20), LimitedLog())
        connect = {"postgresql": "asyncpg", "mysql": "asyncmy"}[engine.dialect.name]
        asked = dict[str, object]()

        async def refuse(asked: dict[str, object] = asked, **options: object) -> None:
            asked.update(options)
            raise OSError("on purpose")

        async def main(engine: AsyncEngine = engine) -> None:
            with pytest.raises(OSError, match="on purpose"):
                await engine.connect()

        monkeypatch.setattr(f"{connect}.connect", refuse)
        asyncio.run(main())
        assert asked[option] == expected


@pytest.mark.parametrize("value", [5, True, b"sqlite://", ["sqlite://"]])
def test_what_is_no_url_at_all(value: Any) -> None:
    with pytest.raises(InvalidSetting, match="event_store"):
        ElasticJob("embedded://", event_store=value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention_days", 0),
        ("retention_days", float("nan")),
        ("retention_rows", 1.5),
        ("batch_size", 0),
        ("batch_age", -1),
        ("backlog", True),
        ("write_timeout", float("inf")),
        ("shutdown_timeout", "soon"),
        ("shutdown_timeout", "0s"),
        ("batch_age", True),
    ],
)
def test_settings_that_make_no_sense(setting: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=setting):
        EventStoreSettings("sqlite://", **{setting: value})


@pytest.mark.parametrize("given", [5, "5", "5s", timedelta(seconds=5)])
def test_durations_are_kept_in_seconds(given: Duration) -> None:
    settings = EventStoreSettings("sqlite://", batch_age="250ms", write_timeout="1m", shutdown_timeout=given)
    assert (settings.batch_age, settings.write_timeout, settings.shutdown_timeout) == (0.25, 60, 5)


def test_type_checkers_see_the_settings_that_there_are() -> None:
    source = ast.parse(inspect.getsource(EventStoreSettings)).body[0]
    assert isinstance(source, ast.ClassDef)
    (declared,) = (part for one in source.body if isinstance(one, ast.If) for part in one.body)
    assert isinstance(declared, ast.FunctionDef)
    found = zip(declared.args.args[2:], declared.args.defaults, strict=True)
    assert [(one.arg, ast.literal_eval(value)) for one, value in found] == [
        (field.name, field.default) for field in fields(EventStoreSettings) if field.name != "url"
    ]


@pytest.mark.parametrize(("module", "extra"), [("sqlalchemy", "sql"), ("asyncpg", "postgresql")])
def test_what_is_not_installed_is_named_with_its_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidSetting, match=rf"pip install 'aioelasticjob\[{extra}\]'") as failure:
        ElasticJob("embedded://", event_store=f"postgresql://me:{SECRET}@host/events")
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("password", [SECRET, f"a@b/{SECRET}", f"{SECRET}:@", f"?{SECRET}"])
def test_a_password_is_masked_whatever_is_in_it(password: str) -> None:
    url = f"postgresql://me:{password}@host:5432/events?password={SECRET}"
    assert SECRET not in masked(url)
    assert masked(url).startswith("postgresql://me:…@host:5432/events")


def test_settings_are_shown_without_the_password() -> None:
    shown = repr(EventStoreSettings(f"postgresql://me:{SECRET}@host/events", retention_days=3))
    assert shown.startswith("EventStoreSettings('postgresql://me:…@host/events', retention_days=3, ")
    assert SECRET not in shown
    assert masked("sqlite:///events.db") == "sqlite:///events.db"
