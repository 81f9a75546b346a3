"""The deadline and the database: what the engine has sent is never broken off, what the handler has sent may be."""

from pathlib import Path

import pytest

from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

DEADLINES = "tests.support.queues_deadlines"

# Holds the COMMIT of one job, not the INSERT before it.
SLOW_COMMIT = """
CREATE TABLE slow (id bigint);
GRANT ALL ON slow TO PUBLIC;
CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.id = {job}) EXECUTE FUNCTION sleep_at_commit();
"""


def final(rows: Rows, *jobs: int) -> bool:
    return all(rows.status(job) not in ("pending", "started") for job in jobs)


@pytest.mark.slow
def test_a_deadline_during_the_commit_of_a_handler_ends_the_job_and_the_next_one_commits(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 16: the first job's commit takes longer than it has; the second finds nothing in its way."""
    job, following = rows.insert_many(2, "commits", "Commit")
    rows.execute(SLOW_COMMIT.format(job=job))
    sup = run_supervisor("commits", registry=DEADLINES)
    commits = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'paceline handler' AND query = 'COMMIT' AND state = 'active'"
    )
    eventually(lambda: rows.execute(commits))
    eventually(lambda: final(rows, job, following))
    assert [rows.status(job), rows.status(following)] == ["err: timeout after 1s", "ok"]
    assert rows.execute("SELECT id FROM slow") == [(following,)]
    assert "process ended" not in sup.log()
    assert "killed at" not in sup.log()  # by the kernel, after the grace


@pytest.mark.slow
def test_a_deadline_that_passes_during_the_finalize_changes_nothing(
    database: str, rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 16, just after the handler: a lock holds the finalize, with the next claim and then alone, until the
    deadline and the kernel's kill are past.
    """
    sup = run_supervisor("commits", registry=DEADLINES, python=program(tmp_path, grace=0.2, fresh=60))
    child = sup.child("commits")
    job, following = rows.insert_many(2, "commits", "Nap")
    eventually(lambda: rows.status(job) == "started")
    with row_lock(database, job):
        eventually(
            lambda: rows.execute("SELECT id FROM jobs WHERE id = %s AND now() - started_at > interval '2 s'", job)
        )
        assert [rows.status(job), rows.status(following)] == ["started", "pending"]
    eventually(lambda: final(rows, job, following))
    assert [rows.status(job), rows.status(following)] == ["ok", "ok"]
    assert sup.child("commits") == child
