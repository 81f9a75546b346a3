"""A reload whose drain had to kill ends in the new code all the same: SIGHUP must leave a service behind."""

import signal

import pytest

from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_a_reload_whose_drain_was_forced_becomes_the_new_code(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("sleeps", "quick", flags=("--drain-timeout", "0.5"))
    endless = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: rows.status(endless) == "started")
    sup.signal(signal.SIGHUP)
    eventually(lambda: sup.exited() is not None or sup.log().count("paceline: ready") == 2)
    assert sup.exited() is None
    assert rows.status(endless) == "err: interrupted: drain timeout of 0.5s"
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
