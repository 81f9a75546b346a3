"""The test support itself: it does what the other tests rely on, and fails where it says that it does."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest
import sentry_sdk

from tests.support import ledger, queues
from tests.support.databases import of_cluster
from tests.support.ingest import KEY, Ingest, Malformed, read_envelope
from tests.support.rows import Rows, Sql
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

# eventually


def test_eventually_waits_for_a_true_answer_and_returns_it() -> None:
    answers = iter([0, "", "there"])
    assert eventually(lambda: next(answers)) == "there"


def test_eventually_prints_the_last_value_when_it_gives_up() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s; last seen: \[\]"):
        eventually(lambda: [], 0.05)


def test_eventually_takes_an_exception_for_not_yet_and_prints_it() -> None:
    with pytest.raises(AssertionError, match=r"last seen: LookupError\('no row'\)"):
        eventually(_raise_lookup_error, 0.05)


def _raise_lookup_error() -> None:
    raise LookupError("no row")


# Databases


def _type_of(sql: Sql, column: str) -> str:
    [(found,)] = sql(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'jobs'::regclass AND attname = %s",
        column,
    )
    return str(found)


def test_the_database_is_migrated(database: str, sql: Sql) -> None:
    assert _type_of(sql, "created_at") == "timestamp with time zone"
    assert _type_of(sql, "id") == "bigint"
    assert sql("SELECT count(*) FROM ledger") == [(0,)]


def test_the_old_database_has_times_without_a_zone_and_no_primary_key(old_database: str, sql: Sql) -> None:
    assert _type_of(sql, "created_at") == "timestamp without time zone"
    assert _type_of(sql, "id") == "integer"
    assert sql("SELECT 1 FROM pg_index WHERE indrelid = 'jobs'::regclass AND indisprimary") == []
    assert sql("SELECT count(*) > 0 FROM pg_index WHERE indrelid = 'jobs'::regclass") == [(True,)]


def test_the_empty_database_is_empty(empty_database: str, sql: Sql) -> None:
    assert sql("SELECT to_regclass('jobs'), to_regclass('ledger')") == [(None, None)]


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_a_database_of_its_own(rows: Rows, turn: int) -> None:
    assert rows.statuses("quick") == []
    rows.insert("quick", "quick.Ok")


def test_a_database_is_dropped_though_sessions_are_open(cluster: str, databases: Any) -> None:
    with databases.empty() as url:
        left_open = psycopg.connect(url)
    with closing(left_open), pytest.raises(psycopg.OperationalError):
        psycopg.connect(url).close()


@pytest.mark.parametrize(
    ("cluster_url", "expected"),
    [
        ("postgresql://postgres@/postgres?host=%2Ftmp%2Fx", "postgresql://postgres@/mine?host=%2Ftmp%2Fx"),
        ("postgresql:///postgres?host=/tmp/x", "postgresql:///mine?host=/tmp/x"),
        ("postgres://me:secret@127.0.0.1:5433", "postgres://me:secret@127.0.0.1:5433/mine"),
        ("postgresql://?host=/tmp", "postgresql:///mine?host=/tmp"),
    ],
)
def test_the_url_of_another_database_differs_in_its_name_only(cluster_url: str, expected: str) -> None:
    assert of_cluster(cluster_url, "mine") == expected


def test_rows_are_put_in_and_read_on_either_table(either_database: str, rows: Rows) -> None:
    first = rows.insert("quick", "quick.Echo", {"text": "hello"})
    old = rows.insert("quick", "quick.Ok", status="started", age=3600)
    done = rows.insert("quick", "quick.Ok", status="ok", age=60)
    assert rows.statuses("quick") == ["pending", "started", "ok"]
    assert rows.row(first).args == {"text": "hello"}
    assert rows.row(first).started_at is None
    assert rows.row(old).finished_at is None
    assert rows.row(done).finished_at == rows.row(done).created_at
    assert rows.execute("SELECT round(extract(epoch FROM now() - started_at)) FROM jobs WHERE id = %s", old) == [
        (3600,)
    ]
    assert [row.id for row in rows.all("quick")] == [first, old, done]
    many = rows.insert_many(1000, "sleeps", "sleeps.Sleep", {"seconds": 0})
    assert len(many) == 1000
    assert [row.args["number"] for row in rows.all("sleeps")] == list(range(1, 1001))
    with pytest.raises(LookupError):
        rows.status(done + 5000)


def test_rows_open_a_new_session_when_theirs_was_ended(rows: Rows) -> None:
    rows.execute("SELECT 1")
    with psycopg.connect(rows.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test rows'")
    with pytest.raises(psycopg.OperationalError):
        rows.execute("SELECT 1")
    assert rows.execute("SELECT 1") == [(1,)]


def test_the_ledger_shows_overlaps_and_repeats(rows: Rows) -> None:
    rows.execute(
        "INSERT INTO ledger (queue, id, host, pid, began, ended) VALUES"
        " ('a', 1, 'h', 1, '2026-01-01 00:00:00Z', '2026-01-01 00:00:10Z'),"
        " ('a', 2, 'h', 1, '2026-01-01 00:00:10Z', NULL),"
        " ('b', 3, 'h', 1, '2026-01-01 00:00:05Z', '2026-01-01 00:00:06Z')"
    )
    assert ledger.overlaps(rows) == []
    assert ledger.repeated(rows) == []
    rows.execute("INSERT INTO ledger (queue, id, host, pid, began) VALUES ('a', 2, 'other', 1, '2026-01-01 00:00:09Z')")
    assert [run.id for run in ledger.runs(rows, "a")] == [1, 2, 2]
    assert len(ledger.overlaps(rows)) == 1
    assert ledger.repeated(rows) == [2]


# The ingest


def _report(dsn: str, text: str) -> subprocess.CompletedProcess[str]:
    """A program that reports an exception as ours do, and flushes."""
    code = (
        "import sys, sentry_sdk; sentry_sdk.init(sys.argv[1]); sentry_sdk.set_tag('queue', 'quick')\n"
        "try: raise RuntimeError(sys.argv[2])\n"
        "except RuntimeError as error: sentry_sdk.capture_exception(error)\n"
        "sentry_sdk.flush(5)"
    )
    command = [sys.executable, "-c", code, dsn, text]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)


def test_the_ingest_reads_an_event_of_the_real_sdk(ingest: Ingest) -> None:
    _report(ingest.dsn, "a fault with a newline\nand an ü")
    [event] = ingest.events()
    assert event["exception"]["values"][0]["value"] == "a fault with a newline\nand an ü"
    assert event["tags"] == {"queue": "quick"}


def _request(ingest: Ingest, body: bytes, key: str = KEY, path: str = "/api/1/envelope/") -> Request:
    """What the SDK sends, made by hand."""
    root = ingest.dsn.replace(f"{KEY}@", "").removesuffix("/1")
    return Request(root + path, body, {"X-Sentry-Auth": f"Sentry sentry_key={key}, sentry_version=7"})


@pytest.fixture
def client(ingest: Ingest) -> Iterator[sentry_sdk.Client]:
    made = sentry_sdk.Client(ingest.dsn, default_integrations=False)
    yield made
    made.close(timeout=1)


def test_an_event_counts_when_it_was_sent_though_the_answer_is_late(ingest: Ingest, client: sentry_sdk.Client) -> None:
    ingest.delay = 3600
    client.capture_event({"message": "late"})
    eventually(ingest.events)


def test_a_late_answer_is_late(ingest: Ingest) -> None:
    ingest.delay = 0.3
    began = time.monotonic()
    with urlopen(_request(ingest, b"{}\n"), timeout=5) as answer:
        assert answer.status == 200
    assert time.monotonic() - began >= 0.3


def test_a_refused_event_is_not_stored(ingest: Ingest, client: sentry_sdk.Client) -> None:
    ingest.refuse(503)
    client.capture_event({"message": "refused"})
    client.flush(timeout=5)
    assert ingest.events() == []
    ingest.accept()
    client.capture_event({"message": "taken"})
    client.flush(timeout=5)
    assert [event["message"] for event in ingest.events()] == ["taken"]


def test_a_stalled_event_is_stored_when_the_stall_ends(ingest: Ingest, client: sentry_sdk.Client) -> None:
    ingest.stall()
    client.capture_event({"message": "stalled"})
    client.flush(timeout=0.2)
    assert ingest.events() == []
    ingest.accept()
    eventually(ingest.events)


def test_a_closed_ingest_refuses_connections_also_in_a_stall() -> None:
    with Ingest() as ingest:
        ingest.stall()
        client = sentry_sdk.Client(ingest.dsn, default_integrations=False)
        client.capture_event({"message": "stalled"})
        client.flush(timeout=0.2)
    assert ingest.events() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(ingest.dsn.rpartition(":")[2].partition("/")[0])), 5)
    client.close(timeout=1)


@pytest.mark.parametrize(
    ("key", "path", "body", "fault"),
    [
        ("wrong", "/api/1/envelope/", b"{}\n", "lacks the DSN's key"),
        (KEY, "/api/2/envelope/", b"{}\n", "no such path"),
        (KEY, "/api/1/envelope/", b"no json\n", "header b'no json'"),
        (KEY, "/api/1/envelope/", b'{}\n{"type":"event","length":9}\n{}', "an item of 9 bytes has only 2"),
    ],
)
def test_the_ingest_notes_what_it_cannot_read(key: str, path: str, body: bytes, fault: str) -> None:
    with Ingest() as ingest:
        with pytest.raises(HTTPError) as caught:
            urlopen(_request(ingest, body, key, path), timeout=5)
        caught.value.close()
        assert caught.value.code == 400
        assert len(ingest.faults) == 1
        assert fault in ingest.faults[0]
        assert ingest.items() == []


def test_an_envelope_is_read_by_length_or_by_line() -> None:
    by_length = b'{"type":"a","length":3}\nx\ny\n'
    by_line = b'{"type":"b"}\none line\n'
    body = b"{}\n" + by_length + by_line + b'{"type":"c","length":0}\n\n{"type":"d","length":1}\nz'
    assert [(header["type"], payload) for header, payload in read_envelope(body)] == [
        ("a", b"x\ny"),
        ("b", b"one line"),
        ("c", b""),
        ("d", b"z"),
    ]
    assert list(read_envelope(b"{}\n")) == []
    with pytest.raises(Malformed, match="no newline"):
        list(read_envelope(b'{}\n{"type":"a","length":1}\nxyz'))


# The registry


def test_the_registry_is_sound() -> None:
    """Built without a server: no constructor connects. What the schedule names, some worker handles."""
    from supervisor import DB

    workers = {worker.queue: worker for worker in (make(DB("postgresql:///none")) for make in queues.registry)}
    assert len(workers) == len(queues.registry)
    for entry in queues.schedule:
        assert entry.name in workers[entry.queue].handlers
