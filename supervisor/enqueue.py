"""Enqueue: a job becomes a pending row, with the place in the code that asked for it.

The database does the rest: its indexes dedupe, its trigger wakes the queue.

Inside a transaction or span of the caller's own Sentry, each enqueue is a span queue.publish. Its trace does not go
on in the child: no column of the table can carry it. Both ends show the job's id, as messaging.message.id.
"""

import functools
import os
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import msgspec
import psycopg
import sentry_sdk
from psycopg.rows import tuple_row
from sentry_sdk.tracing import Span

from supervisor import report
from supervisor.args import encode
from supervisor.db import DB
from supervisor.sql import statement
from supervisor.status import storable

Args: TypeAlias = Mapping[str, Any] | msgspec.Struct | None

_PACKAGE = Path(__file__).absolute().parent
_STDLIB = Path(os.__file__).parent
_INSTALLED = ("site-packages", "dist-packages")
_ROOT_MARKS = ("pyproject.toml", "setup.py", ".git")


def insert(
    db: DB | psycopg.Connection[Any], queue: str, name: str, args: Args = None, *, callsite: str | None = None
) -> int:
    """Enqueue one job; its id, or 0 where the same job is already pending or started (of a deduped name).

    On a connection it is part of the caller's transaction, which a 0 leaves usable; a DB commits it. A rival
    that has not committed yet is waited for (at REPEATABLE READ and above, one that the snapshot does not show
    is a SerializationFailure). `callsite` is the caller's file and line unless given.

    Raises BadArgs and ValueError before the database is asked, psycopg.Error after.
    """
    row = _row(queue, name, args, callsite)
    span, began = sentry_sdk.get_current_span(), time.time()
    with _lent(db) as connection:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)  # whatever factories the connection has
        id = _id(cursor.execute(statement("insert"), row).fetchone())
    if span is not None:
        _trace(span, began, [(queue, row["args"], id)])
    return id


def insert_many(
    db: DB | psycopg.Connection[Any], jobs: Iterable[tuple[str, str, Args]], *, callsite: str | None = None
) -> list[int]:
    """Enqueue (queue, name, args) each, in one statement: an id or 0 for each, in order; all or none."""
    queues, names, texts = [], [], []
    for number, (queue, name, args) in enumerate(jobs):
        job = f"jobs[{number}]."
        queues.append(_word(queue, f"{job}queue", 40))
        names.append(_word(name, f"{job}name", 200))
        texts.append(encode(args, f"{job}args"))
    if not queues:
        return []
    rows = {"queues": queues, "names": names, "args": texts, "callsite": callsite or _caller()}
    span, began = sentry_sdk.get_current_span(), time.time()
    with _lent(db) as connection:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        ids = [_id(row) for row in cursor.execute(statement("insert_many"), rows).fetchall()]
    if span is not None:
        _trace(span, began, zip(queues, texts, ids, strict=True))
    return ids


def insert_async(
    connection: psycopg.AsyncConnection[Any], queue: str, name: str, args: Args = None, *, callsite: str | None = None
) -> Coroutine[Any, Any, int]:
    """insert() to be awaited, inside the caller's transaction."""
    # No `async def`: as a task, a coroutine has the event loop for its caller. So bad args raise here, too.
    row = _row(queue, name, args, callsite)
    span = sentry_sdk.get_current_span()

    async def insert() -> int:
        began = time.time()
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(statement("insert"), row)
        id = _id(await cursor.fetchone())
        if span is not None:
            _trace(span, began, [(queue, row["args"], id)])
        return id

    return insert()


def _row(queue: str, name: str, args: Args, callsite: str | None) -> dict[str, Any]:
    return {
        "queue": _word(queue, "queue", 40),
        "name": _word(name, "name", 200),
        "args": encode(args),
        "callsite": callsite or _caller(),
    }


def _trace(caller: Span, began: float, jobs: Iterable[tuple[str, str, int]]) -> None:
    """One span for each queue of a call's (queue, args, id); a deduped job was not published."""
    published: dict[str, dict[int, int]] = {}
    for queue, args, id in jobs:
        if id:
            published.setdefault(queue, {})[id] = len(args.encode())
    for queue, sizes in published.items():
        facts = {"message.id": str(*sizes)} if len(sizes) == 1 else {"batch.message_count": len(sizes)}
        span = caller.start_child(op="queue.publish", name=queue, start_timestamp=began)
        report.describe(span, queue, sum(sizes.values()), facts)
        span.finish(end_timestamp=time.time())


def _id(row: tuple[Any, ...] | None) -> int:
    return int(row[0]) if row else 0


def _lent(db: DB | psycopg.Connection[Any]) -> AbstractContextManager[psycopg.Connection[Any]]:
    if isinstance(db, DB):
        return db.connection()
    if isinstance(db, psycopg.Connection):
        return nullcontext(db)
    raise TypeError(f"enqueue on a DB or a psycopg.Connection, not {type(db).__name__} (AsyncConnection: insert_async)")


def _word(text: str, what: str, longest: int) -> str:
    """`text`, if it can be a queue's or a job's name; ValueError otherwise."""
    try:
        if 0 < len(text.encode()) <= longest and "\0" not in text:
            return text
    except (AttributeError, TypeError, UnicodeEncodeError):
        pass
    raise ValueError(f"{what} must be text of 1 to {longest} bytes, without NUL or lone surrogate: {text!r:.60}")


def _caller() -> str | None:
    """`queues/apollo/refresh_person.py:88`: the nearest frame outside this package and the standard library."""
    frame: FrameType | None = sys._getframe()
    while frame:
        if file := _shown(frame.f_code.co_filename):
            return storable(f"{file}:{frame.f_lineno}")
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1000)
def _shown(filename: str) -> str | None:
    """`filename` relative to its project's root; None for files that are not to be named."""
    if filename.startswith("<"):  # <stdin>, <string>, <frozen runpy>
        return None if filename.startswith("<frozen ") else filename
    file = Path(filename).absolute()
    installed = not set(_INSTALLED).isdisjoint(file.parts)
    if file.is_relative_to(_PACKAGE) or (file.is_relative_to(_STDLIB) and not installed):
        return None
    for root in file.parents:  # nearest first; an installed package has its root in site-packages
        # Path.exists raises where a directory may not be read
        if root.name in _INSTALLED or any(os.path.exists(root / mark) for mark in _ROOT_MARKS):  # noqa: PTH110
            return file.relative_to(root).as_posix()
    roots = [root for entry in sys.path if file.is_relative_to(root := Path(entry).absolute())]
    root = max(roots, key=lambda root: len(root.parts), default=file.parent)
    return file.relative_to(root).as_posix()
