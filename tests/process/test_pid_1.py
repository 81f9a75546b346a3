"""The service as PID 1 of a PID namespace, as in a container: reaps strangers, drains, is killed and comes back."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.process.test_drain_signals import is_handled
from tests.support import namespaces
from tests.support.namespaces import pid_inside, run_as_pid_1
from tests.support.processes import Process
from tests.support.queues_forks import QUEUES
from tests.support.rows import Rows
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = [pytest.mark.slow, namespaces.needs_namespaces]

FORKS = "tests.support.queues_forks"


def processes(sup: Supervised) -> set[Process]:
    """All below PID 1, zombies too: orphans are PID 1's own."""
    return set(sup.parent.descendants)


def only_children(sup: Supervised, queues: int) -> bool:
    """Nobody but the queues' processes: no zombie, no stray."""
    everyone = processes(sup)
    return len(everyone) == queues and everyone == set(sup.children().values())


def is_caught(sup: Supervised) -> bool:
    """Whether the process has a handler for SIGTERM; unshare, which it is first, only puts it off for a moment."""
    [mask] = [
        line.split()[1]
        for line in Path(f"/proc/{sup.pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    ]
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def fork_in_all_queues(rows: Rows, count: int, seconds: float) -> None:
    for queue in QUEUES:
        rows.insert_many(count // len(QUEUES), queue, "forks.Double", {"seconds": seconds})


def unfinished(rows: Rows) -> int:
    [(left,)] = rows.execute("SELECT count(*) FROM jobs WHERE status IN ('pending', 'started')")
    return int(left)


def test_a_thousand_jobs_whose_handlers_double_fork_leave_no_zombie_and_no_stray(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 17"""
    sup = run_as_pid_1(run_supervisor, tmp_path, *QUEUES, "quick", registry=FORKS)
    before = processes(sup)
    fork_in_all_queues(rows, 1000, 0.02)
    eventually(lambda: not unfinished(rows), 60)
    assert {status for queue in QUEUES for status in rows.statuses(queue)} == {"ok"}
    eventually(lambda: processes(sup) == before)
    assert only_children(sup, len(QUEUES) + 1)
    assert sup.parent.threads == 1
    assert "process ended" not in sup.log()
    sup.terminate()
    assert sup.wait() == 0


def test_grandchildren_that_end_later_are_reaped_while_the_service_works_on(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 17: they outlive their jobs, and their queue's process, and are nobody's death."""
    sup = run_as_pid_1(run_supervisor, tmp_path, *QUEUES, "quick", registry=FORKS)
    before = sup.children()
    fork_in_all_queues(rows, 20, 2.5)
    eventually(lambda: not unfinished(rows))
    orphans = set(sup.parent.children) - set(before.values())
    assert len(orphans) == 20
    before["forks"].signal(signal.SIGTERM)  # its process ends, and its group with it
    eventually(lambda: sup.child("forks") != before["forks"])
    answered = rows.insert("forks", "forks.Parent")
    eventually(lambda: rows.status(answered) == "1")  # the child's parent is PID 1, which it has checked
    assert len(processes(sup) & orphans) == 18  # all but the two of its group
    eventually(lambda: only_children(sup, len(QUEUES) + 1))
    assert {queue for queue, child in sup.children().items() if before[queue] != child} == {"forks"}
    assert "process ended" not in sup.log()
    shown = run_paceline(
        "status", python=namespaces.enter(sup.parent, tmp_path), env={"XDG_RUNTIME_DIR": str(tmp_path)}
    )
    assert " pid 1: running, listening" in shown.stdout
    assert sup.parent.threads == 1


def test_the_tree_killed_in_mid_job_and_booted_again_under_the_same_name_and_pids_interrupts_the_row_in_seconds(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 1: what is left of the dead, a scoreboard under the same name too, is taken for nobody living."""

    def boot() -> tuple[Supervised, dict[str, int]]:
        sup = run_as_pid_1(run_supervisor, tmp_path, "ledger", "quick", registry=FORKS, host="host-a")
        return sup, {queue: pid_inside(child) for queue, child in sup.children().items()}

    killed, pids = boot()
    running = rows.insert("ledger", "ledger.Append", {"seconds": 600})
    following = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.execute("SELECT 1 FROM ledger WHERE id = %s", running))
    killed.signal(signal.SIGKILL)
    killed.wait()
    assert not killed.left()
    assert (tmp_path / "paceline" / "1.scoreboard").exists()
    assert rows.status(running) == "started"
    again, same_pids = boot()
    assert same_pids == pids
    eventually(lambda: rows.status(following) == "ok", 12.0)  # looks for other hosts for five seconds
    assert rows.status(running) == "err: interrupted"
    idle = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(idle) == "ok", 5.0)
    again.terminate()
    assert again.wait() == 0


def test_pid_1_is_deaf_to_sigterm_at_no_moment_of_its_boot_once_it_has_handled_it(
    run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 14: the kernel keeps from PID 1 what it neither handles nor puts off: then it is lost."""
    sup = run_as_pid_1(run_supervisor, tmp_path, "sleeps", "quick", registry=FORKS, ready=False)
    eventually(lambda: is_caught(sup))
    looks = [is_handled(sup, signal.SIGTERM)]
    while "paceline: ready" not in sup.log() and len(looks) < 100_000:
        looks += [is_handled(sup, signal.SIGTERM) for _ in range(10)]
    assert all(looks)
    assert len(looks) > 100
    sup.terminate()
    assert sup.wait() == 0


def test_sigterm_to_pid_1_drains_at_any_moment_of_the_boot_from_which_it_is_handled(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """FAULTS 14"""
    rows.insert_many(50, "sleeps", "sleeps.Sleep", {"seconds": 0.05})
    for _ in range(2):
        sup = run_as_pid_1(run_supervisor, tmp_path, "sleeps", "quick", registry=FORKS, ready=False)
        eventually(lambda sup=sup: is_caught(sup))
        due = time.monotonic() + random.uniform(0, 0.3)
        while time.monotonic() < due:
            pass
        sup.terminate()
        assert sup.wait(5.0) == 0
    assert set(rows.statuses("sleeps")) <= {"pending", "ok"}


def test_sigterm_to_pid_1_lets_its_job_finish(run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path) -> None:
    """FAULTS 15, as a container's end sends it."""
    sup = run_as_pid_1(run_supervisor, tmp_path, "sleeps", "quick", registry=FORKS)
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.5})
    eventually(lambda: rows.status(job) == "started")
    sup.terminate()
    assert sup.wait() == 0
    assert rows.status(job) == "ok"
    assert sup.log().rstrip().endswith("paceline: drained")
