"""Whatever the role that the service connects as has set for itself, all works the same; and what a boot refuses."""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from supervisor import db
from tests.support.rows import Rows, Sql
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

# What a careful administrator, a pooler's manual and a service for the web set.
SETTINGS = {
    "statement_timeout": "700ms",
    "lock_timeout": "50ms",
    "idle_session_timeout": "1s",
    "idle_in_transaction_session_timeout": "700ms",
    "transaction_timeout": "700ms",  # since Postgres 17
    "synchronous_commit": "off",
    "default_transaction_isolation": "serializable",
    "TimeZone": "Pacific/Auckland",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "client_encoding": "LATIN1",
}


@pytest.fixture
def role(database_in_use: str, sql: Sql) -> Iterator[str]:
    """The database's URL for a role of its own, with all of SETTINGS."""
    name, password = f"paceline_test_{secrets.token_hex(4)}", secrets.token_hex(8)
    sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON jobs, ledger TO {name}")
    sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}")
    for setting, value in SETTINGS.items():
        if sql("SELECT current_setting(%s, true)", setting) != [(None,)]:
            sql(f"ALTER ROLE {name} SET {setting} = '{value}'")
    yield re.sub(r"^(postgres(?:ql)?://)(?:[^/?]*@)?", rf"\g<1>{name}:{password}@", database_in_use)
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", name)
    sql(f"DROP OWNED BY {name}")
    sql(f"DROP ROLE {name}")


@pytest.mark.slow
def test_a_roles_own_settings_make_no_difference(
    either_database: str, role: str, run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, sql: Sql
) -> None:
    """FAULTS 39: longer idle than its idle_session_timeout, a longer job than its statement_timeout, true times."""
    sup = run_supervisor("sleeps", "quick", url=role)
    before = engine_sessions(sql)
    assert len(before) == 3
    slow = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1.5})
    eventually(lambda: rows.status(slow) == "ok")
    assert engine_sessions(sql) == before  # none of them was ended and opened again
    enqueued = run_paceline("enqueue", "quick", "quick.Ok", url=role)
    assert enqueued.returncode == 0, enqueued.stderr
    eventually(lambda: rows.status(int(enqueued.stdout)) == "ok")
    # Where the columns have no zone, the test's own session reads them as UTC.
    assert (
        sql(
            "SELECT id FROM jobs WHERE NOT"
            " (now() - interval '1 minute' < created_at AND created_at <= started_at AND finished_at <= now())"
            " OR NOT finished_at - started_at BETWEEN CASE id WHEN %s THEN interval '1.5 s' ELSE '0' END AND '10 s'",
            slow,
        )
        == []
    )
    latencies = [float(latency) for latency in re.findall(r"latency=(-?[\d.]+)s", sup.log())]
    assert len(latencies) == 2 and all(0 <= latency < 60 for latency in latencies)
    assert " ERROR " not in sup.log()
    sup.terminate()
    assert sup.wait() == 0


def engine_sessions(sql: Sql) -> list[tuple[int]]:
    """The server's pids of the parent's listening session and each child's."""
    return sql(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND starts_with(application_name, 'paceline:') ORDER BY pid"
    )


@pytest.mark.slow
def test_a_handlers_connections_outlast_the_roles_idle_limit(
    role: str, run_supervisor: RunSupervisor, rows: Rows
) -> None:
    """FAULTS 39: they are idle between two jobs, which is not the role's idleness."""
    run_supervisor("ledger", "sleeps", url=role)
    first = rows.insert("ledger", "ledger.Append")
    pause = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 1.5})
    eventually(lambda: rows.status(first) == rows.status(pause) == "ok")
    second = rows.insert("ledger", "ledger.Append")
    eventually(lambda: rows.status(second) not in ("pending", "started"))
    assert rows.status(second) == "ok"


@pytest.mark.slow
def test_any_text_is_stored_whatever_encoding_the_role_prefers(
    role: str, run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """FAULTS 39: in args, and in a status."""
    sup = run_supervisor("quick", url=role)
    inserted = rows.insert("quick", "quick.Echo", {"text": "☂"})
    following = rows.insert("quick", "quick.Ok")
    enqueued = run_paceline("enqueue", "quick", "quick.Echo", '{"text": "naïve — ☂"}', url=role)
    assert enqueued.returncode == 0, enqueued.stderr
    eventually(lambda: rows.status(int(enqueued.stdout)) == "naïve — ☂", 5.0)
    assert rows.status(inserted) == "☂"
    assert rows.status(following) == "ok"
    assert " ERROR " not in sup.log()


@pytest.mark.slow
def test_a_lock_is_waited_for_as_long_as_the_engine_wants(role: str, run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 39: the role's lock_timeout is shorter."""
    sup = run_supervisor("sleeps", url=role)
    job = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 0.2})
    eventually(lambda: rows.status(job) == "started")
    with psycopg.connect(rows.url) as locked:
        locked.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (job,))
        eventually(
            lambda: rows.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                " AND application_name LIKE 'paceline:sleeps/%' AND clock_timestamp() - query_start > '0.3 s'"
            )
        )
    eventually(lambda: rows.status(job) == "ok")
    assert " ERROR " not in sup.log()


def test_an_engine_session_has_its_own_settings(role: str) -> None:
    """FAULTS 39: also those whose difference shows only in a crash of the server."""
    wanted = {
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        "TimeZone": "UTC",
        "statement_timeout": "0",
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "lock_timeout": "1s",
        "client_encoding": "UTF8",
        "extra_float_digits": "1",  # or the epochs that the engine reads are rounded
    }
    with db.connect(role, "paceline:test/1@host") as connection:
        shown = {name: connection.execute(f"SHOW {name}".encode()).fetchall()[0][0] for name in wanted}
    assert shown == wanted


@pytest.mark.slow
def test_two_hosts_as_such_a_role_hand_over(role: str, run_supervisor: RunSupervisor, rows: Rows) -> None:
    """FAULTS 39: they see each other's sessions and leases."""
    a = run_supervisor("quick", url=role, host="host-a")
    b = run_supervisor("quick", url=role, host="host-b")
    eventually(lambda: b.child("quick").title == "paceline: quick standby (lease: host-a)")
    a.terminate()
    assert a.wait() == 0
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")


# What a boot refuses


def refusal(sup: Supervised) -> str:
    """The one line that it says before it exits with 1."""
    assert sup.wait() == 1
    [line] = sup.log().splitlines()
    return line


def test_without_the_table_it_says_what_to_run(empty_database: str, run_supervisor: RunSupervisor, sql: Sql) -> None:
    line = refusal(run_supervisor("quick", url=empty_database, ready=False))
    assert re.fullmatch(r"paceline: .*\bjobs\b.*: run `paceline migrate`", line)
    assert sql("SELECT to_regclass('jobs')") == [(None,)]  # run does no DDL


@pytest.mark.slow
def test_without_a_dedupe_name_in_the_index_it_says_what_to_run(
    database: str, run_supervisor: RunSupervisor, run_paceline: Paceline, tmp_path: Path
) -> None:
    (tmp_path / "deduping.py").write_text(
        "from supervisor import Worker\n"
        "work = lambda ctx, args: 'ok'\n"
        "registry = [lambda db: Worker(queue='new', handlers={'new.Name': work}, dedupe={'new.Name'})]\n"
        "schedule = []\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    line = refusal(run_supervisor(registry="deduping", env=env, ready=False))
    assert re.fullmatch(r"paceline: .*new\.Name.*: run `paceline migrate`", line)
    assert run_paceline("migrate", registry="deduping", env=env).returncode == 0
    run_supervisor(registry="deduping", env=env)
