"""Two parents on one database, as on two hosts: one works a queue, the other stands by; never two jobs at once."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import gates, ledger
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

QUEUES = ("ledger", "ledger-b", "ledger-c", "ledger-d")


def title(sup: Supervised, queue: str) -> str:
    return sup.child(queue).title


def stands_by(sup: Supervised, queue: str, holder: str) -> bool:
    return title(sup, queue) == f"paceline: {queue} standby (lease: {holder})"


def pair(run_supervisor: RunSupervisor, *queues: str, **options: object) -> tuple[Supervised, Supervised]:
    """host-a, which works, and host-b, which stands by."""
    a = run_supervisor(*queues, host="host-a", **options)  # type: ignore[arg-type]
    b = run_supervisor(*queues, host="host-b", **options)  # type: ignore[arg-type]
    eventually(lambda: all(stands_by(b, queue, "host-a") for queue in queues))
    eventually(lambda: "another parent is here" in a.log())
    return a, b


def kill_tree(sup: Supervised) -> None:
    """The host is gone: all at once, no goodbye."""
    sup.signal(signal.SIGSTOP)  # or it would restart a child
    for process in [*sup.parent.descendants, sup.parent]:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    sup.wait()


def cut_the_holder_off(rows: Rows) -> None:
    """End the session that has the lease of the queue `ledger`, and with it the lease."""
    eventually(lambda: len(rows.sessions("paceline:ledger/%")) == 1)  # a standby's is gone a moment after its title
    assert rows.cut_off("paceline:ledger/%") == 1


def hosts(rows: Rows, queue: str = "ledger") -> list[str]:
    """Which host ran each of the queue's jobs, in order."""
    return [run.host for run in ledger.runs(rows, queue)]


def final(rows: Rows, *queues: str) -> bool:
    return not {"pending", "started"} & {status for queue in queues for status in rows.statuses(queue)}


def test_one_works_and_the_other_stands_by_with_no_session_per_queue(run_supervisor: RunSupervisor, rows: Rows) -> None:
    pair(run_supervisor, "ledger", "quick")
    eventually(lambda: rows.sessions("paceline:%/300@%") == ["paceline:ledger/300@host-a", "paceline:quick/300@host-a"])
    assert len(rows.sessions("paceline:%@host-b")) <= 3  # its parent's own, however many queues stand by
    jobs = rows.insert_many(5, "ledger", "ledger.Append")
    eventually(lambda: rows.status(jobs[-1]) == "ok")
    assert set(hosts(rows)) == {"host-a"}
    assert rows.sessions("paceline:%/300@host-b") == []


@pytest.mark.slow
def test_a_graceful_drain_hands_over_at_once_and_its_running_job_ends_ok(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 4, without the sweep: the second waits for the job, then goes on within two seconds."""
    a, b = pair(run_supervisor, "ledger", "quick")
    running = rows.insert("ledger", "ledger.Append", {"seconds": 1.5})
    following = rows.insert("ledger", "ledger.Append")
    eventually(lambda: hosts(rows) == ["host-a"])
    a.terminate()
    eventually(lambda: title(b, "quick") == "paceline: quick idle", 2.0)  # an idle queue is handed over meanwhile
    assert rows.status(running) == "started"
    assert stands_by(b, "ledger", "host-a")
    assert a.wait() == 0
    eventually(lambda: rows.status(following) == "ok", 2.0)
    assert rows.status(running) == "ok"
    assert hosts(rows) == ["host-a", "host-b"]
    assert ledger.overlaps(rows) == []


@pytest.mark.slow
def test_a_host_that_dies_with_no_job_is_replaced_in_seconds(run_supervisor: RunSupervisor, rows: Rows) -> None:
    a, b = pair(run_supervisor, "ledger", "quick")
    job = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.status(job) == "ok")
    kill_tree(a)
    waiting = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.status(waiting) == "ok", 5.0)
    eventually(lambda: title(b, "quick") == "paceline: quick idle", 5.0)
    assert hosts(rows) == ["host-a", "host-b"]


@pytest.mark.slow
def test_a_row_of_a_dead_host_that_was_met_is_left_alone_until_its_deadline_has_passed(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """The survivor cannot know that the job is not running on somewhere: job_timeout + grace + 5 s after its start."""
    a, b = pair(run_supervisor, "sleeps", python=program(tmp_path, grace=0.5), env={"TEST_JOB_TIMEOUT": "1"})
    left = rows.insert("sleeps", "sleeps.Forever")
    following = rows.insert("sleeps", "sleeps.Sleep")
    eventually(lambda: rows.status(left) == "started")
    kill_tree(a)
    eventually(lambda: ", which another host may be running" in title(b, "sleeps"), 5.0)
    rows.execute("UPDATE jobs SET started_at = started_at - interval '4 s' WHERE id = %s", left)
    eventually(lambda: rows.status(left) != "started", 15.0)
    row = rows.row(left)
    assert row.status == "err: interrupted"
    assert row.started_at is not None and row.finished_at is not None
    assert (row.finished_at - row.started_at).total_seconds() >= 1 + 0.5 + 5
    eventually(lambda: rows.status(following) == "ok", 5.0)


@pytest.mark.slow
def test_a_host_that_stands_by_interrupts_nothing_that_the_other_runs(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 4: the second sweeps, boots and takes over other queues while the first is at its long job."""
    limited = program(tmp_path, sweep=0.2, sweep_margin=0.3)
    a = run_supervisor("ledger", "quick", host="host-a", python=limited, env={"TEST_JOB_TIMEOUT": "30"})
    job = rows.insert("ledger", "ledger.Append", {"seconds": 2.5})
    following = rows.insert("ledger", "ledger.Append")
    eventually(lambda: hosts(rows) == ["host-a"])
    # A lower timeout of its own, but the sessions of the first tell its longer one.
    b = run_supervisor("ledger", "quick", host="host-b", python=limited, env={"TEST_JOB_TIMEOUT": "0.3"})
    eventually(lambda: stands_by(b, "ledger", "host-a"))
    a.terminate()
    old = "SELECT status FROM jobs WHERE id = %s AND now() - started_at > '2 s'"
    assert eventually(lambda: rows.execute(old, job)) == [("started",)]
    assert a.wait() == 0
    assert rows.status(job) == "ok"
    eventually(lambda: rows.status(following) == "ok", 2.0)  # the second goes on at once
    assert hosts(rows) == ["host-a", "host-b"]
    assert f"id={job} " not in b.log()


@pytest.mark.slow
def test_a_rolling_restart_under_load_overlaps_nothing_and_runs_nothing_twice(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    for queue in QUEUES:
        rows.insert_many(250, queue, "ledger.Append", {"seconds": 0.01})
    a, b = pair(run_supervisor, *QUEUES)
    for turn in (1, 2):
        for host in ("host-a", "host-b"):
            old = a if host == "host-a" else b
            old.terminate()
            assert old.wait() == 0
            new = run_supervisor(*QUEUES, host=host)
            a, b = (new, b) if host == "host-a" else (a, new)
        if turn == 1:
            assert not final(rows, *QUEUES)  # or there was no load
    eventually(lambda: final(rows, *QUEUES), 30.0)
    for queue in QUEUES:
        assert set(rows.statuses(queue)) == {"ok"}
        assert [run.id for run in ledger.runs(rows, queue)] == [row.id for row in rows.all(queue)]
    assert ledger.overlaps(rows) == []
    assert ledger.repeated(rows) == []
    assert set(hosts(rows)) == {"host-a", "host-b"}


@pytest.mark.slow
def test_children_killed_at_random_on_both_hosts_overlap_nothing(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """A killed holder's queue goes to either host; its row is ended by its own, which knows that it is dead."""
    jobs = rows.insert_many(60, "ledger", "ledger.Append", {"seconds": 0.05})
    a, b = pair(run_supervisor, "ledger")
    for number in range(5, 50, 11):
        eventually(lambda number=number: rows.status(jobs[number]) != "pending")
        for sup in (a, b):
            if not title(sup, "ledger").startswith("paceline: ledger standby"):
                sup.child("ledger").signal(signal.SIGKILL)
    eventually(lambda: final(rows, "ledger"), 30.0)
    assert set(rows.statuses("ledger")) <= {"ok", "err: interrupted: SIGKILL (out of memory?)"}
    assert ledger.overlaps(rows) == []
    assert ledger.repeated(rows) == []


# FAULTS 6: the lease's session is ended by the server, at every step of a job, with a standby at hand.


@pytest.mark.slow
def test_a_lease_lost_while_idle_is_retaken_in_seconds_by_either(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 6"""
    a, b = pair(run_supervisor, "ledger")
    for _ in range(3):
        cut_the_holder_off(rows)
        job = rows.insert("ledger", "ledger.Append")
        eventually(lambda job=job: rows.status(job) == "ok", 5.0)
        eventually(lambda: sorted("standby" in title(sup, "ledger") for sup in (a, b)) == [False, True])
    assert " ERROR " not in a.log() + b.log()  # the first try found it again: no fault


@pytest.mark.slow
def test_a_lease_lost_during_the_claim_runs_the_job_once(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 6: the claim is rolled back with its session."""
    pair(run_supervisor, "ledger")
    with gates.closed(rows, "claim") as gate:
        jobs = rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        cut_the_holder_off(rows)
    eventually(lambda: final(rows, "ledger"))
    assert rows.statuses("ledger") == ["ok"] * 3
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs


@pytest.mark.slow
def test_a_lease_lost_during_the_handler_keeps_the_other_waiting_and_the_status_true(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 6: the standby gets the lease, and leaves the row to the process that runs it."""
    _, b = pair(run_supervisor, "ledger")
    running = rows.insert("ledger", "ledger.Append", {"seconds": 2})
    following = rows.insert("ledger", "ledger.Append")
    eventually(lambda: hosts(rows) == ["host-a"])
    cut_the_holder_off(rows)
    eventually(lambda: ", which another host may be running" in title(b, "ledger"))
    assert rows.status(running) == "started"
    eventually(lambda: rows.status(following) == "ok")
    assert rows.statuses("ledger") == ["ok", "ok"]
    assert hosts(rows) == ["host-a", "host-b"]
    assert ledger.overlaps(rows) == []


@pytest.mark.slow
def test_a_lease_lost_during_the_finalize_keeps_the_status_true(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 6: rolled back with its session, it is sent again on a new one, without the claim that went with it."""
    pair(run_supervisor, "ledger")
    with gates.closed(rows, "finalize") as gate:
        jobs = rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        cut_the_holder_off(rows)
    eventually(lambda: final(rows, "ledger"))
    assert rows.statuses("ledger") == ["ok"] * 3
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs
    assert ledger.overlaps(rows) == []
