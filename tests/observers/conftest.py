"""Real databases: a SQLite file, and Debian's PostgreSQL with a fresh database for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from tests.support import real_postgres
from tests.support.real_postgres import RealPostgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[RealPostgres]:
    if real_postgres.binaries() is None:
        pytest.skip("Debian's postgresql is not installed")
    with real_postgres.postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: RealPostgres) -> str:
    name = f"test_{uuid4().hex}"

    async def make() -> None:
        connection = await asyncpg.connect(postgres_server.url())
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()

    asyncio.run(make())
    return postgres_server.url(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'events.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of each kind in turn."""
    found: str = request.getfixturevalue({"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param])
    return found
