"""A dead child's successor that is itself told to stop before it has ended the dead one's row."""

import signal

import pytest

from tests.process.test_deaths import DEATHS, backend, replaced, waits_for_a_lock
from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_a_successor_that_is_told_to_stop_before_it_has_ended_the_row_is_no_further_death(
    database: str, rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """Its slot shows a job still, but not one of its own."""
    sup = run_supervisor("mortal", registry=DEATHS)
    job = rows.insert("mortal", "mortal.Answer", {"seconds": 600})
    child = sup.child("mortal")
    eventually(lambda: f"id={job}" in child.title)
    with row_lock(database, job):
        child.signal(signal.SIGSEGV)
        successor = replaced(sup, "mortal", child)
        eventually(lambda: waits_for_a_lock(rows, backend(rows, "mortal")))
        successor.signal(signal.SIGTERM)
        eventually(lambda: not successor.alive)
        replaced(sup, "mortal", successor)
    eventually(lambda: rows.status(job) == "err: interrupted: SIGSEGV")
    assert sup.log().count("process ended") == 1
    assert "queue mortal: process finished, replaced" in sup.log()
