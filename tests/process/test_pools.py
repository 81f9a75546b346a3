"""Handlers that spread their work over processes of their own: what they leave ends with their queue's process."""

import pytest

from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

NAMES = [
    *(f"pools.{what}-{context}" for what in ("Pool", "Left") for context in ("fork", "spawn", "forkserver")),
    "pools.Executor",
    "pools.Manager",
]


@pytest.mark.slow
def test_pools_of_every_kind_work_and_those_left_open_hold_up_neither_the_queue_nor_a_drain(
    rows: Rows, run_supervisor: RunSupervisor
) -> None:
    """FAULTS 45: one after the other in one process; that none of theirs is left, the fixture sees to."""
    sup = run_supervisor("pools", registry="tests.support.queues_pools")
    child = sup.child("pools")
    jobs = [rows.insert("pools", name) for name in NAMES]
    eventually(lambda: rows.status(jobs[-1]) not in ("pending", "started"), 30)
    assert {name: rows.status(job) for name, job in zip(NAMES, jobs, strict=True)} == dict.fromkeys(
        NAMES, "ok [1, 2, 3]"
    )
    assert sup.child("pools") == child
    assert child.children  # or nothing was left
    sup.terminate()
    assert sup.wait(5.0) == 0
    assert "killed" not in sup.log()
