"""Enqueue, on both shapes of the table: which rows there are, for whom, and from where."""

import asyncio
import enum
import itertools
import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow, dict_row, scalar_row

from supervisor.db import DB
from supervisor.enqueue import insert, insert_async, insert_many
from supervisor.errors import BadArgs
from tests.database.tables import rows
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]


def waiting(url: str) -> bool:
    """Whether a session of this database waits for another's transaction."""
    with psycopg.connect(url) as other:
        return bool(
            other.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"
            ).fetchall()
        )


# A row, whose it is


def test_a_db_commits_one_pending_row_and_answers_its_id(db: DB, url: str) -> None:
    job = insert(db, "test", "test.Ok", {"a": 1})
    assert rows(url, "id, queue, name, args, status, started_at") == [
        (job, "test", "test.Ok", {"a": 1}, "pending", None)
    ]
    assert rows(url, "created_at IS NOT NULL, finished_at") == [(True, None)]


def test_on_a_connection_the_row_is_part_of_the_callers_transaction(connection: Connection, url: str) -> None:
    job = insert(connection, "test", "test.Ok")
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    assert rows(url) == []
    connection.commit()
    assert rows(url) == [(job, "test", "test.Ok", {})]
    insert(connection, "test", "test.Ok")
    insert_many(connection, [("test", "test.Ok", None)])
    connection.rollback()
    assert len(rows(url)) == 1


def test_any_row_factory_cursor_factory_and_autocommit_will_do(url: str) -> None:
    shapes: list[dict[str, Any]] = [
        {"row_factory": dict_row},
        {"row_factory": scalar_row},
        {"cursor_factory": psycopg.ClientCursor},
        {"cursor_factory": psycopg.RawCursor},
        {"autocommit": True},
        {"prepare_threshold": None},
    ]
    for shape in shapes:
        with psycopg.connect(url, **shape) as connection:
            first = insert(connection, "test", "test.Ok", {"a": "50 % of %s"})
            assert insert_many(connection, [("test", "test.Ok", None)] * 2) == [first + 1, first + 2]
        with psycopg.connect(url) as connection, connection.pipeline():
            assert insert(connection, "test", "test.Ok") > first
    assert [queue for _, queue, _, _ in rows(url)] == ["test"] * 4 * len(shapes)


def test_insert_async_is_part_of_the_callers_transaction(url: str) -> None:
    async def main() -> list[int]:
        async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
            first = await insert_async(connection, "test", "test.Dedupe", {"a": 1})
            again = await insert_async(connection, "test", "test.Dedupe", {"a": 1})
            assert rows(url) == []
            return [first, again]

    job, again = asyncio.run(main())
    assert again == 0
    assert rows(url) == [(job, "test", "test.Dedupe", {"a": 1})]


def test_a_connection_of_the_wrong_kind_is_a_type_error(database: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            insert(connection, "test", "test.Ok")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="not AsyncConnection"):
        asyncio.run(main())


# Many


def test_insert_many_answers_one_id_or_zero_for_each_input_in_order(connection: Connection, url: str) -> None:
    there = insert(connection, "test", "test.Dedupe", {"n": 3})
    assert there
    jobs: list[tuple[str, str, dict[str, Any] | None]] = [
        ("b", "test.Ok", {"n": 1}),
        ("test", "test.Dedupe", {"n": 3}),  # a row already
        ("a", "test.Dedupe", {"n": 2}),
        ("a", "test.Dedupe", {"n": 2}),  # twice in this call
        ("b", "test.Ok", {"n": 1}),  # twice, not deduped
        ("a", "test.Dedupe", None),
        ("a", "test.Dedupe", {"n": 2}),
    ]
    answers = insert_many(connection, iter(jobs))
    connection.commit()
    assert [answer == 0 for answer in answers] == [False, True, False, True, False, False, True]
    kept = [answer for answer in answers if answer]
    assert kept == sorted(kept), "the order of the inputs is the order of the queue"
    inputs = [(answer, queue, name, args or {}) for answer, (queue, name, args) in zip(answers, jobs, strict=True)]
    assert rows(url)[1:] == [row for row in inputs if row[0]]


def test_ten_thousand_inputs_get_their_own_ids(db: DB, url: str) -> None:
    jobs = [(f"queue{number % 3}", "test.Dedupe", {"number": number % 7_000}) for number in range(10_000)]
    random.Random(1).shuffle(jobs)
    answers = insert_many(db, jobs)
    found = {job: (queue, name, args) for job, queue, name, args in rows(url)}
    assert {answer: job for answer, job in zip(answers, jobs, strict=True) if answer} == found
    assert len(found) == len({(queue, args["number"]) for queue, _, args in jobs})


def test_insert_many_of_nothing_asks_the_database_nothing() -> None:
    assert insert_many(DB("postgresql:///nowhere?host=/nonexistent"), iter(())) == []


def test_insert_many_is_one_statement_and_notifies_once_a_queue(db: DB, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN jobs")
        insert_many(db, [(f"queue{number % 3}", "test.Ok", None) for number in range(300)])
        assert told(listener) == ["queue0", "queue1", "queue2"]


def test_two_calls_with_the_same_keys_in_two_orders_do_not_deadlock(url: str) -> None:
    keys = [("test", "test.Dedupe", {"key": key}) for key in range(3_000)]
    with ThreadPoolExecutor() as pool:
        for _ in range(3):
            start = threading.Barrier(2)

            def call(jobs: list[Any], start: threading.Barrier = start) -> list[int]:
                with psycopg.connect(url) as connection:
                    start.wait()
                    return insert_many(connection, jobs)

            forth, back = pool.submit(call, keys), pool.submit(call, keys[::-1])
            assert all(one or other for one, other in zip(forth.result(), back.result()[::-1], strict=True))
            with psycopg.connect(url) as connection:
                connection.execute("DELETE FROM jobs")


@pytest.mark.parametrize(
    "change", ["ALTER SEQUENCE jobs_id_seq OWNED BY NONE", "ALTER SEQUENCE jobs_id_seq RENAME TO s"]
)
def test_insert_many_finds_a_sequence_that_is_not_the_columns_own(old_database: str, change: str) -> None:
    with psycopg.connect(old_database) as connection:
        connection.execute(change.encode())
        first = insert(connection, "test", "test.Ok")
        assert insert_many(connection, [("test", "test.Ok", None)]) == [first + 1]


def test_insert_many_without_a_sequence_fails_aloud(old_database: str) -> None:
    with psycopg.connect(old_database) as connection:
        connection.execute("ALTER TABLE jobs ALTER id DROP DEFAULT, ALTER id DROP NOT NULL")
        connection.execute("DROP SEQUENCE jobs_id_seq")
        with pytest.raises(psycopg.errors.UndefinedTable, match=r"sequence of jobs\.id"):
            insert_many(connection, [("test", "test.Ok", None)])


def test_a_prepared_plan_outlives_a_change_of_the_ids_type(old_database: str) -> None:
    with (
        psycopg.connect(old_database, autocommit=True, prepare_threshold=0) as connection,
        psycopg.connect(old_database, autocommit=True) as operator,
    ):
        before = insert(connection, "test", "test.Ok"), insert_many(connection, [("test", "test.Ok", None)])
        operator.execute("ALTER TABLE jobs ALTER id TYPE bigint")
        after = insert(connection, "test", "test.Ok"), insert_many(connection, [("test", "test.Ok", None)])
        assert (before, after) == ((1, [2]), (3, [4]))


# Order and dedupe among transactions


def test_a_transaction_that_commits_later_keeps_its_place_by_id(url: str) -> None:
    """FAULTS 23."""
    with psycopg.connect(url) as early, psycopg.connect(url) as late:
        first = insert(early, "test", "test.Ok", {"from": "early"})
        second = insert(late, "test", "test.Ok", {"from": "late"})
        assert first < second
        late.commit()
        assert [job for job, *_ in rows(url)] == [second]
        early.commit()
        assert [job for job, *_ in rows(url)] == [first, second]


def test_of_fifty_concurrent_enqueues_of_one_key_some_rolled_back_one_row_stays(url: str) -> None:
    """FAULTS 24."""
    start = threading.Barrier(50)

    def call(number: int) -> int:
        with psycopg.connect(url) as connection:
            start.wait()
            job = insert(connection, "test", "test.Dedupe", {"key": 1})
            assert insert(connection, "test", "test.Ok", {"number": number}), "the transaction is usable"
            if number % 3 == 0:
                connection.rollback()
                return 0
            return job

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(call, range(50)))
    found = rows(url)
    deduped = [job for job, _, name, _ in found if name == "test.Dedupe"]
    assert deduped == [answer for answer in answers if answer]
    assert len(deduped) == 1
    committed = {number for number in range(50) if number % 3}
    assert {args["number"] for _, _, name, args in found if name == "test.Ok"} == committed


@pytest.mark.parametrize("many", [False, True], ids=["insert", "insert_many"])
def test_a_winner_that_rolls_back_loses_nothing(url: str, many: bool) -> None:
    """FAULTS 24."""
    with psycopg.connect(url) as winner, ThreadPoolExecutor() as pool:
        assert insert(winner, "test", "test.Dedupe", {"key": 1})
        second = pool.submit(both(url, many), "test.Dedupe", {"key": 1})
        eventually(lambda: waiting(url))
        winner.rollback()
        job = second.result()
    assert job > 0
    assert rows(url) == [(job, "test", "test.Dedupe", {"key": 1})]


@pytest.mark.parametrize("many", [False, True], ids=["insert", "insert_many"])
def test_a_winner_that_commits_leaves_the_other_with_zero(url: str, many: bool) -> None:
    with psycopg.connect(url) as winner, ThreadPoolExecutor() as pool:
        job = insert(winner, "test", "test.Dedupe", {"key": 1})
        second = pool.submit(both(url, many), "test.Dedupe", {"key": 1})
        eventually(lambda: waiting(url))
        winner.commit()
        assert second.result() == 0
    assert rows(url) == [(job, "test", "test.Dedupe", {"key": 1})]


def both(url: str, many: bool) -> Callable[[str, dict[str, Any]], int]:
    def call(name: str, args: dict[str, Any]) -> int:
        with psycopg.connect(url) as connection:
            if many:
                [answer] = insert_many(connection, [("test", name, args)])
                return answer
            return insert(connection, "test", name, args)

    return call


def test_a_duplicate_in_a_larger_transaction_leaves_it_usable(connection: Connection, db: DB, url: str) -> None:
    """FAULTS 24."""
    insert(db, "test", "test.Dedupe", {"key": 1})
    before = insert(connection, "test", "test.Ok")
    assert insert(connection, "test", "test.Dedupe", {"key": 1}) == 0
    assert insert_many(connection, [("test", "test.Dedupe", {"key": 1})]) == [0]
    after = insert(connection, "test", "test.Ok")
    connection.commit()
    assert [job for job, *_ in rows(url)][1:] == [before, after]


def test_a_key_is_free_again_when_its_job_is_final_and_differs_by_queue_and_args(db: DB, url: str) -> None:
    first = insert(db, "test", "test.Dedupe", {"a": 1, "b": 2})
    assert insert(db, "test", "test.Dedupe", {"b": 2, "a": 1}) == 0
    assert insert(db, "other", "test.Dedupe", {"a": 1, "b": 2})
    assert insert(db, "test", "test.Dedupe", {"a": 1, "b": 3})
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE jobs SET status = 'started' WHERE id = %s", [first])
        assert insert(connection, "test", "test.Dedupe", {"a": 1, "b": 2}) == 0
        connection.execute("UPDATE jobs SET status = 'ok' WHERE id = %s", [first])
        assert insert(connection, "test", "test.Dedupe", {"a": 1, "b": 2})


# Large and small


def test_a_megabyte_of_args_is_stored_deduped_and_announced(db: DB, url: str) -> None:
    """FAULTS 13."""
    args = {"text": "é" * 250_000, "list": list(range(100_000))}
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN jobs")
        job = insert(db, "test", "test.Dedupe", args)
        assert told(listener) == ["test"]
    assert insert(db, "test", "test.Dedupe", args) == 0
    assert insert_many(db, [("test", "test.Dedupe", args), ("test", "test.Dedupe", {**args, "more": 1})])[0] == 0
    assert rows(url)[0] == (job, "test", "test.Dedupe", args)


def test_ten_thousand_rows_from_a_select_notify_once_a_queue(url: str) -> None:
    """FAULTS 13: three queues, three notifications."""
    with psycopg.connect(url, autocommit=True) as listener, psycopg.connect(url) as writer:
        listener.execute("LISTEN jobs")
        writer.execute("INSERT INTO jobs (queue, name) SELECT 'queue' || n % 3, 'x' FROM generate_series(1, 10000) n")
        writer.commit()
        assert told(listener) == ["queue0", "queue1", "queue2"]


def told(listener: Connection) -> list[str]:
    """The payloads that are on their way to `listener`, sorted."""
    listener.execute("NOTIFY jobs, 'end'")  # comes after all that was committed before
    return sorted(itertools.takewhile(lambda told: told != "end", (n.payload for n in listener.notifies(timeout=10))))


# What is refused


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("\0", "with .u0000 cannot be stored"),
        ("\ud800", "with .ud800 cannot be stored"),
        (float("nan"), "NaN is not JSON"),
        (float("inf"), "Infinity is not JSON"),
        ({1: 2}, "a key of type int is not text"),
        ({None: 2}, "a key of type NoneType is not text"),
        (json.loads("[" * 200 + "]" * 200), "more than 100 levels"),
    ],
    ids=["NUL", "surrogate", "NaN", "Infinity", "int key", "None key", "200 levels"],
)
def test_bad_args_are_refused_with_their_path_and_nothing_is_stored(
    connection: Connection, db: DB, url: str, value: Any, why: str
) -> None:
    """FAULTS 25."""

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as session:
            await insert_async(session, "test", "test.Ok", args)

    args = {"people": [{}, {"x": value}]}
    for target in (connection, db):
        with pytest.raises(BadArgs, match=rf"^args\.people\[1\]\.x.*{why}$"):
            insert(target, "test", "test.Ok", args)
        with pytest.raises(BadArgs, match=rf"^jobs\[1\]\.args\.people\[1\]\.x.*{why}$"):
            insert_many(target, [("test", "test.Ok", {}), ("test", "test.Ok", args)])
    with pytest.raises(BadArgs, match=rf"^args\.people\[1\]\.x.*{why}$"):
        asyncio.run(main())
    connection.commit()
    assert rows(url) == []
    assert insert(connection, "test", "test.Ok"), "the caller's transaction is untouched"


@pytest.mark.parametrize("word", ["", None, 5, b"test", "a\0b", "\ud800", "é" * 101], ids=repr)
def test_a_queue_or_name_that_is_none_is_a_value_error_of_one_line(word: Any) -> None:
    nowhere = DB("postgresql:///nowhere?host=/nonexistent")
    for call in (
        lambda: insert(nowhere, word, "test.Ok"),
        lambda: insert(nowhere, "test", word),
        lambda: insert_many(nowhere, [("test", "test.Ok", None), ("test", word, None)]),
    ):
        with pytest.raises(
            ValueError, match=r"^(jobs\[1\]\.)?(queue|name) must be text of 1 to (40|200) bytes"
        ) as told:
            call()
        assert str(told.value).isprintable() and len(str(told.value)) < 160


def test_the_longest_queue_and_name_are_stored(db: DB, url: str) -> None:
    insert(db, "q" * 38 + "é", "é" * 100)
    assert rows(url, "queue, name") == [("q" * 38 + "é", "é" * 100)]
    with pytest.raises(ValueError, match="queue must be text of 1 to 40 bytes"):
        insert(db, "q" * 39 + "é", "test.Ok")


def test_an_enum_of_texts_is_stored_by_its_value(db: DB, url: str) -> None:
    class Queue(enum.StrEnum):
        TEST = "test"

    insert(db, Queue.TEST, "test.Ok")
    insert_many(db, [(Queue.TEST, "test.Ok", {Queue.TEST: Queue.TEST}), ("plain", "test.Ok", None)])
    assert rows(url, "queue, args") == [("test", {}), ("test", {"test": "test"}), ("plain", {})]
