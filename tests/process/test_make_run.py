"""`make run` at a terminal, as a newcomer has it: Ctrl-C and a closed window drain the service behind it."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.rows import Rows
from tests.support.supervised import ROOT, RunSupervisor, Supervised
from tests.support.wait import eventually

BIN = Path(sys.executable).parent  # not resolved: of the virtual environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
    pytest.mark.skipif(not (BIN / "paceline").exists(), reason=f"needs the installed command, {BIN}/paceline"),
]


@pytest.mark.parametrize(
    ("leave", "says"),
    [(lambda sup: sup.type(b"\x03"), "SIGINT"), (lambda sup: sup.hang_up(), "SIGHUP")],
    ids=["Ctrl-C", "closed window"],
)
def test_leaving_the_terminal_of_make_run_is_one_graceful_drain(
    run_supervisor: RunSupervisor,
    empty_database: str,
    rows: Rows,
    tmp_path: Path,
    leave: Callable[[Supervised], None],
    says: str,
) -> None:
    """FAULTS 15 and 44: also where make is the session's leader, whom alone the kernel tells of a hang-up.

    That no process is left behind, the fixture sees to.
    """
    program = tmp_path / "make-run"
    program.write_text(f'#!/bin/sh\nexec make --no-print-directory -C "{ROOT}" -o install BIN="{BIN}" run\n')
    program.chmod(0o755)
    sup = run_supervisor(python=str(program), registry="tests.support.queues_at_home", terminal=True)
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1.2})
    eventually(lambda: rows.status(job) == "started")
    leave(sup)
    eventually(lambda: rows.status(job) == "ok", 5.0)
    eventually(lambda: sup.log().count("paceline: drained") == 1, 5.0)
    assert sup.log().count("draining") == 1
    assert f"{says}: draining" in sup.log()
    sup.wait(5.0)
