"""A status that comes late is true all the same: a host knows more of its own dead child than another can guess."""

import signal
import time
from pathlib import Path

import pytest

from tests.support.relay import Relay
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


@pytest.mark.slow
def test_the_status_in_the_slot_of_a_dead_child_stands_over_what_another_host_could_only_guess(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, tmp_path: Path
) -> None:
    """The finalize cannot leave its host, another host ends the row after its deadline, and the child dies."""
    limited, env = program(tmp_path, grace=0.5), {"TEST_JOB_TIMEOUT": "1"}
    a = run_supervisor("sleeps", url=relay.url, host="host-a", python=limited, env=env)
    run_supervisor("sleeps", host="host-b", python=limited, env=env)
    eventually(lambda: "another parent is here" in a.log())
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.5})
    eventually(lambda: rows.status(job) == "started")
    relay.stall("server")
    assert rows.cut_off("paceline:sleeps/%@host-a") == 1
    relay.refuse()
    eventually(lambda: rows.status(job) == "err: interrupted")  # by host-b: the row's deadline has passed
    a.child("sleeps").signal(signal.SIGKILL)
    relay.resume()
    eventually(lambda: rows.status(job) == "ok")
