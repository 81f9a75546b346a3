"""The poller's steps against a real table, without a fork: fetch, claim, work_once, work. finalize has its own file."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from supervisor import Context
from supervisor.child.execution import Claimed
from supervisor.config import Limits
from supervisor.scoreboard import Doing
from supervisor.worker import boottime
from tests.support.pollers import MakePoller, claimed, pollers
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.wait import eventually


@pytest.fixture
def make_poller(database_in_use: str) -> Iterator[MakePoller]:
    with pollers(database_in_use) as make:
        yield make


# work_once


def test_work_once_runs_the_oldest_pending_job_to_its_end(
    either_database: str, rows: Rows, make_poller: MakePoller
) -> None:
    rows.insert("desk", "Ok", status="ok")
    rows.insert("other", "Ok")
    first, second = rows.insert("desk", "Greet", {"name": "Ada"}), rows.insert("desk", "Later")
    poller = make_poller()
    assert poller.work_once() == "hello Ada"
    assert rows.status(second) == "pending"
    assert poller.work_once() == "fail: not today"
    assert poller.work_once() is None
    for job, status in ((first, "hello Ada"), (second, "fail: not today")):
        row = rows.row(job)
        assert row.status == status
        assert row.started_at is not None
        assert row.finished_at is not None
    assert rows.statuses("other") == ["pending"]


def test_the_handler_sees_its_job_in_utc_and_its_deadline(
    either_database: str, rows: Rows, make_poller: MakePoller
) -> None:
    job = rows.insert("desk", "Facts")
    rows.execute("UPDATE jobs SET callsite = 'here:1'")
    assert make_poller().work_once() == f"{job} desk Facts here:1 True"


def test_a_fault_ends_as_err_and_raises_nothing(rows: Rows, make_poller: MakePoller) -> None:
    """FAULTS 35: an unknown job, args of the wrong shape."""
    rows.insert("desk", "Unknown")
    rows.insert("desk", "Greet", {"name": 5})
    poller = make_poller()
    assert poller.work_once() == 'err: unknown job "Unknown" for queue desk'
    assert poller.work_once() == "err: Expected `str`, got `int` - at `$.name`"


def test_a_row_without_args_is_run_with_none(old_database: str, rows: Rows, make_poller: MakePoller) -> None:
    """The older table lets args be null."""
    job = rows.insert("desk", "Ok")
    rows.execute("UPDATE jobs SET args = NULL")
    assert make_poller().work_once() == "ok"
    assert rows.status(job) == "ok"


# fetch


def test_fetch_gives_the_queues_pending_ids_in_order_and_no_more_than_a_batch(
    either_database: str, rows: Rows, make_poller: MakePoller
) -> None:
    """The order is that of ids, not of the rows' places in the table."""
    jobs = rows.insert_many(6, "desk", "Ok")
    rows.insert_many(3, "other", "Ok")
    rows.execute("UPDATE jobs SET callsite = 'moved' WHERE id = ANY(%s)", jobs[:2])  # to the table's end
    rows.execute("UPDATE jobs SET status = 'started' WHERE id = %s", jobs[2])
    rows.execute("UPDATE jobs SET status = 'ok' WHERE id = %s", jobs[3])
    assert make_poller().fetch() == [jobs[0], jobs[1], jobs[4], jobs[5]]
    assert make_poller(limits=Limits(batch=2)).fetch() == jobs[:2]


def test_a_lower_id_that_commits_later_is_fetched_all_the_same(
    database: str, rows: Rows, make_poller: MakePoller
) -> None:
    """FAULTS 23: no "id greater than the last one" anywhere."""
    poller = make_poller()
    with psycopg.connect(database) as late:
        row = late.execute("INSERT INTO jobs (queue, name) VALUES ('desk', 'Ok') RETURNING id").fetchone()
        assert row is not None
        second = rows.insert("desk", "Ok")
        assert poller.work_once() == "ok"
    assert row[0] < second
    assert poller.fetch() == [row[0]]


# claim


def test_a_claim_makes_the_row_its_own_and_the_slot_knew_before(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller()
    job = rows.insert("desk", "Greet", {"name": "Ada"})
    found = claimed(poller, job)
    assert (found.job.id, found.job.name, found.args) == (job, "Greet", '{"name": "Ada"}')
    assert rows.status(job) == "started"
    assert poller.slot.part.claiming == job  # until its handler begins


@pytest.mark.parametrize("status", ["started", "ok", "skip: cancelled by ada", None])
def test_a_claim_of_a_row_that_is_taken_or_gone_is_none_and_changes_nothing(
    rows: Rows, make_poller: MakePoller, status: str | None
) -> None:
    poller = make_poller()
    job = rows.insert("desk", "Ok", status=status or "pending")
    if status is None:
        rows.execute("DELETE FROM jobs")
    before = rows.all("desk")
    assert poller.claim(job) is None
    assert rows.all("desk") == before
    assert poller.slot.part.claiming == 0


@pytest.mark.slow
def test_a_claim_whose_answer_took_over_a_second_is_dated_anew(
    rows: Rows, relay: Relay, make_poller: MakePoller
) -> None:
    """Its handler begins only now, and other hosts reckon its deadline from started_at."""
    poller = make_poller(relay.url)
    first, later = rows.insert_many(2, "desk", "Ok")
    assert poller.claim(first)  # the statement is prepared: from here on it is one message
    answers: list[Claimed | None] = []
    thread = threading.Thread(target=lambda: answers.append(poller.claim(later)))
    relay.stall("client")
    try:
        thread.start()
        eventually(lambda: rows.status(later) == "started")
        first = rows.row(later).started_at
        eventually(lambda: rows.execute("SELECT 1 WHERE clock_timestamp() - %s > interval '1.1 s'", first))
    finally:
        relay.resume()
        thread.join()
    [answer] = answers
    assert answer is not None
    [(again,)] = rows.execute(
        "SELECT extract(epoch FROM started_at - %s)::float8 FROM jobs WHERE id = %s", first, later
    )
    assert again > 1.0
    assert Context(answer.job, answer.deadline).remaining() > 58.5  # of 60


# work


def test_work_runs_a_batch_in_order(either_database: str, rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller(leased=True)
    jobs = rows.insert_many(20, "desk", "Ok")
    poller.work(poller.fetch())
    assert rows.statuses("desk") == ["ok"] * 20
    started = [row.started_at for row in rows.all("desk")]
    assert started == sorted(started, key=str)
    assert len(set(started)) == len(jobs)
    assert poller.slot.part.finished == 20
    assert poller.slot.part.doing == Doing.IDLE


def test_work_stops_for_a_rest_with_nothing_claimed(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller(leased=True, throttle=lambda status, error, elapsed: 1.5)
    rows.insert_many(3, "desk", "Ok")
    before = boottime()
    poller.work(poller.fetch())
    assert before + 1.5 <= poller.slot.part.until <= boottime() + 1.5
    assert rows.statuses("desk") == ["ok", "pending", "pending"]


def test_work_goes_on_past_a_row_that_was_cancelled_meanwhile(rows: Rows, make_poller: MakePoller) -> None:
    poller = make_poller(leased=True)
    first, second, third = rows.insert_many(3, "desk", "Ok")
    ids = poller.fetch()
    rows.execute("UPDATE jobs SET status = 'skip: cancelled' WHERE id = %s", second)
    poller.work(ids)
    poller.work(poller.fetch())  # in one turn or in two
    assert [rows.status(job) for job in (first, second, third)] == ["ok", "skip: cancelled", "ok"]
