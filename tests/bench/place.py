"""Where it is measured: one durable server, databases made from nothing on it, and services that run on them."""

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from supervisor import embedded
from supervisor.db import connect
from supervisor.migrate import migrate
from supervisor.testing import of_cluster
from tests.bench.processes import Service
from tests.bench.registry import NEVER, NOTHING, OUTPUT
from tests.bench.sizes import Sizes
from tests.support.supervised import Supervised, environment

SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "commit_delay",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
    "max_connections",
)


class Database:
    """A migrated database, and one engine session on it."""

    def __init__(self, url: str, cluster: str) -> None:
        self.url, self._cluster = url, cluster
        self.connection = connect(url, "bench")

    def ask(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        self.ask("TRUNCATE jobs RESTART IDENTITY")

    def fill(self, jobs: int, *queues: str, name: str = NOTHING) -> None:
        """Enqueue `jobs` equal jobs in each of these queues, in turn, by one statement."""
        self.ask(
            "INSERT INTO jobs (queue, name) SELECT queue, %s FROM generate_series(1, %s), unnest(%s::text[]) AS queue",
            name,
            jobs,
            list(queues),
        )

    def rate(self, *queues: str) -> float:
        """Jobs per second of the rows that have ended, by their own times."""
        [(done, seconds)] = self.ask(
            "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8"
            " FROM jobs WHERE status = 'ok' AND queue = ANY(%s::text[])",
            list(queues),
        )
        return float(done / seconds)

    def transactions(self) -> int:
        """Of everyone in this database so far; of sessions that are still open, up to ten seconds late."""
        with psycopg.connect(self._cluster) as outside:
            [(count,)] = outside.execute(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
                [self.connection.info.dbname],
            ).fetchall()
        return int(count)


class Place:
    def __init__(self, sizes: Sizes, home: Path, cluster: str) -> None:
        self.sizes, self.home, self._cluster = sizes, home, cluster
        self.output = home / "output"
        self._logs = 0

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A new database, dropped at the end."""
        name = f"paceline_bench_{secrets.token_hex(4)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        url = of_cluster(self._cluster, name)
        migrate(url, dedupe=frozenset({NEVER}))
        made = Database(url, self._cluster)
        try:
            yield made
        finally:
            made.connection.close()
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def service(
        self, database: Database, *queues: str, host: str = "host-a", env: Mapping[str, str] = {}, idle: bool = True
    ) -> Iterator[Service]:
        """`paceline run` on these queues, once all are idle (unless told not to wait); drained at the end."""
        self._logs += 1
        given = {OUTPUT: str(self.output), **env}
        service = Service(
            Supervised(
                queues,
                environment=environment(database.url, "tests.bench.registry", given, host=host),
                flags=(),
                python=sys.executable,
                log=self.home / f"paceline-{self._logs}.log",
            )
        )
        try:
            if idle:
                service.wait_idle()
            yield service
        finally:
            service.supervised.stop(patience=20)

    def facts(self) -> dict[str, Any]:
        """The server's settings, and what a durable write costs here."""
        with psycopg.connect(self._cluster) as connection:
            found: dict[str, Any] = {}
            for name in SETTINGS:
                [(found[name],)] = connection.execute("SELECT current_setting(%s)", [name]).fetchall()
        return {
            **found,
            "processors": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "fdatasync_ms": round(self._fdatasync() * 1e3, 3),
        }

    def _fdatasync(self) -> float:
        """Seconds of one write of 8 kB and its fdatasync, on the file system of the server's files if it is our own."""
        descriptor = os.open(self.home / "probe", os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(descriptor, bytes(8192), 0)
            os.fdatasync(descriptor)
            began = time.perf_counter()
            for _ in range(100):
                os.pwrite(descriptor, os.urandom(8192), 0)
                os.fdatasync(descriptor)
            return (time.perf_counter() - began) / 100
        finally:
            os.close(descriptor)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._cluster, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def place(sizes: Sizes) -> Iterator[Place]:
    """On DATABASE_URL's server, in databases of our own; else on one that is made, durable, and removed."""
    home = Path(tempfile.mkdtemp(prefix="paceline-bench-", dir="/tmp"))  # stays if the run fails: the logs are there
    yield Place(sizes, home, os.environ.get("DATABASE_URL") or _server())
    shutil.rmtree(home)


def _server() -> str:
    home = Path(tempfile.mkdtemp(prefix="paceline-bench-server-", dir="/tmp"))
    if os.geteuid() == 0:
        home.chmod(0o711)
    # Stopped and removed with its last user, which is this process.
    return embedded.start(home, delete=True, settings={"max_connections": "200"})
