"""The shapes of databases that tests of the engine need: today's table, the older one, nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from supervisor import testing
from supervisor.migrate import migrate
from supervisor.testing import of_cluster as of_cluster
from tests.support import ledger

DEDUPED = frozenset({"test.Dedupe"})  # what tests/support/queues declares

# The table as it was before: no primary key, times without a zone (in UTC), ids that may run out.
OLDER_TABLE = """
CREATE TABLE jobs (
  id SERIAL,
  queue text NOT NULL,
  name text NOT NULL,
  args jsonb DEFAULT '{}',
  status text NOT NULL DEFAULT 'pending',
  callsite text,
  created_at timestamp NOT NULL DEFAULT now(),
  started_at timestamp,
  finished_at timestamp
)
"""


class Databases(testing.Databases):
    """Each shape has a template, made on first use."""

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A database with nothing in it."""
        with self.fresh("template0") as url:
            yield url

    @contextmanager
    def today(self) -> Iterator[str]:
        """A migrated database."""
        with self.fresh(self.template("today", _migrate)) as url:
            yield url

    @contextmanager
    def older(self) -> Iterator[str]:
        """A database with the older table, adopted by migrate."""
        with self.fresh(self.template("older", _adopt)) as url:
            yield url


def _migrate(url: str) -> None:
    migrate(url, dedupe=DEDUPED)
    _execute(url, ledger.TABLE)


def _adopt(url: str) -> None:
    _execute(url, OLDER_TABLE)
    _migrate(url)


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
