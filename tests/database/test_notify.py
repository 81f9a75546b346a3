"""The trigger wakes each queue once per statement, whoever the writer is; and names are capped."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import CheckViolation
from psycopg.rows import TupleRow

from supervisor.migrate import migrate
from supervisor.schema import missing
from tests.database.tables import NONE, OLD, facts, insert, transaction
from tests.support.rows import Sql


@pytest.fixture(params=["new", "old"])
def url(request: pytest.FixtureRequest, empty_database: str, sql: Sql) -> str:
    """A migrated database, with each shape of the table."""
    if request.param == "old":
        sql(OLD)
    migrate(empty_database, dedupe=NONE)
    return empty_database


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
