"""A DATABASE_URL through PgBouncer: where it pools by transaction the boot refuses; by session all works.

FAULTS 31.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.pgbouncer import MISSING, PROGRAM, Mode, pooled
from tests.support.rows import Rows
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]

REFUSAL = (
    "paceline: DATABASE_URL goes through a pooler in transaction mode (PgBouncer?), which breaks leases and LISTEN: "
    "connect to Postgres itself, or set pool_mode = session"
)


def refused(sup: Supervised) -> bool:
    """Whether it ends with exit code 1 and this one line."""
    assert sup.wait() == 1, sup.log()
    return sup.log().splitlines() == [REFUSAL]


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_by_transaction_is_refused_with_advice_each_time(
    database: str, run_supervisor: RunSupervisor, mode: Mode
) -> None:
    """FAULTS 31: also when its server connections have another boot's settings and prepared statements."""
    with pooled(database, mode) as url:
        for _ in range(2):
            assert refused(run_supervisor("quick", url=url, ready=False))


def test_a_pooler_by_transaction_that_lends_its_connections_in_turn_is_refused(
    database: str, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 31: two sessions that ask one after the other get two connections."""
    with pooled(database, "transaction", {"server_round_robin": "1", "min_pool_size": "5"}) as url:
        grow_the_pool(url)
        assert refused(run_supervisor("quick", url=url, ready=False))


def test_a_busy_pooler_by_transaction_is_refused(database: str, run_supervisor: RunSupervisor) -> None:
    """FAULTS 31: the connections that one session gives back go to others meanwhile."""
    with pooled(database, "transaction") as url, traffic(url):
        assert refused(run_supervisor("quick", url=url, ready=False))


def test_through_a_pooler_by_session_all_works(
    database: str, run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """FAULTS 31: wakes, leases and their hand-over. The poll interval is 30 seconds."""
    with pooled(database, "session", {"default_pool_size": "50"}) as url:
        a = run_supervisor("ledger", "quick", url=url, host="host-a")
        b = run_supervisor("ledger", "quick", url=url, host="host-b")
        eventually(lambda: b.child("ledger").title == "paceline: ledger standby (lease: host-a)")
        enqueued = run_paceline("enqueue", "quick", "quick.Ok", url=url)
        eventually(lambda: rows.status(int(enqueued.stdout)) == "ok", 5.0)
        a.terminate()
        assert a.wait() == 0
        job = rows.insert("ledger", "ledger.Append")
        eventually(lambda: rows.status(job) == "ok", 5.0)
        b.terminate()
        assert b.wait() == 0
        assert " ERROR " not in a.log() + b.log()


def grow_the_pool(url: str, connections: int = 4) -> None:
    """Until the pooler has that many connections to the server, all free."""
    opened = [psycopg.connect(url) for _ in range(connections)]
    for connection in opened:
        connection.execute("SELECT 1")
    for connection in opened:
        connection.close()


@contextmanager
def traffic(url: str, clients: int = 3) -> Iterator[None]:
    """Clients that ask short questions all the time."""
    over = threading.Event()

    def ask() -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            while not over.is_set():
                connection.execute("SELECT pg_sleep(0.001)")

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
