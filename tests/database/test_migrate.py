"""`migrate` makes a table, adopts an older one and upgrades it; missing() is what `run` checks."""

from datetime import UTC, datetime

import pytest
from psycopg.errors import CheckViolation, UniqueViolation

from supervisor.errors import PacelineError, UsageError
from supervisor.migrate import migrate
from supervisor.schema import missing
from tests.database.tables import INDEXES, NONE, OLD, facts, indexes, transaction
from tests.support.rows import Rows, Sql


def database_name(sql: Sql) -> str:
    [(name,)] = sql("SELECT quote_ident(current_database())")
    return str(name)


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
    sql("ALTER DATABASE " + database_name(sql) + ' SET search_path = "First One", public')
    migrate(empty_database, dedupe=NONE)
    assert sql("SELECT count(*) FROM pg_class WHERE relnamespace = '\"First One\"'::regnamespace") == [(0,)]
    assert sql("SELECT pronamespace::regnamespace::text FROM pg_proc WHERE proname = 'jobs_notify'") == [("public",)]
    sql("DROP TABLE jobs")
    migrate(empty_database, dedupe=NONE)
    assert sql("SELECT '\"First One\".jobs'::regclass::oid > 0, to_regclass('public.jobs')") == [(True, None)]


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
        "built index jobs_paused",
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


# Errors of a person's


def test_faults_are_one_line_that_says_what_to_do(empty_database: str, sql: Sql) -> None:
    with pytest.raises(PacelineError, match="cannot connect, check DATABASE_URL: ") as refused:
        migrate("postgresql://nobody@/nowhere?host=/nonexistent", dedupe=NONE)
    assert "\n" not in str(refused.value)
    sql(f"ALTER DATABASE {database_name(sql)} SET search_path = nowhere")
    with pytest.raises(PacelineError, match="no schema of the search_path exists: change that"):
        migrate(empty_database, dedupe=NONE)
    sql(f"ALTER DATABASE {database_name(sql)} SET search_path = pg_catalog")
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


@pytest.mark.parametrize(
    "id", ["integer GENERATED BY DEFAULT AS IDENTITY", "integer PRIMARY KEY DEFAULT nextval('\"A b\"')"]
)
def test_an_upgrade_finds_the_sequence_of_another_kind_of_id(empty_database: str, rows: Rows, id: str) -> None:
    rows.execute('CREATE SEQUENCE "A b" AS integer')
    rows.execute(OLD.replace("id serial", f"id {id}"))
    rows.execute("SELECT setval(coalesce(pg_get_serial_sequence('jobs', 'id'), '\"A b\"'), 2147483647)")
    migrate(empty_database, dedupe=NONE, upgrade="UTC")
    assert rows.insert("a", "a.A") == 2147483648
    assert missing(facts(rows.execute), NONE) == []
    assert migrate(empty_database, dedupe=NONE, upgrade="UTC") == []


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


# What `run` checks


def test_what_is_missing_is_said_in_sentences(empty_database: str, sql: Sql) -> None:
    assert missing(facts(sql), {"a.A"}) == ["there is no table jobs"]
    assert missing({**facts(sql), "server": 130022}, {"a.A"}) == ["Paceline needs Postgres 14 or newer, and this is 13"]
    sql(OLD)
    assert missing(facts(sql), {"a.A"}) == [
        "the index jobs_pending is missing",
        "the index jobs_started is missing",
        "the index jobs_paused is missing",
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
