"""Somebody else's long transaction: an old snapshot that holds back vacuum, or a lock on the table.

FAULTS 27 and 37.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.rows import Rows
from tests.support.server import Server, running
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

JOBS = 2_000


@pytest.fixture
def server() -> Iterator[Server]:
    with running({"log_statement": "ddl"}) as started:
        yield started


@pytest.fixture
def database(server: Server) -> str:
    return server.migrate()


@contextmanager
def transaction(url: str, *statements: str) -> Iterator[None]:
    """Open from here to the end of the block, after these statements."""
    with psycopg.connect(url, application_name="somebody else") as session:
        for statement in statements:
            session.execute(statement.encode())
        yield


def ddl(server: Server) -> list[str]:
    """All that it was asked so far."""
    return re.findall("LOG:  (?:statement|execute [^:]*): (.*)", server.said())


def errors(sup: Supervised) -> list[str]:
    return [line for line in sup.log().splitlines() if " ERROR " in line]


def test_with_an_old_snapshot_the_dead_rows_of_a_queue_are_read_for_each_batch_and_not_for_each_job(
    server: Server, run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """FAULTS 27, small size: none can be removed, nor its entry in the index of pending rows, a thousand on average."""
    sup = run_supervisor("quick")
    with transaction(server.url, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM jobs"):
        jobs = rows.insert_many(JOBS, "quick", "quick.Ok")
        eventually(lambda: rows.status(jobs[-1]) == "ok", 60.0)
        shown = run_paceline("status").stdout
        assert re.search(r"vacuum is held back .*by session \d+ \(somebody else, ", shown), shown
        sup.terminate()
        assert sup.wait() == 0  # a session tells what it has read when it ends
    read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_pending'"
    [(entries,)] = eventually(lambda: [row for row in rows.execute(read) if row[0] >= JOBS])
    assert entries < 100 * JOBS
    assert errors(sup) == []


def test_a_lock_of_a_long_read_holds_up_neither_a_boot_nor_an_enqueue(
    server: Server, run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """FAULTS 37: there is no DDL at boot, so nothing waits."""
    before = ddl(server)
    with transaction(server.url, "LOCK TABLE jobs IN ACCESS SHARE MODE"):
        sup = run_supervisor("quick")
        enqueued = run_paceline("enqueue", "quick", "quick.Ok")
        assert enqueued.returncode == 0, enqueued.stderr
        eventually(lambda: rows.status(int(enqueued.stdout)) == "ok")
        assert run_paceline("migrate").stdout == "up to date\n"
        sup.terminate()
        assert sup.wait() == 0
    assert errors(sup) == []
    assert ddl(server) == before


def test_a_boot_at_a_table_that_is_locked_for_good_says_so_and_waits(
    server: Server, run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 37: as by somebody's ALTER TABLE. It hangs at nothing: a drain ends it, and the lock's end too."""
    with transaction(server.url, "LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"):
        drained = run_supervisor("quick", ready=False)
        waiting = run_supervisor("quick", ready=False)
        for sup in (drained, waiting):
            eventually(lambda sup=sup: any("lock timeout" in line for line in errors(sup)))
        drained.terminate()
        assert drained.wait(5.0) == 0
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
