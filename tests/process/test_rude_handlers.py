"""Handlers that harm their own process, or use it in unusual ways: their queue goes on, and nobody else notices.

All of this is FAULTS 45. Descriptors, streams and forks first; signals after.
"""

import signal
from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

RUDE = "tests.support.queues_rude"

ANSWERS = {  # by rude.NAME
    "Asyncio": "ok ['1', '2']",
    "Async": "ok",
    "Threads": "ok [0, 1, 2, 3]",
    "LeaveThread": "ok",
    "Subprocess": "ok 42",
    "LeaveSubprocess": "ok",
    "Pool": "ok [1, 2, 3]",
    "ForkAndForget": "ok",
    "ForkAndRaise": "ok",
    "ForkAndSleep": "ok",
    "Orphans": "ok",
    "Signals": "ok",
    "Surroundings": "ok",
    "SystemExit": "err: 7",
    "KeyboardInterrupt": "err: KeyboardInterrupt",
    "Cancelled": "err: CancelledError",
    "Recursion": "err: maximum recursion depth exceeded",
    "Print": "ok",
    "CloseStdout": "ok",
    "CloseStderr": "ok",
    "CloseAll": "ok",
    "SwapPipes": "ok",
}


def final(rows: Rows, *jobs: int) -> bool:
    return all(rows.status(job) not in ("pending", "started") for job in jobs)


@pytest.mark.slow
def test_after_each_rude_handler_the_next_job_of_its_queue_runs_and_its_siblings_are_untouched(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """One after the other in one service, so that what one has broken is there for the next."""
    sup = run_supervisor("rude", "quick", "sleeps", registry=RUDE)
    siblings = {queue: sup.child(queue) for queue in ("quick", "sleeps")}
    long = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 3})
    ended, next_ended = {}, {}
    for name in ANSWERS:
        job, following = rows.insert("rude", f"rude.{name}"), rows.insert("rude", "rude.Ok")
        eventually(lambda: final(rows, following))  # noqa: B023 - called within the turn
        ended[name], next_ended[name] = rows.status(job), rows.status(following)
    assert ended == ANSWERS
    assert next_ended == dict.fromkeys(ANSWERS, "ok")
    eventually(lambda: rows.status(long) == "ok")
    beside = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(beside) == "ok")
    assert {queue: sup.child(queue) for queue in siblings} == siblings
    assert sup.parent.threads == 1
    sup.terminate()
    assert sup.wait() == 0


@pytest.mark.parametrize("name", ["CloseStdout", "CloseStderr"])
def test_a_closed_stream_is_not_the_next_jobs_trouble(rows: Rows, run_supervisor: RunSupervisor, name: str) -> None:
    """Standard output, where the next job prints; standard error, where its log line goes."""
    sup = run_supervisor("rude", registry=RUDE)
    jobs = [rows.insert("rude", f"rude.{name}"), rows.insert("rude", "rude.Print"), rows.insert("rude", "rude.Ok")]
    eventually(lambda: final(rows, *jobs))
    assert [rows.status(job) for job in jobs] == ["ok", "ok", "ok"]
    eventually(lambda: all(f" id={job} status=" in sup.log() for job in jobs), 5)


def test_a_job_whose_handler_closed_every_descriptor_keeps_its_status_and_its_process_is_replaced(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """Nothing can be written safely any more, so the process ends by its own exit code and its successor writes."""
    sup = run_supervisor("rude", registry=RUDE)
    child = sup.child("rude")
    job = rows.insert("rude", "rude.CloseAll", {"first": 0})
    eventually(lambda: final(rows, job))
    assert rows.status(job) == "ok"
    eventually(lambda: sup.child("rude") != child)
    assert "queue rude: process ended: exit 70" in sup.log()


def test_a_descriptor_that_only_a_wait_needs_is_missed_before_the_wait_and_no_job_is_harmed(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    names = ["rude.SwapPipes", "rude.Ok", "rude.Ok"]
    jobs = [rows.insert("rude", name) for name in names]
    sup = run_supervisor("rude", registry=RUDE)
    eventually(lambda: "queue rude: process ended: exit 70" in sup.log())
    assert [rows.status(job) for job in jobs] == ["ok", "ok", "ok"]
    last = rows.insert("rude", "rude.Ok")
    eventually(lambda: rows.status(last) == "ok")


@pytest.mark.slow
def test_a_copy_that_returns_from_the_handler_late_ends_and_touches_no_other_job(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """It shares the slot with its original, which has gone on to the next job; that one is killed, to see the slot."""
    sup = run_supervisor("ruder", registry=RUDE)
    job = rows.insert("ruder", "ruder.CopyReturnsLate", {"seconds": 0.3})
    following = rows.insert("ruder", "ruder.Nap", {"seconds": 1.5})
    original = sup.child("ruder")
    eventually(lambda: rows.status(following) == "started" and original.children)
    eventually(lambda: not original.children or not any(copy.alive for copy in original.children))
    original.signal(signal.SIGKILL)
    eventually(lambda: final(rows, following))
    assert [rows.status(job), rows.status(following)] == ["ok", "err: interrupted: SIGKILL (out of memory?)"]


@pytest.mark.slow
def test_a_session_that_a_stray_process_holds_open_does_not_keep_the_queue_from_a_new_parent(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """A daemon that a job forked has every descriptor, the lease's too; it outlives the service, which is killed."""
    old = run_supervisor("rude", registry=RUDE)
    old.expect_strays = True
    job = rows.insert("rude", "rude.Daemon", {"seconds": 60})
    eventually(lambda: final(rows, job))
    old.signal(signal.SIGKILL)
    old.wait()
    following = rows.insert("rude", "rude.Ok")
    run_supervisor("rude", registry=RUDE)
    eventually(lambda: rows.status(following) == "ok")
    assert any("rude.Daemon" in stray.title for stray in old.left())  # or this test has shown nothing


# Signals


@pytest.mark.slow
def test_an_alarm_that_a_handler_left_behind_is_no_timeout_of_the_next_job(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    run_supervisor("ruder", registry=RUDE)
    jobs = [rows.insert("ruder", "ruder.LeaveAlarm", {"seconds": 0.5}), rows.insert("ruder", "ruder.Nap")]
    eventually(lambda: final(rows, *jobs))
    assert [rows.status(job) for job in jobs] == ["ok", "ok"]


def test_a_fork_of_a_handlers_own_has_the_signal_handlers_that_the_handler_set(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    run_supervisor("ruder", registry=RUDE)
    job = rows.insert("ruder", "ruder.OwnHandler")
    eventually(lambda: final(rows, job))
    assert rows.status(job) == "up, ran down"


def test_processes_of_a_process_of_a_handler_keep_their_pipes(rows: Rows, run_supervisor: RunSupervisor) -> None:
    """What the child closes in a fork has free numbers there, which the fork's own files take; its forks have those."""
    run_supervisor("ruder", registry=RUDE)
    job = rows.insert("ruder", "ruder.Nested")
    eventually(lambda: final(rows, job))
    assert rows.status(job) == "ok [42, 42, 42, 42]"


@pytest.mark.slow
def test_a_process_by_multiprocessing_ends_when_it_is_terminated(rows: Rows, run_supervisor: RunSupervisor) -> None:
    """It has the child's signal handlers by inheritance, and must not take SIGTERM for a drain."""
    run_supervisor("ruder", registry=RUDE)
    job = rows.insert("ruder", "ruder.Terminate")
    eventually(lambda: final(rows, job))
    assert rows.status(job) == "exit code -15"


@pytest.mark.slow
def test_deadlines_hold_after_a_handler_that_reset_every_signal(
    rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """The alarm at the deadline, and the signal a second before the kill that has the stack written."""
    sup = run_supervisor("ruder", registry=RUDE, python=program(tmp_path, grace=2))
    reset, late = rows.insert("ruder", "ruder.DefaultSignals"), rows.insert("ruder", "ruder.Nap", {"seconds": 60})
    again, stuck = rows.insert("ruder", "ruder.DefaultSignals"), rows.insert("ruder", "ruder.Spin")
    eventually(lambda: final(rows, reset, late, again, stuck), 30)
    statuses = [rows.status(job) for job in (reset, late, again, stuck)]
    assert statuses == ["ok", "err: timeout after 2s"] * 2
    assert " in spin" in sup.log()
