"""The queues that come with Paceline, a job at a time in this process: what they delete at once, and what stays."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

import queues
from queues import caches, jobs
from supervisor import DB
from supervisor.testing import drain, run_one
from tests.support.rows import Rows

DAY = 86_400  # seconds
BATCH = 1_000  # rows in one transaction, at most

# Writes down each DELETE on a table: its transaction and its number of rows.
WATCH = """
CREATE TABLE deletes (number bigint GENERATED ALWAYS AS IDENTITY, transaction text, rows bigint);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deletes (transaction, rows) SELECT pg_current_xact_id()::text, count(*) FROM deleted;
  RETURN NULL;
END
$$;
CREATE TRIGGER watch AFTER DELETE ON {table} REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION watch();
"""


@pytest.fixture
def db(database_in_use: str, rows: Rows) -> Iterator[DB]:
    """The test's database, in whichever shape, with the application's own tables."""
    for schema in queues.schema:
        rows.execute(schema.read_text())
    opened = DB(database_in_use)
    yield opened
    opened.close()


def age(db: DB) -> str:
    return run_one(caches.new_worker(db), "caches.Age", db=db)


def clean_up(db: DB) -> str:
    return run_one(jobs.new_worker(db), "jobs.CleanUpQueues", db=db)


def batches(rows: Rows) -> list[int]:
    """The sizes of the DELETEs that found something; each was a transaction of its own."""
    found = rows.execute("SELECT rows, transaction FROM deletes WHERE rows > 0 ORDER BY number")
    assert len({transaction for _, transaction in found}) == len(found)
    return [size for size, _ in found]


# caches.Age


def cache(rows: Rows, count: int, expires: str) -> None:
    """`count` cached answers that expire at that interval from now."""
    rows.execute(
        "INSERT INTO cache (key, value, expires_at)"
        " SELECT %s || n, '{}', now() + %s::interval FROM generate_series(1, %s) AS n",
        f"{expires} ",
        expires,
        count,
    )


def test_age_deletes_what_has_expired_in_batches_and_says_how_much(db: DB, rows: Rows) -> None:
    cache(rows, 2_300, "-1 second")
    cache(rows, 7, "1 hour")
    rows.execute(WATCH.format(table="cache"))
    assert age(db) == "ok: 2300 expired"
    assert rows.execute("SELECT count(*), count(*) FILTER (WHERE expires_at > now()) FROM cache") == [(7, 7)]
    assert batches(rows) == [BATCH, BATCH, 300]


def test_age_with_nothing_expired_is_skipped(db: DB, rows: Rows) -> None:
    cache(rows, 3, "1 hour")
    assert age(db) == "skip: nothing has expired"
    assert rows.execute("SELECT count(*) FROM cache") == [(3,)]


def test_age_leaves_an_answer_that_is_being_renewed(db: DB, rows: Rows, database: str) -> None:
    """It does not wait for the transaction that renews it."""
    cache(rows, 3, "-1 second")
    with closing(psycopg.connect(database)) as client:
        client.execute("UPDATE cache SET expires_at = now() + interval '1 hour' WHERE key = '-1 second 2'")
        assert age(db) == "ok: 2 expired"
        client.commit()
    assert rows.execute("SELECT key FROM cache") == [("-1 second 2",)]


# jobs.CleanUpQueues


def finished(rows: Rows, queue: str, count: int, age: float, status: str = "ok") -> None:
    """`count` jobs that ended `age` seconds ago."""
    rows.execute(
        "INSERT INTO jobs (queue, name, status, created_at, started_at, finished_at)"
        " SELECT %s, 'any.Job', %s, ended, ended, ended"
        " FROM (SELECT now() - %s * interval '1 second' AS ended) AS given, generate_series(1, %s)",
        queue,
        status,
        age,
        count,
    )


def left(rows: Rows) -> dict[str, int]:
    """How many jobs each queue has, but for the clean-up's own."""
    return dict(rows.execute("SELECT queue, count(*) FROM jobs WHERE queue <> 'jobs' GROUP BY queue"))


def test_clean_up_deletes_old_finished_jobs_of_every_queue_in_batches_and_says_how_many(
    either_database: str, db: DB, rows: Rows
) -> None:
    """FAULTS 28, small size. Served or not: the queues are those that the table has."""
    finished(rows, "one", 2_300, 31 * DAY)
    finished(rows, "two", 1, 31 * DAY, "err: interrupted")
    finished(rows, "gone", 1, 400 * DAY, "skip: cancelled by me")
    for queue in ("one", "two", "kept"):
        finished(rows, queue, 2, 29 * DAY)
    rows.execute(WATCH.format(table="jobs"))
    assert clean_up(db) == "ok: 2302 deleted"
    assert left(rows) == {"one": 2, "two": 2, "kept": 2}
    assert sorted(batches(rows)) == [1, 1, 300, BATCH, BATCH]


def test_clean_up_leaves_what_is_not_finished_and_what_ended_lately_whatever_its_age(db: DB, rows: Rows) -> None:
    kept = [rows.insert("one", "any.Job", status=status, age=400 * DAY) for status in ("pending", "started", "ok")]
    rows.execute("UPDATE jobs SET finished_at = now() WHERE id = %s", kept[2])
    assert clean_up(db) == "skip: nothing is older than 30 days"
    assert [rows.status(job) for job in kept] == ["pending", "started", "ok"]


def test_the_retention_is_a_setting(either_database: str, db: DB, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBS_RETENTION_DAYS", "0.5")
    finished(rows, "one", 3, 0.6 * DAY)
    finished(rows, "one", 4, 0.4 * DAY)
    assert clean_up(db) == "ok: 3 deleted"
    assert left(rows) == {"one": 4}


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_the_retention_is_the_same_whatever_the_time_zone_of_the_database(
    zone: str, either_database: str, db: DB, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 39: the older table's times are in UTC."""
    [(name,)] = rows.execute("SELECT current_database()")
    rows.execute(f"ALTER DATABASE {name} SET TimeZone = '{zone}'")
    monkeypatch.setenv("JOBS_RETENTION_DAYS", "1")
    finished(rows, "one", 1, 1.01 * DAY)
    finished(rows, "one", 2, 0.99 * DAY)
    assert clean_up(db) == "ok: 1 deleted"
    assert left(rows) == {"one": 2}


@pytest.mark.parametrize("given", ["a month", "0", "-1", "nan", "inf", "1e300"])
def test_a_retention_that_is_none_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the registry is built, which is before anything runs."""
    monkeypatch.setenv("JOBS_RETENTION_DAYS", given)
    with pytest.raises(ValueError, match="JOBS_RETENTION_DAYS"):
        jobs.new_worker(DB.for_children("postgresql:///"))


def test_an_empty_setting_is_the_default(db: DB, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBS_RETENTION_DAYS", "")
    finished(rows, "one", 1, 31 * DAY)
    finished(rows, "one", 1, 29 * DAY)
    assert clean_up(db) == "ok: 1 deleted"


def test_a_queue_with_nothing_pending_has_nothing_to_work(db: DB) -> None:
    assert drain(caches.new_worker(db), db=db) == []
    assert drain(jobs.new_worker(db), db=db) == []
