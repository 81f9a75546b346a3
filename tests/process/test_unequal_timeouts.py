"""Queues and hosts with unequal timeouts: each row is left alone for as long as its own process may run it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_two_parents import kill_tree, stands_by
from tests.support import ledger
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

WEEK = 7 * 86_400  # seconds


def sweeps(rows: Rows) -> Any:
    """A moment of the last sweep, to see that there was another."""
    return rows.execute(
        "SELECT max(query_start) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'paceline:parent/%' AND query LIKE '%Rows left `started` longer%'"
    )


def swept(rows: Rows, times: int = 3) -> None:
    """Wait for some sweeps that begin from now on."""
    for _ in range(times):
        before = sweeps(rows)
        eventually(lambda before=before: sweeps(rows) != before)


@pytest.mark.slow
def test_an_orphan_ends_behind_thousands_of_older_started_rows_and_nothing_alive_is_touched(
    rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 3: 5,000 of a worker with a timeout of a week, 5,000 of queues that others serve; no page hides it."""
    settings: dict[str, Any] = {"registry": "tests.support.queues_rude", "env": {"TEST_JOB_TIMEOUT": str(WEEK)}}
    run_supervisor("ruder", "sleeps", python=program(tmp_path, sweep=0.2), **settings)
    running = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 60})
    eventually(lambda: rows.status(running) == "started")
    for queue, age in (("sleeps", WEEK - 60), ("elsewhere", 50 * WEEK)):
        rows.execute(
            "INSERT INTO jobs (queue, name, status, started_at)"
            " SELECT %s, 'any.Job', 'started', now() - %s * interval '1 s' FROM generate_series(1, 5000)",
            queue,
            age,
        )
    alive = rows.insert("ruder", "ruder.Nap", status="started", age=30)
    orphan = rows.insert("ruder", "ruder.Nap", status="started", age=70)  # its timeout is 2 s, and a minute more
    eventually(lambda: rows.status(orphan) == "err: interrupted")
    swept(rows)
    assert rows.status(running) == rows.status(alive) == "started"
    assert rows.execute("SELECT queue, count(*) FROM jobs WHERE status = 'started' GROUP BY queue ORDER BY queue") == [
        ("elsewhere", 5_000),
        ("ruder", 1),
        ("sleeps", 5_001),
    ]


@pytest.fixture
def versions(run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path) -> Iterator[tuple[Supervised, Supervised]]:
    """An older one that gives its jobs 60 s and works the queue `ledger`; a newer one, 5 s, that stands by."""
    limited = program(tmp_path, sweep=0.2, sweep_margin=0.5, grace=1)
    older = run_supervisor("ledger", host="older", env={"TEST_JOB_TIMEOUT": "60"})
    newer = run_supervisor("ledger", host="newer", env={"TEST_JOB_TIMEOUT": "5"}, python=limited)
    eventually(lambda: stands_by(newer, "ledger", "older") and "another parent is here" in older.log())
    yield older, newer


def started_ago(rows: Rows, job: int, seconds: float) -> None:
    rows.execute("UPDATE jobs SET started_at = now() - %s * interval '1 s' WHERE id = %s", seconds, job)


@pytest.mark.slow
@pytest.mark.parametrize("older_lives", [True, False], ids=["it runs on", "it dies"])
def test_of_two_versions_the_newer_leaves_the_olders_job_alone_until_the_olders_own_deadline(
    versions: tuple[Supervised, Supervised], rows: Rows, older_lives: bool
) -> None:
    """FAULTS 42: the holder's session is lost in mid-job. The newer takes the lease, waits, and sweeps meanwhile."""
    older, newer = versions
    job = rows.insert("ledger", "ledger.Append", {"seconds": 60})
    following = rows.insert("ledger", "ledger.Append")
    eventually(lambda: ledger.runs(rows, "ledger"))
    if older_lives:
        os.kill(older.pid, signal.SIGSTOP)  # or it would take the lease back as soon as the newer
    else:
        kill_tree(older)
    rows.cut_off("paceline:ledger/60@%")
    eventually(lambda: ", which another host may be running" in newer.child("ledger").title)
    started_ago(rows, job, 55)  # long after the newer's 5 + 1 + 5 s, and its sweep's 5 + 0.5
    swept(rows)
    assert [rows.status(job), rows.status(following)] == ["started", "pending"]
    assert f"id={job} " not in newer.log()
    started_ago(rows, job, 60 + 1 + 5 + 1)
    eventually(lambda: rows.status(following) == "ok")
    assert rows.status(job) == "err: interrupted"
