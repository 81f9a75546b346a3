"""Processes that die: what becomes of the row, of the queue and of the others. Children first, then parents."""

import json
import os
import random
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor.scoreboard import Slot, snapshots
from tests.support import ledger
from tests.support.ingest import Ingest
from tests.support.processes import Process
from tests.support.relay import Relay
from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

DEATHS = "tests.support.queues_deaths"
CRASHES = int(os.environ.get("TEST_CRASHES", "30"))


def replaced(sup: Supervised, queue: str, dead: Process) -> Process:
    """The process that follows `dead`."""
    eventually(lambda: sup.children().get(queue, dead) != dead)
    return sup.child(queue)


def working(rows: Rows, queue: str) -> bool:
    """Whether a job that is enqueued now ends `ok`, at once: also the backoff is over."""
    job = rows.insert(queue, {"mortal": "mortal.Answer"}.get(queue, "quick.Ok"))
    return bool(eventually(lambda: rows.status(job) == "ok"))


def backend(rows: Rows, queue: str) -> int:
    """The server's process for the queue's session."""
    [(pid,)] = rows.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND starts_with(application_name, %s)",
        f"paceline:{queue}/",
    )
    return int(pid)


def waits_for_a_lock(rows: Rows, pid: int) -> bool:
    return bool(rows.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", pid))


def slot(sup: Supervised, queue: str) -> Slot:
    """What the scoreboard says of the queue."""
    [board] = [board for board in snapshots() if board.header.pid == sup.pid]
    [found] = [slot for slot in board.slots if slot.queue.decode() == queue]
    return found


def is_there(rows: Rows, pid: int) -> bool:
    return bool(rows.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))


# One child


def test_the_row_of_a_dead_child_tells_how_it_died_and_the_next_job_runs(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    sup = run_supervisor("mortal", "quick", registry=DEATHS)
    sibling = sup.child("quick")
    deaths: list[tuple[str, dict[str, Any], str]] = [
        ("mortal.Exit", {"number": 3}, "err: interrupted: exit 3"),
        ("mortal.Exit", {"number": 0}, "err: interrupted: exit 0"),
        ("mortal.Signal", {"number": signal.SIGSEGV}, "err: interrupted: SIGSEGV"),
        ("mortal.Signal", {"number": signal.SIGABRT}, "err: interrupted: SIGABRT"),
        ("mortal.Signal", {"number": signal.SIGKILL}, "err: interrupted: SIGKILL (out of memory?)"),
    ]
    for name, args, status in deaths:
        child = sup.child("mortal")
        job, following = rows.insert("mortal", name, args), rows.insert("mortal", "mortal.Answer")
        eventually(lambda: rows.status(following) == "ok")  # noqa: B023 - called within the turn
        assert rows.status(job) == status
        row = rows.row(job)
        assert row.started_at is not None
        assert row.finished_at is not None
        assert replaced(sup, "mortal", child) != child
        assert f'queue=mortal job={name} id={job} status="{status}"' in sup.log()
        assert status.replace("err: interrupted", "queue mortal: process ended") in sup.log()
    assert sup.child("quick") == sibling


def test_a_child_killed_from_outside_in_mid_job_interrupts_its_row_and_is_back_at_once(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    sup = run_supervisor("mortal", registry=DEATHS)
    job, following = rows.insert("mortal", "mortal.Answer", {"seconds": 600}), rows.insert("mortal", "mortal.Answer")
    child = sup.child("mortal")
    eventually(lambda: f"id={job}" in child.title)
    child.signal(signal.SIGKILL)
    eventually(lambda: rows.status(job) == "err: interrupted: SIGKILL (out of memory?)")
    eventually(lambda: rows.status(following) == "ok")


def test_a_child_killed_by_a_signal_without_a_name_is_replaced_like_any_other(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """Real-time signals but the first and the last have no name in Python's signal.Signals."""
    sup = run_supervisor("mortal", registry=DEATHS)
    job = rows.insert("mortal", "mortal.Signal", {"number": signal.SIGRTMIN + 6})
    eventually(lambda: rows.status(job) == f"err: interrupted: signal {signal.SIGRTMIN + 6}", 5)
    assert working(rows, "mortal")
    sup.terminate()
    assert sup.wait() == 0


@pytest.mark.slow
def test_a_child_killed_while_its_finalize_is_held_up_leaves_its_true_status_to_its_successor(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 7. The slot has the status; the dead child's own session is gone before the row is let go."""
    sup = run_supervisor("mortal", registry=DEATHS)
    job = rows.insert("mortal", "mortal.Answer", {"text": "fail: so it is", "seconds": 0.5})
    following = rows.insert("mortal", "mortal.Answer")
    eventually(lambda: rows.status(job) == "started")
    session = backend(rows, "mortal")
    with row_lock(database, job):
        eventually(lambda: waits_for_a_lock(rows, session))
        child = sup.child("mortal")
        child.signal(signal.SIGKILL)
        replaced(sup, "mortal", child)
        eventually(lambda: not is_there(rows, session))
        assert rows.status(job) == "started"
        assert rows.status(following) == "pending"
    eventually(lambda: rows.status(following) == "ok")
    assert rows.status(job) == "fail: so it is"


@pytest.mark.slow
def test_a_row_tells_of_the_death_of_its_own_process_also_when_the_successor_is_killed(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """The successor dies while a lock keeps it from ending the row."""
    sup = run_supervisor("mortal", registry=DEATHS)
    job = rows.insert("mortal", "mortal.Answer", {"seconds": 600})
    child = sup.child("mortal")
    eventually(lambda: f"id={job}" in child.title)
    with row_lock(database, job):
        child.signal(signal.SIGSEGV)
        successor = replaced(sup, "mortal", child)
        eventually(lambda: waits_for_a_lock(rows, backend(rows, "mortal")))
        session = backend(rows, "mortal")
        successor.signal(signal.SIGKILL)
        replaced(sup, "mortal", successor)
        eventually(lambda: not is_there(rows, session))
    eventually(lambda: rows.status(job) != "started")
    assert rows.status(job) == "err: interrupted: SIGSEGV"


@pytest.mark.slow
def test_a_job_whose_claim_was_committed_and_whose_process_died_before_it_began_runs_once(
    rows: Rows, relay: Relay, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 43. One statement ends one job and claims the next; the child is killed before the answer."""
    runs = tmp_path / "runs"
    sup = run_supervisor("mortal", url=relay.url, registry=DEATHS, python=program(tmp_path, settle=0.5, fresh=60))
    args = {"text": "done", "seconds": 0.5, "ledger": str(runs)}
    jobs = rows.insert_many(4, "mortal", "mortal.Answer", args)
    eventually(lambda: rows.status(jobs[2]) == "started")  # by now the statement is prepared: one message
    relay.stall("client")
    eventually(lambda: rows.status(jobs[3]) == "started")
    assert rows.status(jobs[2]) == "done"
    sup.child("mortal").signal(signal.SIGKILL)
    relay.resume()
    eventually(lambda: rows.status(jobs[3]) != "started")
    assert [rows.status(job) for job in jobs] == ["done"] * 4
    assert list(map(int, runs.read_text().split())) == jobs


@pytest.mark.slow
def test_a_statement_that_reaches_the_server_after_its_process_died_breaks_nothing(
    rows: Rows, relay: Relay, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 43, the other half: the network holds the statement itself, and delivers it to the dead one's session."""
    runs = tmp_path / "runs"
    sup = run_supervisor("mortal", url=relay.url, registry=DEATHS, python=program(tmp_path, settle=0.5, fresh=60))
    args = {"text": "done", "seconds": 0.5, "ledger": str(runs)}
    jobs = rows.insert_many(4, "mortal", "mortal.Answer", args)
    eventually(lambda: rows.status(jobs[2]) == "started")
    relay.stall("server")
    eventually(lambda: (now := slot(sup, "mortal").child).running == jobs[2] and now.ended)
    sup.child("mortal").signal(signal.SIGKILL)
    eventually(lambda: slot(sup, "mortal").parent.deaths == 1)
    assert [rows.status(job) for job in jobs] == ["done", "done", "started", "pending"]
    relay.resume()
    eventually(lambda: rows.status(jobs[3]) not in ("pending", "started"))
    assert [rows.status(job) for job in jobs] == ["done"] * 4
    assert list(map(int, runs.read_text().split())) == jobs


# One queue among others


@pytest.mark.slow
def test_a_queue_whose_processes_die_at_their_start_backs_off_and_leaves_the_others_alone(
    rows: Rows, run_supervisor: RunSupervisor, run_paceline: Paceline, ingest: Ingest
) -> None:
    """FAULTS 21. Growing pauses, seen in the parent's title and by `paceline status`; one event for the streak."""
    sup = run_supervisor("doomed", "quick", registry=DEATHS, env={"SENTRY_DSN": ingest.dsn})
    sibling, doomed = sup.child("quick"), rows.insert("doomed", "doomed.Ok")
    pauses: dict[int, float] = {}  # by the number of deaths before it, the longest that the title told

    def four_deaths() -> bool:
        assert re.match(r"paceline: parent 2 queues(, 1 backing off: doomed |$)", sup.parent.title), sup.parent.title
        if told := re.search(r"doomed (\d+)s \(exit 5, (\d+) deaths\)", sup.parent.title):
            pause, deaths = float(told[1]), int(told[2])
            pauses[deaths] = max(pause, pauses.get(deaths, 0.0))
        return 5 in pauses

    eventually(four_deaths, 30)
    assert pauses[3] < pauses[4] < pauses[5]
    answer = json.loads(run_paceline("status", "--json", registry=DEATHS).stdout)
    [state] = [line["state"] for line in answer["queues"] if line["queue"] == "doomed"]
    assert re.fullmatch(r"backing off \ds \(exit 5, 5 deaths\)", state)
    assert rows.status(doomed) == "ok"  # it had said so, before the first of its processes died
    assert working(rows, "quick")
    assert sup.child("quick") == sibling
    sup.terminate()
    assert sup.wait() == 0
    assert [event["tags"]["queue"] for event in ingest.events()] == ["doomed"]


@pytest.mark.slow
def test_crash_restarts_leave_one_thread_in_the_parent_at_each_fork(
    rows: Rows, relay: Relay, run_supervisor: RunSupervisor, ingest: Ingest, tmp_path: Path
) -> None:
    """FAULTS 9: while the parent reports and logs. The server is reached by name. TEST_CRASHES=500 is the full size."""
    forks = tmp_path / "forks"
    by_name = relay.url.replace("127.0.0.1", "localhost")
    assert by_name != relay.url
    sup = run_supervisor(
        "mortal", "quick", url=by_name, registry=DEATHS, env={"SENTRY_DSN": ingest.dsn, "TEST_FORKS": str(forks)}
    )
    jobs = []
    for _ in range(CRASHES):
        jobs += [rows.insert("mortal", "mortal.Exit", {"number": 3}), rows.insert("mortal", "mortal.Answer")]
    eventually(lambda: rows.status(jobs[-1]) == "ok", 60 + CRASHES)
    assert rows.statuses("mortal") == ["err: interrupted: exit 3", "ok"] * CRASHES
    assert sup.parent.threads == 1
    assert working(rows, "quick")
    eventually(ingest.events)
    threads = forks.read_text().split()
    assert len(threads) > 2 * CRASHES  # a child and a helper for each death
    assert set(threads) == {"1"}


@pytest.mark.slow
def test_two_thousand_jobs_with_random_kills_run_at_most_once_and_none_stays_started(
    rows: Rows, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    dice = random.Random(2000)
    queues = ["ledger", "ledger-b", "ledger-c", "ledger-d"]
    sup = run_supervisor(*queues, registry=DEATHS, python=program(tmp_path, settle=0.2))
    for queue in queues:
        rows.insert_many(500, queue, "ledger.Append")
    kills, due = 0, {queue: dice.randrange(40) for queue in queues}  # due: finished jobs at the next kill

    def unfinished() -> int:
        [(count,)] = rows.execute("SELECT count(*) FROM jobs WHERE status IN ('pending', 'started')")
        return int(count)

    def kill_some() -> bool:
        """Whether all is done. Between two kills of a queue some jobs finish: the backoff is not the matter here."""
        nonlocal kills
        for queue, child in sup.children().items():
            if (finished := slot(sup, queue).child.finished) >= due[queue]:
                due[queue] = finished + dice.randrange(1, 80)
                with suppress(ProcessLookupError):
                    child.signal(signal.SIGKILL)
                    kills += 1
        return not unfinished()

    eventually(kill_some, 60)
    ended = {status for queue in queues for status in rows.statuses(queue)}
    assert ended <= {"ok", "err: interrupted: SIGKILL (out of memory?)"}
    assert kills > 5  # how many there is time for depends on the machine
    assert ledger.repeated(rows) == []
    assert ledger.overlaps(rows) == []
    for queue in queues:
        begun = [run.id for run in ledger.runs(rows, queue)]
        assert begun == sorted(begun)


# The parent


@pytest.mark.slow
def test_no_child_outlives_a_killed_parent_and_a_new_one_goes_on_at_once(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 19 and 1: one child works, one ignores every signal, one idles."""
    old = run_supervisor("mortal", "ledger", "quick", registry=DEATHS)
    deaf, following = rows.insert("mortal", "mortal.Deaf"), rows.insert("mortal", "mortal.Answer")
    appending = rows.insert("ledger", "ledger.Append", {"seconds": 600})
    after = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.status(deaf) == "started" and ledger.runs(rows, "ledger"))
    old.signal(signal.SIGKILL)
    assert old.wait() == -signal.SIGKILL
    run_supervisor("mortal", "ledger", "quick", registry=DEATHS)
    eventually(lambda: not old.left(), 5)
    eventually(lambda: rows.status(following) == "ok" and rows.status(after) == "ok", 20)
    assert [rows.status(job) for job in (deaf, appending)] == ["err: interrupted"] * 2
    assert ledger.overlaps(rows) == []
    assert [run.id for run in ledger.runs(rows, "ledger")] == [appending, after]
