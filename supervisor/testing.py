"""For tests of queues, with pytest: a database of a test's own, and jobs that run in the test's own process.

No parent, child, lease, deadline or rest: those are the engine's, and tested there. The service never imports this.
"""

import atexit
import functools
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from supervisor import DB, Poller, Worker, embedded, insert
from supervisor.args import encode
from supervisor.commands import apply_schema
from supervisor.config import load_registry
from supervisor.migrate import migrate

_in_use: list[DB] = []  # by the running test


@pytest.fixture
def database() -> Iterator[DB]:
    """An empty database with all that `paceline migrate` makes for PACELINE_REGISTRY, dropped after the test.

    It is in a temporary Postgres of this run's own, or on the server of PACELINE_TEST_URL.
    """
    made = _databases()
    with made.fresh(made.template("registry", _migrate)) as url:
        db = DB(url)
        _in_use.append(db)
        try:
            yield db
        finally:
            _in_use.remove(db)
            db.close()


def run_one(
    worker: Worker, name: str, args: Mapping[str, Any] | msgspec.Struct | None = None, *, db: DB | None = None
) -> str:
    """Enqueue a job and run it, before any other that is pending; its final status. The log has an error's traceback.

    `db` is the fixture's unless given. AssertionError where an equal job is pending and the name is deduped.
    """
    db = db or _fixtures()
    id = insert(db, worker.queue, name, args)
    assert id, f"{name} is deduped: an equal job is pending"
    status = Poller(worker, db).work_once(id)
    assert status is not None, f"{name} id={id} was taken by another process"
    return status


def drain(worker: Worker, *, db: DB | None = None, most: int = 1_000) -> list[str]:
    """Run what is pending in the worker's queue, and what that enqueues there; the final statuses, in order."""
    poller = Poller(worker, db or _fixtures())
    statuses: list[str] = []
    while (status := poller.work_once()) is not None:
        statuses.append(status)
        assert len(statuses) < most, f"queue {worker.queue} is not empty after {most} jobs"
    return statuses


def assert_enqueued(db: DB | psycopg.Connection[Any], queue: str, name: str, /, **args: Any) -> int:
    """The id of the oldest pending job of that name with these args, and maybe others; AssertionError if there is none.

    On a connection, what its transaction has enqueued is seen too.
    """
    wanted = json.loads(encode(args))
    with db.connection() if isinstance(db, DB) else nullcontext(db) as connection:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        rows = cursor.execute("SELECT id, queue, name, args FROM jobs WHERE status = 'pending' ORDER BY id").fetchall()
    for row in rows:
        if row[1:3] == (queue, name) and wanted.items() <= (row[3] or {}).items():
            return int(row[0])
    pending = "".join(f"\n  {row[1]} {row[2]} {json.dumps(row[3])}" for row in rows) or " nothing"
    raise AssertionError(f"not enqueued: {queue} {name} {json.dumps(wanted)}; pending:{pending}")


def _fixtures() -> DB:
    assert _in_use, "no database: the test takes the fixture `database`, or passes db="
    return _in_use[-1]


@functools.cache
def cluster() -> str:
    """The URL of the server that tests use: PACELINE_TEST_URL's, or one that goes with this process."""
    return os.environ.get("PACELINE_TEST_URL") or embedded.temporary(max_connections="300")


@functools.cache
def _databases() -> "Databases":
    made = Databases(cluster())
    atexit.register(made.close)
    return made


def _migrate(url: str) -> None:
    registry = load_registry(os.environ.get("PACELINE_REGISTRY") or "queues", url)
    migrate(url, dedupe=registry.dedupe)
    apply_schema(url, registry)


def of_cluster(cluster: str, database: str) -> str:
    """The URL of another database of the same cluster."""
    # Not urllib: it takes the slashes away from `postgresql:///`.
    return re.sub(r"^(postgres(?:ql)?://[^/?]*)(?:/[^?]*)?", rf"\g<1>/{database}", cluster)


class Databases:
    """Makes databases in one cluster, each in some 50 ms from a template, and drops them by force."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._run = secrets.token_hex(3)  # so that two runs can share a server
        self._made = 0
        self._templates: dict[str, str] = {}

    def template(self, shape: str, fill: Callable[[str], None]) -> str:
        """The name of the template `shape`, which `fill(url)` has filled on first use."""
        if shape not in self._templates:
            name = f"paceline_test_{self._run}_{shape}"
            self._create(name, "template0")
            self._templates[shape] = name  # to be dropped, filled or not
            fill(of_cluster(self._cluster, name))
        return self._templates[shape]

    @contextmanager
    def fresh(self, template: str) -> Iterator[str]:
        """The URL of a new database."""
        self._made += 1
        name = f"paceline_test_{self._run}_{self._made}"
        self._create(name, template)
        try:
            yield of_cluster(self._cluster, name)
        finally:
            self._drop(name)

    def close(self) -> None:
        for name in self._templates.values():
            self._drop(name)

    def _create(self, name: str, template: str) -> None:
        self._execute("CREATE DATABASE {} TEMPLATE {}", name, template)

    def _drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _execute(self, statement: str, *names: str) -> None:
        # A connection each time: a test may have restarted the server meanwhile.
        with psycopg.connect(self._cluster, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
