"""Reads SQL text: each place in it that writes to jobs, with the queues, names and args that are literal there.

The parser is Postgres's own (libpg_query, by postgast), so it takes what the server takes. pglast wraps the same
one under the GPL; sqlglot has a grammar of its own, which does not know OVERRIDING SYSTEM VALUE, for one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from postgast import PgQueryError, parse, walk

COMPUTED = "paceline_computed"  # stands for what only a run will tell
WRITES = re.compile(r'\b(insert\s+into|merge\s+into|copy)\s+("?public"?\s*\.\s*)?"?jobs"?(?![\w."])', re.IGNORECASE)

_TEMPLATE = re.compile(r"\{\w*\}")  # of str.format or psycopg.sql
_PARAMETER = re.compile(r"%%|%\(\w+\)[sbt]|%[sbt]\b")


class Unreadable(Exception):
    """Its text is what cannot be read."""


@dataclass(frozen=True, slots=True)
class Args:
    """A literal object; a value may be COMPUTED. Not `whole`: there may be further keys."""

    values: dict[Any, Any]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Named:
    """A job that is enqueued; `args` None: not literal."""

    queue: str
    name: str
    args: Args | None


@dataclass(frozen=True, slots=True)
class Place:
    """A line that enqueues. What is unreadable there may be declared by a comment from line `first` to `last`."""

    line: int
    first: int
    last: int
    jobs: tuple[Named, ...] = ()
    unreadable: str = ""
    wrong: str = ""
    scheduled: bool = False


def read(text: str) -> Iterator[Place]:
    """The places in `text` that write to jobs, and where it is no SQL."""
    try:
        text, tree = _parse(text)
    except PgQueryError as error:
        line = text.count("\n", 0, max(0, error.cursorpos - 1)) + 1
        yield Place(line, 1, text.count("\n") + 1, wrong=f"not read as SQL: {error.message}")
        return
    raw = text.encode()  # the parser counts bytes
    for statement in tree.stmts:
        start = statement.stmt_location
        end = start + (statement.stmt_len or len(raw))
        first, last = (raw.count(b"\n", 0, offset) + 1 for offset in (start, end))
        if statement.stmt.WhichOneof("node") in ("create_function_stmt", "do_stmt"):
            for found in WRITES.finditer(raw[start:end].decode()):
                line = first + found.string.count("\n", 0, found.start())
                yield Place(line, first, last, unreadable="the body of a function")
        for _, node in walk(statement):
            kind = type(node).__name__
            if kind not in ("InsertStmt", "MergeStmt", "CopyStmt") or (kind == "CopyStmt" and not node.is_from):
                continue
            if node.relation.relname == "jobs" and node.relation.schemaname in ("", "public"):
                place = Place(raw.count(b"\n", 0, node.relation.location) + 1, first, last)
                what = f"what {kind[:-4].upper()} writes"
                yield _insert(node, place) if kind == "InsertStmt" else replace(place, unreadable=what)


def _parse(text: str) -> tuple[str, Any]:
    """The tree, and the text that it is of: placeholders are made parameters, and if need be templates names."""
    filled = _PARAMETER.sub(lambda found: "%" if found[0] == "%%" else "$1", text)
    try:
        return filled, parse(filled)
    except PgQueryError:
        for other in (_TEMPLATE.sub(COMPUTED, filled), text):
            try:
                return other, parse(other)
            except PgQueryError:
                continue
        raise


def _insert(insert: Any, place: Place) -> Place:
    columns = [column.res_target.name for column in insert.cols]
    if not {"queue", "name"} <= set(columns):
        return replace(place, wrong="an INSERT INTO jobs names its columns, queue and name among them")
    select = insert.select_stmt.select_stmt
    if len(select.values_lists) == 1:
        return replace(place, wrong="a single row goes in by insert(), which checks its args and notes its callsite")
    try:
        return replace(place, jobs=tuple(_job(dict(zip(columns, row, strict=False))) for row in _rows(select)))
    except Unreadable as error:
        return replace(place, unreadable=str(error))


def _rows(select: Any) -> Iterator[list[Any]]:
    if select.HasField("larg"):  # UNION
        yield from (*_rows(select.larg), *_rows(select.rarg))
    elif select.values_lists:
        yield from (list(row.list.items) for row in select.values_lists)
    else:
        yield [target.res_target.val for target in select.target_list]


def _job(row: dict[str, Any]) -> Named:
    words = {column: _text(row[column]) for column in ("queue", "name") if column in row}
    queue, name = words.get("queue"), words.get("name")
    if queue is None or name is None or _TEMPLATE.search(queue + name):
        raise Unreadable("the queue and name of what is selected")
    return Named(queue, name, _args(row["args"]) if "args" in row else Args({}))


def _text(node: Any) -> str | None:
    """The literal text; None for what is computed."""
    while node.HasField("type_cast"):
        node = node.type_cast.arg
    text: str | None = node.a_const.sval.sval if node.HasField("a_const") and node.a_const.HasField("sval") else None
    return None if text is None or COMPUTED in text else text


def _args(node: Any) -> Args | None:
    """Of a literal object, or of the keys of a jsonb_build_object."""
    if (text := _text(node)) is not None:
        try:
            values = json.loads(text)
        except ValueError:
            return None
        return Args(values) if isinstance(values, dict) else None
    call = node.func_call
    if not call.funcname or call.funcname[-1].string.sval not in ("jsonb_build_object", "json_build_object"):
        return None
    keys = [_text(key) for key in call.args[::2]]
    return Args({key: COMPUTED for key in keys if key is not None}, whole=None not in keys)
