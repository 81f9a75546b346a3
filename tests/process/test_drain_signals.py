"""What a signal does: to the parent at any moment, to the process group, at a terminal, twice, to one child."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from signal import Signals

import pytest

from tests.support.relay import Relay
from tests.support.rows import Rows, Sql
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

STOP = [signal.SIGTERM, signal.SIGINT]


def is_handled(sup: Supervised, signo: Signals) -> bool:
    """Whether the process catches the signal, or has put it off, at this moment: proc_pid_status(5)."""
    status = Path(f"/proc/{sup.pid}/status").read_text()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt")))
    return any(int(mask, 16) >> (signo - 1) & 1 for mask in masks.values())


def start_forever(run_supervisor: RunSupervisor, rows: Rows, *flags: str) -> tuple[Supervised, int]:
    """A service whose queue `sleeps` runs a job that does not end."""
    sup = run_supervisor("sleeps", "quick", flags=flags)
    job = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: rows.status(job) == "started")
    return sup, job


@pytest.mark.slow
def test_sigterm_at_any_moment_of_the_boot_drains_and_no_job_starts_after_it(
    run_supervisor: RunSupervisor, rows: Rows, sql: Sql
) -> None:
    """FAULTS 14: exit 0, but for the moments in which Python itself is starting, before it handles the signal."""
    queues = ("ledger", "ledger-b", "ledger-c")
    for queue in queues:
        rows.insert_many(100, queue, "ledger.Append", {"seconds": 0.05})
    codes = []
    for moment in range(30):
        sup = run_supervisor(*queues, ready=False)
        began = time.monotonic()
        if moment % 4:  # most of them in the part of the boot that is ours
            eventually(lambda sup=sup: is_handled(sup, signal.SIGTERM))
            began = time.monotonic()
        due = began + random.uniform(0, 0.2)
        while time.monotonic() < due:
            pass
        handled = is_handled(sup, signal.SIGTERM)
        sup.terminate()
        [(sent,)] = sql("SELECT clock_timestamp() + interval '0.3 s'")  # for the signal to arrive on a busy machine
        code = sup.wait(5.0)
        assert code == 0 or (code == -signal.SIGTERM and not handled), (moment, handled, code)
        assert sql("SELECT id FROM jobs WHERE status = 'started' OR started_at > %s", sent) == []
        codes.append(code)
    assert codes.count(0) >= 22


@pytest.mark.slow
@pytest.mark.parametrize("signo", STOP)
def test_a_signal_to_the_process_group_is_one_graceful_drain(
    run_supervisor: RunSupervisor, rows: Rows, signo: Signals
) -> None:
    """FAULTS 15"""
    sup = run_supervisor("sleeps", "quick")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.4})
    eventually(lambda: rows.status(job) == "started")
    sup.signal_group(signo)
    assert sup.wait() == 0
    assert rows.status(job) == "ok"
    assert sup.log().count("draining") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signo", "order"), [(signal.SIGTERM, 1), (signal.SIGINT, -1)], ids=["parent first", "children first"]
)
def test_a_signal_to_every_process_is_one_graceful_drain(
    run_supervisor: RunSupervisor, rows: Rows, signo: Signals, order: int
) -> None:
    """FAULTS 15: as a service manager or a container's end sends it."""
    sup = run_supervisor("sleeps", "quick")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.4})
    eventually(lambda: rows.status(job) == "started")
    for process in [sup.parent, *sup.parent.descendants][::order]:
        with suppress(ProcessLookupError):  # an idle one may have ended by the parent's word
            process.signal(signo)
    assert sup.wait() == 0
    assert rows.status(job) == "ok"
    assert sup.log().count("draining") == 1


def test_ctrl_c_in_a_terminal_is_a_graceful_drain_once(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 15: and the terminal does not reach the child, nor so a program that its handler waits for."""
    sup = run_supervisor("sleeps", "quick", terminal=True)
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.4})
    eventually(lambda: rows.status(job) == "started")
    assert os.getsid(sup.child("sleeps").pid) != os.getsid(sup.pid)
    sup.type(b"\x03")
    assert sup.wait() == 0
    assert rows.status(job) == "ok"
    assert sup.log().count("draining") == 1


@pytest.mark.slow
def test_a_second_signal_within_a_second_is_ignored_at_whatever_moment_of_the_drain(
    run_supervisor: RunSupervisor,
) -> None:
    """FAULTS 15: a drain, once; also when the second comes in the last moments of the process."""
    for moment in range(12):
        sup = run_supervisor("quick")
        signo = STOP[moment % 2]
        sup.signal(signo)
        due = time.monotonic() + 0.005 * (moment + random.random())
        while time.monotonic() < due:
            pass
        with suppress(ProcessLookupError):
            sup.signal(signo)
        assert sup.wait(5.0) == 0, f"a second {signo.name} some {moment * 5} ms after the first"


@pytest.mark.slow
def test_a_second_signal_more_than_a_second_later_means_now(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup, job = start_forever(run_supervisor, rows)
    sup.terminate()
    first = time.monotonic()
    eventually(lambda: "SIGTERM: draining" in sup.log())
    sup.terminate()  # ignored
    eventually(lambda: time.monotonic() > first + 1.2)
    assert sup.exited() is None
    assert sup.child("sleeps").alive
    sup.terminate()
    assert sup.wait(5.0) == 1
    assert rows.status(job) == "err: interrupted: a second SIGTERM"
    assert sup.log().rstrip().endswith("ended by force")


@pytest.mark.slow
def test_a_drain_timeout_ends_the_drain_by_force_and_the_row_before_the_exit(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    sup, job = start_forever(run_supervisor, rows, "--drain-timeout", "0.5")
    sup.terminate()
    assert sup.wait(6.0) == 1
    assert rows.status(job) == "err: interrupted: drain timeout of 0.5s"
    assert rows.row(job).finished_at is not None
    assert f"id={job} " in sup.log().partition("draining")[2]


@pytest.mark.slow
def test_a_forced_drain_logs_the_true_status_that_a_frozen_server_could_not_take(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, tmp_path: Path
) -> None:
    """FAULTS 36"""
    limited = program(tmp_path, call=0.5)
    sup = run_supervisor("sleeps", "quick", url=relay.url, python=limited, flags=["--drain-timeout", "1"])
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.5})
    eventually(lambda: rows.status(job) == "started")
    relay.stall()
    sup.terminate()
    assert sup.wait(15.0) == 1
    assert "could not record the end of a job" in sup.log()
    assert f'ERROR queue=sleeps job=sleeps.Sleep id={job} status="ok"' in sup.log()


@pytest.mark.slow
def test_a_drain_at_a_frozen_server_is_bounded_by_the_jobs_own_deadline(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, tmp_path: Path
) -> None:
    """FAULTS 36"""
    limited = program(tmp_path, grace=0.2, call=0.2)
    sup = run_supervisor("sleeps", url=relay.url, python=limited, env={"TEST_JOB_TIMEOUT": "0.8"})
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.3})
    eventually(lambda: rows.status(job) == "started")
    relay.stall()
    sup.terminate()
    assert sup.wait(10.0) == 1
    assert f'id={job} status="ok"' in sup.log()


def test_sigterm_to_one_child_lets_its_job_finish_and_replaces_it(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("sleeps", "quick", "paced")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.4})
    following = rows.insert("sleeps", "sleeps.Sleep")
    eventually(lambda: rows.status(job) == "started")
    before = sup.children()
    before["sleeps"].signal(signal.SIGTERM)
    eventually(lambda: sup.child("sleeps") != before["sleeps"])
    assert rows.status(job) == "ok"
    eventually(lambda: rows.status(following) == "ok")  # run by the new one
    after = sup.children()
    assert {queue for queue in before if before[queue] != after[queue]} == {"sleeps"}
    assert "queue sleeps: process finished, replaced" in sup.log()
    assert " ERROR " not in sup.log()
