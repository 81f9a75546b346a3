"""A connection lost at any step: the true status is recorded, the lease and the wake are back by themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import gates, ledger
from tests.support.relay import Relay
from tests.support.rows import Rows, Sql
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually


class CountingRelay(Relay):
    """Tells how many connections have lost bytes, and are silent for good."""

    @property
    def silenced(self) -> int:
        return sum(bool(link.holed) for link in tuple(self._links))


@pytest.fixture
def relay(database: str) -> Iterator[CountingRelay]:
    with CountingRelay(database) as opened:
        yield opened


def errors(sup: Supervised, text: str) -> list[str]:
    return [line for line in sup.log().splitlines() if " ERROR " in line and text in line]


def run_now(rows: Rows, queue: str = "quick", name: str = "quick.Ok") -> None:
    """Enqueue a job and see it end long before a poll would find it."""
    job = rows.insert(queue, name)
    eventually(lambda: rows.status(job) == "ok", 5.0)


def run_by_wake(rows: Rows, sup: Supervised) -> None:
    """Twice: a wake on the occasion of the reconnection might have found the first."""
    for _ in range(2):
        run_now(rows)
        eventually(lambda: sup.child("quick").title == "paceline: quick idle")


# The listener


@pytest.mark.slow
def test_the_wake_is_back_after_the_listening_session_was_ended_twice(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 11; the poll interval is 30 seconds."""
    sup = run_supervisor("quick")
    for times in (1, 2):
        assert rows.cut_off("paceline:parent/%") >= 1
        eventually(lambda times=times: sup.log().count("LISTEN: over after") == times, 5.0)
        run_by_wake(rows, sup)
    assert len(errors(sup, "LISTEN")) == 2


@pytest.mark.slow
def test_what_is_enqueued_while_nobody_listens_is_found_when_the_listener_is_back(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay
) -> None:
    """FAULTS 11: the poll interval is 30 seconds, and the child has its session still."""
    sup = run_supervisor("quick", url=relay.url)
    relay.refuse()
    assert rows.cut_off("paceline:parent/%") >= 1
    eventually(lambda: errors(sup, "LISTEN"))
    job = rows.insert("quick", "quick.Ok")
    relay.resume()
    eventually(lambda: rows.status(job) == "ok", 5.0)


@pytest.mark.slow
def test_a_listening_connection_that_is_swallowed_is_noticed_and_polling_goes_on_meanwhile(
    run_supervisor: RunSupervisor, rows: Rows, sql: Sql, relay: CountingRelay, tmp_path: Path
) -> None:
    """FAULTS 12: it says nothing, and does not close."""
    limited = program(tmp_path, ping=2, call=1)
    sup = run_supervisor("quick", url=relay.url, python=limited, env={"TEST_POLL_INTERVAL": "1"})
    activity = (
        "SELECT query_start FROM pg_stat_activity WHERE state = 'idle' AND application_name LIKE 'paceline:quick/%'"
    )
    eventually(lambda: sup.child("quick").title == "paceline: quick idle")
    [(before,)] = eventually(lambda: sql(activity))
    eventually(lambda: sql(activity) not in ([], [(before,)]))  # it has polled, so for a second it is silent
    relay.drop("client")
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: relay.silenced)
    relay.resume()
    assert relay.silenced == 1
    eventually(lambda: rows.status(job) == "ok", 5.0)
    assert not errors(sup, "LISTEN")  # so that was the poll
    eventually(lambda: "LISTEN: over after" in sup.log(), 10.0)
    assert len(errors(sup, "LISTEN: no answer from the database")) == 1
    run_by_wake(rows, sup)


# The lease's session, alone on the database


def test_a_session_lost_while_idle_is_replaced_at_once_and_is_no_fault(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 6"""
    sup = run_supervisor("quick", "sleeps")
    for _ in range(3):
        assert rows.cut_off("paceline:quick/%") == 1
        eventually(lambda: rows.sessions("paceline:quick/%"), 5.0)
        run_now(rows)
    assert " ERROR " not in sup.log()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["claim", "finalize"])
def test_a_session_lost_within_a_statement_has_it_rolled_back_and_sent_again(
    run_supervisor: RunSupervisor, rows: Rows, step: gates.Step
) -> None:
    """FAULTS 6"""
    run_supervisor("ledger")
    with gates.closed(rows, step) as gate:
        jobs = rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        assert rows.cut_off("paceline:ledger/%") == 1
    eventually(lambda: rows.statuses("ledger") == ["ok"] * 3)
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs


@pytest.mark.slow
@pytest.mark.parametrize("step", ["claim", "finalize"])
def test_a_claim_that_was_carried_out_but_not_answered_is_interrupted_when_nobody_listened_meanwhile(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, tmp_path: Path, step: gates.Step
) -> None:
    """FAULTS 6: a host that was never met could have begun the row, and died; with the finalize a claim travelled."""
    direct = {"TEST_DIRECT_URL": rows.url}
    limited = program(tmp_path, settle=0.5)
    run_supervisor(url=relay.url, registry="tests.support.queues_direct", env=direct, python=limited)
    with gates.closed(rows, step) as gate:
        jobs = rows.insert_many(3, "ledger", "ledger.Append")
        gate.wait_for("ledger")
        relay.stall("client")
    eventually(lambda: "started" in rows.statuses("ledger")[step == "finalize" :])
    relay.cut()
    relay.resume()
    wanted = ["ok"] * 3
    unanswered = step == "finalize"
    wanted[unanswered] = "err: interrupted"
    eventually(lambda: rows.statuses("ledger") == wanted)
    del jobs[unanswered]
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs


@pytest.mark.slow
def test_a_session_lost_during_the_handler_changes_nothing_for_the_job(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 6"""
    sup = run_supervisor("sleeps")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1})
    following = rows.insert("sleeps", "sleeps.Sleep")
    eventually(lambda: rows.status(job) == "started")
    assert rows.cut_off("paceline:sleeps/%") == 1
    eventually(lambda: rows.status(following) == "ok", 5.0)
    assert rows.status(job) == "ok"
    assert " ERROR " not in sup.log()


# The whole server


@pytest.mark.slow
def test_an_outage_in_mid_job_ends_with_the_true_status_and_one_line_for_each_that_noticed(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay
) -> None:
    """FAULTS 20, in short"""
    sup = run_supervisor("sleeps", "quick", url=relay.url)
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1})
    following = rows.insert("sleeps", "sleeps.Sleep")
    eventually(lambda: rows.status(job) == "started")
    relay.refuse()
    relay.cut()
    eventually(lambda: errors(sup, "queue sleeps: finalize"))  # the handler has ended meanwhile
    eventually(lambda: sup.child("quick").title == "paceline: quick waiting for the database")
    waiting = rows.insert("quick", "quick.Ok")
    assert rows.status(job) == "started"
    relay.resume()
    eventually(lambda: rows.status(job) == rows.status(following) == rows.status(waiting) == "ok", 10.0)
    for what in ("queue sleeps: finalize", "queue quick: database", "LISTEN"):
        assert len(errors(sup, what)) == 1
        eventually(lambda what=what: f"{what}: over after" in sup.log())
    assert "Traceback" not in sup.log()


@pytest.mark.slow
def test_a_handler_that_waits_for_its_connection_through_an_outage_ends_ok_and_its_pool_says_nothing_of_its_tries(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay
) -> None:
    """FAULTS 20: the pool tries again by itself, for longer than this."""
    sup = run_supervisor("ledger", "quick", url=relay.url)
    job = rows.insert("ledger", "ledger.Append", {"seconds": 1.2})  # so long idle, a connection is asked first
    eventually(lambda: ledger.runs(rows, "ledger"))
    relay.refuse()
    relay.cut()
    eventually(lambda: sup.child("quick").title == "paceline: quick waiting for the database")
    eventually(lambda: rows.execute("SELECT id FROM jobs WHERE id = %s AND now() - started_at > '2 s'", job))
    relay.resume()
    eventually(lambda: rows.status(job) == "ok")
    assert "error connecting" not in sup.log()


@pytest.mark.slow
def test_without_a_database_at_boot_it_waits_says_so_once_and_then_works(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay
) -> None:
    """FAULTS 20"""
    job = rows.insert("quick", "quick.Ok")
    relay.refuse()
    sup = run_supervisor("quick", "sleeps", url=relay.url, ready=False)
    eventually(lambda: errors(sup, "boot: waiting for the database"))
    relay.resume()
    relay.stall()  # there, but it does not answer yet
    eventually(lambda: relay.connections)
    assert sup.children() == {}
    relay.resume()
    sup.wait_ready()
    eventually(lambda: rows.status(job) == "ok")
    assert len(errors(sup, "")) == 1
    assert "boot: waiting for the database: over after" in sup.log()
