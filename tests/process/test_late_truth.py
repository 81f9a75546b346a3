"""A status that comes late is true all the same: what a host knows of its own dead child stands over another's guess."""

import signal
import time
from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_a_job_that_was_killed_while_the_parent_was_frozen_is_no_timeout(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """It was killed seconds before its deadline, and reaped after it."""
    limited = program(tmp_path, grace=0.5)
    sup = run_supervisor("sleeps", python=limited, env={"TEST_JOB_TIMEOUT": "3"})
    job = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: sup.child("sleeps").title == f"paceline: sleeps sleeps.Forever id={job}")
    kernel_kill = time.monotonic() + 3 + 0.5
    sup.signal(signal.SIGSTOP)
    sup.child("sleeps").signal(signal.SIGKILL)
    eventually(lambda: time.monotonic() > kernel_kill)
    sup.signal(signal.SIGCONT)
    eventually(lambda: rows.status(job) == "err: interrupted: SIGKILL (out of memory?)")
