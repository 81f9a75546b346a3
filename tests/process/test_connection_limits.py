"""Fewer connections than queues: what fits works, `status` says what is missing, and the rest joins by itself.

FAULTS 40. The server's limit, a role's and a database's; the service connects as an ordinary role.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.server import Server, running
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

QUEUES = [f"queue-{letter}" for letter in "abcdefgh"]
FEW = 6  # connections that the service may have; its parent uses one or two
RESERVED = 3  # of the server's, for a superuser, as the tests are
REGISTRY = f"""
from supervisor import Worker
def of(queue):
    return lambda db: Worker(queue=queue, handlers={{"few.Ok": lambda ctx, args: "ok"}})
registry = [of(queue) for queue in {QUEUES}]
schedule = []
"""

Limit = Callable[[Server, int | None], None]  # None: there is none


def of_the_server(server: Server, connections: int | None) -> None:
    server.settings["max_connections"] = str((connections or 100) + RESERVED)
    server.restart()


def of_the_role(server: Server, connections: int | None) -> None:
    server.execute(f"ALTER ROLE service CONNECTION LIMIT {connections or -1}")


def of_the_database(server: Server, connections: int | None) -> None:
    server.execute(f"ALTER DATABASE postgres CONNECTION LIMIT {connections or -1}")


@pytest.fixture
def server() -> Iterator[Server]:
    # A standby's sessions, which this has none of, would come out of max_connections' minimum.
    with running({"max_wal_senders": "0", "superuser_reserved_connections": str(RESERVED)}) as started:
        yield started


@pytest.fixture
def database(server: Server) -> str:
    """Its URL for an ordinary role."""
    url = server.migrate()
    server.execute("CREATE ROLE service LOGIN")
    server.execute("GRANT ALL ON jobs TO service")
    return url.replace("//postgres@", "//service@")


@pytest.fixture
def rows(server: Server) -> Iterator[Rows]:
    """By the superuser, for whom there is always a connection."""
    opened = Rows(server.url)
    yield opened
    opened.close()


def working(sup: Supervised) -> set[str]:
    return {queue for queue, child in sup.children().items() if child.title == f"paceline: {queue} idle"}


def refused(sup: Supervised, reason: str) -> list[str]:
    """The queues of the log's lines that tell of it, one for each line."""
    return re.findall(rf"ERROR queue (\S+): database: .*(?:{reason})", sup.log())


def states(run_paceline: Paceline) -> dict[str, str]:
    """By `status`, which needs a connection too and may get none."""
    found = json.loads(run_paceline("status", "--json").stdout)
    return {line["queue"]: line["state"] for line in found["queues"]}


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (of_the_server, "remaining connection slots are reserved"),
        (of_the_role, 'too many connections for role "service"'),
        (of_the_database, 'too many connections for database "postgres"'),
    ],
)
def test_what_fits_works_status_tells_what_is_missing_and_the_rest_joins(
    server: Server,
    database: str,
    run_supervisor: RunSupervisor,
    run_paceline: Paceline,
    rows: Rows,
    limit: Limit,
    reason: str,
    tmp_path: Path,
) -> None:
    """FAULTS 40: one line for each queue that misses its connection, none for each try."""
    (tmp_path / "few.py").write_text(REGISTRY)
    limit(server, FEW)
    sup = run_supervisor(registry="few", env={"PYTHONPATH": str(tmp_path)}, ready=False)
    eventually(lambda: sorted([*working(sup), *refused(sup, reason)]) == QUEUES)
    fit = working(sup)
    assert len(fit) in (FEW - 2, FEW - 1)
    assert f"connections: this host needs {len(QUEUES) + 3} " in sup.log()
    assert f"it may have {FEW}, " in sup.log()

    jobs = {queue: rows.insert(queue, "few.Ok") for queue in QUEUES}
    eventually(lambda: all(rows.status(jobs[queue]) == "ok" for queue in fit))
    found = states(run_paceline)
    for queue in set(QUEUES) - fit:
        assert rows.status(jobs[queue]) == "pending"
        assert re.match(f"waiting for the database: .*{reason}", found[queue])

    limit(server, None)
    eventually(lambda: all(rows.status(job) == "ok" for job in jobs.values()))
    eventually(lambda: working(sup) == set(QUEUES))
    assert sorted(refused(sup, reason)) == sorted(set(QUEUES) - fit)


def test_a_limit_of_a_database_is_not_a_superusers(server: Server, run_supervisor: RunSupervisor) -> None:
    """Nor is he told of it."""
    of_the_database(server, 1)
    sup = run_supervisor("quick", "sleeps", url=server.url)
    assert "connections:" not in sup.log()
