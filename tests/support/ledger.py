"""The side table that the `ledger` queues write to: which process ran what, and when, by the server's clock.

It proves what `jobs` cannot: that no two jobs of a queue overlapped, and that none ran twice.
"""

from dataclasses import dataclass
from datetime import datetime

from tests.support.rows import Rows

# A row per run rather than per job, so that a job that ran twice shows.
TABLE = """
CREATE TABLE ledger (
  run bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL,
  id bigint NOT NULL,
  host text NOT NULL,
  pid int NOT NULL,
  began timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended timestamptz
)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job. `ended` is None when it was interrupted, or is not over."""

    run: int
    queue: str
    id: int
    host: str
    pid: int
    began: datetime
    ended: datetime | None


def runs(rows: Rows, queue: str) -> list[Run]:
    """Those of the queue, in the order in which they began."""
    found = rows.execute(
        "SELECT run, queue, id, host, pid, began, ended FROM ledger WHERE queue = %s ORDER BY began", queue
    )
    return [Run(*row) for row in found]


def overlaps(rows: Rows) -> list[tuple[int, int]]:
    """The runs that went on while another of the same queue began, as (run, the other)."""
    # Of an interrupted run it is not known when it ended, so it can only be the other.
    found = rows.execute(
        "SELECT one.run, other.run FROM ledger AS one JOIN ledger AS other"
        " ON one.queue = other.queue AND one.run <> other.run"
        " AND one.began <= other.began AND other.began < one.ended ORDER BY 1, 2"
    )
    return [(one, other) for one, other in found]


def repeated(rows: Rows) -> list[int]:
    """The ids of jobs that ran more than once."""
    return [job for (job,) in rows.execute("SELECT id FROM ledger GROUP BY id HAVING count(*) > 1 ORDER BY 1")]
