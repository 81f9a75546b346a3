"""A lock on one row of `jobs`, as another session's open transaction holds it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


@contextmanager
def row_lock(url: str, job: int) -> Iterator[None]:
    """Hold the row from here to the end of the block; it is not changed."""
    with psycopg.connect(url, application_name="test lock") as session:
        session.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (job,))
        yield
