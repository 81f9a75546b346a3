"""The clean-up of finished rows beside queues at work: it holds nobody up, and its memory stays what it was."""

import os
from pathlib import Path

import pytest

from tests.support.processes import Process
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

ROWS = int(os.environ.get("TEST_FINISHED_ROWS", "40000"))  # the full size: 5000000
MONTH = "31 days"


def largest(process: Process) -> int:
    """The most memory that it has had resident, in bytes: proc_pid_status(5), VmHWM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_jobs_run_on_while_thousands_of_finished_rows_are_deleted_and_memory_stays_flat(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 28, small size; TEST_FINISHED_ROWS=5000000 is the full one."""
    rows.execute(
        "INSERT INTO jobs (queue, name, args, status, created_at, started_at, finished_at)"
        " SELECT 'old', 'any.Job', jsonb_build_object('text', repeat('x', 200)), 'ok', ended, ended, ended"
        f" FROM (SELECT now() - interval '{MONTH}' AS ended) AS given, generate_series(1, %s)",
        ROWS,
    )
    sup = run_supervisor(registry="tests.support.queues_housekeeping")
    child = sup.child("jobs")
    before = largest(child)
    job = rows.insert("jobs", "jobs.CleanUpQueues")
    beside: list[int] = []
    waits: list[object] = []

    def over() -> bool:
        """Whether the clean-up is; enqueues a job beside it, and looks who waits for a lock."""
        beside.append(rows.insert("quick", "quick.Ok"))
        waits.extend(
            rows.execute(
                "SELECT application_name, query FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )
        return rows.status(job) not in ("pending", "started")

    eventually(over, 600 if ROWS > 100_000 else 30)
    assert rows.status(job) == f"ok: {ROWS} deleted"
    assert waits == []
    [(meanwhile,)] = rows.execute(
        "SELECT count(*) FROM jobs AS quick, jobs AS clean WHERE quick.queue = 'quick' AND clean.id = %s"
        " AND quick.started_at > clean.started_at AND quick.finished_at < clean.finished_at",
        job,
    )
    assert meanwhile > 5
    eventually(lambda: set(rows.statuses("quick")) == {"ok"})
    assert largest(child) - before < 8_000_000  # its pool and its SQL take one; the rows are more
    assert sup.child("jobs") == child
