"""Rows of `jobs`, by plain SQL: what a test puts in and reads, independent of the engine's own statements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

Sql = Callable[..., list[tuple[Any, ...]]]  # the `sql` fixture: sql(statement, *params)

_COLUMNS = "id, queue, name, args, status, callsite, created_at, started_at, finished_at"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `jobs`. Times have a zone only where the table's columns do."""

    id: int
    queue: str
    name: str
    args: Any
    status: str
    callsite: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Rows:
    """One autocommit session of one database. It opens a new one when the server has closed it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: psycopg.Connection[TupleRow] | None = None

    def execute(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """The rows that the statement answers with; placeholders are `%s`, and without params a `%` is itself."""
        cursor = self._connection().execute(statement.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def insert(
        self,
        queue: str,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        status: str = "pending",
        age: float = 0,
    ) -> int:
        """A row's id. `age` makes it old: created, and unless it is pending also started, that many seconds ago."""
        [(job,)] = self.execute(
            "INSERT INTO jobs (queue, name, args, status, created_at, started_at, finished_at)"
            " SELECT %s, %s, %s, given.status, given.time,"
            " CASE WHEN given.status <> 'pending' THEN given.time END,"
            " CASE WHEN given.status NOT IN ('pending', 'started') THEN given.time END"
            " FROM (SELECT %s::text, now() - %s * interval '1 second') AS given(status, time) RETURNING id",
            queue,
            name,
            Jsonb(args or {}),
            status,
            age,
        )
        return int(job)

    def insert_many(self, count: int, queue: str, name: str, args: Mapping[str, Any] | None = None) -> list[int]:
        """The ids of `count` equal rows, in the order of their ids, by one statement. args also get their number."""
        found = self.execute(
            "INSERT INTO jobs (queue, name, args)"
            " SELECT %s, %s, %s || jsonb_build_object('number', number)"
            " FROM generate_series(1, %s) AS number RETURNING id",
            queue,
            name,
            Jsonb(args or {}),
            count,
        )
        return sorted(int(job) for (job,) in found)

    def status(self, job: int) -> str:
        """Raises LookupError where there is no such row."""
        return self.row(job).status

    def statuses(self, queue: str) -> list[str]:
        """Those of the queue's rows, in the order of their ids."""
        return [status for (status,) in self.execute("SELECT status FROM jobs WHERE queue = %s ORDER BY id", queue)]

    def row(self, job: int) -> Row:
        found = self.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = %s", job)
        if len(found) != 1:  # the older table has no primary key, so there might be two
            raise LookupError(f"{len(found)} rows have the id {job}")
        return Row(*found[0])

    def all(self, queue: str) -> list[Row]:
        """The queue's rows, in the order of their ids."""
        return [Row(*row) for row in self.execute(f"SELECT {_COLUMNS} FROM jobs WHERE queue = %s ORDER BY id", queue)]

    def sessions(self, pattern: str = "paceline:%") -> list[str]:
        """The application names, LIKE `pattern`, of the sessions on this database."""
        found = self.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE %s ORDER BY 1",
            pattern,
        )
        return [name for (name,) in found]

    def cut_off(self, pattern: str) -> int:
        """End those sessions on the server, as an operator would; their number."""
        [(ended,)] = self.execute(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE %s",
            pattern,
        )
        return int(ended)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _connection(self) -> psycopg.Connection[TupleRow]:
        if self._session is None or self._session.closed:
            # Not in the URL: the user's own `options` would be lost. The zone is what a plain timestamp is read in.
            session = psycopg.connect(self.url, autocommit=True, application_name="test rows")
            session.execute("SET TimeZone = 'UTC'")
            self._session = session
        return self._session
