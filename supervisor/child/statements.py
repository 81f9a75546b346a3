"""A child's connection and its statements, by libpq itself.

The way through a cursor of psycopg is a third of the Python of a job, and with forty children at work it is what
the processors are short of. And each page that a child touches is a copy of its own from then on: a first cursor of
psycopg's is 0.4 MB of each. A parameter is a text or a bigint.
"""

import json
import select
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from supervisor.sql import numbered

_TEXT, _BOOL, _INT4, _INT8, _FLOAT8, _JSON = 25, 16, 23, 20, 701, 114  # oids in pg_type, which never change
_LATE = 100  # milliseconds
_Loader = Callable[[bytes], Any]
_LOADERS: dict[int, _Loader] = {  # all else is text
    _BOOL: b"t".__eq__,
    _INT4: int,
    _INT8: int,
    _FLOAT8: float,
    _JSON: json.loads,
}


class _Prepared(NamedTuple):
    name: bytes
    params: tuple[str, ...]  # in libpq's order
    columns: list[tuple[int, _Loader]]


class Statements:
    """A connection, and what is prepared on it. Raises psycopg.Error."""

    def __init__(self, pgconn: pq.abc.PGconn, late: Callable[[], object]) -> None:
        self.pgconn, self._late = pgconn, late
        self._prepared = dict[str, _Prepared]()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self.pgconn.socket, select.POLLIN)
        self._writable.register(self.pgconn.socket, select.POLLOUT)

    def execute(
        self, name: str, params: Mapping[str, str | int], meanwhile: Callable[[], object] | None = None
    ) -> list[TupleRow]:
        """The rows of sql/NAME.sql, prepared once; `meanwhile` is called while the server works on it."""
        statement, order, columns = self._prepared.get(name) or self._prepare(name, params)
        self.pgconn.send_query_prepared(statement, _values(params, order))
        return _rows(self._answer(meanwhile), columns)

    def ask(self, name: str, params: Mapping[str, str | int]) -> list[TupleRow]:
        """The rows of sql/NAME.sql, not prepared: for what is asked once in a while."""
        text, order = numbered(name)
        self.pgconn.send_query_params(text, _values(params, order), _types(params, order))
        result = self._answer()
        return _rows(result, _columns(result))

    def _prepare(self, name: str, params: Mapping[str, str | int]) -> _Prepared:
        text, order = numbered(name)
        self.pgconn.send_prepare(name.encode(), text, _types(params, order))
        self._answer()
        self.pgconn.send_describe_prepared(name.encode())
        return self._prepared.setdefault(name, _Prepared(name.encode(), order, _columns(self._answer())))

    def _answer(self, meanwhile: Callable[[], object] | None = None) -> pq.abc.PGresult:
        """The server's answer to what was sent."""
        pgconn = self.pgconn
        while pgconn.flush():  # the socket is full
            self._writable.poll()
        if meanwhile:
            meanwhile()
        answer = None
        while True:
            while pgconn.is_busy():
                # The poll goes on after a signal, once Python's handler has run.
                while not self._readable.poll(_LATE):
                    self._late()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            answer = result
        assert answer is not None, "libpq has a result for whatever was sent"
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(answer)
        return answer


def _types(params: Mapping[str, str | int], order: tuple[str, ...]) -> list[int]:
    return [_TEXT if isinstance(params[each], str) else _INT8 for each in order]


# Loops where a comprehension would do: in Python 3.11 that is a function, made and called for each job.


def _values(params: Mapping[str, str | int], order: tuple[str, ...]) -> list[bytes]:
    values = []
    for each in order:
        values.append(str(params[each]).encode())
    return values


def _columns(result: pq.abc.PGresult) -> list[tuple[int, _Loader]]:
    return [(each, _LOADERS.get(result.ftype(each), bytes.decode)) for each in range(result.nfields)]


def _rows(result: pq.abc.PGresult, columns: list[tuple[int, _Loader]]) -> list[TupleRow]:
    rows = []
    for row in range(result.ntuples):
        cells: list[Any] = []
        for column, load in columns:
            cell = result.get_value(row, column)
            cells.append(None if cell is None else load(cell))
        rows.append(tuple(cells))
    return rows
