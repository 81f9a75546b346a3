"""A child's statements go by libpq itself: what comes back, what is raised, and what a connection is after that."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import supervisor.sql
from supervisor.child.session import Session
from supervisor.migrate import migrate
from supervisor.sql import numbered
from tests.support.databases import Databases
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.wait import eventually

SQL = Path(supervisor.sql.__file__).parent
# What a session runs once in its life: a command's, or the table's own making.
ONCE = {
    *(
        "cancel",
        "end_pause",
        "find_job",
        "finished_since",
        "make_sandbox",
        "pause",
        "retry",
        "rows_in_the_way",
        "session",
    ),
    *("function_jobs_notify", "table_jobs", "trigger_jobs_notify"),
}


@pytest.fixture
def session(database_in_use: str) -> Iterator[Session]:
    opened = Session(database_in_use, "desk", 60, "here")
    yield opened
    opened.drop()


def test_a_parameter_that_stands_twice_has_one_number() -> None:
    text, names = numbered("fetch")
    assert names == ("queue", "limit")
    assert text.count(b"$1") == 2
    assert text.count(b"$2") == 1
    assert b"%" not in text


def test_a_row_comes_back_as_python_has_it_and_no_row_as_none(
    either_database: str, session: Session, rows: Rows
) -> None:
    job = rows.insert("desk", "Ünicode", {"name": "Zoë"})
    [(id, name, args, callsite, created_at, latency)] = session.execute("claim", id=job)
    assert (id, name, args, callsite) == (job, "Ünicode", '{"name": "Zoë"}', None)
    assert created_at == pytest.approx(rows.row(job).created_at.timestamp())
    assert latency >= 0
    assert session.execute("claim", id=job) == []


def test_an_answer_of_many_packets_is_read_whole(session: Session, rows: Rows) -> None:
    text = "ä" * 3_000_000
    job = rows.insert("desk", "Big", {"text": text})
    [(_, _, args, *_)] = session.execute("claim", id=job)
    assert args == f'{{"text": "{text}"}}'


def test_what_is_done_meanwhile_is_done_before_the_answer(session: Session, rows: Rows, database: str) -> None:
    """It lets go of what the server waits for."""
    job = rows.insert("desk", "Ok")
    with psycopg.connect(database) as other:
        other.execute("UPDATE jobs SET callsite = 'here:1' WHERE id = %s", [job])
        session.execute("finalize", other.commit, id=job, status="ok")
    assert rows.status(job) == "ok"


def test_an_error_of_the_servers_has_its_class_and_the_connection_serves_on(session: Session, rows: Rows) -> None:
    job = rows.insert("desk", "Ok")
    rows.execute("ALTER TABLE jobs ADD CHECK (length(status) < 20)")
    with pytest.raises(psycopg.errors.CheckViolation) as raised:
        session.execute("finalize", id=job, status="x" * 50)
    assert raised.value.sqlstate == "23514"
    assert raised.value.diag.message_primary == str(raised.value).splitlines()[0]
    assert not session.lost(raised.value)
    session.execute("finalize", id=job, status="ok")
    assert rows.status(job) == "ok"


def test_a_statement_that_cannot_be_prepared_is_prepared_when_it_can(session: Session, rows: Rows) -> None:
    job = rows.insert("desk", "Ok")
    rows.execute("ALTER TABLE jobs RENAME TO away")
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.execute("claim", id=job)
    rows.execute("ALTER TABLE away RENAME TO jobs")
    assert len(session.execute("claim", id=job)) == 1


@pytest.mark.parametrize("before", [False, True], ids=["at its first statement", "between two"])
def test_a_session_that_the_server_ends_is_lost(session: Session, rows: Rows, before: bool) -> None:
    job = rows.insert("desk", "Ok")
    if before:
        session.execute("claim", id=job)
    assert session.pgconn
    assert rows.cut_off("paceline:desk/%") == 1
    with pytest.raises(psycopg.OperationalError) as raised:
        session.execute("finalize", id=job, status="ok")
    assert session.lost(raised.value)


def test_a_signal_while_the_server_works_is_handled_at_once_and_the_answer_still_comes(
    database: str, rows: Rows
) -> None:
    heard = list[int]()
    before = signal.signal(signal.SIGUSR1, lambda signo, frame: heard.append(signo))
    job, waiter = rows.insert("desk", "Ok"), threading.get_ident()
    with Relay(database) as relay:
        session = Session(relay.url, "desk", 60, "here")
        session.execute("fetch", queue="desk", limit=1)
        relay.stall("client")

        def poke() -> None:
            signal.pthread_kill(waiter, signal.SIGUSR1)
            eventually(lambda: heard)
            relay.resume()

        poker = threading.Thread(target=poke)
        assert session.execute("fetch", poker.start, queue="desk", limit=1) == [(str(job), None, None)]
        poker.join()
        session.drop()
    signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_a_prepared_statement_outlives_an_upgrade_of_the_tables_types(
    old_database: str, session: Session, rows: Rows
) -> None:
    """A plan whose answer changes its type is refused for the rest of the session."""
    for column in ("queue", "name", "status", "callsite"):
        rows.execute(f"ALTER TABLE jobs ALTER {column} TYPE varchar")
    jobs = [rows.insert("desk", "Ok") for _ in range(4)]

    def use(first: int, second: int) -> None:
        session.execute("fetch", queue="desk", limit=4)
        assert session.execute("claim", id=first)
        assert session.execute("resume", id=first)
        assert session.execute("finalize_and_claim", id=first, status="ok", next=second)
        session.execute("finalize", id=second, status="ok")
        assert session.execute("last_finished", queue="desk")

    use(*jobs[:2])
    migrate(old_database, dedupe=frozenset(), upgrade="UTC")
    use(*jobs[2:])
    assert rows.statuses("desk") == ["ok"] * 4


@pytest.mark.parametrize("name", sorted(file.stem for file in SQL.glob("*.sql") if file.stem not in ONCE))
def test_a_statements_answer_has_the_same_types_on_either_table(databases: Databases, name: str) -> None:
    """So that what any session has prepared, a parent's too, outlives an upgrade."""

    def types(url: str) -> list[int]:
        with psycopg.connect(url, autocommit=True) as connection:
            prepared = connection.pgconn.prepare(b"it", numbered(name)[0])
            assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message
            answer = connection.pgconn.describe_prepared(b"it")
            return [answer.ftype(column) for column in range(answer.nfields)]

    with databases.today() as today, databases.older() as older:
        with psycopg.connect(older) as connection:
            for column in ("queue", "name", "status", "callsite"):
                connection.execute(f"ALTER TABLE jobs ALTER {column} TYPE varchar".encode())
        assert types(older) == types(today)
