"""Postgres itself is stopped, restarted, away at boot, or frozen: all is back by itself, and the parent goes on."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import journal
from tests.support.queues_journal import QUEUES
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.server import Server, running
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

REGISTRY = "tests.support.queues_journal"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture
def database(server: Server) -> str:
    return server.migrate()


def errors(sup: Supervised, text: str = "") -> list[str]:
    return [line for line in sup.log().splitlines() if " ERROR " in line and text in line]


def run_by_wake(rows: Rows, sup: Supervised) -> None:
    """Twice, long before a poll: a wake on the occasion of the reconnection might have found the first."""
    for _ in range(2):
        eventually(lambda: sup.child("quick").title == "paceline: quick idle")
        job = eventually(lambda: rows.insert("quick", "quick.Ok"))
        eventually(lambda job=job: rows.status(job) == "ok", 5.0)


def test_the_wake_is_back_after_two_restarts(server: Server, run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 11; the poll interval is 30 seconds. The second time the server was killed, and recovers first."""
    sup = run_supervisor("quick")
    for times, mode in enumerate(("fast", "immediate"), start=1):
        server.restart(mode)
        eventually(lambda times=times: sup.log().count("LISTEN: over after") == times)
        run_by_wake(rows, sup)
    assert len(errors(sup, "LISTEN")) == 2


def test_a_server_away_for_seconds_under_load_with_children_dying_costs_a_line_for_each_queue(
    server: Server, run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 20, small size. Every job's status is true, none ran twice, and all queues are back by themselves."""
    file = tmp_path / "journal"
    limited = program(tmp_path, settle=2)
    sup = run_supervisor(*QUEUES, "quick", registry=REGISTRY, env={journal.FILE: str(file)}, python=limited)
    for queue in QUEUES[:2]:
        rows.insert_many(80, queue, "journal.Work", {"seconds": 0.02})
    rows.execute("UPDATE jobs SET args = args || '{\"crash\": true}' WHERE queue = 'journal-b' AND id % 20 = 0")
    rows.insert_many(3, "journal-c", "journal.Work", {"seconds": 0.7})
    eventually(lambda: all(rows.statuses(queue)[0] != "pending" for queue in QUEUES))
    server.stop("fast")
    for queue in QUEUES:  # each has tried at least twice: a session lost and found again at once is no fault
        eventually(lambda queue=queue: errors(sup, f"queue {queue}: "))
    killed = {queue: sup.child(queue) for queue in (*QUEUES, "quick")}
    for child in killed.values():
        child.signal(signal.SIGKILL)
    for queue, child in killed.items():
        eventually(lambda queue=queue, child=child: sup.children()[queue].pid != child.pid)
        eventually(lambda queue=queue: sup.child(queue).title == f"paceline: {queue} waiting for the database")
    time.sleep(2.5)  # the outage's length: the slowest try is every two seconds
    server.start()
    eventually(lambda: not {"pending", "started"} & {s for queue in QUEUES for s in rows.statuses(queue)}, 60.0)
    assert journal.broken_promises(file, rows) == []
    run_by_wake(rows, sup)
    for queue in (*QUEUES, "quick"):
        assert len(errors(sup, f"queue {queue}: database")) == 1  # not one for each process
        assert len(errors(sup, f"queue {queue}: finalize")) <= 1
    assert len(errors(sup, "LISTEN")) == 1


def test_a_server_that_starts_after_the_service_is_found(
    server: Server, run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 20: absent at boot."""
    job = rows.insert("quick", "quick.Ok")
    server.stop()
    sup = run_supervisor("quick", "sleeps", ready=False)
    eventually(lambda: errors(sup, "boot: waiting for the database"))
    server.start()
    sup.wait_ready()
    eventually(lambda: rows.status(job) == "ok")
    assert len(errors(sup)) == 1
    assert re.search(r"boot: waiting for the database: over after [\d.]+ s", sup.log())


# Frozen: every process of the server is stopped, the connections stay open, nobody answers.


def test_with_a_frozen_server_killed_children_are_replaced_and_a_drain_ends(
    server: Server, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 30: twice, the second time after its pause."""
    sup = run_supervisor("quick", "sleeps")
    server.freeze()
    for _ in range(2):
        dead = sup.child("quick")
        dead.signal(signal.SIGKILL)
        eventually(lambda dead=dead: sup.children()["quick"].pid != dead.pid)
    sup.terminate()
    assert sup.wait(8.0) == 0


def test_with_a_frozen_server_a_drain_ends_at_its_limit_and_tells_the_true_status(
    server: Server, run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 36"""
    sup = run_supervisor("sleeps", python=program(tmp_path, call=0.5), flags=["--drain-timeout", "1"])
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.5})
    eventually(lambda: rows.status(job) == "started")
    server.freeze()
    sup.terminate()
    assert sup.wait(8.0) == 1
    assert re.search(rf'ERROR .*queue=sleeps job=sleeps.Sleep id={job} status="ok"', sup.log())


def test_a_server_that_thaws_finds_the_service_at_work(
    server: Server, run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """The statements that it was sent are carried out; the queue whose child died meanwhile works again."""
    sup = run_supervisor("quick", "sleeps")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.5})
    eventually(lambda: rows.status(job) == "started")
    server.freeze()
    dead = sup.child("quick")
    dead.signal(signal.SIGKILL)
    eventually(lambda: sup.children()["quick"].pid != dead.pid)
    server.thaw()
    eventually(lambda: rows.status(job) == "ok")
    run_by_wake(rows, sup)
