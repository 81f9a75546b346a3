"""Rests: a throttle's, a rate limit's, and the pause of a refused token; whoever dies meanwhile, none is broken."""

import json
import re
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from signal import SIGKILL, SIGTERM

import psycopg
import pytest

from tests.support.processes import Process
from tests.support.rows import Rows, Sql
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

ODD = "tests.support.queues_rests"
PAUSED = re.compile(r"paceline: \S+ paused until \d\d:\d\d \(HTTP (401|403)\)")


def between(rows: Rows, first: int, second: int) -> float:
    """Seconds from the first job's start to the second's, by the server's clock; once it has started.

    A rest counts from the end of the handler, which here takes no time. The row's finished_at is later.
    """
    second_start = eventually(lambda: rows.row(second).started_at)
    first_start = rows.row(first).started_at
    assert first_start is not None
    return (second_start - first_start).total_seconds()


def holds_lease(sql: Sql, queue: str) -> bool:
    holders = sql(
        "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND granted AND application_name LIKE %s",
        f"paceline:{queue}/%",
    )
    return len(holders) == 1


def waits_for_a_lock(rows: Rows, queue: str) -> bool:
    """Whether the queue's child is held up in a statement."""
    waiting = rows.execute(
        "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE %s AND wait_event_type = 'Lock'",
        f"paceline:{queue}/%",
    )
    return bool(waiting)


def with_title(sup: Supervised, queue: str, text: str, but: int = 0) -> Process:
    """The queue's child, once `ps` shows it so; not the one with the pid `but`."""

    def look() -> Process | None:
        child = sup.children()[queue]
        return child if child.pid != but and f"{queue} {text}" in child.title else None

    return eventually(look)


@pytest.mark.slow
def test_a_queue_rests_after_each_job_and_a_wake_does_not_end_the_rest(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    run_supervisor("paced", env={"TEST_THROTTLE": "0.4"})
    jobs = rows.insert_many(2, "paced", "paced.Ok")
    eventually(lambda: rows.status(jobs[1]) == "ok")
    jobs.append(rows.insert("paced", "paced.Ok"))
    eventually(lambda: rows.status(jobs[2]) == "ok")
    assert min(between(rows, first, second) for first, second in pairwise(jobs)) >= 0.4


@pytest.mark.slow
def test_a_throttle_holds_through_the_death_of_the_child_and_a_restart_of_the_service(
    run_supervisor: RunSupervisor, rows: Rows, sql: Sql
) -> None:
    env = {"TEST_THROTTLE": "1.5"}
    sup = run_supervisor("paced", env=env)
    jobs = [rows.insert("paced", "paced.Ok")]
    child = with_title(sup, "paced", "resting until")
    assert holds_lease(sql, "paced")
    jobs.append(rows.insert("paced", "paced.Ok"))
    child.signal(SIGKILL)
    assert between(rows, *jobs) >= 1.5
    with_title(sup, "paced", "resting until")
    jobs.append(rows.insert("paced", "paced.Ok"))
    sup.terminate()
    assert sup.wait() == 0
    run_supervisor("paced", env=env)
    assert between(rows, *jobs[1:]) >= 1.5


@pytest.mark.slow
def test_a_rate_limit_rests_its_queue_that_long_also_through_a_death(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("vendor")
    limited = rows.insert("vendor", "vendor.RateLimited", {"seconds": 2})
    child = with_title(sup, "vendor", "resting until")
    assert child.title.endswith("(rate limited)")
    following = rows.insert("vendor", "vendor.Ok")
    child.signal(SIGKILL)
    assert between(rows, limited, following) >= 2
    assert rows.status(limited) == "err: rate limited, retry after 2s"


@pytest.mark.slow
def test_a_refused_token_pauses_its_queue_until_a_person_ends_it(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, sql: Sql
) -> None:
    """A child that crashes stays paused, the lease is kept, and SIGTERM to the child lets the next job run."""
    sup = run_supervisor("vendor")
    refused = rows.insert("vendor", "vendor.Status", {"code": 401})
    waiting = rows.insert("vendor", "vendor.Ok")
    child = with_title(sup, "vendor", "paused until")
    assert PAUSED.fullmatch(child.title)
    assert rows.status(refused) == "err: HTTP 401"
    assert holds_lease(sql, "vendor")
    assert len(re.findall(r"WARNING queue vendor paused until \d\d:\d\d \(HTTP 401\)", sup.log())) == 1

    child.signal(SIGKILL)
    again = with_title(sup, "vendor", "paused until", but=child.pid)
    assert PAUSED.fullmatch(again.title)
    assert holds_lease(sql, "vendor")
    [shown] = json.loads(run_paceline("status", "--json").stdout)["queues"]
    assert re.fullmatch(r"paused until ([0-9-]+ )?[0-9:]{8} UTC \(HTTP 401\)", shown["state"])
    assert (shown["pid"], shown["pending"], shown["last"]) == (again.pid, 1, "err: HTTP 401")
    assert rows.status(waiting) == "pending"

    again.signal(SIGTERM)
    eventually(lambda: rows.status(waiting) == "ok")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args"), [("vendor.Status", {"code": 403}), ("vendor.TokenRefused", {})], ids=["403", "TokenRefused"]
)
def test_a_pause_ends_with_a_restart_of_the_service(
    name: str, args: dict[str, int], run_supervisor: RunSupervisor, rows: Rows
) -> None:
    sup = run_supervisor("vendor")
    rows.insert("vendor", name, args)
    waiting = rows.insert("vendor", "vendor.Ok")
    with_title(sup, "vendor", "paused until")
    sup.terminate()
    assert sup.wait() == 0
    assert rows.status(waiting) == "pending"
    run_supervisor("vendor")
    eventually(lambda: rows.status(waiting) == "ok")


@pytest.mark.slow
def test_another_http_status_pauses_nothing(run_supervisor: RunSupervisor, rows: Rows) -> None:
    run_supervisor("vendor")
    rows.insert("vendor", "vendor.Status", {"code": 500})
    job = rows.insert("vendor", "vendor.Ok")
    eventually(lambda: rows.status(job) == "ok")
    assert rows.statuses("vendor") == ["err: HTTP 500", "ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "title"), [(401, "paused until"), (0, "resting until")], ids=["refused", "rate limited"]
)
def test_a_rest_begins_though_the_child_dies_before_its_job_is_final(
    code: int, title: str, run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """Killed while a lock on the row holds up its finalize: the vendor has refused all the same."""
    sup = run_supervisor("refused", registry=ODD)
    answer = tmp_path / "answer"
    refused = rows.insert("refused", "refused.Wait", {"file": str(answer), "code": code})
    waiting = rows.insert("refused", "refused.Ok")
    eventually(lambda: rows.status(refused) == "started")
    child = sup.child("refused")
    with closing(psycopg.connect(rows.url)) as other:
        other.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (refused,))
        answer.touch()
        eventually(lambda: waits_for_a_lock(rows, "refused"))
        child.signal(SIGKILL)
        eventually(lambda: not child.alive)
    eventually(lambda: rows.status(refused).startswith("err: "))
    with_title(sup, "refused", title, but=child.pid)
    assert rows.status(waiting) == "pending"


@pytest.mark.slow
def test_a_throttle_that_raises_rests_its_queue_and_does_not_kill_it(run_supervisor: RunSupervisor, rows: Rows) -> None:
    """For a minute: a throttle that is broken must not become no throttle."""
    sup = run_supervisor("broken", registry=ODD)
    job = rows.insert("broken", "broken.Ok")
    waiting = rows.insert("broken", "broken.Ok")
    child = with_title(sup, "broken", "resting until")
    assert "division by zero" in child.title
    assert [rows.status(job), rows.status(waiting)] == ["ok", "pending"]
    sup.terminate()
    assert sup.wait(5) == 0
    assert "process ended" not in sup.log()


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "name"), [("inf", "odd.Echo"), ("1e12", "odd.RateLimited"), ("3e6", "odd.Echo")])
def test_a_rest_of_any_length_is_a_rest(seconds: str, name: str, run_supervisor: RunSupervisor, rows: Rows) -> None:
    """A vendor's Retry-After may be a date in milliseconds, and a throttle may divide by next to nothing.

    The child that takes it up from a dead one rests too, and a drain ends it.
    """
    sup = run_supervisor("odd", registry=ODD)
    rows.insert("odd", name, {"text": seconds})
    waiting = rows.insert("odd", "odd.Echo", {"text": "0"})
    child = with_title(sup, "odd", "resting until")
    child.signal(SIGKILL)
    with_title(sup, "odd", "resting until", but=child.pid)
    assert rows.status(waiting) == "pending"
    sup.terminate()
    assert sup.wait(5) == 0
    assert sup.log().count("process ended") == 1  # that of the one killed here


@pytest.mark.slow
def test_a_negative_throttle_is_no_rest(run_supervisor: RunSupervisor, rows: Rows) -> None:
    run_supervisor("odd", registry=ODD)
    jobs = [rows.insert("odd", "odd.Echo", {"text": "-1"}) for _ in range(2)]
    eventually(lambda: [rows.status(job) for job in jobs] == ["-1", "-1"])
