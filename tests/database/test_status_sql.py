"""The outcome of a status text is read by one function, in Python and in SQL: both read the same."""

import random

import psycopg
import pytest

from supervisor.status import (
    OUTCOME_SQL,
    OUTCOMES,
    err,
    fail,
    interrupted,
    of_answer,
    of_error,
    outcome,
    skip,
    storable,
    timed_out,
)
from tests.support.rows import Sql

WORDS = ("fail", "skip", "err", "FAIL", "error", "failed", "ok")
TAILS = ("", ":", ": x", ":x", " : x", "\n: x", ":\nx", ": a: b", "\u00a0: x", "ure: x")
TEXTS = [
    "pending",
    "started",
    "ok",
    "",
    " ",
    "12 companies",
    "pending: yes",
    "started now",
    "Pending",
    *(word + tail for word in WORDS for tail in TAILS),
    "a fail: x",
    "\nfail: x",
    " err: x",
    "ok\nerr: x",
    ":",
    "::",
    ": err: x",
    fail("no"),
    skip("fresh"),
    err("broke"),
    interrupted(),
    interrupted("SIGSEGV"),
    timed_out(300),
    fail(""),
    skip(skip("twice")),
    of_answer(None),
    storable("err: " + "x" * 5_000),
    storable("fail: nul \0 and half \ud800"),
]


def in_sql(url: str, texts: list[str]) -> list[str]:
    with psycopg.connect(url) as connection:
        given = "FROM unnest(%s::text[]) WITH ORDINALITY AS given(status, place) ORDER BY place"
        return [text for (text,) in connection.execute(f"SELECT {OUTCOME_SQL} {given}".encode(), (texts,))]


def test_python_and_sql_read_the_same_outcome(empty_database: str) -> None:
    assert dict(zip(TEXTS, in_sql(empty_database, TEXTS), strict=True)) == {text: outcome(text) for text in TEXTS}


def test_python_and_sql_read_the_same_outcome_of_random_texts(empty_database: str) -> None:
    dice = random.Random(5)
    pieces = [
        "fail",
        "skip",
        "err",
        "ok",
        "pending",
        "started",
        "paused",
        ":",
        ": ",
        " ",
        "\n",
        "x",
        "Err",
        "\t",
        "é",
        "::",
    ]
    texts = ["".join(dice.choices(pieces, k=dice.randrange(6))) for _ in range(5_000)]
    read = in_sql(empty_database, texts)
    assert [(text, sql) for text, sql in zip(texts, read, strict=True) if sql != outcome(text)] == []
    assert set(read) == set(OUTCOMES)


def test_an_error_of_the_database_is_told_without_the_row_that_it_repeats(sql: Sql) -> None:
    with pytest.raises(psycopg.Error, match="Failing row contains") as raised:
        sql("INSERT INTO jobs (queue, name) VALUES (NULL, 'planted')")
    assert of_error(raised.value) == (
        'err: null value in column "queue" of relation "jobs" violates not-null constraint'
    )
