"""`paceline status`: what a person and a script read of every queue; the service may be gone, or its database."""

import json
import os
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import psycopg
import pytest

from tests.support.preloaded import Preloaded
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.supervised import Paceline, RunSupervisor
from tests.support.wait import eventually

HEADINGS = ["QUEUE", "STATE", "HOST", "PID", "JOB", "FOR", "PENDING", "OLDEST", "LAST", "AGO"]
HOST = os.environ.get("HOSTNAME") or socket.gethostname()


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as opened:
        yield opened


@pytest.fixture
def run_paceline(preloaded: Preloaded, database_in_use: str) -> Paceline:
    """As everywhere, but forked from a loaded process: there are many of them here."""
    return preloaded.for_database(database_in_use)


def as_json(run_paceline: Paceline, url: str | None = None) -> dict[str, Any]:
    done = run_paceline("status", "--json", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def queues(run_paceline: Paceline, url: str | None = None) -> dict[str, dict[str, Any]]:
    return {line["queue"]: line for line in as_json(run_paceline, url)["queues"]}


@pytest.mark.slow
def test_status_tells_what_each_queue_does(run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows) -> None:
    """One that works, one that is idle, one that nobody serves: as JSON, and as a table with a line for each."""
    sup = run_supervisor("sleeps", "quick")
    done = rows.insert("quick", "quick.Fail", {"text": "no"})
    running = rows.insert("sleeps", "sleeps.Forever")
    rows.insert("sleeps", "sleeps.Forever", age=100)
    rows.insert("nobody", "nobody.Job", age=7_300)  # FAULTS 35
    eventually(lambda: rows.status(done) == "fail: no" and rows.status(running) == "started")

    found = as_json(run_paceline)
    assert found["database"]["trouble"] is None
    assert found["database"]["name"].endswith(rows.execute("SELECT '/' || current_database()")[0][0])
    well = {"state": "running", "listening": True, "deaf_since": None, "attention": False}
    [parent_found] = found["parents"]
    assert len(parent_found.pop("token")) == 12
    assert parent_found == {"host": HOST, "pid": sup.pid, **well}
    assert found["vacuum_holder"] is None
    nobody, quick, sleeps = found["queues"]
    assert (quick["state"], quick["host"], quick["pid"]) == ("idle", HOST, sup.child("quick").pid)
    assert (quick["last"], quick["last_outcome"], quick["pending"], quick["job"]) == ("fail: no", "fail", 0, None)
    assert 0 <= quick["last_ago"] < 60
    assert (sleeps["state"], sleeps["pid"]) == ("working", sup.child("sleeps").pid)
    assert (sleeps["job"], sleeps["job_id"], sleeps["pending"]) == ("sleeps.Forever", running, 1)
    assert 0 <= sleeps["running_for"] < 60
    assert 100 <= sleeps["oldest_pending"] < 160
    assert (nobody["state"], nobody["host"], nobody["pid"], nobody["pending"]) == ("not served", None, None, 1)

    text = run_paceline("status")
    assert (text.returncode, text.stderr) == (0, "")
    database, parent, attention, headings, *lines = text.stdout.splitlines()
    assert attention == "! nobody: not served, 1 pending"
    assert database == f"database {found['database']['name']}"
    assert parent == f"parent {HOST} pid {sup.pid}: running, listening"
    assert headings.split() == HEADINGS
    cells = [re.split(r"  +", line) for line in lines]
    assert cells[0] == ["nobody", "not served", "-", "-", "-", "-", "1", "2h", "-", "-"]
    assert cells[1][:8] == ["quick", "idle", HOST, str(quick["pid"]), "-", "-", "0", "-"]
    assert cells[1][8] == "fail: no"
    assert cells[2][:5] == ["sleeps", "working", HOST, str(sleeps["pid"]), f"sleeps.Forever {running}"]
    sup.signal(SIGKILL)  # no drain: its job takes for ever


@pytest.mark.slow
def test_status_shows_a_queue_that_backs_off(run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows) -> None:
    """FAULTS 21."""
    sup = run_supervisor("crash", "quick")
    rows.insert_many(3, "crash", "crash.Exit")
    eventually(lambda: "(3 deaths)" in sup.log())
    found = queues(run_paceline)
    assert re.fullmatch(r"backing off [012]s \(exit 3, 3 deaths\)", found["crash"]["state"])
    assert (found["crash"]["pid"], found["crash"]["attention"]) == (None, True)
    assert datetime.fromisoformat(found["crash"]["until"]) > datetime.now(UTC) - timedelta(seconds=5)
    assert found["quick"]["state"] == "idle"


@pytest.mark.slow
def test_status_shows_this_host_with_the_database_gone(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, relay: Relay
) -> None:
    sup = run_supervisor("sleeps", "quick", url=relay.url)
    running = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: rows.status(running) == "started")
    eventually(lambda: "sleeps.Forever" in sup.child("sleeps").title)
    relay.refuse()
    relay.cut()
    eventually(lambda: sup.child("quick").title == "paceline: quick waiting for the database")
    eventually(lambda: "ERROR LISTEN" in sup.log())
    found = as_json(run_paceline, relay.url)
    assert found["database"]["trouble"].startswith("unreachable: ")
    assert [(parent["pid"], parent["state"]) for parent in found["parents"]] == [(sup.pid, "running")]
    [parent] = found["parents"]
    assert (parent["listening"], parent["attention"]) == (False, True)
    assert datetime.now(UTC) - timedelta(seconds=60) < datetime.fromisoformat(parent["deaf_since"])
    by_queue = {line["queue"]: line for line in found["queues"]}
    assert re.match("waiting for the database: .*Connection refused", by_queue["quick"]["state"])
    assert (by_queue["quick"]["attention"], by_queue["quick"]["pending"]) == (True, None)
    assert (by_queue["sleeps"]["state"], by_queue["sleeps"]["job_id"]) == ("working", running)
    text = run_paceline("status", url=relay.url)
    assert (text.returncode, text.stderr) == (0, "")
    assert f"sleeps.Forever {running}" in text.stdout
    assert re.search(r"^parent \S+ pid \d+: running, not listening since \S+$", text.stdout, re.MULTILINE)
    assert re.search("^! quick: waiting for the database: .*Connection refused", text.stdout, re.MULTILINE)
    sup.signal(SIGKILL)  # no drain: its job takes for ever


@pytest.mark.slow
def test_status_tells_which_host_works_a_queue_and_which_stands_by(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    first = run_supervisor("quick", host="host-a")
    second = run_supervisor("quick", host="host-b")
    eventually(lambda: second.child("quick").title == "paceline: quick standby (lease: host-a)")
    found = queues(run_paceline)["quick"]
    assert (found["host"], found["state"]) == ("host-a", "idle")
    assert found["others"] == {"host-b": "standby (lease: host-a)"}
    assert re.search(r"^quick +idle \(host-b: standby\) +host-a", run_paceline("status").stdout, re.MULTILINE)
    first.terminate()
    first.wait()
    eventually(lambda: queues(run_paceline)["quick"]["state"] == "idle")
    assert queues(run_paceline)["quick"]["host"] == "host-b"


@pytest.mark.slow
def test_status_tells_until_when_a_queue_is_paused_and_why(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    run_supervisor("vendor")
    rows.insert("vendor", "vendor.Status", {"code": 401})
    found = eventually(lambda: (line := queues(run_paceline)["vendor"])["until"] and line)
    assert re.fullmatch(r"paused until ([0-9-]+ )?\d\d:\d\d:\d\d UTC \(HTTP 401\)", found["state"])
    left = datetime.fromisoformat(found["until"]) - datetime.now(UTC)
    assert timedelta(seconds=3500) < left <= timedelta(seconds=3601)
    assert found["attention"]


@pytest.mark.slow
def test_status_shows_a_queue_whose_loop_does_not_turn(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """FAULTS 22."""
    sup = run_supervisor("quick", env={"TEST_POLL_INTERVAL": "0.5"})
    sup.child("quick").signal(SIGSTOP)
    found = eventually(lambda: (line := queues(run_paceline)["quick"])["attention"] and line, timeout=20)
    assert re.fullmatch(r"not turning for \d+s", found["state"])
    sup.child("quick").signal(SIGCONT)
    eventually(lambda: queues(run_paceline)["quick"]["state"] == "idle")


def test_status_names_the_session_that_holds_back_vacuum(
    run_paceline: Paceline, rows: Rows, database_in_use: str
) -> None:
    """FAULTS 27."""
    snapshot = psycopg.IsolationLevel.REPEATABLE_READ
    with psycopg.connect(database_in_use, application_name="a long report") as reader:
        reader.isolation_level = snapshot
        reader.execute("SELECT count(*) FROM jobs")
        assert as_json(run_paceline)["vacuum_holder"] is None
        rows.execute("DO $$ BEGIN FOR i IN 1..1001 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
        who = f"session {reader.info.backend_pid} (a long report, postgres, idle in transaction)"
        holder = as_json(run_paceline)["vacuum_holder"]
        assert (holder["who"], holder["transactions"] > 1000) == (who, True)
        line = next(line for line in run_paceline("status").stdout.splitlines() if line.startswith("! vacuum"))
        assert line.startswith("! vacuum is held back for ")
        assert line.endswith(f" transactions) by {who}")
    assert as_json(run_paceline)["vacuum_holder"] is None


@pytest.mark.slow
def test_status_after_the_service_was_killed_shows_no_process(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    sup = run_supervisor("sleeps")
    job = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: rows.status(job) == "started")
    sup.signal(SIGKILL)
    sup.wait()
    eventually(lambda: not rows.sessions())
    found = as_json(run_paceline)
    assert found["parents"] == []
    [line] = found["queues"]
    assert (line["queue"], line["state"], line["pid"], line["job_id"]) == ("sleeps", "not served", None, job)


def test_status_of_a_quiet_database_says_so(run_paceline: Paceline) -> None:
    done = run_paceline("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["no queues"]


def test_no_text_of_a_row_breaks_the_table_or_reaches_the_terminal_as_control(
    run_paceline: Paceline, rows: Rows
) -> None:
    """Statuses hold what vendors answered, and a name may be anything."""
    rows.insert("odd", "odd\x1b[2J.Job", status="err: \x1b[2Jgone\r\x0bnext\x85line\u2028end")
    rows.insert("odd", "odd\nname", status="started")
    done = run_paceline("status")
    assert (done.returncode, done.stderr) == (0, "")
    _, attention, headings, line = done.stdout.splitlines()
    assert attention == "! odd: not served"
    assert headings.split() == HEADINGS
    assert line.isprintable()
    found = queues(run_paceline)["odd"]
    assert found["last"] == "err: \x1b[2Jgone\r\x0bnext\x85line\u2028end"
