"""Connections: the engine's own sessions, and `DB`, the lazy pool that handlers and callers use."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from supervisor.errors import UsageError, UsedBeforeFork
from supervisor.sql import statement

# What libpq is told: a vanished server is noticed within about 30 s. A value in the user's URL wins.
_LIBPQ = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_IDLE_CHECK = 1.0  # seconds in the pool after which a connection is asked before it is lent: the server may have gone


def check_url(url: str) -> str:
    """`url`, if libpq can read it; UsageError otherwise."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        reason = re.sub('".*"', "...", " ".join(str(error).split()))  # libpq quotes the URI, password and all
        raise UsageError(f"DATABASE_URL is no libpq URI: {reason}") from None
    return url


def session_name(role: str, detail: str, host: str) -> str:
    """`paceline:ROLE/DETAIL@HOST` in the 63 bytes that Postgres keeps; the host is cut first."""
    return f"paceline:{role}/{detail}@{host}".encode()[:63].decode("utf-8", "ignore")


def engine_conninfo(url: str, name: str) -> str:
    """The conninfo of an engine session named `name`: it must be able to write, and notices a dead server."""
    given = conninfo_to_dict(url)
    return make_conninfo(
        url,
        **{key: value for key, value in _LIBPQ.items() if key not in given},
        application_name=name,
        target_session_attrs="read-write",
        client_encoding="UTF8",
    )


def connect(url: str, name: str) -> psycopg.Connection[TupleRow]:
    """A synchronous engine session, each statement its own transaction. Raises psycopg.Error."""
    connection = psycopg.Connection.connect(engine_conninfo(url, name), autocommit=True, prepare_threshold=0)
    connection.execute(statement("session"), prepare=False)  # once in its life
    return connection


async def connect_async(conninfo: str) -> psycopg.AsyncConnection[TupleRow]:
    """The same for the parent. `conninfo` is engine_conninfo's with every name resolved: psycopg uses a thread."""
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=0)
    await connection.execute(statement("session"), prepare=False)
    return connection


def asking(connection: psycopg.Connection[Any]) -> Callable[..., list[TupleRow]]:
    """`ask(name, **params)`: the rows of sql/NAME.sql, [] where it returns none. Raises psycopg.Error."""

    def ask(name: str, /, **params: Any) -> list[TupleRow]:
        cursor = connection.execute(statement(name), params)
        return cursor.fetchall() if cursor.description else []

    return ask


def lost(error: BaseException, pgconn: pq.abc.PGconn | None) -> bool:
    """Whether the server is no longer on the other end (or is no longer a primary); not any OperationalError."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate or ""
    if state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05", "25P03", "25006"):
        return True
    gone = pgconn is None or pgconn.status == pq.ConnStatus.BAD
    return gone and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def refuse_read_only(pgconn: pq.abc.PGconn) -> None:
    """Raise as a write would where the server has said, along with an answer, that it takes none any more.

    Who only reads would stay with an old primary for as long as that runs.
    """
    said = pgconn.parameter_status
    if b"on" in (said(b"default_transaction_read_only"), said(b"in_hot_standby")):
        raise psycopg.errors.ReadOnlySqlTransaction("the server has turned read-only")


class _PooledConnection(psycopg.Connection[TupleRow]):
    returned_at = 0.0


def _outlast_the_pool(connection: _PooledConnection) -> None:
    connection.execute("SET idle_session_timeout = 0")  # to be idle in the pool is not the role's idleness
    connection.commit()


def _note_return(connection: _PooledConnection) -> None:
    connection.returned_at = time.monotonic()


def _check_if_idle_for_long(connection: _PooledConnection) -> None:
    if time.monotonic() - connection.returned_at > _IDLE_CHECK:
        ConnectionPool.check_connection(connection)


class DB:
    """A database by its URL (default: DATABASE_URL), with a pool that each process opens on first use.

    `with db.connection() as conn:` lends a connection for one transaction: committed at the end of the
    block, rolled back if it raises. Raises psycopg.OperationalError where there is no server, and
    psycopg_pool.PoolTimeout.
    """

    def __init__(self, url: str | None = None) -> None:
        url = url or os.environ.get("DATABASE_URL")
        if not url:
            raise UsageError("no database: pass a URL to DB or set DATABASE_URL")
        self.url = check_url(url)
        self._pool: ConnectionPool[_PooledConnection] | None = None
        self._pid = 0  # of the process that opened the pool
        self._parent = 0  # of the process that must not

    @classmethod
    def for_children(cls, url: str) -> "DB":
        """The DB that a registry's constructors are given: a use of it in this process is an error."""
        db = cls(url)
        db._parent = os.getpid()
        return db

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[TupleRow]]:
        with self._opened().connection() as connection:
            yield connection

    def _opened(self) -> "ConnectionPool[_PooledConnection]":
        pid = os.getpid()
        if pid == self._parent:
            raise UsedBeforeFork("a registry's db was used in the parent, before fork; use it inside a handler")
        if self._pool is None or self._pid != pid:  # a pool that came through a fork is not ours to use
            self._pool, self._pid = self._new_pool(), pid
        return self._pool

    def _new_pool(self) -> "ConnectionPool[_PooledConnection]":
        # Of several hosts the primary, as for the engine's own sessions, unless the URL asks for another.
        wanted = conninfo_to_dict(self.url).get("target_session_attrs", "read-write")
        conninfo = make_conninfo(
            self.url,
            fallback_application_name="paceline handler",
            client_encoding="UTF8",
            target_session_attrs=wanted,
        )
        return ConnectionPool(
            conninfo,
            connection_class=_PooledConnection,
            min_size=0,
            max_size=4,
            open=True,
            check=_check_if_idle_for_long,
            configure=_outlast_the_pool,
            reset=_note_return,
        )

    def close(self) -> None:
        """Close this process's pool, if it has opened one."""
        if self._pool is not None and self._pid == os.getpid():
            self._pool.close()
        self._pool = None
