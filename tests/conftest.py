"""Fixtures: one Postgres cluster a run, one database a test, the supervisor as a real process."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor import testing
from tests.support import supervised
from tests.support.databases import Databases
from tests.support.ingest import Ingest
from tests.support.relay import Relay
from tests.support.rows import Rows, Sql
from tests.support.supervised import REGISTRY, Paceline, RunSupervisor, Supervised, environment


@pytest.fixture(scope="session")
def cluster() -> str:
    """The URL of a cluster's maintenance database: PACELINE_TEST_URL's, or else one of our own.

    Our own is stopped and deleted when this process has ended, however it ends.
    """
    return testing.cluster()


@pytest.fixture(scope="session")
def databases(cluster: str) -> Iterator[Databases]:
    made = Databases(cluster)
    yield made
    made.close()


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with databases.empty() as url:
        yield url


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """The URL of a migrated database, with the side table `ledger`."""
    with databases.today() as url:
        yield url


@pytest.fixture
def old_database(databases: Databases) -> Iterator[str]:
    """The same, with the older table that migrate adopted."""
    with databases.older() as url:
        yield url


@pytest.fixture(params=["today", "older"])
def either_database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """Runs the test on both table shapes."""
    with databases.today() if request.param == "today" else databases.older() as url:
        yield url


@pytest.fixture
def database_in_use(request: pytest.FixtureRequest) -> str:
    """The URL of the database that the test asks for, in whichever shape; `database` if it asks for none."""
    asked_for = [name for name in _DATABASES if name in request.fixturenames]
    if len(asked_for) > 1:
        pytest.fail(f"which of {' and '.join(asked_for)}? Make Rows(url) and pass url= yourself")
    url: str = request.getfixturevalue(asked_for[0] if asked_for else "database")
    return url


_DATABASES = ("database", "old_database", "either_database", "empty_database")


@pytest.fixture
def rows(database_in_use: str) -> Iterator[Rows]:
    """Rows of the test's database."""
    opened = Rows(database_in_use)
    yield opened
    opened.close()


@pytest.fixture
def sql(rows: Rows) -> Sql:
    """sql(statement, *params) -> rows, on the test's database."""
    return rows.execute


@pytest.fixture
def relay(database_in_use: str) -> Iterator[Relay]:
    """A TCP relay to the test's database: `relay.url`."""
    with Relay(database_in_use) as opened:
        yield opened


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    """A Sentry ingest: `ingest.dsn`. What it could not read fails the test."""
    with Ingest() as opened:
        yield opened
    assert not opened.faults, opened.faults


@pytest.fixture
def run_supervisor(request: pytest.FixtureRequest, database_in_use: str, tmp_path: Path) -> Iterator[RunSupervisor]:
    """Starts `paceline run`, and at the end stops it, and asserts that nothing of it is left."""
    for name in {"relay", "ingest"} & set(request.fixturenames):
        request.getfixturevalue(name)  # made before it, so closed after it, whatever the order of the test's arguments
    started: list[Supervised] = []
    with ExitStack() as stack:

        def run(
            *queues: str,
            url: str | None = None,
            registry: str = REGISTRY,
            env: Mapping[str, str] | None = None,
            flags: Sequence[str] = (),
            python: str = sys.executable,
            ready: bool = True,
            host: str | None = None,
            terminal: bool = False,
        ) -> Supervised:
            sup = Supervised(
                queues,
                environment=environment(url or database_in_use, registry, env, host=host),
                flags=flags,
                python=python,
                log=tmp_path / f"paceline-{len(started) + 1}.log",
                terminal=terminal,
            )
            started.append(sup)
            stack.callback(sup.stop)
            if ready:
                sup.wait_ready()
            return sup

        yield run
        for sup in started:  # pytest shows it where the test failed
            sys.stderr.write(f"{sup.describe()}\n")


@pytest.fixture
def run_paceline(database_in_use: str) -> Paceline:
    """One command of the CLI on the test's database, run to its end."""

    def run(
        *arguments: str,
        url: str | None = None,
        registry: str = REGISTRY,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        return supervised.paceline(
            *arguments,
            environment=environment(url or database_in_use, registry, env),
            python=python,
            stdin=stdin,
        )

    return run
