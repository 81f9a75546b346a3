"""An operator's commands act on a running service, from any host: pause, resume, restart, end, release."""

import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import ROOT, Paceline, RunSupervisor, environment
from tests.support.wait import eventually


def ok(run_paceline: Paceline, *arguments: str) -> str:
    """What the command printed; it must have done what was asked."""
    done = run_paceline(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(run_paceline: Paceline, *arguments: str, code: int = 1) -> str:
    """The one line with which the command refused."""
    done = run_paceline(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    return line


# --- pause and resume


@pytest.mark.slow
def test_an_operators_pause_holds_over_a_crash_and_a_deploy_until_it_is_resumed(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    first = run_supervisor("quick", "sleeps")
    said = ok(run_paceline, "pause", "quick", "--reason", "the vendor is down")
    assert said.startswith("quick: paused until it is resumed\n")
    assert re.search(r"paused \(by \w+: the vendor is down\)$", said.strip())
    waiting = rows.insert("quick", "quick.Ok")
    paused = re.compile(r"paceline: quick paused \(by \w+: the vendor is down\)")
    assert paused.fullmatch(first.child("quick").title)

    dead = first.child("quick")
    dead.signal(SIGKILL)
    eventually(lambda: first.child("quick") != dead and paused.fullmatch(first.child("quick").title))
    first.terminate()
    first.wait()
    second = run_supervisor("quick", "sleeps")
    eventually(lambda: paused.fullmatch(second.child("quick").title))
    other = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0})
    eventually(lambda: rows.status(other) == "ok")
    assert rows.status(waiting) == "pending"

    ok(run_paceline, "resume", "quick")
    eventually(lambda: rows.status(waiting) == "ok")
    assert re.fullmatch(
        r"skip: resumed by \w+", rows.execute("SELECT status FROM jobs WHERE name = 'paceline.pause'")[0][0]
    )
    assert "quick is not paused" in refused(run_paceline, "resume", "quick")


@pytest.mark.slow
def test_a_pause_ends_by_itself_when_its_time_is_over(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, tmp_path: object
) -> None:
    """Its row is ended by the sweep; until then no fetch minds it."""
    run_supervisor("quick", python=program(tmp_path, sweep=0.5))  # type: ignore[arg-type]
    ok(run_paceline, "pause", "quick", "--for", "2s")
    waiting = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(waiting) == "ok")
    [(early,)] = rows.execute(
        "SELECT job.started_at < (pause.args ->> 'until')::timestamptz FROM jobs job, jobs pause"
        " WHERE job.id = %s AND pause.name = 'paceline.pause'",
        waiting,
    )
    assert not early
    eventually(lambda: rows.execute("SELECT status FROM jobs WHERE name = 'paceline.pause'") == [("skip: pause over",)])


@pytest.mark.slow
def test_a_pause_lets_the_running_job_end_and_says_so(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    sup = run_supervisor("sleeps")
    running = rows.insert("sleeps", "sleeps.Forever")
    waiting = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0})
    eventually(lambda: f"id={running}" in sup.child("sleeps").title)
    assert f"runs job {running} to its end" in ok(run_paceline, "pause", "sleeps", "--for", "1h")
    assert re.search(r"err: ended by operator: \w+", ok(run_paceline, "end", str(running)))
    eventually(lambda: "paused until" in sup.child("sleeps").title)
    assert rows.status(waiting) == "pending"


@pytest.mark.slow
def test_resume_ends_the_pause_of_a_refused_token(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    sup = run_supervisor("vendor")
    rows.insert("vendor", "vendor.Status", {"code": 401})
    waiting = rows.insert("vendor", "vendor.Ok")
    eventually(lambda: "paused until" in sup.child("vendor").title)
    assert "vendor: resumed" in ok(run_paceline, "resume", "vendor")
    eventually(lambda: rows.status(waiting) == "ok")


def test_a_pause_of_a_queue_that_nobody_serves_says_so_and_a_second_one_replaces_it(
    run_paceline: Paceline, rows: Rows
) -> None:
    assert "no host serves this queue now" in ok(run_paceline, "pause", "quick", "--for", "1h")
    ok(run_paceline, "pause", "quick", "--for", "2h")
    [(until,)] = rows.execute("SELECT args ->> 'until' FROM jobs WHERE status = 'paused'")
    assert timedelta(minutes=119) < datetime.fromisoformat(until) - datetime.now(UTC) < timedelta(minutes=121)


# --- restart and end


@pytest.mark.slow
def test_restart_replaces_the_process_of_the_queue_on_every_host_once_its_job_has_ended(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    first = run_supervisor("sleeps", host="host-a")
    second = run_supervisor("sleeps", host="host-b")
    eventually(lambda: "standby" in second.child("sleeps").title)
    before = first.child("sleeps"), second.child("sleeps")
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1})
    eventually(lambda: f"id={job}" in first.child("sleeps").title)
    said = ok(run_paceline, "restart", "sleeps").splitlines()
    assert sorted(said) == [f"host-a: restarts once job {job} has ended", "host-b: restarts"]
    eventually(lambda: first.child("sleeps") != before[0] and second.child("sleeps") != before[1])
    assert rows.status(job) == "ok"
    assert "no host that answers runs a process for nobody" in refused(run_paceline, "restart", "nobody")


@pytest.mark.slow
def test_end_stops_one_job_as_at_a_deadline_and_the_next_one_runs(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """From another host's point of view too: the parents find out which of them runs it. No death, no backoff."""
    sup = run_supervisor("sleeps", host="host-a")
    run_supervisor("sleeps", host="host-b")
    running, waiting = rows.insert("sleeps", "sleeps.Forever"), rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0})
    eventually(lambda: f"id={running}" in sup.child("sleeps").title)
    said = ok(run_paceline, "end", str(running)).splitlines()
    assert said[0] == f"host-a: job {running} ended"
    assert re.fullmatch(rf"job {running}: err: ended by operator: \w+", said[1])
    assert re.fullmatch(r"err: ended by operator: \w+", rows.status(running))
    eventually(lambda: rows.status(waiting) == "ok")
    assert "deaths" not in sup.log()


@pytest.mark.slow
def test_end_of_a_job_that_does_not_run_says_what_to_do(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    run_supervisor("quick")
    done, orphan = rows.insert("quick", "quick.Ok"), rows.insert("nobody", "n.N", status="started")
    pending = rows.insert("nobody", "n.N")
    eventually(lambda: rows.status(done) == "ok")
    assert f"job {done} has ended: ok" in refused(run_paceline, "end", str(done))
    assert f"job {pending} is pending: `paceline cancel {pending}`" in refused(run_paceline, "end", str(pending))
    assert f"no host that answers runs job {orphan}" in refused(run_paceline, "end", str(orphan))
    assert "no job 999999" in refused(run_paceline, "end", "999999")


# --- more than one host


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_named(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    run_supervisor("quick", host="host-a")
    second = run_supervisor("quick", host="host-b")
    second.signal(SIGSTOP)
    done = run_paceline("restart", "quick")
    assert (done.returncode, done.stdout, done.stderr) == (0, "host-a: restarts\n", "host-b: does not answer\n")
    second.signal(SIGCONT)


@pytest.mark.slow
def test_release_lets_the_queue_go_on_without_the_wait_for_a_dead_hosts_deadline(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """SIGKILL of one host: within seconds the other shows what it waits for and until when."""
    first = run_supervisor("sleeps", host="host-a")
    second = run_supervisor("sleeps", host="host-b")
    job, waiting = rows.insert("sleeps", "sleeps.Forever"), rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0})
    eventually(lambda: "standby" in second.child("sleeps").title and rows.status(job) == "started")
    assert f"job {job} runs on host-a, which answers" in refused(run_paceline, "release", "sleeps", "--yes")
    first.signal(SIGKILL)
    first.wait()
    waits = re.compile(rf"^! sleeps: waits until \S+ UTC \(job {job}, which another host may be running\)", re.M)
    eventually(lambda: waits.search(ok(run_paceline, "status")))
    assert "say --yes if that is meant" in refused(run_paceline, "release", "sleeps", code=2)
    assert rows.status(job) == "started"
    assert ok(run_paceline, "release", "sleeps", "--yes") == f"job {job}: interrupted\n"
    assert re.fullmatch(r"err: interrupted: released by \w+", rows.status(job))
    eventually(lambda: rows.status(waiting) == "ok")
    assert "nothing is left to release" in refused(run_paceline, "release", "sleeps", "--yes")


@pytest.mark.slow
def test_a_question_that_is_none_is_told_and_stops_nothing(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    sup = run_supervisor("quick")
    for text in ("hello?", '{"channel": "", "do": "status"}', '{"channel": "jobs", "do": "status"}', '{"do": 1}'):
        rows.execute("SELECT pg_notify('jobs_control', %s)", f"ask {text}")
    eventually(lambda: sup.log().count("WARNING control: not a question") == 4)
    assert ok(run_paceline, "restart", "quick").endswith(": restarts\n")
    assert "ERROR" not in sup.log()


# --- retry by outcome


def test_retry_by_outcome_enqueues_what_ended_so_and_asks_above_ten(run_paceline: Paceline, rows: Rows) -> None:
    def ended(status: str, seconds: float) -> int:
        id = rows.insert("quick", "quick.Ok", status=status)
        rows.execute("UPDATE jobs SET finished_at = now() - make_interval(secs => %s) WHERE id = %s", seconds, id)
        return id

    recent = [ended("err: HTTP 500", 60), ended("err: timeout after 5s", 120)]
    ended("ok", 60), ended("fail: no", 60), ended("err: HTTP 500", 7_200)
    new = [int(line) for line in ok(run_paceline, "retry", "--queue", "quick", "--since", "1h").split()]
    callsites = [rows.execute("SELECT callsite FROM jobs WHERE id = %s", id)[0][0] for id in new]
    assert callsites == [f"paceline retry {id}" for id in recent]
    for _ in range(9):
        ended("err: HTTP 500", 60)
    many = ("retry", "--queue", "quick", "--outcome", "err", "--since", "1h")
    assert "11 jobs of quick would be enqueued anew: say --yes" in refused(run_paceline, *many, code=2)
    assert len(ok(run_paceline, *many, "--yes").split()) == 11
    assert "say --since when" in refused(run_paceline, "retry", "--queue", "quick", code=2)
    assert "give ids, or --queue" in refused(run_paceline, "retry", code=2)


@pytest.mark.slow
def test_a_question_is_answered_on_a_terminal(rows: Rows, database: str) -> None:
    left = rows.insert("sleeps", "sleeps.Forever", status="started")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "supervisor", "release", "sleeps"]
    for answer, code, status in ((b"n\n", 1, "started"), (b"y\n", 0, "err: interrupted: released by")):
        os.write(ours, answer)
        done = subprocess.run(
            command, check=False, cwd=ROOT, env=environment(database), stdin=theirs, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        assert "Go on? [y/N]" in done.stdout
        assert rows.status(left).startswith(status)
    os.close(ours)
    os.close(theirs)
