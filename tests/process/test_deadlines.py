"""Deadlines: whatever a handler does, its job is over in time, its row says so, and the next job runs."""

import re
from pathlib import Path

import pytest

from tests.support.queues_deadlines import AFTER_THE_GRACE, AT_THE_DEADLINE, BRIEF
from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

DEADLINES = "tests.support.queues_deadlines"
GRACE = 10.0  # seconds, as in supervisor.config
BUSY = 3.0  # seconds of slack for a busy machine


def seconds(rows: Rows, job: int) -> float:
    """From the job's start to its end."""
    [(took,)] = rows.execute("SELECT extract(epoch FROM finished_at - started_at)::float8 FROM jobs WHERE id = %s", job)
    return float(took)


@pytest.mark.slow
def test_a_stubborn_handler_is_over_within_timeout_and_grace_and_the_next_job_runs(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 34. All of them side by side; an ordinary queue beside them works on as ever.

    Each comes after short jobs of the same drain, whose timers it shares.
    """
    queues = [*AT_THE_DEADLINE, *AFTER_THE_GRACE]
    for queue in queues:
        rows.insert_many(10, queue, "Ok")
    jobs = {queue: rows.insert(queue, "Stubborn") for queue in queues}
    sup = run_supervisor(*queues, "quick", registry=DEADLINES)
    bystander = sup.child("quick")
    following = {queue: rows.insert(queue, "Ok") for queue in queues}
    eventually(lambda: all(rows.status(following[queue]) == "ok" for queue in AT_THE_DEADLINE))
    beside = rows.insert("quick", "quick.Ok")  # while others hold a GIL and the processor
    eventually(lambda: rows.status(beside) == "ok")
    eventually(lambda: all(rows.status(following[queue]) == "ok" for queue in AFTER_THE_GRACE), 1 + GRACE + 10)
    assert {queue: rows.status(job) for queue, job in jobs.items()} == dict.fromkeys(queues, "err: timeout after 1s")
    took = {queue: seconds(rows, job) for queue, job in jobs.items()}
    assert {queue: s for queue, s in took.items() if queue in AT_THE_DEADLINE and not 0.9 < s < 1 + 2 + BUSY} == {}
    late = {queue: s for queue, s in took.items() if queue in AFTER_THE_GRACE and not 10.9 < s < 1 + GRACE + 2 + BUSY}
    assert late == {}
    assert sup.child("quick") == bystander
    # The one that held the GIL could say nothing itself: faulthandler said where it was, a second before its end.
    assert re.search(r'File ".*stubborn\.py", line \d+ in spin$', sup.log(), re.MULTILINE)
    assert "killed: past its deadline" not in sup.log()  # by the parent, which is only there for when a timer fails
    # A deadline is the job's fault: no death of the process, no backoff.
    assert "process ended" not in sup.log()


@pytest.mark.slow
def test_what_a_timed_out_job_started_is_gone_before_the_next_job_begins(
    rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 18: a program of the handler's that ignores SIGTERM."""
    run_supervisor("leaves", registry=DEADLINES)
    args = {"file": str(tmp_path / "pid")}
    job, following = rows.insert("leaves", "Leave", args), rows.insert("leaves", "Look", args)
    eventually(lambda: rows.status(following) not in ("pending", "started"))
    assert rows.status(job) == "err: timeout after 1s"
    assert rows.status(following) == "gone"


@pytest.mark.slow
def test_a_deadline_around_the_end_of_a_handler_breaks_nothing(rows: Rows, run_supervisor: RunSupervisor) -> None:
    """FAULTS 16: a hundred handlers that end from 4 ms before to 4 ms after their deadline."""
    sup = run_supervisor("brief", registry=DEADLINES)
    jobs = [rows.insert("brief", "End", {"before": (50 - number) * 0.00008}) for number in range(100)]
    eventually(lambda: rows.status(jobs[-1]) not in ("pending", "started"), 30)
    ended = [rows.status(job) for job in jobs]
    assert set(ended) == {"in time", f"err: timeout after {BRIEF:g}s"}
    assert ended[-1] != "in time"
    # The alarm, not the kernel, ended each of them, and no process died of it.
    assert [job for job in jobs if seconds(rows, job) > 5] == []
    assert "process ended" not in sup.log()
    assert "killed at" not in sup.log()


@pytest.mark.slow
def test_a_deadline_that_has_passed_when_the_handler_begins_ends_it_at_once(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 16, just before the handler: the claim itself took longer than the job may (a lock on the row)."""
    job = rows.insert("brief", "End", {"before": -600})
    with row_lock(database, job):
        sup = run_supervisor("brief", registry=DEADLINES)
        eventually(
            lambda: rows.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND application_name LIKE 'paceline:brief/%' AND clock_timestamp() - query_start > interval '0.2 s'"
            )
        )
    eventually(lambda: rows.status(job) not in ("pending", "started"))
    assert rows.status(job) == f"err: timeout after {BRIEF:g}s"
    assert "killed at" not in sup.log()  # by the kernel, after the grace
    assert seconds(rows, job) < 5
