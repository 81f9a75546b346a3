"""A synchronous standby takes the primary's place while jobs run: parent and children find it, and nothing is untrue.

FAULTS 32. DATABASE_URL names both hosts; the journal of the handlers is outside the database.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import journal
from tests.support.queues_journal import QUEUES
from tests.support.replicas import Pair, pair
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

REGISTRY = "tests.support.queues_journal"


@pytest.fixture
def servers() -> Iterator[Pair]:
    with pair() as started:
        yield started


@pytest.fixture
def database(servers: Pair) -> str:
    return f"{servers.url}?target_session_attrs=read-write"  # the tests' own sessions want the primary too


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def at_work(run_supervisor: RunSupervisor, servers: Pair, rows: Rows, file: Path) -> Supervised:
    sup = start(run_supervisor, servers, file, "host-a")
    feed(rows, file)
    return sup


def feed(rows: Rows, file: Path, *, long: float = 1) -> None:
    """Three queues are in mid-job: one in a long job, two in many short ones."""
    rows.insert(QUEUES[0], "journal.Work", {"seconds": long})
    rows.insert_many(2, QUEUES[0], "journal.Work", {"seconds": 0.1})
    for queue in QUEUES[1:]:
        rows.insert_many(80, queue, "journal.Work", {"seconds": 0.02})
    eventually(lambda: len({run.queue for run in journal.runs(file)}) == len(QUEUES))
    eventually(lambda: len(journal.runs(file)) > 20)


def start(run_supervisor: RunSupervisor, servers: Pair, file: Path, host: str) -> Supervised:
    """With smaller limits, since the answer to a claim may be lost: another host waits for that row's deadline."""
    return run_supervisor(
        *QUEUES,
        "ledger",
        "quick",
        registry=REGISTRY,
        url=servers.url,
        env={journal.FILE: str(file), "TEST_JOB_TIMEOUT": "5"},
        host=host,
        python=program(file.parent, settle=2, grace=0.5, ping=2),
    )


def all_final(rows: Rows) -> bool:
    return not rows.execute("SELECT id FROM jobs WHERE status IN ('pending', 'started') LIMIT 1")


def run_by_wake(rows: Rows, sup: Supervised) -> None:
    """Twice, long before a poll: a wake on the occasion of the reconnection might have found the first."""
    for _ in range(2):
        eventually(lambda: sup.child("quick").title == "paceline: quick idle")
        job = rows.insert("quick", "quick.Ok")
        eventually(lambda job=job: rows.status(job) == "ok", 5.0)


def test_a_standby_promoted_in_mid_job_is_found_and_every_status_is_true(
    servers: Pair, run_supervisor: RunSupervisor, rows: Rows, file: Path
) -> None:
    """FAULTS 32: the primary is killed. The lease of the long job is free; the other host waits for its end."""
    other = start(run_supervisor, servers, file, "host-a")
    sup = start(run_supervisor, servers, file, "host-b")
    feed(rows, file, long=4)  # it goes on while its lease is free for all
    servers.fail_over("immediate")
    waits = re.compile(rf"paceline: {QUEUES[0]} waits until \S+ for job \d+, which another host may be running")
    eventually(lambda: any(map(waits.fullmatch, sup.titles())))
    eventually(lambda: all_final(rows), 30.0)
    assert journal.broken_promises(file, rows) == []
    for each in (sup, other):
        eventually(lambda each=each: "LISTEN: over after" in each.log())
        for queue in QUEUES:
            assert each.log().count(f"ERROR queue {queue}: database") <= 1
    other.terminate()
    assert other.wait() == 0
    run_by_wake(rows, sup)


def test_a_standby_promoted_beside_a_primary_that_still_runs_is_found_when_that_one_ends(
    servers: Pair, run_supervisor: RunSupervisor, rows: Rows, file: Path
) -> None:
    """FAULTS 32: what the old one was asked to commit meanwhile counts for nothing, and nobody takes it for done."""
    sup = at_work(run_supervisor, servers, rows, file)
    servers.promote()
    old = servers.standby
    eventually(lambda: len(old.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")) >= len(QUEUES))
    old.stop("fast")
    eventually(lambda: all_final(rows), 30.0)
    assert journal.broken_promises(file, rows) == []
    run_by_wake(rows, sup)


def test_an_old_primary_that_is_back_as_a_standby_fools_nobody(
    servers: Pair, run_supervisor: RunSupervisor, rows: Rows, file: Path
) -> None:
    """FAULTS 32: it is the first host of the URL. New sessions go by it, also those that a handler opens."""
    sup = at_work(run_supervisor, servers, rows, file)
    servers.fail_over("immediate")
    servers.attach()
    eventually(lambda: all_final(rows), 30.0)
    assert journal.broken_promises(file, rows) == []
    for pattern in ("paceline:parent/%", "paceline:ledger/%"):
        assert rows.cut_off(pattern) >= 1
    job = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.status(job) not in ("pending", "started"))
    assert rows.status(job) == "ok"
    eventually(lambda: sup.log().count("LISTEN: over after") == 2)
    run_by_wake(rows, sup)


def test_a_primary_that_turns_read_only_is_left_for_the_new_one(
    servers: Pair, run_supervisor: RunSupervisor, rows: Rows, file: Path
) -> None:
    """FAULTS 32: as a managed service's switch. The old one runs on, and keeps its sessions, which cannot write."""
    sup = at_work(run_supervisor, servers, rows, file)
    servers.primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    servers.primary.execute("SELECT pg_reload_conf()")
    eventually(lambda: "session is read-only" in sup.log())
    servers.promote()
    rows.close()  # its session is at the old one
    eventually(lambda: all_final(rows), 30.0)
    assert journal.broken_promises(file, rows) == []
    run_by_wake(rows, sup)
