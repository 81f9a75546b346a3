"""`migrate` while others use the table: dedupe names come and go, locks are short, a killed one is recovered."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg.errors import UniqueViolation

import supervisor.migrate as module
from supervisor.errors import PacelineError
from supervisor.migrate import migrate
from supervisor.schema import missing
from supervisor.sql import statement
from tests.database.tables import INDEXES, NONE, OLD, blocked, facts, indexes, insert, migrating, transaction
from tests.support.rows import Rows, Sql
from tests.support.wait import eventually


@pytest.fixture(params=["new", "old"])
def url(request: pytest.FixtureRequest, empty_database: str, sql: Sql) -> str:
    """A migrated database, with each shape of the table."""
    if request.param == "old":
        sql(OLD)
    migrate(empty_database, dedupe=NONE)
    return empty_database


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
    with pytest.raises(PacelineError, match=r"id 11 queue a name a\.A \(as id 1\), and 89 more; cancel") as refused:
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


def test_adding_a_name_waits_for_a_writers_transaction_and_no_writer_waits_for_it(
    url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(url, dedupe={"a.A"})
    monkeypatch.setattr(module, "LOCK_TIMEOUT", 1)  # which a build does not have
    sql("SET lock_timeout = '100ms'")
    since = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND query LIKE 'CREATE UNIQUE%' AND now() - query_start > '1200ms'"
    )
    with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'b.B', '{}')") as writer:
        with migrating(url, dedupe={"b.B"}) as outcome:
            eventually(lambda: blocked(sql))
            insert(sql, name="c.C")
            assert missing(facts(sql), {"a.A"}) == []
            eventually(lambda: sql(since))
            writer.commit()
        assert outcome.result() == ["rebuilt index jobs_dedupe: added b.B"]


def test_the_new_index_takes_over_while_a_transaction_still_uses_the_old(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    sql("SET lock_timeout = '100ms'")
    with transaction(url, "SELECT FROM jobs") as reader:  # in the way of a drop, not of a build
        with migrating(url, dedupe={"b.B"}) as outcome:
            eventually(lambda: blocked(sql) == ["DROP INDEX CONCURRENTLY jobs_dedupe_old"])
            assert missing(facts(sql), {"a.A", "b.B"}) == []
            insert(sql, name="b.B")
            with pytest.raises(UniqueViolation):
                insert(sql, name="b.B")
            assert not outcome.done()
            reader.commit()
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
        assert re.fullmatch(
            rf"no ACCESS EXCLUSIVE lock on jobs within 1 s: pid {pid} \(stranger, idle in transaction\) is in a"
            rf" transaction of [1-9] s; wait for it, or end it by SELECT pg_terminate_backend\({pid}\);"
            r" then run `paceline migrate` again",
            str(refused.value),
        )
    migrate(empty_database, dedupe=NONE)
    sql("DROP TRIGGER jobs_notify ON jobs")
    with transaction(empty_database, "SELECT FROM jobs"):  # a reader is in the way of no trigger
        assert migrate(empty_database, dedupe=NONE) == ["created trigger jobs_notify"]


def test_a_migrate_killed_in_mid_build_is_recovered_by_the_next(url: str, rows: Rows) -> None:
    sql = rows.execute
    migrate(url, dedupe={"a.A"})
    code = f"from supervisor.migrate import migrate; migrate({url!r}, dedupe={{'b.B'}})"
    with transaction(url, "INSERT INTO jobs (queue, name, args) VALUES ('a', 'b.B', '{}')") as stranger:
        killed = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: blocked(sql))
        finally:
            killed.kill()
            killed.wait()
        [(session,)] = sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'CREATE UNIQUE%'"
        )
        with migrating(url, dedupe={"b.B"}) as outcome:  # the server has not noticed yet: this one waits its turn
            eventually(lambda: len(rows.sessions("paceline:migrate/%")) == 2)
            assert facts(sql)["indexes"]["jobs_dedupe_new"]["valid"] is False
            sql("SELECT pg_terminate_backend(%s)", session)
            eventually(lambda: blocked(sql) == ["DROP INDEX CONCURRENTLY jobs_dedupe_new"])
            stranger.commit()
        assert outcome.result() == [
            "dropped index jobs_dedupe_new, left by a migrate that did not end",
            "rebuilt index jobs_dedupe: added b.B",
        ]
    assert not indexes(sql) & {"jobs_dedupe_new", "jobs_dedupe_old"}


def test_what_a_migrate_left_that_was_killed_in_the_change_of_names_is_dropped(url: str, sql: Sql) -> None:
    migrate(url, dedupe={"a.A"})
    sql("CREATE INDEX jobs_dedupe_old ON jobs (queue)")  # after it
    sql("CREATE INDEX jobs_id_new ON jobs (id)")  # before it
    sql("CREATE INDEX jobs_theirs_new ON jobs (id)")
    assert sorted(migrate(url, dedupe={"a.A"})) == [
        "dropped index jobs_dedupe_old, left by a migrate that did not end",
        "dropped index jobs_id_new, left by a migrate that did not end",
    ]
    assert {"jobs_dedupe", "jobs_theirs_new"} <= indexes(sql)


def test_a_migrate_gives_up_on_another_that_does_not_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_TIMEOUT", 0)
    gives_up = pytest.raises(
        PacelineError, match=r"another migrate is still at work after 0 s, .*paceline:migrate: run"
    )
    turn = statement("take_turn").decode().replace("pg_try_advisory_lock", "pg_advisory_lock")
    with transaction(url, turn), gives_up:
        migrate(url, dedupe=NONE)


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
