"""What children share with their parent: memory that a first job would otherwise copy."""

from pathlib import Path

import pytest

from supervisor import Context, Worker
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

MODULE = "tests.process.test_memory"
JOBS = 1_000
MB = 1024 * 1024


def nothing(ctx: Context, args: dict[str, object]) -> str:
    return "ok"


registry = [
    lambda db, queue=queue: Worker(queue=queue, handlers={"light.Nothing": nothing})  # type: ignore[misc]
    for queue in ("light", "light-b", "light-c")
]
schedule: list[object] = []


def own(pid: int) -> int:
    """Bytes that the process shares with no other, or has copied because it wrote to them (proc(5), smaps_rollup)."""
    [line] = [x for x in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if x.startswith("Private_Dirty:")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_a_thousand_jobs_cost_a_child_less_than_a_megabyte(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 38: it keeps what it did not have at boot, not what each job needed."""
    sup = run_supervisor(registry=MODULE)
    pids = [sup.child(queue).pid for queue in ("light", "light-b", "light-c")]
    eventually(lambda: all(sup.child(queue).title.endswith("idle") for queue in ("light", "light-b", "light-c")))
    before = own(pids[0])
    rows.insert_many(JOBS, "light", "light.Nothing")
    eventually(lambda: set(rows.statuses("light")) == {"ok"}, timeout=60)
    assert own(pids[0]) - before < MB
