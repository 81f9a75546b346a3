"""A process is replaced after max_jobs jobs, or once it has grown by max_rss: between jobs, and nothing is lost by it.

FAULTS 38.
"""

from itertools import groupby

import pytest

from supervisor import Context, Worker
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

WORN = "tests.support.queues_worn"


def pids(rows: Rows, ids: list[int]) -> list[str]:
    """The processes that ran these jobs, once all have ended."""
    eventually(lambda: all(rows.status(id) not in ("pending", "started") for id in ids))
    return [rows.status(id).removeprefix("ok: ") for id in ids]


@pytest.mark.slow
def test_a_process_is_replaced_after_max_jobs_jobs_and_the_order_stays(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    ids = rows.insert_many(7, "counted", "counted.Tell")
    sup = run_supervisor("counted", registry=WORN)
    ran_in = pids(rows, ids)
    assert [len(list(jobs)) for _, jobs in groupby(ran_in)] == [3, 3, 1]
    ended = [id for (id,) in rows.execute("SELECT id FROM jobs ORDER BY finished_at")]
    assert ended == ids
    assert sup.log().count("queue counted: process finished, replaced") == 2
    assert "deaths" not in sup.log()


@pytest.mark.slow
def test_a_process_that_leaks_is_replaced_between_jobs_and_its_successor_starts_small(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """Two leaks of 30 MB are past 50 MB; jobs that leak nothing are no reason."""
    sup = run_supervisor("leaking", registry=WORN)
    harmless = rows.insert_many(20, "leaking", "leaking.Tell")
    leaks = rows.insert_many(5, "leaking", "leaking.Leak")
    first, second, third = (set(part) for part in _parts(pids(rows, harmless + leaks), 22, 24))
    assert (len(first), len(second), len(third)) == (1, 1, 1)
    assert len(first | second | third) == 3
    assert sup.log().count("process finished, replaced") == 2


@pytest.mark.slow
def test_a_pause_outlives_the_replacement_of_a_worn_process(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("refused", registry=WORN)
    before = sup.child("refused")
    first, second = rows.insert_many(2, "refused", "refused.Refuse")
    eventually(lambda: sup.children().get("refused", before) != before)
    eventually(lambda: "paused until" in sup.child("refused").title)
    assert (rows.status(first), rows.status(second)) == ("err: HTTP 401", "pending")


def test_a_limit_below_one_is_refused() -> None:
    def handler(ctx: Context, args: dict[str, object]) -> str:
        return "ok"

    for limit in ("max_jobs", "max_rss"):
        with pytest.raises(ValueError, match=f"queue q: {limit} must be 1 or more"):
            Worker(queue="q", handlers={"q.Job": handler}, **{limit: 0})  # type: ignore[arg-type]


def _parts(values: list[str], *ends: int) -> list[list[str]]:
    return [values[start:end] for start, end in zip((0, *ends), (*ends, None), strict=True)]
