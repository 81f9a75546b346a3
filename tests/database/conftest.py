"""Connections to both shapes of the table."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from supervisor.db import DB

Connection = psycopg.Connection[TupleRow]


@pytest.fixture(params=["database", "old_database"])
def url(request: pytest.FixtureRequest) -> str:
    """A database, once with today's table and once with the older one."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """A transaction that a caller has open."""
    with psycopg.connect(url) as opened:
        yield opened


@pytest.fixture
def db(url: str) -> Iterator[DB]:
    opened = DB(url)
    yield opened
    opened.close()
