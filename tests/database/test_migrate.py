"""`migrate` against real tables: new ones, old ones, ones that others are using; and missing(), what `run` checks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, UniqueViolation
from psycopg.rows import TupleRow

import supervisor.migrate as module
from supervisor.errors import PacelineError, UsageError
from supervisor.migrate import migrate, missing
from supervisor.sql import statement
from tests.support.rows import Rows, Sql
from tests.support.wait import eventually

NONE: frozenset[str] = frozenset()
OLD = """CREATE TABLE jobs (
  id serial, queue varchar(100), name varchar, args jsonb, status text DEFAULT 'pending', callsite text,
  created_at timestamp DEFAULT now(), started_at timestamp, finished_at timestamp)"""
INDEXES = {"jobs_pending", "jobs_started", "jobs_finished", "jobs_clock"}


@pytest.fixture(params=["new", "old"])
def url(request: pytest.FixtureRequest, empty_database: str, sql: Sql) -> str:
    """A migrated database, with each shape of the table."""
    if request.param == "old":
        sql(OLD)
    migrate(empty_database, dedupe=NONE)
    return empty_database


@contextmanager
def transaction(url: str, *statements: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A stranger's open transaction."""
    with psycopg.connect(url, application_name="stranger") as connection:
        for text in statements:
            connection.execute(text.encode())
        yield connection
        connection.commit()


@contextmanager
def migrating(url: str, **arguments: Any) -> Iterator["Future[list[str]]"]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit(migrate, url, **{"dedupe": NONE, **arguments})


def facts(sql: Sql) -> dict[str, Any]:
    [(found,)] = sql(statement("check_schema").decode())
    return dict(found)


def indexes(sql: Sql) -> set[str]:
    """The names of the valid indexes; none may be INVALID."""
    found = facts(sql)["indexes"]
    assert not [name for name, index in found.items() if not index["valid"]]
    return set(found)


def waits(sql: Sql) -> bool:
    return bool(
        sql(
            "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'paceline:migrate/%' AND wait_event_type='Lock'"
        )
    )


def insert(sql: Sql, name: str = "a.A", args: str = "{}", queue: str = "a", **more: str) -> None:
    columns, values = "".join(f", {key}" for key in more), ", %s" * len(more)
    sql(f"INSERT INTO jobs (queue, name, args{columns}) VALUES (%s, %s, %s{values})", queue, name, args, *more.values())


# A new table


def test_a_fresh_database_gets_the_table_of_the_design(empty_database: str, sql: Sql) -> None:
    assert migrate(empty_database, dedupe={"b.B", "a.A"}) == [
        "created table jobs",
        "built index jobs_dedupe: added a.A, b.B",
    ]
    assert sql(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, coalesce(attidentity::text"
        " || pg_get_expr(adbin, adrelid), attidentity::text) FROM pg_attribute LEFT JOIN pg_attrdef"
        " ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 'jobs'::regclass AND attnum > 0 ORDER BY attnum"
    ) == [
        ("id", "bigint", True, "a"),
        ("queue", "text", True, ""),
        ("name", "text", True, ""),
        ("args", "jsonb", True, "'{}'::jsonb"),
        ("status", "text", True, "'pending'::text"),
        ("callsite", "text", False, ""),
        ("created_at", "timestamp with time zone", True, "now()"),
        ("started_at", "timestamp with time zone", False, ""),
        ("finished_at", "timestamp with time zone", False, ""),
    ]
    assert indexes(sql) == INDEXES | {"jobs_pkey", "jobs_dedupe"}
    assert missing(facts(sql), {"a.A", "b.B"}) == []


def test_a_table_anywhere_on_the_search_path_is_the_one(empty_database: str, sql: Sql) -> None:
    sql('CREATE SCHEMA "First One"')
    sql(OLD)
    sql("ALTER DATABASE " + empty_database_name(sql) + ' SET search_path = "First One", public')
    migrate(empty_database, dedupe=NONE)
    assert sql("SELECT count(*) FROM pg_class WHERE relnamespace = '\"First One\"'::regnamespace") == [(0,)]
    sql("DROP TABLE jobs")
    migrate(empty_database, dedupe=NONE)
    assert sql("SELECT '\"First One\".jobs'::regclass::oid > 0, to_regclass('public.jobs')") == [(True, None)]


def empty_database_name(sql: Sql) -> str:
    [(name,)] = sql("SELECT quote_ident(current_database())")
    return str(name)


def test_a_second_migrate_does_nothing_and_asks_for_no_lock_above_access_share(url: str) -> None:
    migrate(url, dedupe={"a.A"})
    with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'a.A', '{}')"):
        assert migrate(url, dedupe={"a.A"}) == []
    with transaction(url, "LOCK TABLE jobs IN EXCLUSIVE MODE"):  # lets ACCESS SHARE in and nothing else
        assert migrate(url, dedupe={"a.A"}) == []
        assert migrate(url, dedupe={"a.A"}, prune=True) == []


def test_two_migrates_at_once_make_one_table(empty_database: str, sql: Sql) -> None:
    with ThreadPoolExecutor() as pool:
        both = [*pool.map(lambda name: migrate(empty_database, dedupe={name}), ["a.A", "b.B"])]
    assert ["created table jobs" in lines for lines in both].count(True) == 1
    assert missing(facts(sql), {"a.A", "b.B"}) == []
    assert indexes(sql) == INDEXES | {"jobs_pkey", "jobs_dedupe"}


# An older table


def test_an_older_table_keeps_its_columns_and_its_rows_and_works(empty_database: str, rows: Rows) -> None:
    rows.execute(OLD)
    job = rows.insert("a", "a.A")
    before = facts(rows.execute)["columns"]
    assert migrate(empty_database, dedupe={"a.A"}) == [
        "added constraint jobs_queue_length, jobs_name_length, for new rows",
        "created trigger jobs_notify",
        "built index jobs_id",
        "built index jobs_pending",
        "built index jobs_started",
        "built index jobs_finished",
        "built index jobs_clock",
        "built index jobs_dedupe: added a.A",
    ]
    assert facts(rows.execute)["columns"] == before
    assert indexes(rows.execute) == INDEXES | {"jobs_id", "jobs_dedupe"}
    with pytest.raises(UniqueViolation):
        rows.insert("a", "a.A")
    rows.execute("UPDATE jobs SET status = 'started', started_at = now() WHERE id = %s AND status = 'pending'", job)
    rows.execute("UPDATE jobs SET status = 'ok', finished_at = now() WHERE id = %s", job)
    assert rows.insert("a", "a.A") > job


def test_an_unique_index_of_their_own_on_id_is_enough(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    sql("CREATE UNIQUE INDEX theirs ON jobs (id)")
    migrate(empty_database, dedupe=NONE)
    assert indexes(sql) == INDEXES | {"theirs"}
    assert missing(facts(sql), NONE) == []


def test_an_index_on_more_or_less_than_id_is_not_enough(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    sql("CREATE UNIQUE INDEX part ON jobs (id) WHERE id > 7")
    sql("CREATE UNIQUE INDEX more ON jobs (id, queue)")
    migrate(empty_database, dedupe=NONE)
    assert "jobs_id" in indexes(sql)


def test_an_old_row_with_too_long_a_name_stays_and_can_still_be_worked(empty_database: str, rows: Rows) -> None:
    rows.execute(OLD)
    job = rows.insert("a", "n" * 201)
    migrate(empty_database, dedupe=NONE)
    rows.execute("UPDATE jobs SET status = 'started' WHERE id = %s", job)
    rows.execute("UPDATE jobs SET status = 'ok' WHERE id = %s", job)
    with pytest.raises(CheckViolation):
        rows.insert("a", "n" * 201)


def test_a_table_without_needed_columns_is_refused_by_their_names(empty_database: str, sql: Sql) -> None:
    sql("CREATE TABLE jobs (id serial, queue text, name text, args jsonb, status text, created_at timestamp)")
    with pytest.raises(PacelineError, match=r"no column callsite, started_at, finished_at: ") as refused:
        migrate(empty_database, dedupe=NONE)
    assert "\n" not in str(refused.value)
    assert indexes(sql) == set()
    assert missing(facts(sql), NONE) == ["the table jobs has no column callsite, started_at, finished_at"]


def test_a_column_of_another_kind_and_a_view_are_refused(empty_database: str, sql: Sql) -> None:
    sql(OLD.replace("id serial", "id uuid"))
    with pytest.raises(PacelineError, match="the column id of jobs is uuid, not int8 or int4"):
        migrate(empty_database, dedupe=NONE)
    sql("DROP TABLE jobs")
    sql("CREATE VIEW jobs AS SELECT 1 AS id")
    with pytest.raises(PacelineError, match="jobs is not an ordinary table"):
        migrate(empty_database, dedupe=NONE)


def test_an_index_of_our_name_that_is_another_is_replaced(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    sql("CREATE INDEX jobs_clock ON jobs (queue, name, callsite) WHERE callsite LIKE 'clock %'")  # not unique
    sql("CREATE INDEX jobs_pending ON jobs (queue, id) WHERE status = 'waiting'")
    sql("CREATE INDEX jobs_started ON jobs (queue) WHERE (status) IN ('started')")  # the same in other words
    lines = migrate(empty_database, dedupe=NONE)
    assert [line for line in lines if line.startswith("rebuilt")] == [
        "rebuilt index jobs_pending",
        "rebuilt index jobs_clock",
    ]
    assert indexes(sql) == INDEXES | {"jobs_id"}
    assert migrate(empty_database, dedupe=NONE) == []


def test_another_tables_index_of_our_name_is_left_alone(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    sql("CREATE TABLE others (id int)")
    sql("CREATE INDEX jobs_pending ON others (id)")
    with pytest.raises(PacelineError, match='"jobs_pending" already exists: put that right'):
        migrate(empty_database, dedupe=NONE)
    assert sql("SELECT indrelid::regclass::text FROM pg_index WHERE indexrelid = 'jobs_pending'::regclass") == [
        ("others",)
    ]


# Dedupe


def test_a_deduped_name_has_one_pending_or_started_row_per_args(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    insert(sql, args='{"x": 1}')
    for args in ('{"x": 1}', '{ "x" : 1 }'):
        with pytest.raises(UniqueViolation):
            insert(sql, args=args)
    insert(sql, args='{"x": 1.0}')  # equal to jsonb, printed differently
    insert(sql, args='{"x": 1}', queue="b")
    insert(sql, name="a.Other")
    insert(sql, name="a.Other")
    sql("UPDATE jobs SET status = 'started'")
    with pytest.raises(UniqueViolation):
        insert(sql, args='{"x": 1}')
    sql("UPDATE jobs SET status = 'ok'")
    insert(sql, args='{"x": 1}')


def test_args_of_a_million_bytes_are_deduped(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    million = json.dumps({"x": "".join(f"{number:08x}" for number in range(125_000))})
    insert(sql, args=million)
    with pytest.raises(UniqueViolation):
        insert(sql, args=million)
    insert(sql, args=million.replace('"}', '!"}'))


def test_names_are_added_and_removed_only_by_prune(url: str, sql: Sql) -> None:
    odd = """it's\\ a "name", %s ::text) E'"""
    assert migrate(url, dedupe={"a.A"}) == ["built index jobs_dedupe: added a.A"]
    assert migrate(url, dedupe={odd}) == [f"rebuilt index jobs_dedupe: added {odd}"]
    assert migrate(url, dedupe={"a.A", odd}) == []
    assert migrate(url, dedupe=NONE) == []
    assert missing(facts(sql), {"a.A", odd, "pending"}) == ["dedupe names not in the index: pending"]
    assert migrate(url, dedupe={"b.B", odd}, prune=True) == ["rebuilt index jobs_dedupe: added b.B; removed a.A"]
    assert migrate(url, dedupe=NONE, prune=True) == ["dropped index jobs_dedupe: no name is declared"]
    assert "jobs_dedupe" not in indexes(sql)


def test_rows_in_the_way_of_dedupe_are_named_and_nothing_stays_invalid(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"b.B"})
    insert(sql)
    insert(sql)
    insert(sql, status="started")
    insert(sql, status="ok")
    with pytest.raises(PacelineError) as refused:
        migrate(url, dedupe={"a.A"})
    assert str(refused.value) == (
        "rows in the way of index jobs_dedupe: id 1 queue a name a.A (as id 3), id 2 queue a name a.A (as id 3);"
        " cancel the repeated rows or let them finish, then run `paceline migrate` again"
    )
    assert not indexes(sql) & {"jobs_dedupe_new", "jobs_dedupe_old"}
    assert missing(facts(sql), {"a.A", "b.B"}) == ["dedupe names not in the index: a.A"]
    sql("DELETE FROM jobs WHERE id IN (1, 2)")
    assert migrate(url, dedupe={"a.A"}) == ["rebuilt index jobs_dedupe: added a.A"]


def test_ten_rows_in_the_way_are_named_and_the_rest_counted(url: str, sql: Sql) -> None:
    sql("INSERT INTO jobs (queue, name, args) SELECT 'a', 'a.A', '{}' FROM generate_series(1, 100)")
    with pytest.raises(PacelineError, match=r"id 11 queue a name a\.A \(as id 1\) and 89 more; cancel") as refused:
        migrate(url, dedupe={"a.A"})
    assert str(refused.value).count("queue a name a.A") == 10
    assert "jobs_dedupe" not in indexes(sql)


def test_rows_in_the_way_of_the_other_unique_indexes_are_named(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    insert(sql, id="5", callsite="clock 2026-10-21T12:30Z")
    insert(sql, id="5", callsite="clock 2026-10-21T12:30Z")
    with pytest.raises(PacelineError, match=r"of index jobs_id: id 5 queue a name a.A \(as id 5\); give each row an"):
        migrate(empty_database, dedupe=NONE)
    sql("UPDATE jobs SET id = 6 WHERE ctid = (SELECT max(ctid) FROM jobs)")
    with pytest.raises(PacelineError, match=r"of index jobs_clock: id 6 queue a name a.A \(as id 5\); delete"):
        migrate(empty_database, dedupe=NONE)
    assert "jobs_clock" not in indexes(sql)


# While others are at work


def test_adding_a_name_waits_for_old_transactions_and_no_writer_waits_for_it(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    sql("SET lock_timeout = '100ms'")
    held = "SELECT 1 FROM pg_locks WHERE relation = 'jobs'::regclass AND mode = 'AccessExclusiveLock'"
    with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'b.B', '{}')") as first:
        with migrating(url, dedupe={"b.B"}) as outcome:
            eventually(lambda: waits(sql))
            insert(sql, name="c.C")
            with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'd.D', '{}')"):
                first.commit()  # the index is built; now the drop of the old one waits for the second transaction
                eventually(lambda: "jobs_dedupe_old" in facts(sql)["indexes"])
                assert sql(held) == []
                insert(sql, name="c.C")
                with pytest.raises(UniqueViolation):
                    insert(sql, name="b.B")
                assert missing(facts(sql), {"a.A", "b.B"}) == []
                assert not outcome.done()
        assert outcome.result() == ["rebuilt index jobs_dedupe: added b.B"]
    assert not indexes(sql) & {"jobs_dedupe_old", "jobs_dedupe_new"}


def test_a_long_transaction_ends_the_adoption_with_a_line_that_names_it(
    empty_database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(OLD)
    monkeypatch.setattr(module, "LOCK_TIMEOUT", 1)
    with transaction(empty_database, "INSERT INTO jobs (queue) VALUES ('a')") as stranger:
        with pytest.raises(PacelineError) as refused:
            migrate(empty_database, dedupe=NONE)
        pid = stranger.info.backend_pid
        expected = f"no ACCESS EXCLUSIVE lock on jobs within 1 s: pid {pid} (stranger, idle in transaction) is in a "
        assert str(refused.value).startswith(expected)
        assert str(refused.value).endswith(f"SELECT pg_terminate_backend({pid})")
    migrate(empty_database, dedupe=NONE)
    sql("DROP TRIGGER jobs_notify ON jobs")
    with transaction(empty_database, "SELECT FROM jobs"):  # a reader is in the way of no trigger
        assert migrate(empty_database, dedupe=NONE) == ["created trigger jobs_notify"]


def test_a_migrate_killed_in_mid_build_is_recovered_by_the_next(url: str, rows: Rows) -> None:
    sql = rows.execute
    migrate(url, dedupe={"a.A"})
    code = f"from supervisor.migrate import migrate; migrate({url!r}, dedupe={{'b.B'}})"
    with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'b.B', '{}')"):
        killed = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: waits(sql))
        finally:
            killed.kill()
            killed.wait()
        with migrating(url, dedupe={"b.B"}) as outcome:  # the server has not noticed yet: this one waits its turn
            eventually(lambda: len(rows.sessions("paceline:migrate/%")) == 2)
            assert facts(sql)["indexes"]["jobs_dedupe_new"]["valid"] is False
            sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'paceline:migrate/%' AND wait_event_type = 'Lock'"
            )
            eventually(lambda: waits(sql))  # it drops the leftover, and waits for the same transaction
            [(blocked,)] = sql("SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            assert blocked == "DROP INDEX CONCURRENTLY jobs_dedupe_new"
            sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stranger'")
            assert outcome.result() == [
                "dropped index jobs_dedupe_new, left by a migrate that did not end",
                "rebuilt index jobs_dedupe: added b.B",
            ]
    assert not indexes(sql) & {"jobs_dedupe_new", "jobs_dedupe_old"}


def test_a_migrate_killed_between_rename_and_drop_is_recovered_by_the_next(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    sql("ALTER INDEX jobs_dedupe RENAME TO jobs_dedupe_old")
    migrate(url, dedupe={"a.A"})
    assert migrate(url, dedupe={"a.A"}) == []
    assert "jobs_dedupe_old" not in indexes(sql)


# Errors of a person's


def test_faults_are_one_line_that_says_what_to_do(empty_database: str, sql: Sql) -> None:
    with pytest.raises(PacelineError, match="cannot connect, check DATABASE_URL: ") as refused:
        migrate("postgresql://nobody@/nowhere?host=/nonexistent", dedupe=NONE)
    assert "\n" not in str(refused.value)
    sql(f"ALTER DATABASE {empty_database_name(sql)} SET search_path = nowhere")
    with pytest.raises(PacelineError, match="no schema of the search_path exists: create one"):
        migrate(empty_database, dedupe=NONE)
    sql(f"ALTER DATABASE {empty_database_name(sql)} SET search_path = pg_catalog")
    with pytest.raises(PacelineError, match=r"permission denied to create .*: put that right and run `paceline migr"):
        migrate(empty_database, dedupe=NONE)


# --upgrade


def test_upgrade_gives_an_older_table_todays_types_and_reads_its_times_in_the_zone(
    empty_database: str, rows: Rows
) -> None:
    sql = rows.execute
    sql(OLD)
    sql(
        "INSERT INTO jobs (queue, name, args, created_at, started_at)"
        " VALUES ('a', 'a.A', '{}', '2026-01-15 12:00', '2026-01-15 17:45')"
    )
    sql("ALTER TABLE jobs ALTER created_at SET DEFAULT now() AT TIME ZONE 'Asia/Kolkata'")
    migrate(empty_database, dedupe={"a.A"})
    assert migrate(empty_database, dedupe=NONE, upgrade="asia/kolkata") == [
        "upgraded table jobs: ALTER id TYPE int8 USING id::int8",
        "upgraded table jobs: ALTER queue TYPE text USING queue::text",
        "upgraded table jobs: ALTER name TYPE text USING name::text",
        "upgraded table jobs: ALTER created_at TYPE timestamptz USING created_at AT TIME ZONE 'Asia/Kolkata'",
        "upgraded table jobs: ALTER started_at TYPE timestamptz USING started_at AT TIME ZONE 'Asia/Kolkata'",
        "upgraded table jobs: ALTER finished_at TYPE timestamptz USING finished_at AT TIME ZONE 'Asia/Kolkata'",
        "upgraded table jobs: ALTER created_at DROP DEFAULT",
        "upgraded table jobs: ALTER args SET DEFAULT '{}'",
        "upgraded table jobs: ALTER created_at SET DEFAULT now()",
        "upgraded table jobs: ALTER queue SET NOT NULL",
        "upgraded table jobs: ALTER name SET NOT NULL",
        "upgraded table jobs: ALTER args SET NOT NULL",
        "upgraded table jobs: ALTER status SET NOT NULL",
        "upgraded table jobs: ALTER created_at SET NOT NULL",
        "upgraded table jobs: ADD CONSTRAINT jobs_pkey PRIMARY KEY USING INDEX jobs_id",
    ]
    row = rows.row(1)
    assert row.created_at == datetime(2026, 1, 15, 6, 30, tzinfo=UTC)
    assert row.started_at == datetime(2026, 1, 15, 12, 15, tzinfo=UTC)
    assert row.finished_at is None
    assert indexes(sql) == INDEXES | {"jobs_pkey", "jobs_dedupe"}
    assert missing(facts(sql), {"a.A"}) == []
    with transaction(empty_database, "LOCK TABLE jobs IN EXCLUSIVE MODE"):
        assert migrate(empty_database, dedupe=NONE, upgrade="UTC") == []  # and no second shift of its times

    columns = facts(sql)["columns"]
    sql("DROP TABLE jobs")
    migrate(empty_database, dedupe=NONE)
    of_a_new_table = facts(sql)["columns"]
    assert columns.pop("id") == {"type": "int8", "required": True, "default": "nextval('jobs_id_seq'::regclass)"}
    del of_a_new_table["id"]
    assert columns == of_a_new_table


def test_after_an_upgrade_ids_go_on_past_two_billion(empty_database: str, rows: Rows) -> None:
    rows.execute(OLD)
    rows.execute("SELECT setval('jobs_id_seq', 2147483647)")
    migrate(empty_database, dedupe=NONE, upgrade="UTC")
    assert rows.insert("a", "a.A") == 2147483648


def test_an_upgrade_leaves_a_column_nullable_whose_rows_are_null(empty_database: str, sql: Sql) -> None:
    sql(OLD)
    sql("INSERT INTO jobs (queue, name) VALUES ('a', 'a.A')")
    lines = migrate(empty_database, dedupe=NONE, upgrade="UTC")
    assert "left args nullable: 1 rows are NULL" in lines
    assert [name for name, column in facts(sql)["columns"].items() if not column["required"]] == sorted(
        ["args", "callsite", "started_at", "finished_at"], key=[*facts(sql)["columns"]].index
    )


@pytest.mark.parametrize("zone", ["Asia/Kolkatta", "+05:30", "IST", "FOO5", ""])
def test_a_zone_that_is_no_full_name_is_a_usage_error(empty_database: str, sql: Sql, zone: str) -> None:
    sql(OLD)
    with pytest.raises(UsageError, match="unknown time zone"):
        migrate(empty_database, dedupe=NONE, upgrade=zone)
    assert indexes(sql) == set()


# The trigger


def notified(listener: psycopg.Connection[TupleRow]) -> list[str]:
    """The queues notified so far: what a marker's notification comes after."""
    listener.execute("SELECT pg_notify('jobs', 'marker')")
    heard: list[str] = []
    for notification in listener.notifies():
        if notification.payload == "marker":
            return sorted(heard)
        heard.append(notification.payload)
    raise AssertionError("the connection was closed")


@pytest.fixture
def listener(url: str) -> Iterator[psycopg.Connection[TupleRow]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN jobs")
        yield connection


def test_ten_thousand_rows_over_three_queues_are_three_notifications(
    url: str, sql: Sql, listener: psycopg.Connection[TupleRow]
) -> None:
    sql(
        "INSERT INTO jobs (queue, name, args) SELECT (ARRAY['a', 'b', 'c'])[1 + number % 3], 'x', '{}'"
        " FROM generate_series(1, 10000) AS number"
    )
    assert notified(listener) == ["a", "b", "c"]


def test_copy_notifies(url: str, listener: psycopg.Connection[TupleRow]) -> None:
    with psycopg.connect(url) as writer, writer.cursor().copy("COPY jobs (queue, name, args) FROM STDIN") as copy:
        copy.write_row(("a", "a.A", "{}"))
        copy.write_row(("b", "b.B", "{}"))
    assert notified(listener) == ["a", "b"]


def test_only_pending_rows_that_were_really_inserted_notify(
    url: str, sql: Sql, listener: psycopg.Connection[TupleRow]
) -> None:
    migrate(url, dedupe={"a.A"})
    insert(sql)
    assert notified(listener) == ["a"]
    insert(sql, queue="b", status="started")
    sql("INSERT INTO jobs (queue, name, args) VALUES ('a', 'a.A', '{}') ON CONFLICT DO NOTHING")
    sql("UPDATE jobs SET status = 'ok'")
    assert notified(listener) == []


def test_a_writers_search_path_does_not_change_the_trigger(
    url: str, sql: Sql, listener: psycopg.Connection[TupleRow]
) -> None:
    sql("CREATE SCHEMA evil")
    sql("CREATE TABLE evil.inserted (queue text, status text)")
    sql("CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT 1 / 0'")
    sql("CREATE FUNCTION evil.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
    sql("CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.no)")
    sql("SET search_path = evil, pg_catalog, public")
    insert(sql)
    assert notified(listener) == ["a"]


@pytest.mark.parametrize(("queue", "name"), [("é" * 21, "x"), ("", "x"), ("a", ""), ("a", "é" * 101)])
def test_names_past_the_caps_are_refused(url: str, sql: Sql, queue: str, name: str) -> None:
    with pytest.raises(CheckViolation):
        insert(sql, queue=queue, name=name)
    insert(sql, queue="é" * 20, name="é" * 100)


def test_a_disabled_trigger_and_another_versions_function_are_put_right(url: str, sql: Sql) -> None:
    sql("ALTER TABLE jobs DISABLE TRIGGER jobs_notify")
    assert missing(facts(sql), NONE) == ["the trigger jobs_notify is missing or disabled"]
    assert migrate(url, dedupe=NONE) == ["created trigger jobs_notify"]
    sql("CREATE OR REPLACE FUNCTION jobs_notify() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    assert missing(facts(sql), NONE) == []  # a host of another version may be the one that is right
    with transaction(url, "LOCK TABLE jobs IN EXCLUSIVE MODE"):
        assert migrate(url, dedupe=NONE) == ["replaced function jobs_notify"]
    assert migrate(url, dedupe=NONE) == []


# What `run` checks


def test_what_is_missing_is_said_in_sentences(empty_database: str, sql: Sql) -> None:
    assert missing(facts(sql), {"a.A"}) == ["there is no table jobs"]
    assert missing({**facts(sql), "server": 130022}, {"a.A"}) == ["Paceline needs Postgres 14 or newer, and this is 13"]
    sql(OLD)
    assert missing(facts(sql), {"a.A"}) == [
        "the index jobs_pending is missing",
        "the index jobs_started is missing",
        "the index jobs_finished is missing",
        "the index jobs_clock is missing",
        "the index jobs_id is missing",
        "the index jobs_dedupe is missing",
        "the constraint jobs_queue_length is missing",
        "the constraint jobs_name_length is missing",
        "the trigger jobs_notify is missing or disabled",
    ]
    migrate(empty_database, dedupe={"a.A"})
    assert missing(facts(sql), {"c.C", "a.A", "b.B"}) == ["dedupe names not in the index: b.B, c.C"]
    assert missing(facts(sql), NONE) == []
    sql(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN ('jobs_pending'::regclass, 'jobs_dedupe'::regclass)"
    )
    assert missing(facts(sql), {"a.A"}) == ["the index jobs_pending is INVALID", "the index jobs_dedupe is INVALID"]
