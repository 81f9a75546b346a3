"""A ledger outside the database: the journal queues append a line to a file as a job begins and as it ends.

It proves what a database that is being broken cannot.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.rows import Rows

FILE = "TEST_JOURNAL"  # the environment's name for the file's path


@dataclass(slots=True)
class Run:
    """One run of one job. Times on CLOCK_BOOTTIME; `ended` is None where the handler did not get there."""

    queue: str
    id: int
    pid: int
    began: float
    ended: float | None = None


def write(queue: str, id: int, event: str, now: float) -> None:
    """One line, by one write, so that no process's lines mix with another's."""
    line = json.dumps([queue, id, os.getpid(), event, now]) + "\n"
    descriptor = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def runs(file: Path) -> list[Run]:
    """In the order in which they began."""
    found: list[Run] = []
    for line in file.read_text().splitlines() if file.exists() else []:
        queue, id, pid, event, now = json.loads(line)
        if event == "began":
            found.append(Run(queue, id, pid, now))
        else:
            next(run for run in reversed(found) if (run.id, run.pid) == (id, pid)).ended = now
    return found


def broken_promises(file: Path, rows: Rows) -> list[str]:
    """What went wrong, in words: a job that is not final, ran twice, overlapped another or has a false status."""
    return [*_of_runs(runs(file)), *_of_statuses(runs(file), rows)]


def _of_runs(found: list[Run]) -> Iterator[str]:
    by_queue: dict[str, list[Run]] = defaultdict(list)
    seen: set[int] = set()
    for run in found:
        if run.id in seen:
            yield f"{run.queue} {run.id} ran twice"
        seen.add(run.id)
        for other in by_queue[run.queue]:
            if other.ended is not None and other.ended > run.began:
                yield f"{run.queue} {run.id} began while {other.id} ran"
        by_queue[run.queue].append(run)


def _of_statuses(found: list[Run], rows: Rows) -> Iterator[str]:
    by_id = {run.id: run for run in found}
    for queue, id, status in rows.execute("SELECT queue, id, status FROM jobs WHERE queue LIKE 'journal%' ORDER BY id"):
        run = by_id.get(id)
        ended = run is not None and run.ended is not None
        if status in ("pending", "started"):
            yield f"{queue} {id} is {status}"
        elif (status == "ok") != ended:
            yield f"{queue} {id} is {status!r}, its handler {'ended' if ended else 'did not end'}"
