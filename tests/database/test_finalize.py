"""finalize, and the claim that travels with it: the true status is recorded, whatever stands in the way."""

import secrets
import threading
from collections.abc import Iterator

import psycopg
import pytest

from supervisor import status as statuses
from supervisor.child.execution import Result
from supervisor.child.session import Session
from supervisor.child.takeover import end_predecessor
from supervisor.config import Limits
from supervisor.migrate import migrate
from supervisor.scoreboard import ChildSlot, Slot
from tests.support.databases import of_cluster
from tests.support.pollers import MakePoller, claimed, pollers
from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.wait import eventually


@pytest.fixture
def make_poller(database_in_use: str) -> Iterator[MakePoller]:
    with pollers(database_in_use) as make:
        yield make


def result(status: str) -> Result:
    return Result(status, None, 0.0)


def commits(rows: Rows, *jobs: int) -> set[str]:
    """The transactions that last wrote these rows."""
    return {xmin for (xmin,) in rows.execute("SELECT xmin::text FROM jobs WHERE id = ANY(%s)", list(jobs))}


def test_finalize_records_the_status_and_clears_the_slot(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller()
    job = rows.insert("desk", "Ok")
    poller.slot.begin(job, "Ok", 0.0, 60.0)
    poller.slot.end("12 rows")
    assert poller.finalize(claimed(poller, job), result("12 rows")) is None
    assert rows.status(job) == "12 rows"
    part = poller.slot.part
    assert (part.running, part.ended, part.claiming, part.last) == (0, 0, 0, b"12 rows")


def test_finalize_and_the_next_claim_are_one_commit(either_database: str, rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller(leased=True)
    first, second = rows.insert_many(2, "desk", "Ok")
    following = poller.finalize(claimed(poller, first), result("ok"), second)
    assert following is not None
    assert following.job.id == second
    assert [rows.status(first), rows.status(second)] == ["ok", "started"]
    assert len(commits(rows, first, second)) == 1
    assert poller.slot.part.claiming == second
    assert rows.row(first).finished_at == rows.row(second).started_at


def test_without_the_lease_no_claim_travels_along(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller()
    first, second = rows.insert_many(2, "desk", "Ok")
    assert poller.finalize(claimed(poller, first), result("ok"), second) is None
    assert [rows.status(first), rows.status(second)] == ["ok", "pending"]


def test_finalize_stands_where_the_next_row_is_taken(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller(leased=True)
    first, second = rows.insert_many(2, "desk", "Ok")
    found = claimed(poller, first)
    rows.execute("UPDATE jobs SET status = 'skip: cancelled' WHERE id = %s", second)
    assert poller.finalize(found, result("ok"), second) is None
    assert [rows.status(first), rows.status(second)] == ["ok", "skip: cancelled"]
    assert poller.slot.part.claiming == 0


def test_finalize_corrects_a_row_that_somebody_else_has_ended(rows: Rows, make_poller: MakePoller) -> None:
    """The process that ran the job knows best."""
    poller = make_poller()
    job = rows.insert("desk", "Ok")
    found = claimed(poller, job)
    rows.execute("UPDATE jobs SET status = 'err: interrupted', finished_at = now()")
    poller.finalize(found, result("ok"))
    assert rows.status(job) == "ok"


@pytest.mark.slow
def test_finalize_goes_alone_where_the_next_row_is_locked(database: str, rows: Rows, make_poller: MakePoller) -> None:
    """55P03 after a second: DESIGN section 5, step 7."""
    poller = make_poller(leased=True)
    first, second = rows.insert_many(2, "desk", "Ok")
    found = claimed(poller, first)
    with row_lock(database, second):
        assert poller.finalize(found, result("ok"), second) is None
        assert [rows.status(first), rows.status(second)] == ["ok", "pending"]
    assert poller.slot.part.claiming == 0
    assert poller.session.leased


@pytest.mark.slow
def test_a_locked_row_is_waited_for_and_not_passed_by(database: str, rows: Rows, make_poller: MakePoller) -> None:
    """First in, first out among the visible rows, also when the second was locked as the first ended."""
    poller = make_poller(leased=True, limits=Limits(fresh=60))
    first, second, third = rows.insert_many(3, "desk", "Ok")
    with row_lock(database, second):
        poller.work(poller.fetch())
        assert [rows.status(job) for job in (first, second, third)] == ["ok", "pending", "pending"]
    poller.work(poller.fetch())
    assert [rows.status(job) for job in (first, second, third)] == ["ok"] * 3


@pytest.mark.slow
def test_finalize_waits_for_its_own_row_and_claims_nothing_meanwhile(
    database: str, rows: Rows, make_poller: MakePoller
) -> None:
    """FAULTS 7."""
    poller = make_poller(leased=True)
    first, second = rows.insert_many(2, "desk", "Ok")
    found = claimed(poller, first)
    thread = threading.Thread(target=lambda: poller.finalize(found, result("ok"), second))
    with row_lock(database, first):
        thread.start()
        eventually(lambda: poller.finalizing.since is not None)  # the first try has failed
        assert [rows.status(first), rows.status(second)] == ["started", "pending"]
    thread.join()
    assert [rows.status(first), rows.status(second)] == ["ok", "pending"]
    assert poller.finalizing.since is None


def test_a_finalize_whose_connection_is_lost_is_carried_out_alone_on_a_new_one(
    rows: Rows, make_poller: MakePoller
) -> None:
    """FAULTS 6. With the connection the lease is lost, and so is the claim that was to travel along."""
    poller = make_poller(leased=True)
    first, second = rows.insert_many(2, "desk", "Ok")
    found = claimed(poller, first)
    assert rows.cut_off("paceline:desk/%") == 1
    assert poller.finalize(found, result("ok"), second) is None
    assert [rows.status(first), rows.status(second)] == ["ok", "pending"]
    assert not poller.session.leased
    assert poller.slot.part.claiming == second  # for the next holder of the lease to look at


@pytest.mark.parametrize("leased", [True, False])
def test_a_status_that_the_database_refuses_is_replaced_by_the_fallback(
    rows: Rows, make_poller: MakePoller, leased: bool
) -> None:
    """FAULTS 26: a data error (here a check of the application's own) is not tried again with the same text."""
    rows.execute("ALTER TABLE jobs ADD CHECK (length(status) < 100)")
    poller = make_poller(leased=leased)
    first, second = rows.insert_many(2, "desk", "Ok")
    assert poller.finalize(claimed(poller, first), result("x" * 100), second) is None
    assert [rows.status(first), rows.status(second)] == [statuses.UNSTORABLE, "pending"]


@pytest.fixture
def latin_database(cluster: str) -> Iterator[str]:
    """A database whose encoding lacks most characters."""
    name = f"paceline_test_latin_{secrets.token_hex(3)}"
    with psycopg.connect(cluster, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'".encode())
        try:
            url = of_cluster(cluster, name)
            migrate(url, dedupe=frozenset())
            yield url
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_status_outside_the_databases_encoding_is_replaced_by_the_fallback(
    latin_database: str, make_poller: MakePoller
) -> None:
    """FAULTS 26: the job ends and its process lives."""
    rows = Rows(latin_database)
    poller = make_poller(latin_database)
    jobs = [rows.insert("desk", name) for name in ("Euro", "Ok")]
    assert poller.work_once() == "5 €"
    assert poller.work_once() == "ok"
    assert [rows.status(job) for job in jobs] == [statuses.UNSTORABLE, "ok"]
    rows.close()


def test_a_predecessors_status_outside_the_databases_encoding_is_replaced_too(latin_database: str) -> None:
    """From the slot: it must not become a loop of processes that die of it."""
    rows = Rows(latin_database)
    job = rows.insert("desk", "Euro", status="started")
    slot = ChildSlot(Slot())
    slot.begin(job, "Euro", 0.0, 60.0)
    slot.end("5 €")
    session = Session(latin_database, "desk", 60, "host")
    try:
        end_predecessor(session, slot)
    finally:
        session.drop()
    assert rows.status(job) == statuses.UNSTORABLE
    assert slot.part.running == 0
    rows.close()
