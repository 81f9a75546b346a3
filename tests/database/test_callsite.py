"""The callsite of a row: the caller's file and line, from its project's root."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from supervisor.db import DB
from supervisor.enqueue import insert, insert_async, insert_many
from tests.database.tables import rows

Connection = psycopg.Connection[TupleRow]


def line() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame and frame.f_back
    return frame.f_back.f_lineno


HERE = "tests/database/test_callsite.py"


def test_the_callsite_is_the_callers_file_and_line_from_the_projects_root(
    db: DB, connection: Connection, url: str
) -> None:
    insert(db, "test", "test.Ok")
    insert(connection, "test", "test.Ok"), insert_many(connection, [("test", "test.Ok", None)])
    insert_many(db, (("test", "test.Ok", {"n": n}) for n in range(1)))
    here = line()
    insert(db, "test", "test.Ok", callsite="paceline enqueue")
    insert_many(db, [("test", "test.Ok", None)], callsite="paceline retry")
    connection.commit()
    code = [(f"{HERE}:{number}",) for number in (here - 3, here - 2, here - 2, here - 1)]
    assert sorted(rows(url, "callsite")) == sorted([*code, ("paceline enqueue",), ("paceline retry",)])


def test_the_callsite_of_an_awaited_insert_is_where_it_was_called_also_as_a_task(url: str) -> None:
    async def main() -> int:
        async with await psycopg.AsyncConnection.connect(url) as session:
            await insert_async(session, "test", "test.Ok")
            await asyncio.create_task(insert_async(session, "test", "test.Ok"))
            await asyncio.gather(asyncio.wait_for(insert_async(session, "test", "test.Ok"), 10))
            here = line()
            await insert_async(session, "test", "test.Ok", callsite="clock 2026-10-21T12:30Z")
            return here

    here = asyncio.run(main())
    assert rows(url, "callsite") == [(f"{HERE}:{here - gap}",) for gap in (3, 2, 1)] + [("clock 2026-10-21T12:30Z",)]


def test_frames_of_the_standard_library_are_not_callsites(db: DB, database: str) -> None:
    db = DB(database)
    dispatched = singledispatch(insert)
    inserts = map(lambda name: dispatched(db, "test", name), ["test.Ok"])  # noqa: C417
    here = line()
    list(inserts)
    with ThreadPoolExecutor() as pool:
        pool.submit(insert, db, "test", "test.Ok").result()
    db.close()
    assert rows(database, "callsite") == [(f"{HERE}:{here - 1}",), (None,)]


def test_a_contextmanagers_insert_is_its_own(database: str) -> None:
    @contextmanager
    def enqueueing(connection: Connection) -> Iterator[int]:
        yield insert(connection, "test", "test.Ok")

    with psycopg.connect(database) as connection, enqueueing(connection):
        here = line() - 3
    assert rows(database, "callsite") == [(f"{HERE}:{here}",)]


@pytest.mark.parametrize(
    ("mark", "file", "shown"),
    [
        ("pyproject.toml", "queues/apollo/ingest.py", "queues/apollo/ingest.py"),
        ("setup.py", "x.py", "x.py"),
        (".git", "a/b.py", "a/b.py"),
        ("sub/pyproject.toml", "sub/deep/x.py", "deep/x.py"),
        ("pyproject.toml", ".venv/lib/python3/site-packages/queues/x.py", "queues/x.py"),
        ("on-the-path/", "on-the-path/queues/x.py", "queues/x.py"),
        ("elsewhere/", "queues/x.py", "x.py"),
    ],
)
def test_the_root_is_the_nearest_marked_directory_or_else_the_entry_of_sys_path(
    database: str, tmp_path: Path, mark: str, file: str, shown: str
) -> None:
    for path in (mark, file):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    if mark.endswith("/"):
        (tmp_path / mark).mkdir(exist_ok=True)
    else:
        (tmp_path / mark).touch()
    (tmp_path / file).write_text("import sys\nfrom supervisor.enqueue import *\ninsert(DB(sys.argv[1]), 'q', 'n')\n")
    entries = [str(tmp_path / "on-the-path"), str(Path(__file__).parents[2])]
    program = f"import sys, runpy; sys.path[1:1] = {entries!r}; runpy.run_path({str(tmp_path / file)!r})"
    subprocess.run([sys.executable, "-c", program, database], check=True)
    assert rows(database, "callsite") == [(f"{shown}:3",)]


def test_code_without_a_file_is_named_as_python_names_it(connection: Connection) -> None:
    exec(compile("\n\ninsert(connection, 'q', 'n')", "<made up>", "exec"), {"connection": connection, "insert": insert})
    assert connection.execute("SELECT callsite FROM jobs").fetchall() == [("<made up>:3",)]
