"""The sweep: `started` rows that no process can be running any more end, and nothing alive is touched."""

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from supervisor import Worker
from supervisor.config import Limits, Settings
from supervisor.parent.children import Children
from supervisor.parent.forking import Forker
from supervisor.parent.helper import Helpers
from supervisor.parent.session import Session
from supervisor.parent.sweeper import Sweeper
from supervisor.scoreboard import Scoreboard
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

INTERRUPTED = "err: interrupted"
LIMITS = Limits()
SHORT, LONG = 5, 7_200  # seconds, job timeouts
DEAD = SHORT + LIMITS.sweep_margin + 5  # seconds after which a row of `short` has no process, whoever ran it


@dataclass(frozen=True)
class Parent:
    """What a parent has that serves queues, before it has started any child."""

    children: Children
    sweeper: Sweeper
    session: Session

    def sweep(self) -> None:
        async def once() -> None:
            try:
                await self.sweeper.sweep()
            finally:
                self.session.drop()

        asyncio.run(once())


class ParentOf(Protocol):
    def __call__(self, url: str, **timeouts: float) -> Parent: ...


@pytest.fixture
def parent_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParentOf:
    """parent_of(url, queue=job_timeout, ...)"""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))

    def parent(url: str, **timeouts: float) -> Parent:
        workers = [
            Worker(queue=queue, handlers={"any.Job": lambda ctx, args: "ok"}, job_timeout=seconds)
            for queue, seconds in timeouts.items()
        ]
        forker = Forker()
        helpers = Helpers(forker)
        board = Scoreboard.create(list(timeouts), host="test", token="sweep", database="")
        children = Children(Settings(url), workers, board, forker, helpers)
        session = Session(url, "paceline:parent/sweep@test", helpers, LIMITS.call)
        return Parent(children, Sweeper(session, children, helpers, board.header, LIMITS), session)

    return parent


def started(rows: Rows, queue: str, age: float | None) -> int:
    """A row left `started` that many seconds ago; None: with no start, as older versions left it."""
    job = rows.insert(queue, "any.Job", status="started", age=age or 0)
    if age is None:
        rows.execute("UPDATE jobs SET started_at = NULL WHERE id = %s", job)
    return job


def test_a_row_with_no_process_ends_and_every_other_stays(
    either_database: str, rows: Rows, parent_of: ParentOf
) -> None:
    """FAULTS 3: among 5,000 old rows of other queues, and a worker with a very long timeout."""
    rows.execute(
        "INSERT INTO jobs (queue, name, status, started_at) SELECT 'other-' || n % 50, 'any.Job', 'started',"
        " now() - interval '1 year' FROM generate_series(1, 5000) AS n"
    )
    dead = [started(rows, "short", DEAD), started(rows, "short", None), started(rows, "long", LONG + 65)]
    alive = [started(rows, "short", DEAD - 10), started(rows, "short", 0), started(rows, "long", LONG + 55)]
    pending = rows.insert("short", "any.Job", age=1e6)
    done = rows.insert("short", "any.Job", status="ok", age=1e6)
    parent_of(either_database, short=SHORT, long=LONG).sweep()
    assert [rows.status(job) for job in dead] == [INTERRUPTED] * 3
    assert all(rows.row(job).finished_at is not None for job in dead)
    assert [rows.status(job) for job in alive] == ["started"] * 3
    assert [rows.status(pending), rows.status(done)] == ["pending", "ok"]
    assert rows.execute("SELECT count(*) FROM jobs WHERE queue LIKE 'other-%' AND status = 'started'") == [(5000,)]


def test_a_timeout_seen_in_a_session_of_the_queue_counts_though_that_session_is_gone(
    database: str, rows: Rows, parent_of: ParentOf
) -> None:
    """FAULTS 42: the host that showed it may have lost its session and run on."""
    theirs = started(rows, "short", DEAD)
    parent = parent_of(database, short=SHORT)
    with closing(psycopg.connect(database, application_name="paceline:short/600@host-b")):
        parent.sweep()
    parent.sweep()
    assert rows.status(theirs) == "started"


@pytest.fixture
def with_limits(tmp_path: Path) -> dict[str, Any]:
    """Arguments of run_supervisor: sweeps follow each other by 0.2 s, all other limits are those of production."""
    return {"python": program(tmp_path, sweep=0.2), "env": {"TEST_JOB_TIMEOUT": "5"}}


@pytest.mark.slow
def test_a_service_sweeps_while_its_queue_is_stuck_and_while_it_drains(
    run_supervisor: RunSupervisor, with_limits: dict[str, Any], rows: Rows
) -> None:
    """FAULTS 2: the sweep is the parent's. Each row that it ends is a line in the log."""
    with_limits["env"]["TEST_JOB_TIMEOUT"] = "300"
    sup = run_supervisor("sleeps", **with_limits)
    stuck = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 3})
    behind = rows.insert("sleeps", "sleeps.Sleep")  # a job that would clean up has no chance
    eventually(lambda: rows.status(stuck) == "started")
    orphan = started(rows, "sleeps", 400)
    eventually(lambda: rows.status(orphan) == INTERRUPTED)
    sup.terminate()
    eventually(lambda: "SIGTERM: draining" in sup.log())
    later = started(rows, "sleeps", 400)
    eventually(lambda: rows.status(later) == INTERRUPTED)
    assert rows.status(stuck) == "started"
    assert sup.wait() == 0
    assert [rows.status(stuck), rows.status(behind)] == ["ok", "pending"]
    assert f'queue=sleeps job=any.Job id={orphan} status="err: interrupted"' in sup.log()


@pytest.mark.slow
def test_a_service_leaves_a_row_alone_for_as_long_as_a_session_of_its_queue_shows(
    run_supervisor: RunSupervisor, with_limits: dict[str, Any], database: str, rows: Rows
) -> None:
    """FAULTS 42: an older version with a longer timeout, which came after the last look at the sessions."""
    run_supervisor("sleeps", **with_limits)
    with closing(psycopg.connect(database, application_name="paceline:sleeps/600@host-b")):
        theirs = started(rows, "sleeps", 300)
        dead = started(rows, "sleeps", 700)
        eventually(lambda: rows.status(dead) == INTERRUPTED)
        assert rows.status(theirs) == "started"


@pytest.mark.slow
def test_a_sweep_whose_session_is_lost_goes_on(
    run_supervisor: RunSupervisor, with_limits: dict[str, Any], rows: Rows
) -> None:
    run_supervisor("sleeps", **with_limits)
    first = started(rows, "sleeps", 400)
    eventually(lambda: rows.status(first) == INTERRUPTED)
    assert rows.cut_off("paceline:parent/%") > 0
    second = started(rows, "sleeps", 400)
    eventually(lambda: rows.status(second) == INTERRUPTED)
