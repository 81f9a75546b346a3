"""A parent that hears a lot looks at the other parents all the same: what it last met is never old."""

from pathlib import Path

import pytest

from supervisor.scoreboard import snapshots
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually


@pytest.mark.slow
def test_a_parent_that_hears_a_lot_keeps_looking_at_the_others(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 33: else a busy host forgets the other within a minute, and takes a job from it that it runs."""
    limited = program(tmp_path, ping=1)
    busy = run_supervisor("quick", host="host-a", python=limited)
    run_supervisor("ledger", host="host-b", python=limited)
    eventually(lambda: "another parent is here" in busy.log())

    def met_at() -> float:
        return next(shot.header.met_at for shot in snapshots() if shot.header.pid == busy.parent.pid)

    before = met_at()

    def heard_once_more() -> bool:
        rows.execute("SELECT pg_notify('jobs', 'a queue of nobody')")
        return met_at() > before + 1.0

    eventually(heard_once_more)
