"""The statements of a job's life on a child's connection, by libpq itself.

The way through a cursor of psycopg is a third of the Python of a job, and with forty children at work it is what
the processors are short of. Each statement is prepared once per connection; a parameter is a text or a bigint.
"""

import select
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from supervisor.sql import numbered

_TEXT, _INT8, _FLOAT8 = 25, 20, 701  # oids in pg_type, which never change
_Loader = Callable[[bytes], Any]
_LOADERS: dict[int, _Loader] = {_INT8: int, _FLOAT8: float}  # all else is text


class _Prepared(NamedTuple):
    name: bytes
    params: tuple[str, ...]  # in libpq's order
    columns: list[tuple[int, _Loader]]


class Statements:
    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        self.connection, self._pgconn = connection, connection.pgconn
        self._prepared = dict[str, _Prepared]()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        self._writable.register(self._pgconn.socket, select.POLLOUT)

    def execute(
        self, name: str, params: Mapping[str, str | int], meanwhile: Callable[[], object] | None = None
    ) -> list[TupleRow]:
        """The rows of sql/NAME.sql; `meanwhile` is called while the server works on it. Raises psycopg.Error."""
        statement, order, columns = self._prepared.get(name) or self._prepare(name, params)
        self._pgconn.send_query_prepared(statement, [str(params[each]).encode() for each in order])
        result = self._answer(meanwhile)
        get, rows = result.get_value, range(result.ntuples)
        return [
            tuple([None if (cell := get(row, column)) is None else load(cell) for column, load in columns])
            for row in rows
        ]

    def _prepare(self, name: str, params: Mapping[str, str | int]) -> _Prepared:
        text, order = numbered(name)
        types = [_TEXT if isinstance(params[each], str) else _INT8 for each in order]
        self._pgconn.send_prepare(name.encode(), text, types)
        self._answer()
        self._pgconn.send_describe_prepared(name.encode())
        described = self._answer()
        columns = [(each, _LOADERS.get(described.ftype(each), bytes.decode)) for each in range(described.nfields)]
        return self._prepared.setdefault(name, _Prepared(name.encode(), order, columns))

    def _answer(self, meanwhile: Callable[[], object] | None = None) -> pq.abc.PGresult:
        """The server's answer to what was sent."""
        pgconn = self._pgconn
        while pgconn.flush():  # the socket is full
            self._writable.poll()
        if meanwhile:
            meanwhile()
        answer = None
        while True:
            while pgconn.is_busy():
                self._readable.poll()  # goes on after a signal, once Python's handler has run
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            answer = result
        assert answer is not None, "libpq has a result for whatever was sent"
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(answer)
        return answer
