"""Drain: no further claim, active jobs finish, exit 0; at every step of a job's life, and out of every wait at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support import gates, ledger
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

HOUR = {"TEST_THROTTLE": "3600"}


def drain(sup: Supervised, within: float = 5.0) -> None:
    """Drain it gracefully, no child killed for that."""
    sup.terminate()
    assert sup.wait(within) == 0
    assert "killed" not in sup.log()
    assert sup.log().count("draining") == 1


def final(status: str) -> bool:
    return status not in ("pending", "started")


def test_an_idle_drain_ends_at_once_and_gracefully(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("quick", "sleeps", "paced")
    drain(sup, within=2.0)
    assert sup.log().rstrip().endswith("paceline: drained")
    assert rows.sessions() == []


@pytest.mark.slow
def test_a_running_job_finishes_in_a_drain_and_the_next_is_not_claimed(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    running = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.6})
    following = rows.insert("sleeps", "sleeps.Sleep")
    sup = run_supervisor("sleeps", "quick")
    eventually(lambda: rows.status(running) == "started")
    child = sup.child("sleeps")
    sup.terminate()
    eventually(lambda: "draining: sleeps" in sup.parent.title)
    late = rows.insert("quick", "quick.Ok")  # wakes nobody any more
    assert child.alive
    assert sup.wait() == 0
    assert rows.status(running) == "ok"
    assert rows.status(following) == rows.status(late) == "pending"
    assert "killed" not in sup.log()


def test_no_claim_is_sent_once_the_drain_has_begun(run_supervisor: RunSupervisor, rows: Rows) -> None:
    jobs = rows.insert_many(200, "ledger", "ledger.Append", {"seconds": 0.02})
    sup = run_supervisor("ledger")
    eventually(lambda: rows.status(jobs[5]) == "ok")
    drain(sup)
    _, _, after = sup.log().partition("draining")
    # The one that ran; and one more if that ended between the log's line and the child's signal.
    assert after.count("queue=ledger") <= 2
    assert set(rows.statuses("ledger")) == {"ok", "pending"}


def test_a_drain_ends_an_hours_throttle_and_an_hours_pause(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 36"""
    sup = run_supervisor("paced", "vendor", env=HOUR)
    rows.insert("paced", "paced.Ok")
    rows.insert("vendor", "vendor.Status", {"code": 401})
    eventually(lambda: "resting until" in sup.child("paced").title and "paused until" in sup.child("vendor").title)
    drain(sup)


@pytest.mark.slow
def test_a_drain_ends_a_rest_that_a_former_service_began(run_supervisor: RunSupervisor, rows: Rows) -> None:
    rows.insert("paced", "paced.Ok", status="ok")
    sup = run_supervisor("paced", env=HOUR)
    eventually(lambda: "resting until" in sup.child("paced").title)
    drain(sup)


@pytest.mark.slow
def test_a_drain_does_not_wait_for_a_restart_in_backoff(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 36"""
    rows.insert_many(3, "crash", "crash.Exit")
    rows.insert("crash", "crash.Ok")
    sup = run_supervisor("crash", "quick")
    eventually(lambda: "3 deaths" in sup.parent.title)  # the next start is two seconds away
    drain(sup)
    assert rows.statuses("crash") == ["err: interrupted: exit 3"] * 3 + ["pending"]


@pytest.mark.slow
def test_a_drain_ends_a_standby_and_leaves_the_holder_alone(run_supervisor: RunSupervisor, rows: Rows) -> None:
    holder = run_supervisor("quick", host="host-a")
    standby = run_supervisor("quick", host="host-b")
    eventually(lambda: standby.child("quick").title == "paceline: quick standby (lease: host-a)")
    drain(standby)
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
    drain(holder)


def test_a_drain_ends_while_the_database_is_gone(run_supervisor: RunSupervisor, relay: Relay) -> None:
    """FAULTS 36"""
    sup = run_supervisor("quick", "sleeps", url=relay.url)
    relay.refuse()
    relay.cut()
    eventually(lambda: all("waiting for the database" in child.title for child in sup.children().values()))
    drain(sup)


def test_a_drain_ends_a_boot_that_waits_for_the_database(run_supervisor: RunSupervisor, relay: Relay) -> None:
    """FAULTS 36"""
    relay.refuse()
    sup = run_supervisor("quick", url=relay.url, ready=False)
    eventually(lambda: "waiting for the database" in sup.log())
    sup.terminate()
    assert sup.wait(5.0) == 0


@pytest.mark.slow
def test_a_drain_ends_while_the_server_does_not_answer(run_supervisor: RunSupervisor, relay: Relay) -> None:
    """FAULTS 36: no child can say goodbye to a frozen server, and those without a job are killed for that."""
    sup = run_supervisor("quick", "sleeps", url=relay.url)
    relay.stall()
    sup.terminate()
    assert sup.wait(8.0) == 0


@pytest.mark.slow
def test_a_drain_ends_a_boot_at_a_server_that_does_not_answer(run_supervisor: RunSupervisor, relay: Relay) -> None:
    """FAULTS 36"""
    relay.stall()
    sup = run_supervisor("quick", url=relay.url, ready=False)
    eventually(lambda: sup.parent.title == "paceline: parent starting" and relay.connections)
    sup.terminate()
    assert sup.wait(5.0) == 0


@pytest.mark.slow
def test_a_frozen_idle_child_does_not_hold_a_drain_up(run_supervisor: RunSupervisor) -> None:
    """FAULTS 36"""
    sup = run_supervisor("quick", "sleeps")
    frozen = sup.child("quick")
    frozen.signal(signal.SIGSTOP)
    sup.terminate()
    assert sup.wait(8.0) == 0
    assert "queue quick: killed: no job, and no exit within a second of the drain" in sup.log()


# FAULTS 5: SIGTERM at every step. Each holds the first of three jobs at its step, and lets go after the signal.


@contextmanager
def idle_before_the_claim(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    """The row is visible, and no wake arrives."""
    relay.stall("client")
    rows.insert_many(3, "ledger", "ledger.Append")
    yield
    relay.resume()


@contextmanager
def in_the_claim(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    """The child is killed with its claim on the way, which is carried out after its death."""
    with gates.closed(rows, "claim") as gate:
        rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        yield
        sup.wait()
    eventually(lambda: rows.statuses("ledger")[0] == "started")


@contextmanager
def after_the_claim(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    """Carried out, and its answer is on the way to a child that is killed for showing no job."""
    with gates.closed(rows, "claim") as gate:
        rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        relay.stall("client")
    eventually(lambda: rows.statuses("ledger")[0] == "started")
    yield
    sup.wait()
    relay.resume()


@contextmanager
def in_the_handler(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    rows.insert("ledger", "ledger.Append", {"seconds": 0.5})
    rows.insert_many(2, "ledger", "ledger.Append")
    eventually(lambda: ledger.runs(rows, "ledger"))
    yield


@contextmanager
def before_the_finalize(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    """A lock on the row lets none through, for longer than one try waits for it."""
    job, *_ = rows.insert_many(3, "ledger", "ledger.Append", {"seconds": 0.2})
    eventually(lambda: ledger.runs(rows, "ledger"))
    with psycopg.connect(rows.url) as locked:
        locked.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (job,))
        yield
        eventually(lambda: "queue ledger: finalize: canceling statement due to lock timeout" in sup.log())
        assert "draining: ledger" in sup.parent.title


@contextmanager
def after_the_finalize(sup: Supervised, rows: Rows, relay: Relay) -> Iterator[None]:
    """Carried out, with the next claim; the answer comes after the signal."""
    with gates.closed(rows, "finalize") as gate:
        rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        relay.stall("client")
    eventually(lambda: rows.statuses("ledger")[0] == "ok")
    yield
    relay.resume()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hold", "then"),
    [
        (idle_before_the_claim, ["ok", "ok", "ok"]),
        (in_the_claim, ["err: interrupted", "ok", "ok"]),
        (after_the_claim, ["err: interrupted", "ok", "ok"]),
        (in_the_handler, ["ok", "ok", "ok"]),
        (before_the_finalize, ["ok", "ok", "ok"]),
        (after_the_finalize, ["ok", "ok", "ok"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_after_a_drain_at_any_step_and_a_restart_every_row_is_final(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, tmp_path: Path, hold: object, then: list[str]
) -> None:
    """FAULTS 5"""
    assert callable(hold)
    sup = run_supervisor("ledger", url=relay.url)
    with hold(sup, rows, relay):
        sup.terminate()
    assert sup.wait() == 0
    run_supervisor("ledger", python=program(tmp_path, settle=1))
    eventually(lambda: all(map(final, rows.statuses("ledger"))))
    assert rows.statuses("ledger") == then
    assert ledger.repeated(rows) == []


@pytest.mark.slow
def test_drains_and_restarts_under_load_lose_no_job_and_run_none_twice(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 5"""
    jobs = rows.insert_many(400, "ledger", "ledger.Append", {"seconds": 0.002})
    for part in range(1, 5):
        sup = run_supervisor("ledger")
        eventually(lambda part=part: rows.status(jobs[part * 40]) == "ok")
        drain(sup)
        assert set(rows.statuses("ledger")) == {"ok", "pending"}
    run_supervisor("ledger")
    eventually(lambda: rows.status(jobs[-1]) == "ok")
    assert set(rows.statuses("ledger")) == {"ok"}
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs
    assert ledger.overlaps(rows) == []


@pytest.mark.slow
def test_a_burst_ends_once_nothing_is_pending_follow_up_jobs_of_other_queues_included(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    for _ in range(3):
        rows.insert("quick", "quick.Follow", {"queue": "paced", "name": "paced.Ok"})
    sup = run_supervisor("quick", "paced", env={"TEST_THROTTLE": "0.5"}, flags=["--burst"], ready=False)
    assert sup.wait() == 0
    assert rows.statuses("paced") == ["ok"] * 3
    assert all(status.startswith("followed by") for status in rows.statuses("quick"))


@pytest.mark.slow
def test_a_burst_with_nothing_to_do_ends_and_leaves_other_queues_alone(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    other = rows.insert("sleeps", "sleeps.Forever")
    assert run_supervisor("quick", flags=["--burst"], ready=False).wait() == 0
    assert rows.status(other) == "pending"
