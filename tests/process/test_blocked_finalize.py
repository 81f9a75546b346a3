"""A finalize that cannot get through: the true status is recorded at the end, nothing begins meanwhile, one event.

FAULTS 7: a lock on the finished row, a lock on the next one, the network; the child lives on, or is killed meanwhile.
"""

from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.process.test_events import of_queue, text
from tests.support.ingest import Ingest
from tests.support.relay import Relay
from tests.support.row_lock import row_lock
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

BLOCKED = "tests.support.queues_blocked"
TRUE = "fail: no such person"


class Pair:
    """The two jobs of one queue: what ends, and what would come next."""

    def __init__(self, rows: Rows, queue: str, runs: Path) -> None:
        self.rows, self.queue, self.file = rows, queue, runs / queue
        args = {"text": TRUE, "seconds": 1.0, "ledger": str(self.file)}
        self.first, self.next = rows.insert(queue, "Answer", args), rows.insert(queue, "Answer", args)

    def runs(self) -> list[int]:
        """The jobs that have begun, in order."""
        return [int(job) for job in self.file.read_text().split()] if self.file.exists() else []

    def statuses(self) -> list[str]:
        return self.rows.statuses(self.queue)


def tries(rows: Rows, queue: str, seen: set[datetime]) -> int:
    """How many statements of the queue's session were seen to wait for a lock."""
    seen.update(
        when
        for (when,) in rows.execute(
            "SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND starts_with(application_name, %s)",
            f"paceline:{queue}/",
        )
    )
    return len(seen)


def faults(ingest: Ingest, queue: str) -> list[str]:
    """The events of the queue, but for the one that tells of the death that a test brings about."""
    return [told for event in of_queue(ingest, queue) if "process ended" not in (told := text(event))]


def kill(sup: Supervised, queue: str) -> None:
    child = sup.child(queue)
    child.signal(SIGKILL)
    eventually(lambda: sup.children().get(queue, child) != child)


def all_done(sup: Supervised, pairs: list[Pair], ingest: Ingest) -> dict[str, list[str]]:
    """Wait for the end of all and drain; the events of each queue."""
    eventually(lambda: all(pair.statuses() == [TRUE, TRUE] for pair in pairs))
    assert {pair.queue: pair.runs() for pair in pairs} == {pair.queue: [pair.first, pair.next] for pair in pairs}
    sup.terminate()
    assert sup.wait() == 0
    return {pair.queue: faults(ingest, pair.queue) for pair in pairs}


@pytest.mark.slow
def test_a_lock_on_the_finished_row_or_on_the_next_is_outlasted_and_is_one_event(
    database: str, rows: Rows, run_supervisor: RunSupervisor, ingest: Ingest, tmp_path: Path
) -> None:
    """FAULTS 7: four queues side by side; each is held up for three of its tries at least."""
    queues = ("own", "own-killed", "next", "next-killed")
    settings: dict[str, Any] = {"registry": BLOCKED, "env": {"SENTRY_DSN": ingest.dsn}}
    sup = run_supervisor(*queues, python=program(tmp_path, settle=0.5, fresh=60), **settings)
    pairs = {queue: Pair(rows, queue, tmp_path) for queue in queues}
    seen: dict[str, set[datetime]] = {queue: set() for queue in queues}
    with ExitStack() as locks:
        for queue, pair in pairs.items():
            eventually(lambda pair=pair: pair.runs())
            locks.enter_context(row_lock(database, pair.first if "own" in queue else pair.next))
        for queue in ("own-killed", "next-killed"):
            eventually(lambda queue=queue: tries(rows, queue, seen[queue]))
            kill(sup, queue)
        eventually(lambda: min(tries(rows, queue, seen[queue]) for queue in queues) >= 3)
        # No next job has begun, wherever the lock is; and nobody was kept from ending a row that is not locked.
        assert {queue: pair.runs() for queue, pair in pairs.items()} == {q: [p.first] for q, p in pairs.items()}
        assert [pairs[queue].statuses() for queue in ("own", "own-killed")] == [["started", "pending"]] * 2
        assert [pairs[queue].statuses() for queue in ("next", "next-killed")] == [[TRUE, "pending"]] * 2
    told = all_done(sup, list(pairs.values()), ingest)
    assert {queue: len(events) for queue, events in told.items()} == dict.fromkeys(queues, 1), told


@pytest.mark.slow
def test_a_network_that_is_gone_at_the_finalize_is_outlasted_and_is_one_event(
    rows: Rows, relay: Relay, run_supervisor: RunSupervisor, ingest: Ingest, tmp_path: Path
) -> None:
    """FAULTS 7: refused for three tries and more; one child lives on, one is killed."""
    queues = ("cut", "cut-killed")
    settings: dict[str, Any] = {"registry": BLOCKED, "env": {"SENTRY_DSN": ingest.dsn}}
    sup = run_supervisor(*queues, url=relay.url, python=program(tmp_path, settle=0.5, fresh=60), **settings)
    pairs = {queue: Pair(rows, queue, tmp_path) for queue in queues}
    eventually(lambda: all(pair.runs() for pair in pairs.values()))
    relay.refuse()
    relay.cut()
    eventually(lambda: all(faults(ingest, queue) for queue in queues))
    kill(sup, "cut-killed")
    eventually(lambda: "waiting for the database" in sup.child("cut-killed").title)
    assert [pair.statuses() for pair in pairs.values()] == [["started", "pending"]] * 2
    relay.resume()
    told = all_done(sup, list(pairs.values()), ingest)
    assert len(told["cut"]) == 1, told
    assert len(told["cut-killed"]) <= 2, told  # the dead one's, of its finalize, and its successor's, of the database
