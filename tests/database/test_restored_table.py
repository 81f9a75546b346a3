"""A table whose rows were restored without its sequence: `migrate` puts it right, and says so."""

from contextlib import closing

import pytest

from supervisor import DB, insert, insert_many
from supervisor.migrate import migrate
from tests.support.databases import DEDUPED
from tests.support.rows import Rows


@pytest.mark.parametrize("called", [False, True], ids=["never drawn from", "drawn from"])
def test_a_sequence_that_is_behind_the_rows_is_moved_past_them(either_database: str, rows: Rows, called: bool) -> None:
    """ON CONFLICT has no target, for there are two indexes to meet: an id that is there looks like a duplicate."""
    with closing(DB(either_database)) as db:
        if called:
            insert(db, "test", "test.Ok")
        rows.execute(
            "INSERT INTO jobs (id, queue, name, status) OVERRIDING SYSTEM VALUE"
            " SELECT id, 'test', 'test.Ok', 'ok' FROM generate_series(2, 40) AS id"
        )
        if called:
            assert insert(db, "test", "test.Ok") == 0  # the fault: it is no duplicate of anything
        assert migrate(either_database, dedupe=DEDUPED) == [
            "moved the sequence of jobs.id past 40: jobs would have been taken for duplicates"
        ]
        assert insert(db, "test", "test.Ok") == 41
        assert insert_many(db, [("test", "test.Ok", None)]) == [42]
    assert migrate(either_database, dedupe=DEDUPED) == []
