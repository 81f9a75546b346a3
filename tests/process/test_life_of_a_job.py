"""A job's life, from each way to enqueue it to its final status, in real processes and on both table shapes."""

import json
import re
import subprocess
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from supervisor import DB, insert
from supervisor.status import LONGEST, outcome
from tests.support import ledger
from tests.support.ingest import Ingest
from tests.support.rows import Rows
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

ENDS = "tests.support.queues_ends"


def final(rows: Rows, *jobs: int) -> bool:
    return all(rows.status(job) not in ("pending", "started") for job in jobs)


# Enqueued, in whatever way


@pytest.mark.slow
def test_a_job_runs_at_once_however_it_was_enqueued(
    either_database: str, rows: Rows, run_supervisor: RunSupervisor, run_paceline: Paceline
) -> None:
    """By plain SQL, COPY, insert() on a DB and in a transaction, `paceline enqueue`: on both table shapes.

    The poll interval is longer than eventually() waits, so that each of them has woken the queue.
    """
    run_supervisor("quick")
    jobs = {"plain SQL": rows.insert("quick", "quick.Ok")}
    eventually(lambda: final(rows, *jobs.values()))
    with psycopg.connect(either_database) as connection:
        with connection.cursor().copy("COPY jobs (queue, name) FROM STDIN") as copy:
            copy.write_row(("quick", "quick.Ok"))
        [(jobs["COPY"],)] = connection.execute("SELECT max(id) FROM jobs").fetchall()
    eventually(lambda: final(rows, *jobs.values()))
    with psycopg.connect(either_database) as connection:
        jobs["insert() in a transaction"] = insert(connection, "quick", "quick.Ok")
    eventually(lambda: final(rows, *jobs.values()))
    db = DB(either_database)
    jobs["insert() on a DB"] = insert(db, "quick", "quick.Ok")
    db.close()
    eventually(lambda: final(rows, *jobs.values()))
    command = run_paceline("enqueue", "quick", "quick.Ok", registry=ENDS)
    assert command.returncode == 0, command.stderr
    jobs["paceline enqueue"] = int(command.stdout)
    eventually(lambda: final(rows, *jobs.values()))
    for way, job in jobs.items():
        row = rows.row(job)
        assert row.status == "ok", way
        assert row.started_at is not None, way
        assert row.finished_at is not None, way
        assert row.created_at <= row.started_at <= row.finished_at, way


@pytest.mark.slow
def test_a_thousand_jobs_start_in_the_order_of_their_ids_and_never_overlap(
    either_database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """Half of them wait when the process starts, half come in while it works."""
    jobs = rows.insert_many(500, "ledger", "ledger.Append")
    run_supervisor("ledger")
    for _ in range(5):
        jobs += rows.insert_many(100, "ledger", "ledger.Append")
    eventually(lambda: rows.statuses("ledger") == ["ok"] * 1000, 60)
    assert [run.id for run in ledger.runs(rows, "ledger")] == jobs
    assert ledger.overlaps(rows) == []
    for job, following in pairwise(rows.all("ledger")):
        assert job.finished_at is not None
        assert following.started_at is not None
        assert job.finished_at <= following.started_at, (job.id, following.id)


@pytest.mark.slow
def test_a_job_that_is_committed_later_runs_at_once_though_a_later_one_has_run(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 23: the first transaction stays open while the second commits; the poll interval is 30 seconds."""
    run_supervisor("ledger")
    with psycopg.connect(database) as early:
        first = insert(early, "ledger", "ledger.Append")
        second = rows.insert("ledger", "ledger.Append")
        eventually(lambda: final(rows, second))
        third = insert(early, "ledger", "ledger.Append")
    eventually(lambda: final(rows, first, third))
    assert [run.id for run in ledger.runs(rows, "ledger")] == [second, first, third]
    assert rows.statuses("ledger") == ["ok"] * 3


@pytest.mark.slow
def test_rows_of_a_queue_that_nobody_serves_stay_pending_and_status_lists_them(
    rows: Rows, run_supervisor: RunSupervisor, run_paceline: Paceline
) -> None:
    """FAULTS 35. A queue that no worker of the registry has, and one that this parent was told to leave."""
    run_supervisor("quick")
    strangers = [rows.insert("nobody", "nobody.Ok") for _ in range(3)]
    left = rows.insert("sleeps", "sleeps.Sleep")
    served = rows.insert("quick", "quick.Ok")  # the last one in: the others have had their chance
    eventually(lambda: rows.status(served) == "ok")
    assert [rows.status(job) for job in [*strangers, left]] == ["pending"] * 4
    shown = run_paceline("status")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^nobody +not served ", shown.stdout, re.MULTILINE), shown.stdout
    lines = {line["queue"]: line for line in json.loads(run_paceline("status", "--json").stdout)["queues"]}
    assert {queue: (line["state"], line["pending"]) for queue, line in lines.items()} == {
        "nobody": ("not served", 3),
        "sleeps": ("not served", 1),
        "quick": ("idle", 0),
    }


# Ended, in whatever way

RETURNED = {  # by quick.Return: the value in JSON, then the row's status
    "ok": "ok",
    "12 companies": "12 companies",
    "okay: it has a colon": "okay: it has a colon",
    "error: no prefix of ours": "error: no prefix of ours",
    "pending": "err: handler returned 'pending'; it raises for a fault",
    "started": "err: handler returned 'started'; it raises for a fault",
    "err: made up": "err: handler returned 'err: made up'; it raises for a fault",
    "err:": "err: handler returned 'err:'; it raises for a fault",
    "": "err: handler returned an empty text",
    " \n": "err: handler returned an empty text",
    None: "err: handler returned NoneType, not a status text",
    True: "err: handler returned bool, not a status text",
    7.5: "err: handler returned float, not a status text",
    ("a", "list"): "err: handler returned list, not a status text",
}

ENDED: dict[tuple[str, str], tuple[dict[str, Any], str]] = {  # (queue, name): args, then the row's status
    ("quick", "quick.Echo"): ({"text": "fünf ✓"}, "fünf ✓"),
    ("quick", "quick.Fail"): ({"text": "no such person"}, "fail: no such person"),
    ("quick", "quick.Skip"): ({"text": "fresh enough"}, "skip: fresh enough"),
    ("quick", "quick.Raise"): ({"text": "it\nbroke"}, "err: it\nbroke"),
    ("quick", "quick.RaiseEmpty"): ({}, "err: LookupError"),
    ("quick", "quick.NoSuchJob"): ({}, 'err: unknown job "quick.NoSuchJob" for queue quick'),
    ("rude", "rude.SystemExit"): ({}, "err: 7"),
    ("rude", "rude.KeyboardInterrupt"): ({}, "err: KeyboardInterrupt"),
    ("rude", "rude.Cancelled"): ({}, "err: CancelledError"),
    ("rude", "rude.Recursion"): ({}, "err: maximum recursion depth exceeded"),
    ("ends", "ends.RaiseNul"): ({}, "err: before\ufffdafter"),
    ("ends", "ends.RaiseSurrogate"): ({}, "err: half ? of it"),
    ("ends", "ends.RaiseHuge"): ({}, ("err: " + "€" * LONGEST)[: LONGEST - 1] + "…"),
    ("ends", "ends.RaiseBlank"): ({}, "err: RuntimeError"),
    ("ends", "ends.RaiseUnprintable"): ({}, "err: Unprintable"),
    ("ends", "ends.ReturnNul"): ({}, "fail: before\ufffdafter"),
    ("ends", "ends.ReturnHuge"): ({}, "\U0001f6b4" * (LONGEST - 1) + "…"),
    ("ends", "ends.ReturnBytes"): ({}, "err: handler returned bytes, not a status text"),
}

MISSHAPEN = {  # by quick.Echo: the args, then the row's status
    '{"text": 5}': "err: Expected `str`, got `int` - at `$.text`",
    '{"text": null}': "err: Expected `str`, got `null` - at `$.text`",
    "{}": "err: Object missing required field `text`",
    "[]": "err: Expected `object`, got `array`",
    "null": "err: Expected `object`, got `null`",
    '"text"': "err: Expected `object`, got `str`",
}


def test_every_end_of_a_handler_has_its_status_and_leaves_its_process_alive(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 26 and 35: also text that Postgres cannot hold, 50 MB of it, args of the wrong shape, an unknown job."""
    sup = run_supervisor("quick", "ends", "rude", registry=ENDS)
    before = sup.children()
    expected = {rows.insert("quick", "quick.Return", {"value": value}): status for value, status in RETURNED.items()}
    for (queue, name), (args, status) in ENDED.items():
        expected[rows.insert(queue, name, args)] = status
    for text, status in MISSHAPEN.items():
        [(job,)] = rows.execute(
            "INSERT INTO jobs (queue, name, args) VALUES ('quick', 'quick.Echo', %s::jsonb) RETURNING id", text
        )
        expected[job] = status
    eventually(lambda: final(rows, *expected), 30)
    assert {job: rows.status(job) for job in expected} == expected
    assert sup.children() == before


def test_an_unknown_job_and_misshapen_args_are_one_event_each(
    rows: Rows, run_supervisor: RunSupervisor, ingest: Ingest
) -> None:
    """FAULTS 35."""
    sup = run_supervisor("quick", env={"SENTRY_DSN": ingest.dsn})
    jobs = [rows.insert("quick", "quick.NoSuchJob"), rows.insert("quick", "quick.Echo", {"text": 5})]
    jobs.append(rows.insert("quick", "quick.Ok"))
    eventually(lambda: final(rows, *jobs))
    sup.terminate()
    assert sup.wait() == 0  # what was to be sent has been sent
    told = [event["tags"] for event in ingest.events()]
    assert told == [
        {"queue": "quick", "job": "quick.NoSuchJob", "id": str(jobs[0])},
        {"queue": "quick", "job": "quick.Echo", "id": str(jobs[1])},
    ]


def test_the_handler_is_told_its_job_and_the_log_has_one_line_for_it(rows: Rows, run_supervisor: RunSupervisor) -> None:
    sup = run_supervisor("quick")
    job = rows.insert("quick", "quick.Facts")
    last = rows.insert("quick", "quick.Ok")
    eventually(lambda: f"id={last} " in sup.log())  # the line follows the row's end
    assert rows.status(job) == f"{job} quick quick.Facts None 300"
    lines = [line for line in sup.log().splitlines() if f"id={job} " in line]
    assert len(lines) == 1, lines
    assert re.fullmatch(
        r"\S+Z INFO queue=quick job=quick\.Facts id=\d+ status=\"[^\"]+\" latency=\d+\.\d\ds duration=\d+\.\d\ds",
        lines[0],
    )


# Seen, by an operator


def lines_of(sup: Supervised) -> list[str]:
    """What `ps -ef | grep paceline:` shows of one service: its parent's pid is in the line's second or third column."""
    found = []
    # ww: not cut where COLUMNS is set, as under pytest
    for line in subprocess.run(["ps", "-efww"], capture_output=True, text=True, check=True).stdout.splitlines():
        _, pid, parent, *_ = line.split(None, 3)
        if "paceline:" in line and str(sup.pid) in (pid, parent):
            found.append(line[line.index("paceline:") :].rstrip())
    return sorted(found)


@pytest.mark.slow
def test_ps_shows_the_parent_and_one_named_line_per_queue_with_its_running_job(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    sup = run_supervisor("quick", "sleeps", "ledger")
    eventually(
        lambda: (
            lines_of(sup)
            == ["paceline: ledger idle", "paceline: parent 3 queues", "paceline: quick idle", "paceline: sleeps idle"]
        )
    )
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1.5})
    eventually(lambda: f"paceline: sleeps sleeps.Sleep id={job}" in lines_of(sup))
    assert rows.status(job) == "started"
    assert len(lines_of(sup)) == 4
    eventually(lambda: "paceline: sleeps idle" in lines_of(sup))
    assert rows.status(job) == "ok"


def test_outcome_reads_each_of_these_statuses_back() -> None:
    """What a test above saw stored is counted as what it was."""
    statuses = [*RETURNED.values(), *(status for _, status in ENDED.values()), *MISSHAPEN.values()]
    assert {outcome(status) for status in statuses if status.startswith("err: ")} == {"err"}
    assert outcome("error: no prefix of ours") == outcome("okay: it has a colon") == "ok"
    assert [outcome(status) for status in ("fail: x", "skip: x")] == ["fail", "skip"]
