"""A database session of the parent's, every call bounded: past its limit the socket is closed and the call abandoned.

asyncio.wait_for is no bound here: psycopg answers its cancellation only after some 10 s of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from supervisor import db
from supervisor.parent.helper import Helpers
from supervisor.sql import statement

T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]
# What a call may raise when the database is not there; all of them are the same outage.
UNREACHABLE = (psycopg.Error, OSError, TimeoutError)


async def bounded(awaitable: Awaitable[T], limit: float, give_up: Callable[[], object] = lambda: None) -> T:
    """The awaitable's result within `limit` seconds; TimeoutError past it, after give_up()."""
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        _abandon(task)
        give_up()
        raise
    if done:
        return task.result()
    _abandon(task)
    give_up()
    # psycopg's wait turns every 0.1 s, notices that its socket is closed, and unregisters the descriptor:
    # let it, before the number is used again.
    await asyncio.wait({task}, timeout=1)
    raise TimeoutError(f"no answer from the database within {limit:g} s")


def _abandon(task: "asyncio.Future[Any]") -> None:
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # its end is of no interest


class Session:
    """One connection, opened when needed. A failed call closes it; the next call opens another."""

    def __init__(self, url: str, name: str, helpers: Helpers, limit: float) -> None:
        self._conninfo, self._helpers, self.limit = db.engine_conninfo(url, name), helpers, limit
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """The connection, opened if need be. Raises what UNREACHABLE lists."""
        if self._connection is None:
            conninfo = await self._helpers.resolve(self._conninfo, self.limit)
            self._connection = await bounded(db.connect_async(conninfo), self.limit)
        return self._connection

    async def call(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on the connection, bounded. Raises what UNREACHABLE lists."""
        connection = await self.connection()
        try:
            return await bounded(work(connection), self.limit, connection.pgconn.finish)
        except (*UNREACHABLE, asyncio.CancelledError) as error:
            if not isinstance(error, psycopg.Error) or db.lost(error, connection.pgconn):
                self.drop()
            raise

    async def execute(self, name: str, /, **params: Any) -> list[TupleRow]:
        """The rows of sql/NAME.sql, [] where it returns none."""

        async def work(connection: Connection) -> list[TupleRow]:
            cursor = await connection.execute(statement(name), params)
            db.refuse_read_only(connection.pgconn)
            return await cursor.fetchall() if cursor.description else []

        return await self.call(work)

    def is_open(self) -> bool:
        """Whether the last call left the connection standing: if it raised, the database refused what was asked."""
        return self._connection is not None

    def drop(self) -> None:
        """Close the connection without a word to the server, which may not be listening."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()
