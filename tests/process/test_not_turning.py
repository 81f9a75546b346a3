"""A child that is stuck in its own loop, in a query that nobody answers, while its parent is well.

FAULTS 22, all of it.
"""

import json
import re
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from supervisor.scoreboard import Doing
from supervisor.worker import boottime
from tests.process.test_deaths import slot
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file


def stall_a_fetch(sup: Supervised, relay: Relay, rows: Rows) -> int:
    """Have the child of `quick` look for jobs at a server that its question does not reach; the job it would find."""
    eventually(lambda: sup.child("quick").title == "paceline: quick idle")
    relay.stall("server")  # what the server says still arrives: so the parent hears of the job, and wakes the child
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: (now := slot(sup, "quick").child).doing == Doing.IDLE and now.due < boottime() - 0.2)
    return job


def test_a_child_that_is_stuck_in_a_fetch_is_shown_so_and_replaced_within_its_limit_and_its_job_runs(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, relay: Relay, tmp_path: Path
) -> None:
    sup = run_supervisor("quick", "sleeps", url=relay.url, python=program(tmp_path, turn=9))
    running = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 2})
    eventually(lambda: rows.status(running) == "started")
    stuck = sup.child("quick")
    job = stall_a_fetch(sup, relay, rows)

    impatient = make_conninfo(relay.url, connect_timeout=2)

    def shown() -> str:
        answer = json.loads(run_paceline("status", "--json", url=impatient).stdout)
        assert [(parent["pid"], parent["state"]) for parent in answer["parents"]] == [(sup.pid, "running")]
        line = {line["queue"]: line for line in answer["queues"]}["quick"]
        return f"{line['state']}, {line['attention']}"

    eventually(lambda: re.fullmatch(r"not turning for [5-9]s, True", shown()), 9)
    eventually(lambda: sup.child("quick") != stuck)
    assert re.search(r"WARNING queue quick: killed: not turning for \d+s", sup.log())
    assert "queue sleeps: killed" not in sup.log()  # what it has to record waits for the server, as it must
    relay.resume()
    eventually(lambda: rows.status(job) == "ok")
    eventually(lambda: rows.status(running) == "ok")
    assert slot(sup, "quick").parent.deaths <= 1


def test_a_child_that_is_stuck_in_a_fetch_does_not_hold_a_drain_up(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay
) -> None:
    sup = run_supervisor("quick", url=relay.url)
    job = stall_a_fetch(sup, relay, rows)
    sup.terminate()
    assert sup.wait(5.0) == 0
    assert "queue quick: killed: no job, and no exit within a second of the drain" in sup.log()
    assert rows.status(job) == "pending"
