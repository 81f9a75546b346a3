"""A drain with a child that is stopped in mid-job: out within the limit, with rows ended first; the exit code tells."""

import signal
from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_a_child_frozen_in_mid_job_is_killed_at_the_drains_timeout_and_without_one_at_its_jobs_deadline(
    rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 36: forced is 1; a job that had its full time, and was ended by its deadline as ever, is a clean drain."""
    forced = run_supervisor("sleeps", "quick", host="host-a", flags=["--drain-timeout", "1"])
    limited = program(tmp_path, grace=0.5)
    bounded = run_supervisor("ledger", "paced", host="host-b", python=limited, env={"TEST_JOB_TIMEOUT": "2"})
    jobs = [rows.insert("sleeps", "sleeps.Forever"), rows.insert("ledger", "ledger.Append", {"seconds": 600})]
    eventually(lambda: [rows.status(job) for job in jobs] == ["started"] * 2)
    for sup, queue, other in ((forced, "sleeps", "quick"), (bounded, "ledger", "paced")):
        sup.child(queue).signal(signal.SIGSTOP)
        sup.child(other).signal(signal.SIGSTOP)  # and one with no job
        sup.terminate()
    assert forced.wait(6) == 1
    assert rows.status(jobs[0]) == "err: interrupted: drain timeout of 1s"
    assert bounded.wait(6) == 0
    assert rows.status(jobs[1]) == "err: timeout after 2s"
