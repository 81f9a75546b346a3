"""Events: each fault is one, with its tags and its stack and no secret; a run of faults is one; nothing else is any.

A real sentry-sdk sends them, to an ingest on loopback.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.support.ingest import Ingest
from tests.support.processes import Process
from tests.support.queues_events import SECRET, VENDOR
from tests.support.relay import Relay
from tests.support.rows import Rows, Sql
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

Event = dict[str, Any]


def drain(sup: Supervised, timeout: float = 15.0) -> None:
    """After it no event is on its way any more."""
    sup.terminate()
    assert sup.wait(timeout) == 0, sup.describe()


def text(event: Event) -> str:
    """What the event is about: its exception's text, or its message."""
    if "exception" in event:
        return str(event["exception"]["values"][-1]["value"])
    return str(event.get("message") or event["logentry"]["message"])


def frames(event: Event) -> list[Event]:
    found: list[Event] = event["exception"]["values"][-1]["stacktrace"]["frames"]
    return found


def of_queue(ingest: Ingest, queue: str) -> list[Event]:
    return [event for event in ingest.events() if event.get("tags", {}).get("queue") == queue]


def last_statement(sql: Sql, queue: str) -> datetime:
    """When the queue's child last asked the database something."""
    [(when,)] = sql("SELECT query_start FROM pg_stat_activity WHERE application_name LIKE %s", f"paceline:{queue}/%")
    found: datetime = when
    return found


def all_final(rows: Rows, queue: str) -> bool:
    return not {"pending", "started"} & set(rows.statuses(queue))


@pytest.mark.slow
def test_a_raised_exception_is_one_event_with_its_tags_and_its_stack(
    run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    sup = run_supervisor("quick", env={"SENTRY_DSN": ingest.dsn})
    job = rows.insert("quick", "quick.Raise", {"text": "the moon is full"})
    unknown = rows.insert("quick", "quick.Nobody")
    eventually(lambda: all_final(rows, "quick"))
    drain(sup)
    raised, refused = ingest.events()
    assert text(raised) == "the moon is full"
    assert raised["tags"] == {"queue": "quick", "job": "quick.Raise", "id": str(job)}
    assert frames(raised)[-1]["function"] == "raising"
    assert 'unknown job "quick.Nobody" for queue quick' in text(refused)  # FAULTS 35
    assert refused["tags"] == {"queue": "quick", "job": "quick.Nobody", "id": str(unknown)}


@pytest.mark.slow
def test_a_log_record_is_no_event_and_no_part_of_one(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    sup = run_supervisor("quick", env={"SENTRY_DSN": ingest.dsn})
    rows.insert("quick", "quick.Log", {"text": "only a record"})
    rows.insert("quick", "quick.Fail", {"text": "a negative answer"})
    rows.insert("quick", "quick.Skip", {"text": "nothing to attempt"})
    rows.insert("quick", "quick.Raise", {"text": "a fault"})
    eventually(lambda: all_final(rows, "quick"))
    drain(sup)
    assert [text(event) for event in ingest.events()] == ["a fault"]
    assert "only a record" in sup.log()
    assert "only a record" not in json.dumps(ingest.events())


def planted(ingest: Ingest) -> list[str]:
    """The secrets that have reached the ingest, in whatever it got."""
    return re.findall(r"planted-\w+", json.dumps([item.payload for item in ingest.items()]))


@pytest.mark.slow
def test_no_event_holds_what_a_handler_knows(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    """Its local variables and args, the environment, the requests that it made and the programs that it ran."""
    env = {"SENTRY_DSN": ingest.dsn, SECRET: "planted-secret", VENDOR: ingest.dsn}
    sup = run_supervisor(registry="tests.support.queues_events", env=env)
    rows.insert("secrets", "secrets.Raise", {"key": "planted-argument"})
    rows.insert("secrets", "secrets.Exit")
    eventually(lambda: all_final(rows, "secrets"))
    drain(sup)
    assert len(ingest.events()) == 2
    assert not [
        frame for event in ingest.events() if "exception" in event for frame in frames(event) if "vars" in frame
    ]
    assert planted(ingest) == []


@pytest.mark.slow
def test_no_event_holds_the_password_of_the_database(
    run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest, database: str
) -> None:
    """Given by a flag, as it may be, or by the environment."""
    url = make_conninfo(database, password="planted-password")
    sup = run_supervisor("crash", "quick", url=url, env={"SENTRY_DSN": ingest.dsn}, flags=["--database-url", url])
    rows.insert("quick", "quick.RaiseEmpty")
    rows.insert("crash", "crash.Exit")
    eventually(lambda: all_final(rows, "quick") and all_final(rows, "crash"))
    drain(sup)
    assert len(ingest.events()) == 2
    assert planted(ingest) == []


@pytest.mark.slow
def test_each_job_that_raises_is_an_event_though_the_error_is_the_same_object(
    run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    """The SDK by itself drops what it takes for a repetition."""
    sup = run_supervisor(registry="tests.support.queues_events", env={"SENTRY_DSN": ingest.dsn})
    jobs = rows.insert_many(2, "secrets", "secrets.RaiseAgain")
    eventually(lambda: all_final(rows, "secrets"))
    drain(sup)
    assert [event["tags"]["id"] for event in ingest.events()] == [str(job) for job in jobs]


@pytest.mark.slow
def test_a_timeout_is_one_event_with_the_stack_where_it_struck(
    run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    sup = run_supervisor("stubborn", env={"SENTRY_DSN": ingest.dsn})
    job = rows.insert("stubborn", "stubborn.Sleep")
    eventually(lambda: rows.status(job) == "err: timeout after 1s")
    drain(sup)
    [event] = ingest.events()
    assert event["exception"]["values"][-1]["type"] == "JobTimeout"
    assert "sleep" in [frame["function"] for frame in frames(event)]
    assert event["tags"] == {"queue": "stubborn", "job": "stubborn.Sleep", "id": str(job)}


@pytest.mark.slow
def test_five_deaths_in_a_row_are_one_event(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    """FAULTS 21: the fifth comes after pauses of 0, 1, 2 and 4 seconds; the drain ends the row that it leaves."""
    sup = run_supervisor("crash", env={"SENTRY_DSN": ingest.dsn})
    first, *_ = rows.insert_many(5, "crash", "crash.Exit")
    eventually(lambda: "process ended: exit 3 (5 deaths)" in sup.log(), 30)
    drain(sup)
    assert rows.statuses("crash") == ["err: interrupted: exit 3"] * 5
    [event] = ingest.events()
    assert text(event) == "queue crash: process ended: exit 3"
    assert event["tags"] == {"queue": "crash", "job": "crash.Exit", "id": str(first)}


@pytest.mark.slow
def test_a_finished_job_ends_a_streak_of_deaths(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    sup = run_supervisor("crash", env={"SENTRY_DSN": ingest.dsn})
    for name in ("crash.Exit", "crash.Ok", "crash.Segv"):
        rows.insert("crash", name)
    eventually(lambda: all_final(rows, "crash"))
    drain(sup)
    assert {text(event) for event in ingest.events()} == {
        "queue crash: process ended: exit 3",
        "queue crash: process ended: SIGSEGV",
    }
    assert len(ingest.events()) == 2


@pytest.mark.slow
def test_a_run_of_rate_limits_is_one_event(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    sup = run_supervisor("vendor", env={"SENTRY_DSN": ingest.dsn})
    first = rows.insert_many(3, "vendor", "vendor.RateLimited", {"seconds": 0.05})[0]
    rows.insert("vendor", "vendor.Ok")
    last = rows.insert("vendor", "vendor.RateLimited", {"seconds": 0.05})
    eventually(lambda: all_final(rows, "vendor"))
    drain(sup)
    assert [event["tags"]["id"] for event in ingest.events()] == [str(first), str(last)]


@pytest.mark.slow
def test_a_fetch_that_fails_for_a_while_is_one_event_and_its_end_is_logged_with_its_length(
    run_supervisor: RunSupervisor, rows: Rows, sql: Sql, ingest: Ingest
) -> None:
    """The session stands, the statement fails: the table is away."""
    sup = run_supervisor("quick", env={"SENTRY_DSN": ingest.dsn, "TEST_POLL_INTERVAL": "0.1"})
    sql("ALTER TABLE jobs RENAME TO jobs_away")
    eventually(lambda: of_queue(ingest, "quick"))
    tries: set[datetime] = set()
    eventually(lambda: tries.add(last_statement(sql, "quick")) or len(tries) > 2)  # that fail, and say nothing
    sql("ALTER TABLE jobs_away RENAME TO jobs")
    eventually(lambda: re.search(r"INFO queue quick: fetch or claim: over after \d+\.\d s", sup.log()))
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
    drain(sup)
    [event] = of_queue(ingest, "quick")
    assert "jobs" in text(event)
    assert sup.log().count("ERROR queue quick: fetch or claim") == 1


@pytest.mark.slow
def test_a_lost_database_is_one_event_for_each_queue_and_its_end_is_logged_with_its_length(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, ingest: Ingest
) -> None:
    """FAULTS 20."""
    sup = run_supervisor("quick", "sleeps", url=relay.url, env={"SENTRY_DSN": ingest.dsn})
    relay.refuse()
    relay.cut()
    eventually(lambda: of_queue(ingest, "quick") and of_queue(ingest, "sleeps"))
    # More than one try has failed: the pause between two is 2 s at most, and shorter at first.
    eventually(lambda: [event for event in ingest.events() if text(event) and not event.get("tags")])
    relay.resume()
    for what in ("queue quick: database", "queue sleeps: database", "LISTEN"):
        eventually(lambda what=what: re.search(rf"INFO {what}: over after \d+\.\d s", sup.log()))
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
    drain(sup)
    assert [len(of_queue(ingest, queue)) for queue in ("quick", "sleeps")] == [1, 1]
    assert [sup.log().count(f"ERROR {what}:") for what in ("queue quick: database", "LISTEN")] == [1, 1]


@pytest.mark.slow
def test_a_drain_is_no_event_though_it_is_forced(run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest) -> None:
    sup = run_supervisor("sleeps", "quick", env={"SENTRY_DSN": ingest.dsn}, flags=["--drain-timeout", "0.2"])
    job = rows.insert("sleeps", "sleeps.Forever")
    eventually(lambda: rows.status(job) == "started")
    sup.terminate()
    assert sup.wait() == 1
    assert rows.status(job).startswith("err: interrupted")
    assert ingest.events() == []


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exit", "kill", "drain"])
def test_every_event_arrives_though_the_ingest_is_slow_and_the_child_ends_next(
    end: str, run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    """FAULTS 10: it answers after 300 ms; the process ends as soon as the last row is final, or drains before that."""
    ingest.delay = 0.3
    sup = run_supervisor("quick", env={"SENTRY_DSN": ingest.dsn})
    jobs = [rows.insert("quick", "quick.Raise", {"text": f"fault {number}"}) for number in range(3)]
    child = sup.child("quick")
    if end == "drain":
        eventually(lambda: rows.status(jobs[-1]) == "started")  # and so it is until its event has been answered
    else:
        eventually(lambda: rows.status(jobs[-1]) == "err: fault 2")
    if end == "kill":
        child.signal(SIGKILL)
        eventually(lambda: "queue quick: process ended" in sup.log())
    elif end == "exit":
        child.signal(SIGTERM)
        eventually(lambda: not child.alive)
    drain(sup, 5)
    assert rows.status(jobs[-1]) == "err: fault 2"
    assert [text(event) for event in of_queue(ingest, "quick")][:3] == ["fault 0", "fault 1", "fault 2"]
    deaths = [text(event) for event in of_queue(ingest, "quick")][3:]
    assert deaths == ["queue quick: process ended: SIGKILL (out of memory?)"] * (end == "kill")


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["stalls", "is down"])
def test_an_ingest_that_does_not_answer_holds_up_one_job_for_two_seconds_and_no_drain(
    trouble: str, run_supervisor: RunSupervisor, rows: Rows, ingest: Ingest
) -> None:
    """FAULTS 36. Eight jobs that each waited for their event would take 16 s."""
    sup = run_supervisor("quick", "crash", env={"SENTRY_DSN": ingest.dsn})
    if trouble == "stalls":
        ingest.stall()
    else:
        ingest.close()
    rows.insert_many(8, "quick", "quick.RaiseEmpty")
    eventually(lambda: rows.statuses("quick") == ["err: LookupError"] * 8, 10)
    rows.insert("crash", "crash.Exit")  # the parent has an event on its way
    eventually(lambda: all_final(rows, "crash"))
    drain(sup, 10)


@contextmanager
def thread_counts(parent: Process) -> Iterator[set[int]]:
    """The numbers of threads that the process is seen to have meanwhile."""
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.002) and parent.alive:
            try:
                seen.add(parent.threads)
            except FileNotFoundError:
                return

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield seen
    finally:
        over.set()
        watch.join()


@pytest.mark.slow
def test_the_parent_has_one_thread_throughout(
    run_supervisor: RunSupervisor, rows: Rows, relay: Relay, ingest: Ingest
) -> None:
    """FAULTS 9: while it resolves names, reports deaths and an outage, restarts children and drains."""
    by_name = relay.url.replace("127.0.0.1", "localhost")
    sup = run_supervisor("crash", url=by_name, env={"SENTRY_DSN": ingest.dsn}, ready=False)
    with thread_counts(sup.parent) as seen:
        sup.wait_ready()
        rows.insert_many(2, "crash", "crash.Exit")
        eventually(lambda: all_final(rows, "crash"))
        relay.refuse()
        relay.cut()
        eventually(lambda: "LISTEN" in [text(event)[:6] for event in ingest.events()] or "ERROR LISTEN" in sup.log())
        relay.resume()
        eventually(lambda: "LISTEN: over after" in sup.log())
        drain(sup)
    assert seen - {0} == {1}
