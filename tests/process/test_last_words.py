"""What a parent records at the end of a drain: with the database back, its old session is no reason not to."""

from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_the_row_of_a_killed_child_is_ended_though_the_parents_session_was_lost_meanwhile(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    sup = run_supervisor("sleeps", flags=("--drain-timeout", "0.2"), python=program(tmp_path, sweep=3))
    job = rows.insert("sleeps", "sleeps.Forever")
    swept = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle' AND starts_with(application_name, %s) AND query ~ %s"
    eventually(lambda: rows.execute(swept, "paceline:parent/", "served"))  # and will not again for 3 seconds
    assert rows.status(job) == "started"
    assert rows.cut_off("paceline:parent/%") == 2
    sup.terminate()
    assert sup.wait() == 1
    assert rows.status(job) == "err: interrupted: drain timeout of 0.2s"
