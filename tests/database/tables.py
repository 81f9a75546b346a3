"""What the tests of the table share: the older shape, looks at what there is, and strangers at work."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from supervisor.migrate import migrate
from supervisor.sql import statement
from tests.support.rows import Rows, Sql

NONE: frozenset[str] = frozenset()
INDEXES = {"jobs_pending", "jobs_started", "jobs_paused", "jobs_finished", "jobs_clock"}

# Older than the one in tests/support: no column is required, and texts have a type of their own.
OLD = """CREATE TABLE jobs (
  id serial, queue varchar(100), name varchar, args jsonb, status text DEFAULT 'pending', callsite text,
  created_at timestamp DEFAULT now(), started_at timestamp, finished_at timestamp)"""


@contextmanager
def transaction(url: str, *statements: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A stranger's open transaction."""
    with psycopg.connect(url, application_name="stranger") as connection:
        for text in statements:
            connection.execute(text.encode())
        yield connection
        connection.commit()


@contextmanager
def migrating(url: str, **arguments: Any) -> Iterator["Future[list[str]]"]:
    with ThreadPoolExecutor() as pool:
        try:
            yield pool.submit(migrate, url, **{"dedupe": NONE, **arguments})
        except BaseException:
            with closing(Rows(url)) as rows:
                rows.cut_off("stranger")  # or the pool would wait for the migrate, and that for the stranger
            raise


def facts(sql: Sql) -> dict[str, Any]:
    [(found,)] = sql(statement("check_schema").decode())
    return dict(found)


def indexes(sql: Sql) -> set[str]:
    """The names of the valid indexes; none may be INVALID."""
    found = facts(sql)["indexes"]
    assert not [name for name, index in found.items() if not index["valid"]]
    return set(found)


def blocked(sql: Sql) -> list[str]:
    """The statements of migrates that wait for a lock."""
    found = sql(
        "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name LIKE 'paceline:migrate/%' AND state = 'active'"
    )
    return [query for (query,) in found]


def insert(sql: Sql, name: str = "a.A", args: str = "{}", queue: str = "a", **more: str) -> None:
    columns, values = "".join(f", {key}" for key in more), ", %s" * len(more)
    sql(f"INSERT INTO jobs (queue, name, args{columns}) VALUES (%s, %s, %s{values})", queue, name, args, *more.values())


def rows(url: str, columns: str = "id, queue, name, args") -> list[tuple[Any, ...]]:
    """What another session sees, in the order promised."""
    with psycopg.connect(url) as other:
        return other.execute(f"SELECT {columns} FROM jobs ORDER BY id".encode()).fetchall()
